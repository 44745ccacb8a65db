"""A pipeline in transactions, killed at random: its output equals its input exactly.

Two workers copy the records of four partitions to four others, 1 to 100 in a transaction, together with their position in
the input. One transaction in ten is aborted on purpose. The controller kills a worker and starts another one with its id;
now and then it stops one beyond its timeout, and lets it go on beside its successor, or without one. All the time, readers
with and without permission to write look whether a dead owner's records are hidden.

    python -m tests.soak transactions --seconds 60 [--seed N] [--directory DIR]
"""

from __future__ import annotations

import json
import logging
import os
import random
import select
import signal
import time
import traceback
from array import array
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pylog import Log, Producer, ProducerRecord
from pylog.errors import ProducerFenced, TransactionAborted
from pylog.partition.read.reader import Cursor
from pylog.partition.read.undecided import Outcome
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.table import TransactionTable
from tests.soak.part import Outcome as Done

PARTITIONS = 4
WORKERS = 2
TIMEOUT_MS = 300
HIDDEN_MAX_S = 1.0
LEAD = 1_500  # records of the input that wait, at most
PROBLEMS_MAX = 5


class Settings(NamedTuple):
    """``stops``: the share of disturbances that are not kills."""

    life_s: float = 0.15
    stops: float = 0.1
    drain_s: float = 60.0


CI = Settings()


def run(seconds: float, seed: int, directory: Path) -> Done:
    """For ``scripts/soak``."""
    return run_kills(seed, directory, lambda _, spent_s: spent_s >= seconds)


def run_kills(seed: int, directory: Path, is_over: Callable[[int, float], bool], settings: Settings = CI) -> Done:
    """Until ``is_over(kills, seconds)``."""
    controller = Controller(seed, directory, settings)
    try:
        began = time.monotonic()
        while not is_over(controller.figures["kills"], time.monotonic() - began) and not controller.is_failed:
            controller.disturb()
        controller.drain()
    finally:
        controller.end_all()
    controller.check()
    return Done({name: float(figure) for name, figure in controller.figures.items()}, controller.problems)


# The pipeline


def worker(directory: Path, number: int, seed: int, pipe: int) -> None:
    """Copy for ever. Ends if it is fenced."""
    rng = random.Random(seed)
    log = Log(directory)
    producer = Producer(log, transactional_id=f"worker-{number}", transaction_timeout_ms=TIMEOUT_MS)
    producer.init_transactions()
    assert producer._transactions is not None
    assert producer._transactions._owner is not None
    tell(pipe, {"owner": producer._transactions._owner.producer_id})
    mine = range(number, PARTITIONS, WORKERS)
    while True:
        try:
            positions = {partition: position_of(log, partition) for partition in mine}
            while True:
                copy_some(log, producer, positions, rng, pipe)
        except TransactionAborted:
            tell(pipe, {"aborted late": 1})
            producer.abort_transaction()


def copy_some(log: Log, producer: Producer, positions: dict[int, int], rng: random.Random, pipe: int) -> None:
    """One transaction."""
    source = rng.choice(list(positions))
    records = list(islice(log.partition("in", source).scan(positions[source]), rng.randint(1, 100)))
    if not records:
        time.sleep(0.005)
        return
    producer.begin_transaction()
    for record in records:
        producer.send("out", b"%d %d" % (source, record.offset), partition=(record.offset * 3 + source) % PARTITIONS)
        if rng.random() < 0.02:
            producer.flush()
    producer.send("positions", b"%d" % (records[-1].offset + 1), partition=source)
    if rng.random() < 0.1:
        producer.abort_transaction()
        tell(pipe, {"aborted on purpose": 1})
    else:
        producer.commit_transaction()
        positions[source] = records[-1].offset + 1
        tell(pipe, {"committed": 1})


def position_of(log: Log, partition: int) -> int:
    """The next input record of a partition, as the last committed transaction has it."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        values, is_blocked = visible(log, "positions", partition)
        if not is_blocked:
            return int(values[-1]) if values else 0
        time.sleep(0.005)
    raise AssertionError(f"positions-{partition} is blocked, and nobody else writes there")


def visible(log: Log, topic: str, number: int, start: int = 0) -> tuple[list[bytes], bool]:
    """The committed values, and whether others are hidden behind them for now."""
    values: list[bytes] = []
    reader, cursor = log.manager.partition(topic, number).reader, Cursor(start)
    while True:
        fetched = reader.fetch(cursor, max_bytes=1 << 20, isolation_level=READ_COMMITTED, visibility=WRITTEN)
        for view in fetched.batches:
            decoder = view.decoder(topic, number)
            while records := decoder.take(1000):
                values += [record.value for record in records if record.value is not None and record.offset >= start]
        if fetched.is_blocked or fetched.cursor.offset <= cursor.offset:
            return values, fetched.is_blocked
        cursor = fetched.cursor


def tell(pipe: int, what: dict[str, object]) -> None:
    os.write(pipe, json.dumps(what).encode() + b"\n")


# The controller


class Process(NamedTuple):
    """A worker. ``serial`` is no other's, also if the system uses a process id again."""

    number: int
    serial: int
    pid: int
    pipe: int


