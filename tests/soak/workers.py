"""What the processes under test do, until they are killed: each tells what it asks and what it is
answered as it goes.

The teller is one end of a socket that keeps messages whole and outlives its senders. A message is a
line of a history, or, behind a ``!``, something for the controller. Everything random comes from a
seed.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.errors import (
    ForkedHandle,
    LogLocked,
    NotAppended,
    OffsetOutOfRange,
    OutcomeUnknown,
    OutOfOrderSequence,
    PylogError,
    TopicExists,
    TopicNotFound,
)
from pylog.producer.delivery import Delivery
from pylog.testing.history import (
    ASSIGN,
    CRASH,
    DELETE,
    FAIL,
    INFO,
    INVOKE,
    OK,
    POLL,
    SEND,
    Operation,
    decode_value,
    encode_value,
)
from tests.soak.failpoints import Failpoint, FailpointFileSystem
from tests.soak.members import GROUP, Member

TOPIC = "chaos"
KILL, STOP, FORK = "kill", "stop", "fork"
SIGNALS = {KILL: signal.SIGKILL, STOP: signal.SIGSTOP}
SIZES = (16, 16, 100, 100, 1_000, 1_000, 4_000, 40_000)
READING = ("consumer", "reader", "member")
CHILDS_OPERATIONS = 50
FORKS_MAX = 8
NUMBERS = 10  # from one worker to the next: its children have those between

Values = Mapping[int, list[int]]


class Orders(NamedTuple):
    """What a worker is told when it starts."""

    directory: Path
    partitions: int
    number: int  # of its process, in the history
    role: str
    seed: int
    failpoint: Failpoint | None
    timeout_ms: int  # how long it waits for a lock
    pause_s: float  # at most, between two operations
    max_poll_interval_ms: int = 300_000  # of a member


class Worker:
    """One process. After a fork the child goes on as another one, in the same object."""

    def __init__(self, orders: Orders, tell: socket.socket) -> None:
        self.orders = orders
        self.number = orders.number
        self.random = random.Random(orders.seed)
        self.left = -1  # operations; for ever
        self.forks = 0
        self.sequence = 0
        self.socket = tell
        self.filesystem = FailpointFileSystem(orders.failpoint, random.Random(orders.seed), self.act)
        self.partitions = range(orders.partitions)

    # Telling

    def tell(self, type: str, f: str, **fields: Any) -> None:
        self.socket.send(Operation(self.number, type, f, time.monotonic(), **fields).to_json().encode())

    def say(self, *words: object) -> None:
        self.socket.send(b"!" + "\t".join(map(str, words)).encode()[:100_000])

    def ask(self, values: Values, *, atomic: bool = False) -> int:
        sent = {f"{TOPIC}-{partition}": [[None, value] for value in some] for partition, some in values.items()}
        self.tell(INVOKE, SEND, sent=sent, atomic=atomic)
        return self.number

    def answer(self, asker: int, type: str, pairs: Mapping[int, list[Any]]) -> None:
        """A child does not answer what its parent asked."""
        if asker == self.number:
            self.tell(type, SEND, sent={f"{TOPIC}-{partition}": some for partition, some in pairs.items()})

    # Failpoints and forks

    def act(self, path: str) -> None:
        failpoint = self.orders.failpoint
        assert failpoint is not None
        self.say("failpoint", self.number, failpoint.act, failpoint.moment, failpoint.place, path)
        if failpoint.act in SIGNALS:
            # The signal reaches this thread before its next step.
            signal.pthread_kill(threading.get_ident(), SIGNALS[failpoint.act])
        elif self.fork():
            raise ForkedHandle("the child goes on with its own; what it was forked in the midst of is its parent's")

    def fork(self) -> bool:
        """Both go on from here; the child for a while, as a process of its own in the history.
        Whether this is the child."""
        self.forks += 1
        if os.fork():
            return False
        self.number += self.forks
        self.sequence = 0
        self.left = CHILDS_OPERATIONS
        self.filesystem.failpoint = None
        self.say("forked", os.getpid(), self.number)
        return True

    # Working

    def run(self) -> None:
        before = self.number
        with self.opened() as log:
            work = self.prepared(log)
            while self.left:
                self.left -= 1
                # This is the child of a fork in the middle of it, or a stopped process holds a
                # lock.
                with suppress(ForkedHandle, LogLocked):
                    work()
                if self.number != before and self.orders.role in READING:
                    # What it reads it reads as another process; what it writes with, it goes on
                    # with.
                    work = self.prepared(log)
                    if self.orders.role == "member":
                        self.tell(INFO, ASSIGN, group=GROUP)  # what it had as the parent's copy, nobody gives up
                before = self.number
                if self.left < 0 and self.forks < FORKS_MAX and self.random.random() < 0.002:
                    self.fork()
                time.sleep(self.random.random() * self.orders.pause_s)
        self.tell(INFO, CRASH)  # a child ends here; what it was not answered, nobody waits for

    def opened(self) -> Log:
        with suppress(ForkedHandle):  # the child of a fork in the midst of it, which finishes a deletion
            return Log(self.orders.directory, filesystem=self.filesystem)
        return Log(self.orders.directory, filesystem=self.filesystem)

    def prepared(self, log: Log) -> Callable[[], None]:
        return {"producer": self.producer, "appender": self.appender, "consumer": self.consumer, "reader": self.reader,
                "tidier": self.tidier, "member": lambda log: Member(self, log).work}[self.orders.role](log)  # fmt: skip

    def values(self, partition: int, count: int) -> list[int]:
        first = self.sequence
        self.sequence += count
        return [self.number << 32 | partition << 28 | first + i for i in range(count)]

    def appender(self, log: Log) -> Callable[[], None]:
        def append() -> None:
            number = self.random.choice(self.partitions)
            values = {number: self.values(number, self.random.choice((1, 1, 2, 10)))}
            size = self.random.choice(SIZES)
            records = [ProducerRecord(encode_value(value, size)) for value in values[number]]
            acks = self.random.choice((1, 1, 1, "all"))
            asker = self.ask(values, atomic=True)
            unanswered = {number: [[None, value] for value in values[number]]}
            try:
                result = log.partition(TOPIC, number).append(records, acks=acks, timeout_ms=self.orders.timeout_ms)
            except NotAppended:
                self.answer(asker, FAIL, unanswered)
            except OutcomeUnknown:
                self.answer(asker, INFO, unanswered)
            else:
                pairs = [[result.base_offset + i, value] for i, value in enumerate(values[number])]
                self.answer(asker, OK, {number: pairs})

        return append

    def producer(self, log: Log) -> Callable[[], None]:
        producer = Producer(
            log,
            acks=self.random.choice((1, "all")),
            compression=self.random.choice((None, "zstd")),
            batch_bytes=65_536,
            linger_ms=5,
            delivery_timeout_ms=self.orders.timeout_ms,
        )

        def send() -> None:
            values = {number: self.values(number, self.random.choice((1, 5, 40))) for number in self.partitions}
            size = self.random.choice(SIZES[:-1])
            asker = self.ask(values)
            waiting = [
                (number, value, delivery)
                for number, some in values.items()
                for value, delivery in zip(some, self.sent(asker, producer, number, some, size), strict=True)
            ]
            answers: dict[str, dict[int, list[Any]]] = {OK: {}, FAIL: {}, INFO: {}}
            for number, value, delivery in waiting:
                error = delivery.exception()
                if isinstance(error, OutOfOrderSequence) and asker == self.number:
                    self.say("failed", self.number, repr(error))
                kind = OK if error is None else FAIL if isinstance(error, NotAppended) else INFO
                offset = delivery.result().offset if error is None else None
                answers[kind].setdefault(number, []).append([offset, value])
            for kind, pairs in answers.items():
                if pairs:
                    self.answer(asker, kind, pairs)

        return send

    def sent(self, asker: int, producer: Producer, number: int, values: list[int], size: int) -> Iterable[Delivery]:
        """A batch's error is told to its deliveries, so a child may go on here with what its parent
        was about to send."""
        records = [encode_value(value, size) for value in values]
        if self.random.random() < 0.5:
            return [producer.send(TOPIC, record, partition=number) for record in records if self.is_still(asker)]
        return list(producer.send_many(TOPIC, records, partition=number)) if self.is_still(asker) else []

    def is_still(self, asker: int) -> bool:
        """True; ``ForkedHandle`` in a child that was forked since."""
        if self.number != asker:
            raise ForkedHandle("these values are the parent's to send")
        return True

    def consumer(self, log: Log) -> Callable[[], None]:
        consumer = Consumer(
            log,
            auto_offset_reset="earliest",
            max_poll_records=self.random.choice((10, 100, 500)),
            visibility=self.random.choice(("written", "written", "durable")),
        )
        consumer.assign([TopicPartition(TOPIC, number) for number in self.partitions])
        if self.random.random() < 0.7:
            for partition, end in consumer.end_offsets(consumer.assignment()).items():
                consumer.seek(partition, max(end - self.random.randrange(500), 0))
        positions = {f"{TOPIC}-{p.partition}": consumer.position(p) for p in consumer.assignment()}
        self.tell(OK, ASSIGN, positions=positions)

        def poll() -> None:
            polled: dict[str, list[Any]] = {name: [] for name in positions}
            for record in consumer.poll(0.02):
                polled[f"{TOPIC}-{record.partition}"].append([record.offset, decode_value(record.value)])
            self.tell(OK, POLL, polled=polled)

        return poll

    def reader(self, log: Log) -> Callable[[], None]:
        """Reads one partition without a consumer, again and again from some place on."""
        number = self.random.choice(self.partitions)
        partition = log.partition(TOPIC, number)
        place = [0]

        def seek() -> None:
            earliest, latest = partition.earliest_offset, partition.latest_offset
            place[0] = self.random.randint(min(earliest, latest), latest)
            self.tell(OK, ASSIGN, positions={f"{TOPIC}-{number}": place[0]})

        def read() -> None:
            try:
                records = partition.read(
                    place[0], max_bytes=self.random.choice((1, 10_000, 1_000_000)), max_records=500
                )
            except OffsetOutOfRange:  # deleted meanwhile
                seek()
                return
            polled = [[record.offset, decode_value(record.value)] for record in records]
            self.tell(OK, POLL, polled={f"{TOPIC}-{number}": polled})
            place[0] += len(polled)
            if self.random.random() < 0.02:
                seek()

        seek()
        return read

    def tidier(self, log: Log) -> Callable[[], None]:
        """Rolls, deletes records, and makes and removes topics on the side."""

        def tidy() -> None:
            with suppress(NotAppended, OutcomeUnknown, TopicExists, TopicNotFound):
                self.random.choice((self.roll, self.delete, self.make_topic, self.remove_topic))(log)

        return tidy

    def roll(self, log: Log) -> None:
        log.partition(TOPIC, self.random.choice(self.partitions)).log.roll()

    def delete(self, log: Log) -> None:
        number = self.random.choice(self.partitions)
        partition = log.partition(TOPIC, number)
        earliest, latest = partition.earliest_offset, partition.latest_offset
        if latest - earliest < 2000:
            return
        positions = {f"{TOPIC}-{number}": earliest + self.random.randrange((latest - earliest) // 2)}
        asker = self.number
        self.tell(INVOKE, DELETE, positions=positions)
        log.delete_records(TopicPartition(TOPIC, number), positions[f"{TOPIC}-{number}"])
        if asker == self.number:
            self.tell(OK, DELETE, positions=positions)

    def make_topic(self, log: Log) -> None:
        name = f"scratch-{self.random.randrange(5)}"
        log.create_topic(name, if_not_exists=True, partitions=self.random.choice((1, 3)))
        log.partition(name, 0).append([ProducerRecord(b"scratch")], acks=1, timeout_ms=self.orders.timeout_ms)
        assert {record.value for record in log.partition(name, 0).scan()} == {b"scratch"}

    def remove_topic(self, log: Log) -> None:
        log.delete_topic(f"scratch-{self.random.randrange(5)}")


def start(orders: Orders, tell: socket.socket) -> int:
    """Fork a worker; its pid. It ends with status 0 where it forked and was told to end, 70 where
    something failed."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    logging.disable(logging.WARNING)  # that appends fail and positions are reset is what this is about
    worker = Worker(orders, tell)
    try:
        worker.run()
        code = 0
    except PylogError as error:
        worker.say("failed", worker.number, orders.role, repr(error), traceback.format_exc())
    except BaseException:  # noqa: BLE001 - told to the controller, whatever it was
        worker.say("failed", worker.number, orders.role, traceback.format_exc())
    finally:
        os._exit(code)
