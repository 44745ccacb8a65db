"""Lists, describes and aborts transactions. Only an abort takes a lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pylog.errors import InvalidPartition, InvalidTransactionState, PylogError, TopicNotFound, TransactionNotFound
from pylog.interrupts import own
from pylog.manager.manager import LogManager
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.model import TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import OpenTransaction, Outcome
from pylog.storage import while_holding
from pylog.transaction.descriptions import OpenTransactionDescription, TransactionDescription
from pylog.transaction.directory import TransactionDirectory, check_transactional_id
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.records import Decision
from pylog.transaction.state import Status, TransactionState
from pylog.transaction.state_file import StateFile
from pylog.transaction.table import TransactionTable

NOTES_MAX = 20
_COMMITTED = "PrepareCommit: its commit was decided, and is marked now"


class TransactionAdmin:
    """The transactions of one log."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._table = manager.part(TransactionTable)
        self._outcomes = manager.part(Outcomes)

    def ids(self) -> list[str]:
        """See ``Log.transactions``."""
        return sorted(self._table.latest())

    def describe(self, transactional_id: str) -> TransactionDescription:
        """See ``Log.describe_transaction``."""
        recorded, directory = self._found(transactional_id)
        state = self._outcomes.state(directory)
        open_in = {
            partition.topic_partition: found.first_offset for partition, found in self._open_of(transactional_id)
        }
        if state is None:  # since the machine was booted, no producer has had the id
            return TransactionDescription(
                transactional_id, recorded.producer_id, recorded.epoch, recorded.status.kafka_name, False,
                recorded.timeout_ms, None, open_in,
            )  # fmt: skip
        idle_ms = int(self._manager.clock.monotonic() * 1000) - state.active_ms
        return TransactionDescription(
            transactional_id, state.producer_id, state.epoch, state.status.kafka_name, directory.is_alive(state.owner),
            state.timeout_ms, idle_ms, open_in,
        )  # fmt: skip

    def open_transactions(self, topics: Iterable[str]) -> list[OpenTransactionDescription]:
        """See ``Log.open_transactions``."""
        named = list(topics)
        found = sorted(self._open(named) if named else self._open_in_all(), key=lambda pair: pair[1].timestamp_ms)
        return [self._described(partition.topic_partition, each) for partition, each in found]

    def _described(self, partition: TopicPartition, found: OpenTransaction) -> OpenTransactionDescription:
        name = self._table.transactional_id(found.producer_id)
        return OpenTransactionDescription(
            *partition, found.first_offset, found.producer_id, found.epoch, name, self._has_owner(name, found),
            max(self._manager.clock.now_ms() - found.timestamp_ms, 0),
        )  # fmt: skip

    def _has_owner(self, transactional_id: str | None, found: OpenTransaction) -> bool | None:
        if self._manager.is_kafka_directory:
            return None
        if transactional_id is None:
            return False
        directory = self._directory(transactional_id)
        state = self._outcomes.state(directory)
        return state is not None and state.is_of(found.producer_id, found.epoch) and directory.is_alive(state.owner)

    def notes(self, found: list[tuple[TopicPartition, OpenTransaction]]) -> Iterator[str]:
        """What ``verify`` notes of open transactions: those that no producer will end."""
        written = 0
        for partition, each in found:
            note = self._note(partition, each)
            if note is None:
                continue
            if written == NOTES_MAX:
                yield "more transactions are open whose producers are gone: see open_transactions"
                return
            written += 1
            yield f"{partition.topic}-{partition.partition}: a transaction is open from offset {each.first_offset} on, {note}"

    def _note(self, partition: TopicPartition, found: OpenTransaction) -> str | None:
        whose = f"of producer {found.producer_id}, epoch {found.epoch}"
        try:
            name = self._table.transactional_id(found.producer_id)
            has_owner = self._has_owner(name, found)
        except own(PylogError) as error:
            return f"{whose}; whether that lives is not known: {error}"
        if name is not None:
            whose += f", of {name!r}"
        if has_owner is None:
            return f"{whose}: only Kafka can end it"
        if has_owner:
            return None
        if name is not None:
            return f"{whose}, which is gone: the next writer or reader ends it"
        if found.producer_id >= LIKE_KAFKA_BELOW:
            return f"{whose}, of which there is no record: the next writer or reader aborts it"
        at = f"--topic {partition.topic} --partition {partition.partition} --start-offset {found.first_offset}"
        return f"{whose}, which Kafka may know: it stays open until pylog transactions abort {at}"

    # Aborting

    def abort(self, transactional_id: str) -> None:
        """See ``Log.abort_transaction``."""
        self._manager.require_writable()
        _, directory = self._found(transactional_id)
        if self._outcomes.state(directory) is None:  # it is from before the machine was booted, or Kafka's
            ended = [self._end(partition, found) for partition, found in list(self._open_of(transactional_id))]
            if not ended:
                raise _not_ongoing(transactional_id, "unknown since the machine was booted, and no records wait")
            if Outcome.COMMITTED in ended:
                raise _not_ongoing(transactional_id, _COMMITTED)
            return
        filesystem = self._manager.filesystem
        abort = partial(self._abort, directory, directory.same_process())
        state = while_holding(filesystem, self._manager.clock, directory.lock, abort)
        for partition, _ in list(self._open_of(transactional_id)):
            self._outcomes.settle(partition)
        if state.outcome is Outcome.COMMITTED:
            raise _not_ongoing(transactional_id, _COMMITTED)

    def abort_at(self, topic_partition: TopicPartition, first_offset: int) -> OpenTransactionDescription:
        """See ``Log.abort_transaction_at``."""
        self._manager.require_writable()
        partition = self._manager.partition(*topic_partition)
        open_here = {found[2]: OpenTransaction(*found) for found in partition.open_transactions()}
        # As ``describe`` shows them: of one whose first records were deleted, the first that is
        # left.
        open_here.update({each.first_offset: each for each in partition.reader.open_transactions()})
        found = open_here.get(first_offset)
        if found is None:
            raise InvalidTransactionState(
                f"no transaction that began at offset {first_offset} of {partition.topic}-{partition.number} is open; "
                f"open there: {sorted(open_here) or 'none'}",
                **topic_partition._asdict(), first_offset=first_offset, first_offsets=sorted(open_here),
            )  # fmt: skip
        described = self._described(topic_partition, found)
        name = described.transactional_id
        state = None if name is None else self._outcomes.state(self._directory(name))
        is_last = state is not None and state.is_of(found.producer_id, found.epoch)
        if name is not None and state is not None and is_last and state.status is Status.ONGOING:
            self.abort(name)
        elif self._end(partition, found) is Outcome.COMMITTED:
            raise _not_ongoing(name, _COMMITTED)
        return described

    def _end(self, partition: PartitionLog, found: OpenTransaction) -> Outcome:
        """Write the marker of a transaction that has no live owner: it is aborted, unless its
        commit is decided."""
        name = self._table.transactional_id(found.producer_id)
        outcome = self._outcomes.outcome(found.producer_id, found.epoch)
        if outcome is Outcome.UNDECIDED and name is not None:
            raise _not_ongoing(name, "unknown, and a producer of it lives that may still commit it")
        partition.append_marker(found.producer_id, found.epoch, committed=outcome is Outcome.COMMITTED)
        return outcome

    def _abort(self, directory: TransactionDirectory, check_process: Callable[[], None]) -> TransactionState:
        file = StateFile(self._manager.filesystem.open_appendable(directory.state), directory.boot)
        try:
            state = file.read()
            if state is None or state.status is not Status.ONGOING:
                name = "unknown since the machine was booted" if state is None else state.status.kafka_name
                raise _not_ongoing(directory.transactional_id, name)
            return self._outcomes.decide_now(directory, file, state, check_process)
        finally:
            file.close()

    # Finding

    def _found(self, transactional_id: str) -> tuple[Decision, TransactionDirectory]:
        recorded = self._table.latest().get(transactional_id) if isinstance(transactional_id, str) else None
        if recorded is None:
            name = check_transactional_id(transactional_id, self._manager.layout.ignores_case)
            raise TransactionNotFound(
                f"no producer of {self._manager.path} has had transactional_id={name!r}", transactional_id=name
            )
        return recorded, self._directory(transactional_id)

    def _directory(self, transactional_id: str) -> TransactionDirectory:
        manager = self._manager
        return TransactionDirectory.of(manager.filesystem, manager.layout, transactional_id, manager.boot)

    def _open_of(self, transactional_id: str) -> Iterator[tuple[PartitionLog, OpenTransaction]]:
        for partition, found in self._open_in_all():
            if self._table.transactional_id(found.producer_id) == transactional_id:
                yield partition, found

    def _open_in_all(self) -> list[tuple[PartitionLog, OpenTransaction]]:
        while True:
            version = self._manager.catalog_version()
            try:
                return list(self._open(self._manager.topics()))
            except own(TopicNotFound, InvalidPartition):
                if self._manager.catalog_version() == version:
                    raise  # else a topic was deleted or renamed between two looks: look again

    def _open(self, topics: Iterable[str]) -> Iterator[tuple[PartitionLog, OpenTransaction]]:
        """Every partition with a transaction that waits for a marker, and that transaction."""
        for topic in topics:
            for number in self._manager.describe_topic(topic).numbers:
                partition = self._manager.partition(topic, number)
                for found in partition.reader.open_transactions():
                    yield partition, found


def _not_ongoing(transactional_id: str | None, status: str) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"no transaction of {transactional_id!r} is ongoing: its state is {status}",
        transactional_id=transactional_id, status=status,
    )  # fmt: skip