class Controller:
    """Starts, stops and kills the workers, feeds them, and looks on."""

    def __init__(self, seed: int, directory: Path, settings: Settings) -> None:
        logging.disable(logging.CRITICAL)
        self.directory = directory / "log"
        self.settings = settings
        self.rng = random.Random(seed)
        self.problems: list[str] = []
        self.figures = dict.fromkeys(
            (
                "kills",
                "stops",
                "successors of stopped ones",
                "fenced",
                "committed",
                "aborted on purpose",
                "aborted late",
            ),
            0,
        )
        self.hidden_max_s = 0.0
        self.sent = [0] * PARTITIONS
        self.owners: dict[int, int] = {}  # producer id: serial
        self.died_at: dict[int, float] = {}  # by serial
        self.started = 0
        self.log = Log(self.directory)
        for topic in ("in", "out", "positions"):
            self.log.create_topic(topic, partitions=PARTITIONS)
        self.reader = Log(self.directory, read_only=True)
        self._undecided: set[int] = set()
        self._seen_ends = {id(log): [0] * PARTITIONS for log in (self.log, self.reader)}
        self.feed()
        self.workers = {number: self.start(number) for number in range(WORKERS)}
        self.stopped: list[tuple[Process, float]] = []

    @property
    def is_failed(self) -> bool:
        return len(self.problems) >= PROBLEMS_MAX

    def start(self, number: int) -> Process:
        receiver, sender = os.pipe()
        seed = self.rng.randrange(1 << 32)
        pid = os.fork()
        if pid == 0:
            os.close(receiver)
            status = 0
            try:
                worker(self.directory, number, seed, sender)
            except ProducerFenced:
                tell(sender, {"fenced": 1})
            except BaseException:  # noqa: BLE001  (told to the controller)
                tell(sender, {"problem": traceback.format_exc()})
                status = 1
            os._exit(status)
        os.close(sender)
        os.set_blocking(receiver, False)
        self.started += 1
        return Process(number, self.started, pid, receiver)

    def disturb(self) -> None:
        """Let them work for a while; then kill one, or stop one beyond its timeout."""
        self.look_on(self.rng.expovariate(1 / self.settings.life_s))
        at = self.rng.randrange(WORKERS)
        process = self.workers[at]
        if self.rng.random() >= self.settings.stops:
            self.kill(self.workers.pop(at))
            if self.rng.random() < 0.1:
                self.look_on(HIDDEN_MAX_S * 1.2)  # nobody comes for a while
            self.workers[at] = self.start(process.number)
            return
        self.figures["stops"] += 1
        os.kill(process.pid, signal.SIGSTOP)
        if self.rng.random() < 0.5:  # another one takes its id; this one goes on later, and is fenced
            self.figures["successors of stopped ones"] += 1
            self.look_on(self.rng.choice((0.05, 1.0)), lets_stopped_go_on=False)
            self.stopped.append((process, time.monotonic() + 2 * TIMEOUT_MS / 1000))
            self.workers[at] = self.start(process.number)
        else:
            self.look_on(2 * TIMEOUT_MS / 1000, lets_stopped_go_on=False)
            os.kill(process.pid, signal.SIGCONT)

    def kill(self, process: Process) -> None:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        self.died_at[process.serial] = time.monotonic()
        self.listen(process)
        os.close(process.pipe)
        self.figures["kills"] += 1

    def look_on(self, seconds: float, *, lets_stopped_go_on: bool = True) -> None:
        """Feed, listen, and read like others do.

        While the caller keeps one worker stopped, others must not be let go on: they could wait for its lock.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.feed()
            for process in list(self.workers.values()):
                self.listen(process)
            if lets_stopped_go_on:
                for process in self.continued():
                    self.wait_for_its_end(process)
            self.look_for_hidden()
            select.select([], [], [], min(max(left, 0), 0.02))

    def continued(self, *, all_now: bool = False) -> list[Process]:
        """Let those go on that were stopped for long enough. All of them: one may hold a lock that another waits for."""
        if not any(all_now or time.monotonic() >= goes_on_at for _, goes_on_at in self.stopped):
            return []
        found = [process for process, _ in self.stopped]
        self.stopped.clear()
        for process in found:
            os.kill(process.pid, signal.SIGCONT)
        return found

    def wait_for_its_end(self, process: Process) -> None:
        """It is fenced, and ends at its next call. Or it was stopped before it had taken the id: then its successor ends."""
        if process.number not in self.workers:  # its successor was killed, perhaps before it had taken the id
            self.kill(process)
            return
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for each in (process, *self.workers.values()):
                self.listen(each)
            for each, other in ((process, None), (self.workers.get(process.number), process)):
                if each is not None and os.waitpid(each.pid, os.WNOHANG)[0]:
                    self.died_at[each.serial] = time.monotonic()
                    self.listen(each)
                    os.close(each.pipe)
                    if other is not None:
                        self.workers[process.number] = other
                    return
            self.feed()  # it notices only with its next transaction
            time.sleep(0.005)
        self.problems.append("a worker that was stopped, and has a successor, does not end, nor does that")
        self.kill(process)

    def feed(self) -> None:
        for number in range(PARTITIONS):
            # How far the copy is, roughly: the output is as long as the input, in sum.
            if sum(self.sent) - self.figures["committed"] * 50 < LEAD * PARTITIONS:
                records = [ProducerRecord(b"x") for _ in range(100)]
                self.sent[number] = self.log.partition("in", number).append(records, acks=1).last_offset + 1

    def listen(self, process: Process) -> None:
        for line in _lines(process.pipe):
            told = json.loads(line)
            if "owner" in told:
                self.owners[told["owner"]] = process.serial
            elif "problem" in told:
                self.problems.append(f"worker {process.number}: {told['problem']}")
            else:
                for name, count in told.items():
                    self.figures[name] += count

    def look_for_hidden(self) -> None:
        """Whether an owner that has been dead for long still hides something from a reader."""
        for log in (self.reader, self.log):
            for topic in ("out", "positions"):
                for number in range(PARTITIONS):
                    self._look(log, topic, number)

    def _look(self, log: Log, topic: str, number: int) -> None:
        partition = log.manager.partition(topic, number)
        state = partition.current()
        if state.last_stable_offset == state.high_watermark:
            return
        undecided = partition.reader.undecided(WRITTEN, state)
        if not undecided.is_blocked:
            return
        now = time.monotonic()
        for producer_id, epoch, first_offset, _ in partition.reader.open_transactions():
            died_at = self.died_at.get(self.owners.get(producer_id, 0))
            if died_at is None or log.manager.part(Outcomes).outcome(producer_id, epoch) is not Outcome.UNDECIDED:
                continue
            hidden_s = now - died_at
            if hidden_s > self.hidden_max_s:
                self.hidden_max_s = hidden_s
                self.figures["longest hidden ms"] = round(hidden_s * 1000)
            if hidden_s > HIDDEN_MAX_S:
                who = "without permission to write" if log is self.reader else "with permission to write"
                self.problems.append(
                    f"{topic}-{number}: offset {first_offset} is hidden from a reader {who} {hidden_s:.2f} s after a death"
                )

    # The end

    def drain(self) -> None:
        """Nobody is disturbed any more: the workers come to the end of the input."""
        until = time.monotonic() + self.settings.drain_s
        for process in self.continued(all_now=True):
            self.wait_for_its_end(process)
        while not self.is_failed:
            for process in self.workers.values():
                self.listen(process)
            done = [self.position(number) for number in range(PARTITIONS)]
            if done == self.sent:
                return
            if time.monotonic() > until:
                self.problems.append(
                    f"after {self.settings.drain_s:g} s the input is copied up to {done} of {self.sent}"
                )
                return
            time.sleep(0.05)

    def position(self, number: int) -> int:
        values, _ = visible(self.reader, "positions", number)
        return int(values[-1]) if values else 0

    def end_all(self) -> None:
        for process in [*self.workers.values(), *(process for process, _ in self.stopped)]:
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            self.listen(process)
            os.close(process.pipe)

    def check(self) -> None:
        """Output equals input exactly, for every reader; no transaction stays open."""
        expected = array("q", (source << 40 | at for source in range(PARTITIONS) for at in range(self.sent[source])))
        self.figures["records"] = len(expected)
        for name, log in (("a reader", self.reader), ("a writer", self.log)):
            found = array("q")
            for number in range(PARTITIONS):
                values, is_blocked = visible(log, "out", number)
                if is_blocked:
                    self.problems.append(f"{name}: out-{number} is blocked, and every owner is dead")
                last = [-1] * PARTITIONS
                for value in values:
                    source, offset = map(int, value.split())
                    if offset <= last[source]:
                        self.problems.append(f"{name}: out-{number} has {offset} of in-{source} after {last[source]}")
                    last[source] = offset
                    found.append(source << 40 | offset)
            if array("q", sorted(found)) != expected:
                twice = len(found) - len(set(found))
                self.problems.append(
                    f"{name}: {len(found)} records of {len(expected)}: {len(set(expected) - set(found))} lost, {twice} twice"
                )
        self.figures["table entries"] = len(self.log.manager.part(TransactionTable)._commits)
        for topic in ("out", "positions"):
            for number in range(PARTITIONS):
                self.log.partition(topic, number).append([ProducerRecord(b"end")], acks=1)
                partition = self.log.manager.partition(topic, number)
                partition.directory.clock.sleep(0.25)
                partition.settle_transactions()
                if partition.open_transactions():
                    self.problems.append(f"{topic}-{number}: {partition.open_transactions()} stay open")
        self.problems += [f"verify: {problem}" for problem in self.log.verify().problems]
        self.reader.close()
        self.log.close()
        logging.disable(logging.NOTSET)


_left: dict[int, bytes] = {}


def _lines(pipe: int) -> Iterator[bytes]:
    data = _left.pop(pipe, b"")
    while True:
        try:
            more = os.read(pipe, 1 << 16)
        except BlockingIOError:
            break
        if not more:
            break
        data += more
    *lines, rest = data.split(b"\n")
    if rest:
        _left[pipe] = rest
    yield from lines
