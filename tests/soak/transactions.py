"""A pipeline in transactions, killed at random: its output equals its input exactly, and its
history has no anomaly.

Two workers, the members of a group, copy the records of four partitions to four others, 1 to 100 in
a transaction, which commits the group's offsets, too. One transaction in ten is aborted on purpose.
The controller kills a worker and starts another one with its id; now and then it stops one beyond
its timeout, and lets it go on beside its successor, or without one. All the time, consumers with
and without permission to write read the output, and look whether a dead owner's records are hidden.

All of them tell what they ask and what they are answered. After each ``window`` of records the
controller waits until all is copied, checks the history (``pylog.testing.checker``), and begins
another one: so a soak of hours needs no more memory than a minute's, beside a number for each
record.

    python -m tests.soak transactions --seconds 60 [--seed N] [--directory DIR]
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import socket
import time
import traceback
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pylog import Consumer, Log, ProducerRecord, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import DeliveryTimeout, ProducerFenced
from pylog.group.admin import GroupAdmin
from pylog.group.offset_records import partition_of_group
from pylog.partition.read.cursor import Cursor
from pylog.partition.read.undecided import Outcome
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.testing.checker import check
from pylog.testing.history import (
    ASSIGN,
    BEGIN,
    CONTINUE,
    CRASH,
    DELETE,
    FAIL,
    INFO,
    INVOKE,
    OK,
    POLL,
    SEND,
    STOP,
    TRANSACTION,
    Operation,
    read_history,
)
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.table import TransactionTable
from tests.soak.part import Outcome as Done
from tests.soak.pipeline import GROUP, IN, OUT, PARTITIONS, TIMEOUT_MS, Copy, Orders, Worker

WORKERS = 2
HIDDEN_MAX_S = 1.0
STUCK_S = 10.0
LEAD = 1_500  # records of a partition of the input that wait, at most
PROBLEMS_MAX = 5
FEEDER, READER, WRITER, LAST_READER, WORKER = range(5)  # processes in the history; the workers count on


class Settings(NamedTuple):
    """``stops``: the share of disturbances that are not kills. ``window``: records of the input in
    one history.

    ``feed_per_s``: records that the input gets in a second, at most.
    """

    life_s: float = 0.15
    stops: float = 0.1
    drain_s: float = 60.0
    window: int = 100_000
    feed_per_s: float = float("inf")


CI = Settings()
ONE_HISTORY = Settings(life_s=0.5, drain_s=300.0, window=4_000_000, feed_per_s=2_000)


def run(seconds: float, seed: int, directory: Path) -> Done:
    """For ``scripts/soak``."""
    return run_kills(seed, directory, lambda _, spent_s: spent_s >= seconds)


def run_one_history(seconds: float, seed: int, directory: Path) -> Done:
    """All of it is checked at once, at the end: so an effect is found however long after its cause
    it comes.

    To check 1,000,000 acknowledged records takes 450 MB and 15 s. How many rebalances there are, up
    to two in a second, depends on how busy the machine is.
    """
    return run_kills(seed, directory, lambda _, spent_s: spent_s >= seconds, ONE_HISTORY)


def run_kills(seed: int, directory: Path, is_over: Callable[[int, float], bool], settings: Settings = CI) -> Done:
    """Until ``is_over(kills, seconds)``."""
    controller = Controller(seed, directory, settings)
    try:
        began = time.monotonic()
        while not is_over(controller.figures["kills"], time.monotonic() - began) and not controller.is_failed:
            controller.disturb()
            if controller.is_window_full:
                controller.end_window()
        controller.end_window()
    finally:
        controller.end_all()
    controller.check()
    return Done({name: float(figure) for name, figure in controller.figures.items()}, controller.problems)


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


# The controller


class Process(NamedTuple):
    """A worker. ``serial`` is no other's, also if the system uses a process id again."""

    slot: int
    serial: int
    pid: int


