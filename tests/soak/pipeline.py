"""A worker that copies records in transactions with their offsets, until it is killed or fenced.

It is a member of a consumer group: it polls, sends what it got to other partitions, and commits
both its position and its records with one transaction. It tells what it asks and what it is
answered, as ``workers.py`` has it.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pylog import Consumer, Log, Producer, Record, TopicPartition
from pylog.errors import CommitFailed, LogLocked, OutcomeUnknown, ProducerFenced, TransactionAborted
from pylog.producer.delivery import Delivery
from pylog.testing.history import ASSIGN, BEGIN, FAIL, INFO, INVOKE, OK, POLL, TRANSACTION, Operation
from tests.soak.members import name_of

IN, OUT, GROUP = "in", "out", "copiers"
PARTITIONS = 4
TIMEOUT_MS = 300
EXPELLED_MS = 700  # a member that is stopped for the longer of the two times loses its partitions


class Copy(NamedTuple):
    """A record of the output: of this input record, and no other's copy of it."""

    source: int
    offset: int
    value: int

    @classmethod
    def parse(cls, value: bytes) -> Copy:
        return cls(*map(int, value.split()))

    @property
    def partition(self) -> int:
        return (self.offset * 3 + self.source) % PARTITIONS


class Orders(NamedTuple):
    directory: Path
    transactional_id: str
    number: int  # of its process, in the history
    seed: int


class Worker:
    """One process."""

    def __init__(self, orders: Orders, tell: socket.socket) -> None:
        self.number = orders.number
        self.random = random.Random(orders.seed)
        self.socket = tell
        self.sequence = 0
        log = Log(orders.directory)
        self.producer = Producer(log, transactional_id=orders.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        self.consumer = Consumer(
            log,
            group_id=GROUP,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_interval_ms=EXPELLED_MS,
        )

    # Telling

    def tell(self, type: str, f: str, **fields: Any) -> None:
        self.socket.send(Operation(self.number, type, f, time.monotonic(), **fields).to_json().encode())

    def say(self, *words: object) -> None:
        self.socket.send(b"!" + "\t".join(map(str, words)).encode()[:100_000])

    # Working

    def run(self) -> None:
        self.producer.init_transactions()
        assert self.producer._transactions is not None
        assert self.producer._transactions._owner is not None
        self.say("owner", self.number, self.producer._transactions._owner.producer_id)
        self.consumer.subscribe(IN, on_assigned=self._got, on_revoked=self._gives_up, on_lost=self._lost)
        while True:
            try:
                records = self._poll()
            except LogLocked:  # somebody stopped holds the group's lock
                self.say("count", "locked polls")
                continue
            if records:
                self._copy(records)
            else:  # it notices that it is fenced, also without input
                self.producer.begin_transaction()
                self._commit()

    def _poll(self) -> list[Record]:
        records = self.consumer.poll(0.02, max_records=self.random.randint(1, 100))
        polled: dict[str, list[Any]] = {name_of(partition): [] for partition in self.consumer.assignment()}
        for record in records:
            polled.setdefault(f"{record.topic}-{record.partition}", []).append(
                [record.offset, int(record.value or b"")]
            )
        self.tell(OK, POLL, polled=polled)
        return records

    def _copy(self, records: Sequence[Record]) -> None:
        """One transaction."""
        copies = [Copy(record.partition, record.offset, self._next_value()) for record in records]
        positions = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        metadata = self.consumer.group_metadata()
        commit: dict[str, Any] = {
            "positions": {name_of(partition): offset for partition, offset in positions.items()},
            "group": GROUP,
            "generation": max(metadata.generation, 0),
        }
        unanswered = _by_partition((copy.partition, None, copy.value) for copy in copies)
        self.tell(INVOKE, BEGIN, sent=unanswered)
        try:
            self.producer.begin_transaction()
            deliveries = [self._send(copy) for copy in copies]
            self.producer.send_offsets_to_transaction(positions, metadata)
            if self.random.random() < 0.1:
                self._abort("aborted on purpose", unanswered, commit)
                return
            self.tell(INVOKE, TRANSACTION, **commit)
            self._commit()
        except (TransactionAborted, CommitFailed) as error:
            self._abort("aborted late" if isinstance(error, TransactionAborted) else "expelled", unanswered, commit)
        except ProducerFenced:
            self.tell(FAIL, TRANSACTION, sent=unanswered, **commit)
            raise
        else:
            sent = (
                (copy.partition, at.result().offset, copy.value) for copy, at in zip(copies, deliveries, strict=True)
            )
            self.tell(OK, TRANSACTION, sent=_by_partition(sent), **commit)

    def _next_value(self) -> int:
        self.sequence += 1
        return self.number << 32 | self.sequence

    def _send(self, copy: Copy) -> Delivery:
        delivery = self.producer.send(OUT, b"%d %d %d" % copy, partition=copy.partition)
        if self.random.random() < 0.02:
            self.producer.flush()
        return delivery

    def _commit(self) -> None:
        while True:
            try:
                self.producer.commit_transaction()
            except (LogLocked, OutcomeUnknown):  # somebody stopped holds a lock
                self.say("count", "commits repeated")
            else:
                return

    def _abort(self, why: str, unanswered: dict[str, list[Any]], commit: dict[str, Any]) -> None:
        """Nothing of it counts; go on from what the group has committed."""
        self.producer.abort_transaction()
        self.tell(FAIL, TRANSACTION, sent=unanswered, **commit)
        self.say("count", why)
        positions = {partition: self.consumer.committed(partition) or 0 for partition in self.consumer.assignment()}
        for partition, offset in positions.items():
            self.consumer.seek(partition, offset)
        self._tell_assignment({name_of(partition): offset for partition, offset in positions.items()})

    # Partitions that come and go

    def _got(self, partitions: list[TopicPartition]) -> None:
        self._tell_assignment({name_of(partition): self.consumer.position(partition) for partition in partitions})

    def _gives_up(self, partitions: list[TopicPartition]) -> None:
        self._tell_assignment({}, without=partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self.say("count", "partitions lost")
        self._tell_assignment({}, without=partitions, type=INFO)

    def _tell_assignment(self, new: dict[str, int], without: Sequence[TopicPartition] = (), type: str = OK) -> None:
        kept: dict[str, int | None] = {
            name_of(partition): None for partition in self.consumer.assignment() if partition not in without
        }
        generation = max(self.consumer.group_metadata().generation, 0)
        self.tell(type, ASSIGN, positions={**kept, **new}, group=GROUP, generation=generation)


def _by_partition(records: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for partition, offset, value in records:
        found.setdefault(f"{OUT}-{partition}", []).append([offset, value])
    return found
