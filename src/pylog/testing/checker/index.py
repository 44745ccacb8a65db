"""The sends and reads of each partition in a history, collected in one pass.

Memory grows with the records sent and the operations, not with the number of reads: of a poll only
the first and last offset matter, and the gaps between successive offsets.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pylog.testing import history
from pylog.testing.checker.group_index import GroupIndex
from pylog.testing.checker.partition_index import IS_ACKNOWLEDGED, IS_REFUSED, NO_OFFSET, NO_OPERATION, PartitionIndex
from pylog.testing.checker.transaction_index import TransactionIndex
from pylog.testing.history import BEGIN, COMMIT, DELETE, FAIL, INFO, INVOKE, OK, POLL, TRANSACTION, Operation, Pair

NO_LINE = -1


class Jump(NamedTuple):
    """Two successive offsets of one process, if the second is not the first plus one."""

    process: int
    partition: str
    before: int
    after: int
    inside: bool  # both are of one operation


class Wait(NamedTuple):
    """A long wait, in seconds during which no process was stopped."""

    process: int
    what: str
    seconds: float


class Actor:
    """The state of a process between its operations."""

    def __init__(self) -> None:
        self.cursor: dict[str, int] = {}  # the last offset read, or the one before the next
        self.acked: dict[str, tuple[int, int]] = {}  # the last acknowledgement: offset, operation
        self.node = NO_OPERATION  # the last operation invoked
        self.begun = NO_OPERATION  # a transaction whose commit it has not invoked yet
        self.polls = False  # whether that is a poll without an answer
        self.asks = ""  # the function it waits for
        self.deleting: dict[str, int | None] = {}  # invoked, not answered yet
        self.since = 0.0  # its last event; this clock stands while any process is stopped
        self.time = 0.0  # its last event, on the clock of the history
        self.event = NO_LINE
        self.hungry: dict[str, float] = {}  # partition with records -> since when it gets none


class Index:
    """All facts of a history. The checks draw the conclusions."""

    def __init__(self, operations: Iterable[Operation], *, stuck_s: float) -> None:
        self.stuck_s = stuck_s
        self.partitions: dict[str, PartitionIndex] = {}
        self.jumps: list[Jump] = []
        self.sends_back: list[Jump] = []  # acknowledged offsets that do not rise by one
        self.waits: list[Wait] = []
        self.early_reads: list[tuple[int, str, int]] = []  # process, partition, number: before its commit
        self.processes = array("q")  # by operation, in the order of invocation
        self.asked = array("q")  # the line of its invocation, or one that is certainly before it
        self.done = array("q")
        self.flows: list[tuple[int, int]] = []  # (operation that sent, operation that read)
        self.lag_max_s = 0.0
        self.transactions = TransactionIndex(self.partitions)
        self.groups = GroupIndex()
        self.operations = self.polled = 0
        self._late: list[tuple[PartitionIndex, int, int]] = []
        self._actors: dict[int, Actor] = {}
        self._stopped: dict[int, float] = {}
        self._stopped_s = self._stopped_since = self._now = 0.0
        for operation in operations:
            self._take(operation)
        self._end()

    def _take(self, op: Operation) -> None:
        self.operations += 1
        self._now = op.time
        actor = self._actors.get(op.process)
        if actor is None:
            actor = self._actors[op.process] = Actor()
            actor.event, actor.time, actor.since = self.operations - 1, op.time, self._active(op.time)
        self._watch(op, actor)
        if op.f in (history.STOP, history.CONTINUE, history.CRASH):
            self._control(op)
        elif op.type == INVOKE:
            self._ask(op, actor)
        else:
            self._answer(op, actor)
        actor.event, actor.time, actor.since = self.operations, op.time, self._active(op.time)

    # Time

    def _active(self, time: float) -> float:
        """Time without stops: a stopped process may hold the lock that the others wait for."""
        return (self._stopped_since if self._stopped else time) - self._stopped_s

    def _control(self, op: Operation) -> None:
        if op.f == history.STOP:
            if not self._stopped:
                self._stopped_since = op.time
            self._stopped[op.process] = op.time
            self.groups.stop(op.process)
        elif self._stopped.pop(op.process, None) is not None and not self._stopped:
            self._stopped_s += op.time - self._stopped_since

    def _watch(self, op: Operation, actor: Actor) -> None:
        """Record a wait of the process that was too long."""
        if op.f in (history.STOP, history.CONTINUE):
            return
        if actor.asks:
            self._waited(op.process, actor.asks, self._active(op.time) - actor.since)
        actor.asks = op.f if op.type == INVOKE else ""

    def _waited(self, process: int, what: str, seconds: float) -> None:
        if seconds > self.stuck_s:
            self.waits.append(Wait(process, what, seconds))

    def _end(self) -> None:
        end = self._active(self._now)
        for process, actor in self._actors.items():
            self._delete(actor.deleting)
            if actor.asks:
                self._waited(process, actor.asks, end - actor.since)
        self.transactions.end()
        for partition, number, reader in self._late:
            if partition.node[number] != NO_OPERATION:
                self.flows.append((partition.node[number], reader))

    # What was asked

    def partition(self, name: str) -> PartitionIndex:
        found = self.partitions.get(name)
        if found is None:
            found = self.partitions[name] = PartitionIndex(name)
        return found

    def _node(self, process: int, asked: int) -> int:
        self.processes.append(process)
        self.asked.append(asked)
        self.done.append(NO_LINE)
        return len(self.done) - 1

    def _ask(self, op: Operation, actor: Actor) -> None:
        self._delete(actor.deleting)  # without an answer it may have happened
        actor.deleting = dict(op.positions) if op.f == DELETE else {}
        if op.f in (COMMIT, TRANSACTION):
            self.groups.ask(op.process, op.group, op.positions)
        if op.f == TRANSACTION and self._end_begun(actor):
            self.transactions.decide(actor.node)
            return
        actor.node, actor.polls = self._node(op.process, self.operations), op.f == POLL
        for name, pairs in op.sent.items():
            self.partition(name).send(pairs, actor.node, op.process, op.atomic)
        if op.f in (BEGIN, TRANSACTION):
            self.transactions.send(actor.node, op.sent, begins=op.f == BEGIN)
        if op.f == BEGIN:
            actor.begun = actor.node

    def _end_begun(self, actor: Actor) -> bool:
        """The process continues the transaction that it has begun. False if there is none."""
        if actor.begun == NO_OPERATION:
            return False
        actor.node, actor.begun, actor.polls = actor.begun, NO_OPERATION, False
        return True

    def _delete(self, positions: Mapping[str, int | None]) -> None:
        for name, before in positions.items():
            partition = self.partition(name)
            partition.deleted_to = max(partition.deleted_to, before or 0)

    # What was answered

    def _answer(self, op: Operation, actor: Actor) -> None:
        if op.f == history.ASSIGN:
            self._assign(op, actor)
        elif op.f == DELETE:
            actor.deleting = {}
            self._delete({} if op.type == FAIL else op.positions)
        elif op.f == COMMIT:
            if op.type == OK:
                self.groups.commit(op.process, op.group, op.generation, op.positions)
            elif op.type == FAIL:
                self.groups.refuse(op.process, op.group, op.positions)
        else:
            if op.f == TRANSACTION:
                self._end_transaction(op, actor)
            self._answer_records(op, actor)

    def _end_transaction(self, op: Operation, actor: Actor) -> None:
        self._end_begun(actor)
        if op.type == OK:
            self.groups.commit(op.process, op.group, op.generation, op.positions)
        elif op.type == FAIL:
            self.groups.refuse(op.process, op.group, op.positions)
            self.transactions.refuse(actor.node)

    def _answer_records(self, op: Operation, actor: Actor) -> None:
        if self._was_not_asked(op, actor):
            actor.node = self._node(op.process, actor.event)
        node, actor.polls = actor.node, False
        for name, sent in op.sent.items():
            self._sent(op, actor, self.partition(name), sent)
        for name, polled in op.polled.items():
            self._read(op, actor, self.partition(name), polled)
        if op.type == OK:
            self.done[node] = self.operations
            if op.f != history.SEND:
                self._look_for_hunger(op, actor)

    def _was_not_asked(self, op: Operation, actor: Actor) -> bool:
        """Whether the history lacks the invocation of this completion."""
        sent = ((self.partition(name), pairs[0][1]) for name, pairs in op.sent.items() if pairs)
        new = any(
            value is not None and partition.node[partition.id_of(value)] == NO_OPERATION for partition, value in sent
        )
        return new or actor.node == NO_OPERATION or (op.f == POLL and not actor.polls)

    def _sent(self, op: Operation, actor: Actor, partition: PartitionIndex, pairs: Sequence[Pair]) -> None:
        for offset, value in pairs:
            assert value is not None
            number = partition.id_of(value)
            if partition.node[number] == NO_OPERATION:
                partition.attribute(number, actor.node, op.process)
            node = partition.node[number]
            if op.type == FAIL:
                partition.outcome[number] = IS_REFUSED
            if op.type != OK:
                if op.type == INFO and offset is not None:
                    partition.claimed_at[number] = offset
                continue
            partition.outcome[number] = IS_ACKNOWLEDGED
            if offset is None:
                continue
            before, by = actor.acked.get(partition.name, (offset - 1, NO_OPERATION))
            if offset != before + 1 and (by == node or offset <= before):
                self.sends_back.append(Jump(op.process, partition.name, before, offset, by == node))
            actor.acked[partition.name] = (offset, node)
            partition.see(number, offset)
            partition.acked_at[number] = offset
            partition.acked_time[number] = op.time
            partition.acked_max = max(partition.acked_max, offset)

    def _read(self, op: Operation, actor: Actor, partition: PartitionIndex, pairs: Sequence[Pair]) -> None:
        name, ok, node = partition.name, op.type == OK, actor.node
        before = actor.cursor.get(name)
        if op.final and ok:
            partition.has_final = True
            if pairs and partition.final_from == NO_OFFSET:
                partition.final_from = pairs[0][0] or 0
        inside, writer = False, NO_OPERATION
        for offset, value in pairs:
            assert offset is not None
            if before is not None and offset != before + 1:
                self.jumps.append(Jump(op.process, name, before, offset, inside))
            before, inside = offset, True
            if value is None:
                partition.altered.add(offset)
                continue
            number = partition.id_of(value)
            partition.see(number, offset)
            if not ok:
                continue
            self.polled += 1
            partition.read(number, offset, op.final)
            sender = partition.node[number]
            if sender == NO_OPERATION:
                self._late.append((partition, number, node))
            elif sender == node or sender in self.transactions.undecided:
                self.early_reads.append((op.process, name, number))
            elif sender != writer:
                writer = sender
                self.flows.append((sender, node))
        if ok and before is not None:
            actor.cursor[name] = before
            self.groups.poll(op.process, name, before)

    def _look_for_hunger(self, op: Operation, actor: Actor) -> None:
        """Measure the lag, and detect a process that gets no records although there are some."""
        for name, cursor in actor.cursor.items():
            partition = self.partition(name)
            position = max(cursor + 1, partition.deleted_to)
            if partition.acked_max < position or op.polled.get(name):
                actor.hungry.pop(name, None)
            else:
                since = actor.hungry.setdefault(name, self._active(op.time))
                if self._active(op.time) - since > self.stuck_s:
                    self._waited(op.process, f"records of {name} from offset {position}", self._active(op.time) - since)
                    actor.hungry[name] = self._active(op.time)
            waiting = partition.at.get(position)
            if waiting is not None and partition.outcome[waiting] == IS_ACKNOWLEDGED and partition.acked_time[waiting]:
                self.lag_max_s = max(self.lag_max_s, actor.time - partition.acked_time[waiting])

    def _assign(self, op: Operation, actor: Actor) -> None:
        if op.type == FAIL:
            return
        if op.group:
            self.groups.assign(op.process, op.group, op.generation, op.positions, lost=op.type == INFO)
        kept = {name: actor.cursor[name] for name in op.positions if name in actor.cursor}
        sought = {name: position - 1 for name, position in op.positions.items() if position is not None}
        actor.cursor = {**kept, **sought} if op.type != INFO else {}
        actor.hungry.clear()
