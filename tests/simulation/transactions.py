"""Transactions on the simulated machine: applications, workloads, and crashes and faults at each of
their steps.

A transaction writes to three partitions of ``t``, and commits an offset of a consumer group. Each
has a source partition of its own, so that no commit supersedes another; the offset's metadata is
the name of the transaction. The ledger keeps what its producer was told.
``transactions_oracle.wrong`` says what is wrong afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from functools import cache

from pylog import Consumer, ConsumerGroupMetadata, Log, OffsetAndMetadata, Producer, TopicPartition
from pylog.errors import LogLocked, OutcomeUnknown, PylogError
from pylog.group.admin import GroupAdmin
from pylog.testing.machine import Killed, Machine, Step

ROOT = "/log"
PARTITIONS = [("t", 0), ("t", 1), ("t", 2)]
SOURCE = "in"
SOURCES = {name: number for number, name in enumerate(("before", "A", "B", "T1", "T2", "T3", "T4", "later"))}
GROUPS = ("g", "h", "m")
"""``m`` has a member; ``g`` and ``h`` have none."""
FOREVER_MS = 10**9

_MAYBE = OutcomeUnknown, LogLocked, KeyboardInterrupt, MemoryError


class Told(Enum):
    """What the producer knows of its transaction."""

    NOTHING = "not decided, or not told"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    name: str
    values: list[str] = field(default_factory=list)
    told: Told = Told.NOTHING


@dataclass
class Ledger:
    """Of all producers."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


@cache
def stage(seed: int, *, tear_writes: bool = False) -> Machine:
    """A machine with the topics. To be copied."""
    machine = Machine(seed, tear_writes=tear_writes)
    with machine.process().open_log(ROOT) as log:
        log.create_topic("t", partitions=len(PARTITIONS), segment_bytes=1024)
        log.create_topic(SOURCE, partitions=len(SOURCES))
        log.manager.part(GroupAdmin).offsets.create_topic()
    return machine.copy()


