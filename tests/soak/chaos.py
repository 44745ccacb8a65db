"""Real processes produce, consume, delete, fork; they are killed and stopped, and their history is
checked.

The controller starts workers (``workers.py``), kills them at random times, or has them kill or stop
themselves at a failpoint (``failpoints.py``), and starts others in their places. While one is
stopped, it tries to append where that one holds the lock. In the end it reads everything, checks
the history (``pylog.testing.checker``), and has the log verified.

    python -m tests.soak chaos --seconds 60 [--seed N] [--directory DIR]
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pylog import Log, ProducerRecord
from pylog.errors import DeliveryTimeout, NotAppended, StorageFull
from pylog.testing.checker import check
from pylog.testing.history import (
    ASSIGN,
    CONTINUE,
    CRASH,
    FAIL,
    INFO,
    INVOKE,
    OK,
    POLL,
    SEND,
    STOP,
    Operation,
    decode_value,
    encode_value,
    read_history,
)  # fmt: skip
from tests.soak import failpoints, full_disk, workers
from tests.soak.failpoints import Failpoint
from tests.soak.part import Outcome
from tests.soak.workers import NUMBERS, TOPIC, Orders

ROLES = ("producer", "producer", "appender", "appender", "consumer", "reader", "tidier")
ACTS = (workers.STOP, workers.KILL, workers.FORK, workers.KILL)  # in turns, where the partition's lock is held
SEGMENT_BYTES = (64 << 10, 64 << 10, 256 << 10, 1 << 20)
_SUBREAPER = 36  # prctl: children of workers that died become ours, so that we know when they are gone


class Settings(NamedTuple):
    """How rough it is."""

    life_s: float = 0.35  # of a worker, on average
    stop_s: tuple[float, float] = (0.1, 0.3)
    stops: float = 0.1  # of all failpoints and interventions
    revivals: float = 0.5  # of those that were stopped; the others are killed
    timeout_ms: int = 200
    pause_s: float = 0.004
    partitions: int = 2
    stuck_s: float = 10.0
    fill_s: float = 0.0  # until the disk is full, or has space again, on average; never, if 0
    roles: tuple[str, ...] = ROLES
    max_poll_interval_ms: int = 300_000


CI = Settings()
SOAK = Settings(life_s=2.0, stop_s=(1.0, 30.0), stops=0.02, timeout_ms=1000)


FULL = Settings(fill_s=0.2, stops=0.02)


class Slot:
    """A place that always has a worker in it."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.pid = self.number = 0
        self.dies_at = self.goes_on_at = 0.0
        self.path = ""  # of the failpoint it reached