class Controller:
    """Starts, stops and kills the workers, feeds them, and looks on."""

    def __init__(self, seed: int, directory: Path, settings: Settings) -> None:
        logging.disable(logging.CRITICAL)
        self.directory = directory / "log"
        self.history_path = directory / "history.jsonl"
        self.settings = settings
        self.rng = random.Random(seed)
        self.problems: list[str] = []
        self.figures: Counter[str] = Counter()
        self.hidden_max_s = 0.0
        self.fed = 0  # values of input records: each is sent once
        self.began = time.monotonic()
        self.sent = [0] * PARTITIONS
        self.copied = [0] * PARTITIONS  # as the workers told, so rather more
        self.busy: set[int] = set()  # serials: in a transaction
        self.assigned: dict[int, Operation] = {}  # by serial: what it told last
        self.owners: dict[int, int] = {}  # producer id: serial
        self.died_at: dict[int, float] = {}  # by serial
        self.started = WORKER
        self.ear, self.mouth = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ear.setblocking(False)
        self.log = Log(self.directory)
        for topic in (IN, OUT):
            self.log.create_topic(topic, partitions=PARTITIONS)
        self.reader = Log(self.directory, read_only=True)
        self.observers = {READER: observer(self.reader), WRITER: observer(self.log)}
        self.begin_window([0] * PARTITIONS)
        self.feed()
        self.workers = {number: self.start(number) for number in range(WORKERS)}
        self.stopped: list[tuple[Process, float]] = []

    @property
    def is_failed(self) -> bool:
        return len(self.problems) >= PROBLEMS_MAX

    # Listening

    def tell(self, process: int, type: str, f: str, **fields: Any) -> None:
        """Through the same socket as everybody, so that it stands after what was told before."""
        message = Operation(process, type, f, time.monotonic(), **fields).to_json().encode()
        while True:
            try:
                self.mouth.send(message, socket.MSG_DONTWAIT)
                return
            except BlockingIOError:
                self.listen()

    def listen(self) -> None:
        with suppress(BlockingIOError):
            while True:
                message = self.ear.recv(1 << 20)
                if message.startswith(b"!"):
                    self.heed(*message[1:].decode().split("\t"))
                else:
                    self.history.write(message + b"\n")
                    self.note(Operation.from_json(message))

    def heed(self, kind: str, *words: str) -> None:
        if kind == "owner":
            self.owners[int(words[1])] = int(words[0])
        elif kind == "count":
            self.figures[words[0]] += 1
        else:
            self.problems.append(" ".join([kind, *words]))

    def note(self, op: Operation) -> None:
        if op.f == BEGIN:
            self.figures["transactions"] += 1
            self.busy.add(op.process)
        elif op.f == TRANSACTION and op.type != INVOKE:
            self.busy.discard(op.process)
            if op.type == OK:
                self.figures["committed"] += 1
                for name, position in op.positions.items():
                    number = int(name.rpartition("-")[2])
                    self.copied[number] = max(self.copied[number], position or 0)
        elif op.f == ASSIGN and op.group:
            self.assigned[op.process] = op
            self.figures["rebalances"] = max(self.figures["rebalances"], op.generation)

    # Starting, killing, stopping

    def start(self, slot: int) -> Process:
        self.started += 1
        orders = Orders(self.directory, f"worker-{slot}", self.started, self.rng.randrange(1 << 32))
        self.history.flush()  # else the child would write it, too, if it ever did
        pid = os.fork()
        if pid == 0:
            self.ear.close()
            status = 0
            try:
                worker = Worker(orders, self.mouth)
                worker.run()
            except ProducerFenced:
                worker.say("count", "fenced")
            except BaseException:  # noqa: BLE001  (told to the controller)
                self.mouth.send(f"!worker {orders.number}\t{traceback.format_exc()}".encode())
                status = 1
            os._exit(status)
        return Process(slot, self.started, pid)

    def disturb(self) -> None:
        """Let them work for a while; then kill one, or stop one beyond its timeout."""
        self.look_on(self.rng.expovariate(1 / self.settings.life_s))
        at = self.rng.randrange(WORKERS)
        process = self.workers[at]
        if self.rng.random() >= self.settings.stops:
            self.kill(self.workers.pop(at))
            if self.rng.random() < 0.1:
                self.look_on(HIDDEN_MAX_S * 1.2)  # nobody comes for a while
            self.workers[at] = self.start(process.slot)
            return
        self.figures["stops"] += 1
        os.kill(process.pid, signal.SIGSTOP)
        self.tell(process.serial, INFO, STOP)
        if self.rng.random() < 0.5:  # another one takes its id; this one goes on later, and is fenced
            self.figures["successors of stopped ones"] += 1
            self.look_on(self.rng.choice((0.05, 1.0)), lets_stopped_go_on=False)
            self.stopped.append((process, time.monotonic() + 2 * TIMEOUT_MS / 1000))
            self.workers[at] = self.start(process.slot)
        else:
            self.look_on(self.rng.choice((2, 4)) * TIMEOUT_MS / 1000, lets_stopped_go_on=False)
            self.go_on(process)

    def go_on(self, process: Process) -> None:
        self.tell(process.serial, INFO, CONTINUE)
        os.kill(process.pid, signal.SIGCONT)

    def kill(self, process: Process) -> None:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        self.ended(process)
        self.figures["kills"] += 1

    def ended(self, process: Process) -> None:
        self.died_at[process.serial] = time.monotonic()
        self.tell(process.serial, INFO, CRASH)
        self.listen()
        self.busy.discard(process.serial)
        self.assigned.pop(process.serial, None)

    def look_on(self, seconds: float, *, lets_stopped_go_on: bool = True) -> None:
        """Feed, listen, and read like others do.

        While the caller keeps one worker stopped, others must not be let go on: they could wait for
        its lock.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.feed()
            self.listen()
            self.observe()
            if lets_stopped_go_on:
                for process in self.continued():
                    self.wait_for_its_end(process)
            self.look_for_hidden()
            self.listen()  # to itself: only the workers wake it
            select.select([self.ear], [], [], min(max(left, 0), 0.02))

    def continued(self, *, all_now: bool = False) -> list[Process]:
        """Let those go on that were stopped for long enough. All of them: one may hold a lock that
        another waits for."""
        if not any(all_now or time.monotonic() >= goes_on_at for _, goes_on_at in self.stopped):
            return []
        found = [process for process, _ in self.stopped]
        self.stopped.clear()
        for process in found:
            self.go_on(process)
        return found

    def wait_for_its_end(self, process: Process) -> None:
        """It is fenced, and ends at its next call. Or it was stopped before it had taken the id:
        then its successor ends."""
        if process.slot not in self.workers:  # its successor was killed, perhaps before it had taken the id
            self.kill(process)
            return
        until = time.monotonic() + 60
        while time.monotonic() < until:
            self.listen()
            for each, other in ((process, None), (self.workers.get(process.slot), process)):
                if each is not None and os.waitpid(each.pid, os.WNOHANG)[0]:
                    self.ended(each)
                    if other is not None:
                        self.workers[process.slot] = other
                    return
            self.feed()  # it notices only with its next transaction
            time.sleep(0.005)
        self.problems.append("a worker that was stopped, and has a successor, does not end, nor does that")
        self.kill(process)

    def feed(self) -> None:
        for number in range(PARTITIONS):
            is_early = self.fed > (time.monotonic() - self.began) * self.settings.feed_per_s
            if not is_early and self.sent[number] - self.copied[number] < LEAD:
                self._append(number)

    def _append(self, number: int) -> None:
        """100 records, unless somebody stopped holds the partition's lock: a commit syncs the
        input, too."""
        name, values = f"{IN}-{number}", range(self.fed, self.fed + 100)
        self.fed += 100
        unanswered: list[list[int | None]] = [[None, value] for value in values]
        self.tell(FEEDER, INVOKE, SEND, sent={name: unanswered}, atomic=True)
        records = [ProducerRecord(b"%d" % value) for value in values]
        try:
            appended = self.log.partition(IN, number).append(records, acks=1, timeout_ms=20)
        except DeliveryTimeout:
            self.tell(FEEDER, FAIL, SEND, sent={name: unanswered})
            self.figures["appends refused"] += 1
            return
        pairs = [[appended.base_offset + i, value] for i, value in enumerate(values)]
        self.tell(FEEDER, OK, SEND, sent={name: pairs})
        self.sent[number] = appended.last_offset + 1

    # Reading as others do

    def observe(self) -> None:
        for number, consumer in self.observers.items():
            self.tell(number, OK, POLL, polled=polled_by(consumer))

    def look_for_hidden(self) -> None:
        """Whether an owner that has been dead for long still hides something from a reader."""
        for log in (self.reader, self.log):
            for topic, number in self.written():
                self._look(log, topic, number)

    def written(self) -> list[tuple[str, int]]:
        """The partitions that transactions write to."""
        partitions = [(OUT, number) for number in range(PARTITIONS)]
        if OFFSETS_TOPIC in self.log.manager.existing_topics([OFFSETS_TOPIC]):
            count = self.log.manager.existing_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].partitions
            partitions.append((OFFSETS_TOPIC, partition_of_group(GROUP, count)))
        return partitions

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

    # Windows of the history

    @property
    def is_window_full(self) -> bool:
        return sum(self.sent) - sum(self.window) >= self.settings.window

    def begin_window(self, ends: list[int]) -> None:
        """What is before is not in this history: for it, it is deleted."""
        self.window = list(self.sent)
        self.history = open(self.history_path, "wb", buffering=1 << 20)  # noqa: SIM115 - closed in end_window
        starts = {f"{IN}-{number}": at for number, at in enumerate(self.sent)}
        starts.update({f"{OUT}-{number}": at for number, at in enumerate(ends)})
        self.tell(FEEDER, OK, DELETE, positions=starts)
        for number in self.observers:
            self.tell(number, OK, ASSIGN, positions={f"{OUT}-{n}": at for n, at in enumerate(ends)})
        for number, op in self.assigned.items():
            self.tell(
                number, OK, ASSIGN, positions=dict.fromkeys(op.positions), group=op.group, generation=op.generation
            )
        self.ends = ends

    def end_window(self) -> None:
        """All is copied, and nobody is in a transaction. Read it once more, and check the
        history."""
        self.drain()
        self.observe()
        consumer = observer(self.reader, self.ends)
        self.tell(LAST_READER, OK, ASSIGN, positions={f"{OUT}-{n}": at for n, at in enumerate(self.ends)})
        while any((polled := polled_by(consumer)).values()):
            self.tell(LAST_READER, OK, POLL, polled=polled, final=True)
        self.tell(LAST_READER, OK, POLL, polled=polled, final=True)
        ends = [consumer.position(TopicPartition(OUT, number)) for number in range(PARTITIONS)]
        consumer.close()
        self.listen()
        self.history.close()
        verdict = check(read_history(self.history_path), stuck_s=STUCK_S)
        if not verdict.ok:
            kept = self.history_path.with_suffix(f".{self.figures['histories']}.jsonl")
            self.history_path.rename(kept)
            self.problems += [*str(verdict).splitlines()[:50], f"the history: {kept}"]
        self.figures["histories"] += 1
        self.figures["operations"] += verdict.operations
        self.figures["acknowledged"] += verdict.acknowledged
        self.figures["polled"] += verdict.polled
        self.begin_window(ends)

    def drain(self) -> None:
        """Nobody is disturbed: the workers come to the end of the input."""
        until = time.monotonic() + self.settings.drain_s
        for process in self.continued(all_now=True):
            self.wait_for_its_end(process)
        while not self.is_failed:
            self.listen()
            self.observe()
            committed = self.reader.manager.part(GroupAdmin).committed(GROUP)
            done = [at.offset if (at := committed.get(TopicPartition(IN, n))) else 0 for n in range(PARTITIONS)]
            if done == self.sent and not self.busy:
                return
            if time.monotonic() > until:
                self.problems.append(
                    f"after {self.settings.drain_s:g} s the input is copied up to {done} of {self.sent}; busy: {self.busy}"
                )
                return
            select.select([self.ear], [], [], 0.02)

    # The end

    def end_all(self) -> None:
        for process in [*self.workers.values(), *(process for process, _ in self.stopped)]:
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            self.ended(process)
        closes = [
            self.history.close,
            self.ear.close,
            self.mouth.close,
            *(each.close for each in self.observers.values()),
        ]
        for close in closes:
            close()

    def check(self) -> None:
        """Output equals input exactly, for every reader; no transaction stays open."""
        expected = array("q", (source << 40 | at for source in range(PARTITIONS) for at in range(self.sent[source])))
        self.figures["records"] = len(expected)
        for name, log in (("a reader", self.reader), ("a writer", self.log)):
            found = array("q")
            for number in range(PARTITIONS):
                values, is_blocked = visible(log, OUT, number)
                if is_blocked:
                    self.problems.append(f"{name}: out-{number} is blocked, and every owner is dead")
                last = [-1] * PARTITIONS
                for value in values:
                    source, offset, _ = Copy.parse(value)
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
        for topic, number in self.written():
            if topic == OUT:
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


def observer(log: Log, starts: list[int] | None = None) -> Consumer:
    """A consumer of the whole output."""
    consumer = Consumer(log, isolation_level="read_committed", max_poll_records=2_000)
    consumer.assign([TopicPartition(OUT, number) for number in range(PARTITIONS)])
    for number in range(PARTITIONS):
        consumer.seek(TopicPartition(OUT, number), starts[number] if starts else 0)
    return consumer


def polled_by(consumer: Consumer) -> dict[str, list[Any]]:
    polled: dict[str, list[Any]] = {f"{OUT}-{number}": [] for number in range(PARTITIONS)}
    for record in consumer.poll(0.0):
        polled[f"{OUT}-{record.partition}"].append([record.offset, Copy.parse(record.value or b"").value])
    return polled