class Application:
    """A process with a transactional producer. It goes on after every error as the documentation
    says."""

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        transactional_id: str,
        groups: str = "g",
        *,
        timeout_ms: int = FOREVER_MS,
    ) -> None:
        """It commits offsets of these groups, in this order. In ``m`` it is a member; for others it
        commits from outside."""
        self.process = machine.process()
        self.ledger = ledger
        self._id = transactional_id
        self._groups = groups
        self._timeout_ms = timeout_ms
        self._log: Log | None = None
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def log(self) -> Log:
        if self._log is None:
            self._log = self.process.open_log(ROOT)
        return self._log

    def start(self) -> None:
        """Take the id over."""
        self._attempt(lambda: self._start() and None)

    def _start(self) -> Producer:
        if self._producer is None:
            producer = Producer(self.log(), transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)
            producer.init_transactions()
            self._producer = producer
        return self._producer

    def transaction(
        self, name: str, *, aborts: bool = False, rounds: int = 1, partitions: int = 3, offsets: bool = True
    ) -> None:
        """Records to every partition, and an offset. In several rounds, each time they are written
        at once."""

        def work() -> None:
            transaction = self.ledger.transactions[name] = Transaction(name)
            self._transaction(transaction, aborts, rounds, PARTITIONS[:partitions], offsets)

        self._attempt(work)

    def _transaction(
        self, transaction: Transaction, aborts: bool, rounds: int, partitions: list[tuple[str, int]], offsets: bool
    ) -> None:
        name, producer = transaction.name, self._start()
        members = {group: self._member(group) for group in self._groups}
        producer.begin_transaction()
        try:
            for number in range(rounds):
                for topic, partition in partitions:
                    transaction.values.append(f"{name} {number} {topic}-{partition}")
                    producer.send(topic, transaction.values[-1].encode(), partition=partition)
                if rounds > 1:
                    producer.flush()
            for group, member in members.items() if offsets else ():
                transaction.values.append(f"{name} offset {group}")
                at = {TopicPartition(SOURCE, SOURCES[name]): OffsetAndMetadata(0, transaction.values[-1])}
                producer.send_offsets_to_transaction(at, member)
            if not aborts:
                self._commit(producer)
                transaction.told = Told.COMMITTED
                return
        except _MAYBE:
            raise  # nothing is decided for it
        except PylogError as error:
            self.ledger.errors.append(error)
        producer.abort_transaction()
        transaction.told = Told.ABORTED

    def _member(self, group: str) -> ConsumerGroupMetadata | str:
        if group != "m":
            return group
        if self._consumer is None:
            self._consumer = Consumer(self.log(), group_id="m")
            self._consumer.subscribe(SOURCE)
        self._consumer.poll()
        return self._consumer.group_metadata()

    def _commit(self, producer: Producer) -> None:
        """Once more after an error that leaves the outcome open."""
        try:
            producer.commit_transaction()
        except _MAYBE as error:
            self.ledger.errors.append(error)
            producer.commit_transaction()

    def _give_up(self) -> None:
        """After an error that the documentation has no answer for: another producer, in the same
        process."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._attempt(producer.close)

    def close(self) -> None:
        for each in (self._producer, self._consumer, self._log):
            if each is not None:
                self._attempt(each.close)

    def _attempt(self, work: Callable[[], None]) -> None:
        if not self.process.is_alive:
            return
        try:
            work()
        except Killed:
            self.process.kill()
        except (PylogError, KeyboardInterrupt, MemoryError) as error:
            self.ledger.errors.append(error)
            self._give_up()
        except BaseException as error:  # noqa: BLE001  (told to whoever looks)
            self.ledger.seen.append(f"process {self.process.number}: {type(error).__name__}: {error}")


# Workloads


def three_in_a_row(machine: Machine, ledger: Ledger) -> None:
    """One commits, one aborts, one commits; then one of a single batch."""
    a = Application(machine, ledger, "a")
    a.transaction("T1")
    a.transaction("T2", aborts=True, rounds=2)
    a.transaction("T3", rounds=2)
    a.transaction("T4", partitions=1, offsets=False)
    a.close()


def one_after_another_dies(machine: Machine, ledger: Ledger) -> None:
    """A second producer with the same id takes over in the middle of a transaction; the first one
    goes on, and is fenced."""
    a, b = Application(machine, ledger, "a"), Application(machine, ledger, "a")
    a.transaction("T1")
    b.transaction("T2")
    a.transaction("T3", rounds=2)
    b.transaction("T4")
    b.close()
    a.close()


def two_side_by_side(machine: Machine, ledger: Ledger) -> None:
    """Two producers with ids and groups of their own."""
    a, b = Application(machine, ledger, "a"), Application(machine, ledger, "b", "h")
    a.transaction("T1")
    b.transaction("T2", rounds=2)
    a.transaction("T3", aborts=True, rounds=2)
    b.close()
    a.transaction("T4", rounds=2)
    a.close()


def a_member_passes_on(machine: Machine, ledger: Ledger) -> None:
    """A member of a group commits its positions: commits, aborts, commits."""
    a = Application(machine, ledger, "a", "m")
    a.transaction("T1")
    a.transaction("T2", aborts=True, rounds=2)
    a.transaction("T3", rounds=2)
    a.close()


Workload = Callable[[Machine, Ledger], None]
WORKLOADS: dict[str, Workload] = {
    work.__name__: work for work in (three_in_a_row, one_after_another_dies, two_side_by_side, a_member_passes_on)
}


def steps_of(workload: Workload, seed: int) -> list[Step]:
    """The steps of a run in which nothing happens."""
    steps: list[Step] = []
    machine = stage(seed).copy()
    machine.before_step.append(lambda _process, step: steps.append(step))
    workload(machine, Ledger())
    return steps


def snapshot(ledger: Ledger) -> Ledger:
    """What was promised so far."""
    return Ledger(deepcopy(ledger.transactions), list(ledger.errors), list(ledger.seen))