class Controller:
    """One run on one log."""

    def __init__(self, directory: Path, seed: int, settings: Settings) -> None:
        self.directory = directory
        self.settings = settings
        self.random = random.Random(seed)
        self.figures: Counter[str] = Counter()
        self.places: Counter[str] = Counter()  # failpoints reached
        self.tried: Counter[str] = Counter()
        self.problems: list[str] = []
        self.slots = [Slot(role) for role in settings.roles]
        self.children: dict[int, int] = {}  # of workers: pid -> number
        self.number = 0
        self.ear, self.mouth = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ear.setblocking(False)
        self.history = open(directory / "history.jsonl", "wb", buffering=1 << 20)  # noqa: SIM115 - closed in finish
        self.sequence = 0
        self.ballast = directory / "log" / ".ballast"
        self.turns_at = time.monotonic()
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    # Listening

    def listen(self, seconds: float) -> None:
        """Write down what the workers tell for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.ear], [], [], left)[0]:
                self.take_all()

    def take_all(self) -> None:
        with suppress(BlockingIOError):
            while True:
                message = self.ear.recv(1 << 20)
                if message.startswith(b"!"):
                    self.heed(message[1:].decode())
                else:
                    self.history.write(message + b"\n")

    def heed(self, message: str) -> None:
        kind, *words = message.split("\t")
        if kind == "forked":
            self.figures["forks"] += 1
            self.children[int(words[0])] = int(words[1])
        elif kind == "failpoint":
            self.reached(*words)
        else:
            self.problems.append(message)

    def reached(self, number: str, act: str, moment: str, place: str, path: str) -> None:
        self.places[f"{moment} {place}"] += 1
        for slot in self.slots:
            if slot.number == int(number) and act != workers.FORK:
                slot.path = path

    def tell(self, process: int, type: str, f: str, **fields: Any) -> None:
        """Through the same socket as everybody, so that it stands behind what was told before."""
        message = Operation(process, type, f, time.monotonic(), **fields).to_json().encode()
        while True:
            try:
                self.mouth.send(message, socket.MSG_DONTWAIT)
                return
            except BlockingIOError:
                self.take_all()

    # Starting, killing, stopping

    def start(self, slot: Slot) -> None:
        self.number += NUMBERS
        failpoint = self.failpoint(slot.role)
        orders = Orders(
            self.directory / "log",
            self.settings.partitions,
            self.number,
            slot.role,
            self.random.randrange(1 << 62),
            failpoint,
            self.settings.timeout_ms,
            self.settings.pause_s,
            self.settings.max_poll_interval_ms,
        )
        self.history.flush()  # else the child would write it, too, if it ever did
        slot.pid, slot.number, slot.path, slot.goes_on_at = workers.start(orders, self.mouth), self.number, "", 0.0
        life = self.random.expovariate(1 / self.settings.life_s) + 0.01
        slot.dies_at = time.monotonic() + life * (3 if failpoint else 1)

    def failpoint(self, role: str) -> Failpoint | None:
        table = failpoints.BY_ROLE.get(role)
        if table is None or self.random.random() < 0.2:
            return None
        turns = {place: self.tried[place] // failpoints.OFTEN.get(place, 1) for place in table}
        place = self.random.choice([place for place in table if turns[place] == min(turns.values())])
        act = ACTS[self.tried[place] % len(ACTS)] if place in failpoints.UNDER_LOCK else workers.KILL
        self.tried[place] += 1
        return Failpoint.drawn(self.random, place, table[place], act)

    def look_after(self, slot: Slot) -> None:
        now = time.monotonic()
        pid, status = os.waitpid(slot.pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            self.stopped(slot)
        elif pid:
            self.ended(slot, status)
        elif slot.goes_on_at:
            if now >= slot.goes_on_at:
                self.go_on(slot)
        elif now >= slot.dies_at:
            stop = self.random.random() < self.settings.stops
            os.kill(slot.pid, signal.SIGSTOP if stop else signal.SIGKILL)
            _, status = os.waitpid(slot.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                self.stopped(slot)
            else:
                self.ended(slot, status)

    def ended(self, slot: Slot, status: int) -> None:
        self.take_all()
        self.tell(slot.number, INFO, CRASH)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.figures["kills"] += 1
            self.figures["kills at failpoints"] += bool(slot.path)
        else:
            self.problems.append(f"worker {slot.number} ({slot.role}) ended by itself with status {status}")
        self.start(slot)

    def stopped(self, slot: Slot) -> None:
        """A stopped process keeps what it holds: somebody else tries to append, and is told to
        wait."""
        self.tell(slot.number, INFO, STOP)
        self.figures["stops"] += 1
        slot.goes_on_at = time.monotonic() + self.random.uniform(*self.settings.stop_s)
        self.take_all()
        if slot.path:
            self.figures["stops at failpoints"] += 1
            self.take_over(slot.path)

    def take_over(self, path: str) -> None:
        """Append where a lock is held by the one who was stopped."""
        directory = Path(path).parent.name
        if not directory.startswith(f"{TOPIC}-"):
            return
        number = int(directory.rpartition("-")[2])
        appended = self.append(number, timeout_ms=20)
        self.figures["takeovers refused"] += not appended
        if appended:
            self.problems.append(f"somebody else appended to {path} while the holder of its lock was stopped")

    def append(self, number: int, *, timeout_ms: int) -> bool:
        self.sequence += 1
        name, value = f"{TOPIC}-{number}", self.sequence
        self.tell(0, INVOKE, SEND, sent={name: [[None, value]]}, atomic=True)
        try:
            result = self.log.partition(TOPIC, number).append(
                [ProducerRecord(encode_value(value))], timeout_ms=timeout_ms
            )
        except (DeliveryTimeout, StorageFull):
            self.tell(0, FAIL, SEND, sent={name: [[None, value]]})
            return False
        except NotAppended as error:
            self.tell(0, FAIL, SEND, sent={name: [[None, value]]})
            self.problems.append(f"an append was refused: {error!r}")
            return False
        self.tell(0, OK, SEND, sent={name: [[result.base_offset, value]]})
        return True

    def go_on(self, slot: Slot) -> None:
        slot.goes_on_at, slot.path = 0.0, ""
        if self.random.random() < self.settings.revivals:
            self.tell(slot.number, INFO, CONTINUE)
            os.kill(slot.pid, signal.SIGCONT)
        else:
            os.kill(slot.pid, signal.SIGKILL)
            _, status = os.waitpid(slot.pid, 0)
            self.ended(slot, status)

    # The run

    def run(self, *, seconds: float, kills: int | None) -> None:
        until = time.monotonic() + seconds
        with Log(self.directory / "log") as self.log:
            self.log.create_topic(
                TOPIC,
                partitions=self.settings.partitions,
                segment_bytes=self.random.choice(SEGMENT_BYTES),
                index_interval_bytes=self.random.choice((500, 4096)),
            )
            try:
                for slot in self.slots:
                    self.start(slot)
                while (
                    time.monotonic() < until and (kills is None or self.figures["kills"] < kills) and not self.problems
                ):
                    self.listen(0.005)
                    for slot in self.slots:
                        self.look_after(slot)
                    if self.settings.fill_s and time.monotonic() > self.turns_at:
                        self.fill_or_free()
                self.wind_down()
            finally:
                self.ballast.unlink(missing_ok=True)
                self.end_all()

    def wind_down(self) -> None:
        """Before all is ended."""

    def fill_or_free(self) -> None:
        """Take all the space there is, or give it back."""
        self.turns_at = time.monotonic() + self.random.expovariate(1 / self.settings.fill_s)
        if self.ballast.exists():
            self.ballast.unlink()
            return
        self.figures["fills"] += 1
        with open(self.ballast, "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def end_all(self) -> None:
        for slot in self.slots:
            with suppress(ProcessLookupError):
                os.kill(slot.pid, signal.SIGKILL)
        self.listen(0.05)
        for pid in self.children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        self.take_all()
        for number in [*(slot.number for slot in self.slots), *self.children.values()]:
            self.tell(number, INFO, CRASH)

    def finish(self) -> None:
        """Append once more to every partition, read everything, check, verify."""
        with Log(self.directory / "log") as self.log:
            for number in range(self.settings.partitions):
                if not self.append(number, timeout_ms=5000):
                    self.problems.append(f"partition {number} takes no record in the end")
                self.read_all(number)
            # A deletion that was cut off leaves a topic's directory, which verify would name.
            report = self.log.verify(TOPIC)
        self.problems += [f"verify: {problem}" for problem in report.problems[:20]]
        self.take_all()
        self.history.close()
        verdict = check(read_history(self.directory / "history.jsonl"), stuck_s=self.settings.stuck_s)
        if not verdict.ok:
            self.problems += str(verdict).splitlines()
        self.figures["operations"] += verdict.operations
        self.figures["acknowledged"] += verdict.acknowledged
        self.figures["refused"] += verdict.refused
        self.figures["read"] += verdict.polled
        self.figures["anomalies"] += verdict.anomalies
        self.ear.close()
        self.mouth.close()

    def read_all(self, number: int) -> None:
        partition = self.log.partition(TOPIC, number)
        name = f"{TOPIC}-{number}"
        self.tell(0, OK, ASSIGN, positions={name: partition.earliest_offset})
        pairs: list[Any] = []
        for record in partition.scan():
            pairs.append([record.offset, decode_value(record.value)])
            if len(pairs) == 1000:
                self.tell(0, OK, POLL, polled={name: pairs}, final=True)
                pairs = []
        self.tell(0, OK, POLL, polled={name: pairs}, final=True)


def run(seconds: float, seed: int, directory: Path, *, kills: int | None = None, settings: Settings = SOAK) -> Outcome:
    """One run in an empty directory, which keeps the log and the history. Call it in a process of
    its own."""
    outcome = run_controller(controller := Controller(directory, seed, settings), seconds, kills)
    outcome.figures[f"failpoints reached of {len(failpoints.ALL)}"] = len(controller.places)
    return outcome


def run_controller(controller: Controller, seconds: float, kills: int | None) -> Outcome:
    """What a controller did, and what was wrong."""
    began = time.monotonic()
    controller.run(seconds=seconds, kills=kills)
    controller.finish()
    controller.figures["seconds"] = round(time.monotonic() - began)
    return Outcome(dict(controller.figures), controller.problems)


IN_A_TMPFS = """
import json, shutil, subprocess, sys
from pathlib import Path
from tests.soak import chaos

directory, seconds, seed = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
(directory / "log").mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(directory / "log")], check=True)
outcome = chaos.run(seconds, seed, directory, settings=chaos.FULL)
if outcome.problems:  # the mount goes with this process
    shutil.copytree(directory / "log", directory / "kept")
print(json.dumps(outcome))
"""


def run_full(seconds: float, seed: int, directory: Path) -> Outcome:
    """The same on a small disk that fills and has space again, all the time."""
    if problem := full_disk.why_not():
        return Outcome({}, [f"this system allows no private mount: {problem}"])
    command = ["unshare", "-Urm", sys.executable, "-c", IN_A_TMPFS, str(directory), str(seconds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=full_disk.PROJECT)
    if done.returncode:
        return Outcome({}, [done.stderr[-4000:]])
    return Outcome(*json.loads(done.stdout.splitlines()[-1]))
