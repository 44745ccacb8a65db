"""Lists, describes and aborts transactions. Only an abort takes a lock."""

from __future__ import annotations

from collections.abc import Iterator

from pylog.errors import InvalidTransactionState, TransactionNotFound
from pylog.manager.manager import LogManager
from pylog.model import TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.storage import while_holding
from pylog.transaction.descriptions import TransactionDescription
from pylog.transaction.directory import TransactionDirectory, check_transactional_id
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.records import Decision
from pylog.transaction.state import Status, TransactionState
from pylog.transaction.state_file import StateFile
from pylog.transaction.table import TransactionTable


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
            partition.topic_partition: offset
            for partition, producer_id, offset in self._open()
            if self._table.transactional_id(producer_id) == transactional_id
        }
        if state is None:  # since the machine was booted, no producer has had the id
            return TransactionDescription(
                transactional_id, recorded.producer_id, recorded.epoch, _name(recorded.status), False,
                recorded.timeout_ms, None, open_in,
            )  # fmt: skip
        idle_ms = int(self._manager.clock.monotonic() * 1000) - state.active_ms
        return TransactionDescription(
            transactional_id, state.producer_id, state.epoch, _name(state.status), directory.is_alive(state.owner),
            state.timeout_ms, idle_ms, open_in,
        )  # fmt: skip

    def abort(self, transactional_id: str) -> None:
        """See ``Log.abort_transaction``."""
        self._manager.require_writable()
        _, directory = self._found(transactional_id)
        filesystem = self._manager.filesystem
        holder = filesystem.process_id()
        state = while_holding(filesystem, self._manager.clock, directory.lock, lambda: self._abort(directory, holder))
        for partition, producer_id, _ in list(self._open()):
            if producer_id == state.producer_id:
                self._outcomes.settle(partition)

    def _abort(self, directory: TransactionDirectory, holder: int) -> TransactionState:
        file = StateFile(self._manager.filesystem.open_appendable(directory.state), directory.boot)
        try:
            state = file.read()
            if state is None or state.status is not Status.ONGOING:
                name = "unknown since the machine was booted" if state is None else _name(state.status)
                raise InvalidTransactionState(
                    f"no transaction of {directory.transactional_id!r} is ongoing: its state is {name}",
                    transactional_id=directory.transactional_id, status=name,
                )  # fmt: skip
            return self._outcomes.decide_now(directory, file, state, holder)
        finally:
            file.close()

    def _found(self, transactional_id: str) -> tuple[Decision, TransactionDirectory]:
        name = check_transactional_id(transactional_id)
        recorded = self._table.latest().get(name)
        if recorded is None:
            raise TransactionNotFound(
                f"no producer of {self._manager.path} has had transactional_id={name!r}", transactional_id=name
            )
        manager = self._manager
        return recorded, TransactionDirectory.of(manager.filesystem, manager.layout, name, manager.boot)

    def _open(self) -> Iterator[tuple[PartitionLog, int, int]]:
        """Every partition with a transaction that waits for a marker: its producer id and first offset."""
        for topic in self._manager.topics():
            for number in self._manager.describe_topic(topic).numbers:
                partition = self._manager.partition(*TopicPartition(topic, number))
                for producer_id, _, offset in partition.reader.open_transactions():
                    yield partition, producer_id, offset


def _name(status: Status) -> str:
    """Kafka's name: ``PrepareCommit`` for PREPARE_COMMIT."""
    return "".join(word.capitalize() for word in status.name.split("_"))
