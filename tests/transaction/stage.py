"""A simulated machine with a log, transactional producers in processes of their own, and what a new
reader sees."""

from __future__ import annotations

from pylog import Log, Producer, ProducerRecord
from pylog.partition.read.cursor import Cursor
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.testing.machine import Image, Machine, Process
from pylog.testing.machine.images import pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from pylog.transaction.owner import TransactionOwner

ROOT = "/log"
PARTITIONS = 4


class Owner:
    """A process with a transactional producer."""

    def __init__(self, process: Process, transactional_id: str, timeout_ms: int) -> None:
        self.process = process
        self.log: Log = process.open_log(ROOT)
        self.producer = Producer(self.log, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        self.producer.init_transactions()

    def begin(self, values: dict[int, str]) -> None:
        """Begin a transaction with these values by partition. They are in the log on return."""
        self.producer.begin_transaction()
        self.write(values)

    def write(self, values: dict[int, str]) -> None:
        for partition, value in values.items():
            self.producer.send("t", value.encode(), partition=partition)
        self.producer.flush()

    def commit(self, values: dict[int, str]) -> None:
        """A whole transaction."""
        self.begin(values)
        self.producer.commit_transaction()

    @property
    def identity(self) -> tuple[int, int]:
        """The producer id, and the epoch of its last transaction."""
        return self._owner.producer_id, self._owner.epoch

    @property
    def is_ongoing(self) -> bool:
        return self._owner.is_ongoing

    @property
    def _owner(self) -> TransactionOwner:
        assert self.producer._transactions is not None
        assert self.producer._transactions._owner is not None
        return self.producer._transactions._owner


class Stage:
    """The machine, and a topic ``t``."""

    def __init__(self, seed: int = 0) -> None:
        self.machine = Machine(seed)
        with self.machine.process().open_log(ROOT) as log:
            log.create_topic("t", partitions=PARTITIONS)

    def owner(self, transactional_id: str = "app", timeout_ms: int = 10**9) -> Owner:
        return Owner(self.machine.process(), transactional_id, timeout_ms)

    def read(self, *, read_only: bool = True) -> dict[int, list[str]]:
        """What ``read_committed`` sees in a new process, by partition. ``?`` ends what is hidden
        for now."""
        with self.machine.process().open_log(ROOT, read_only=read_only) as log:
            return {number: values_of(log, number) for number in range(PARTITIONS)}

    def append(self, number: int, *, seconds: float = 0.0) -> list[tuple[int, int, int]]:
        """A durable record of another process, twice; the transactions that are open then."""
        self.machine.seconds += seconds
        with self.machine.process().open_log(ROOT) as log:
            for _ in range(2):
                log.partition("t", number).append([ProducerRecord(b"plain")], acks="all")
                self.machine.seconds += 1
            return log.manager.partition("t", number).open_transactions()

    def lose_power(self) -> None:
        """All that was not synced is lost."""
        for process in self.machine.processes:
            process.kill()
        kept = (0,) * len(pending_units(self.machine.disk, SECTOR_BYTES))
        self.machine = self.machine.after_power_loss(Image(kept, "natural"))


def values_of(log: Log, number: int) -> list[str]:
    found: list[str] = []
    reader, cursor = log.manager.partition("t", number).reader, Cursor(0)
    while True:
        fetched = reader.fetch(cursor, max_bytes=1 << 20, isolation_level=READ_COMMITTED, visibility=WRITTEN)
        for view in fetched.batches:
            decoder = view.decoder("t", number)
            while records := decoder.take(1000):
                found += [record.value.decode() for record in records if record.value != b"plain"]
        if fetched.is_blocked:
            return [*found, "?"]
        if fetched.cursor.offset <= cursor.offset:
            return found
        cursor = fetched.cursor
