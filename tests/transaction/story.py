"""Transactions of several producers in one partition, with a model of every batch and of what
readers may see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import NamedTuple

from pylog import Log, OffsetAndMetadata, Producer, TopicPartition
from pylog.transaction.owner import TransactionOwner
from tests.transaction.views import TOPIC

GROUP = "readers"
OPEN, COMMIT, ABORT = "open", "COMMIT", "ABORT"
LINGER_MS = 60_000  # so that only ``flush`` writes a batch, however slow the machine is


class Batch(NamedTuple):
    """A batch as its header must say. ``transaction`` counts those of the story, None for a plain
    one."""

    base_offset: int
    values: tuple[str, ...]
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transaction: int | None = None
    marker: str | None = None


class Story:
    """Writes to partition 0 of ``TOPIC``. Each ``send`` is a batch."""

    def __init__(self, log: Log, names: tuple[str, ...] = ("one", "two")) -> None:
        self.log = log
        self.batches: list[Batch] = []
        self.outcomes: list[str] = []
        self.committed_offsets: list[int] = []
        """The offsets of ``GROUP`` that transactions have committed, in order."""
        self._of: dict[str, int] = {}
        self._sequences: dict[tuple[int, int], int] = {}
        self._offsets: dict[str, int] = {}
        self.producers = {name: Producer(log, transactional_id=name, linger_ms=LINGER_MS) for name in names}
        for producer in self.producers.values():
            producer.init_transactions()

    def begin(self, name: str) -> None:
        self.producers[name].begin_transaction()
        self._of[name] = len(self.outcomes)
        self.outcomes.append(OPEN)

    def send(self, name: str, *values: str) -> None:
        at = self._end
        self._write(self.producers[name], values)
        producer_id, epoch = self.identity(name)
        sequence = self._sequences.get((producer_id, epoch), 0)
        self._sequences[producer_id, epoch] = sequence + len(values)
        self.batches.append(Batch(at, values, producer_id, epoch, sequence, self._of[name]))

    def plain(self, *values: str) -> None:
        at = self._end
        with Producer(self.log, enable_idempotence=False, linger_ms=LINGER_MS) as producer:
            self._write(producer, values)
        self.batches.append(Batch(at, values))

    def offsets(self, name: str, offset: int) -> None:
        """Commit this offset of the group in the transaction."""
        given = {TopicPartition(TOPIC, 0): OffsetAndMetadata(offset, f"by {name}")}
        self.producers[name].send_offsets_to_transaction(given, GROUP)
        self._offsets[name] = offset

    def commit(self, name: str) -> None:
        self.producers[name].commit_transaction()
        if name in self._offsets:
            self.committed_offsets.append(self._offsets[name])
        self._end_transaction(name, COMMIT)

    def abort(self, name: str) -> None:
        self.producers[name].abort_transaction()
        self._end_transaction(name, ABORT)

    def _end_transaction(self, name: str, outcome: str) -> None:
        self._offsets.pop(name, None)
        number = self._of.pop(name)
        self.outcomes[number] = outcome
        if any(batch.transaction == number for batch in self.batches):
            producer_id, epoch = self.identity(name)
            self.batches.append(Batch(self._end - 1, (), producer_id, epoch, -1, number, outcome))

    def identity(self, name: str) -> tuple[int, int]:
        """Producer id and epoch of its last transaction."""
        return self.owner(name).producer_id, self.owner(name).epoch

    def owner(self, name: str) -> TransactionOwner:
        transactions = self.producers[name]._transactions
        assert transactions is not None
        assert transactions._owner is not None
        return transactions._owner

    @property
    def is_open(self) -> dict[str, int]:
        """The number of the transaction of each producer that has one."""
        return self._of

    @property
    def _end(self) -> int:
        return self.log.partition(TOPIC, 0).latest_offset

    @staticmethod
    def _write(producer: Producer, values: tuple[str, ...]) -> None:
        for value in values:
            producer.send(TOPIC, value.encode(), partition=0)
        producer.flush()

    # The model

    def visible(self, start: int, isolation_level: str) -> list[str]:
        """What a reader sees from this offset on."""
        return [value for offset, value in self.rows(isolation_level) if offset >= start]

    def rows(self, isolation_level: str) -> list[tuple[int, str]]:
        is_committed = isolation_level == "read_committed"
        stable = min((each.base_offset for each in self.batches if self._outcome(each) == OPEN), default=self._end)
        return [
            (batch.base_offset + index, value)
            for batch in self.batches
            for index, value in enumerate(batch.values)
            if not is_committed or (batch.base_offset < stable and self._outcome(batch) != ABORT)
        ]

    def _outcome(self, batch: Batch) -> str:
        return COMMIT if batch.transaction is None else self.outcomes[batch.transaction]


@contextmanager
def story(log: Log, names: tuple[str, ...] = ("one", "two")) -> Iterator[Story]:
    """Its producers are closed at the end; what is open is aborted then."""
    with ExitStack() as closing:
        made = Story(log, names)
        for producer in made.producers.values():
            closing.enter_context(producer)
        yield made


def commit_abort_commit(it: Story) -> None:
    """One producer commits, aborts and commits, several batches each, with offsets; another one's
    transactions interleave."""
    it.plain("p0")
    it.begin("one")
    it.send("one", "a0", "a1")
    it.begin("two")
    it.send("two", "x0")
    it.send("one", "a2", "a3", "a4")
    it.offsets("one", 3)
    it.commit("one")
    it.send("two", "x1", "x2")
    it.begin("one")
    it.send("one", "b0", "b1")
    it.plain("p1", "p2")
    it.send("one", "b2")
    it.offsets("one", 5)
    it.abort("one")
    it.begin("one")
    it.send("one", "c0")
    it.abort("two")
    it.begin("two")
    it.send("two", "y0", "y1")
    it.send("one", "c1", "c2")
    it.offsets("one", 7)
    it.commit("one")
    it.commit("two")
    it.plain("p3")


def at_random(it: Story, random: Random, steps: int) -> None:
    names = list(it.producers)
    for step in range(steps):
        name = random.choice([*names, "plain"])
        values = tuple(f"{name}.{step}.{index}" for index in range(random.randint(1, 3)))
        if name == "plain":
            it.plain(*values)
        elif name not in it.is_open:
            it.begin(name)
            it.send(name, *values)
        elif random.random() < 0.5:
            it.send(name, *values)
        else:
            random.choice([it.commit, it.abort])(name)
