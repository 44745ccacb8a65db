"""The records of a partition that are not in the log yet, and the buffers of a topic.

A buffer has at most one open batch (records are added under ``lock``, held for microseconds, never over a write) and at
most one sealed batch (on its way into the log, by the thread whose turn ``writing`` it is). So a thread can fill the next
batch while another writes the last one, and batches reach the log in the order they were opened. Taken in the order
writing, lock, Memory's; none of them is held when a callback runs.
"""

from __future__ import annotations

import threading  # senders of several threads meet in a buffer
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from pylog.codec import RecordEncoder
from pylog.model import TopicPartition
from pylog.producer.delivery import PendingBatch, interrupted
from pylog.producer.memory import Memory
from pylog.producer.partitioner import Choice, KeyHash
from pylog.turn import Turn, is_mine

if TYPE_CHECKING:
    from pylog.partition import Partition

_ORPHAN_S = 1.0


class _NoRecords:
    """Stands for an encoder where no batch is open: takes nothing."""

    count = 0
    size_bytes = 0

    def enter(self, kind: Any, batch: Any, timestamp_ms: int | None, key: Any, value: Any, headers: Any) -> None:
        return None

    def enter_many(
        self, timestamp_ms: int, values: Sequence[Any], keys: Sequence[Any] | None, start: int, stop: int
    ) -> tuple[int, int]:
        return 0, 0

    def close(self) -> None:
        return None

    def reopen(self) -> None:
        return None

    def extend(
        self, timestamp_ms: int, values: Sequence[Any], keys: Sequence[Any] | None, start: int, stop: int
    ) -> int:
        return start


NO_BATCH = PendingBatch(cast("PartitionBuffer", None), cast(RecordEncoder, _NoRecords()), 0)


class Driver(Protocol):
    """The sender, as a batch's deliveries see it."""

    def finish(self, batch: PendingBatch, timeout_s: float | None) -> bool:
        """Bring the batch to its end in this thread. False if it is not decided within the time."""

    def hurry(self, batch: PendingBatch) -> None:
        """Have the batch written soon by another thread."""

    def log_closes(self) -> None:
        """Bring every batch to its end."""


class TopicBuffers:
    """The buffers of one topic, one for each partition, and the settings of the topic that a producer acts on."""

    __slots__ = (
        "batch_bytes",
        "buffers",
        "choice",
        "codec",
        "id",
        "is_abandoned",
        "is_stale",
        "key_hash",
        "level",
        "max_message_bytes",
        "name",
        "only",
    )

    def __init__(self, name: str, topic_id: object, choice: Choice) -> None:
        self.name = name
        self.id = topic_id  # another id under the same name is another topic
        self.choice = choice
        self.key_hash: KeyHash | None = None  # None leaves records with a key to the choice, too
        self.is_stale = False  # a batch failed: perhaps the topic was deleted
        self.is_abandoned = False  # these are the buffers of the process that was forked from
        self.buffers: list[PartitionBuffer] = []  # replaced, never changed in place: readers take no lock
        self.only: PartitionBuffer | None = None  # the one buffer where there is no choice
        self.codec = 0
        self.level: int | None = None
        self.max_message_bytes = 0
        self.batch_bytes = 0  # an open batch is bounded by this, or by less where memory is short


class PartitionBuffer:
    """The records of one partition that are not in the log yet."""

    __slots__ = (
        "appended",
        "calling",
        "driver",
        "is_extended",
        "lock",
        "memory",
        "next_sequence",
        "number",
        "open",
        "partition",
        "producer_id",
        "sealed",
        "topic",
        "topic_partition",
        "used_in_period",
        "writing",
    )

    def __init__(self, topic: TopicBuffers, number: int, memory: Memory, driver: Driver) -> None:
        self.topic = topic
        self.number = number
        self.topic_partition = TopicPartition(topic.name, number)
        self.memory = memory
        self.driver = driver
        self.lock = threading.RLock()
        self.is_extended = False  # a bulk send is in the middle of the open batch, under ``lock``
        self.writing = Turn()  # of the thread that appends
        self.calling = Turn()  # of the thread that runs callbacks
        self.open = NO_BATCH
        self.sealed: PendingBatch | None = None
        self.appended: deque[PendingBatch] = deque()  # left the buffer, in log order; callbacks still to run
        self.partition: Partition | None = None  # opened with the first batch
        self.producer_id = -1  # the id ``next_sequence`` counts under
        self.next_sequence = 0
        self.used_in_period = 0

    def is_interrupted(self) -> bool:
        """Whether this thread is in the middle of a bulk send to it: then a signal handler asks, or a value's ``__bytes__``."""
        return self.is_extended and is_mine(self.lock)

    def finish(self, batch: PendingBatch, timeout_s: float | None) -> bool:
        return self.driver.finish(batch, timeout_s)

    def hurry(self, batch: PendingBatch) -> None:
        self.driver.hurry(batch)

    def publish(self, batch: PendingBatch) -> bool:
        """Make a batch that holds a record the open one, if none is open and its limit can be reserved. Under ``lock``.

        An exception of a signal handler comes before all of it or after, and so does what the handler sends: there is no
        call in between (a jump, where Python 3.10 runs handlers, too: what the handler sends then is refused).
        """
        memory = self.memory
        if is_mine(memory.lock):
            raise interrupted(self)
        with memory.lock:
            if self.open is not NO_BATCH or memory.reserved_bytes + batch.limit_bytes > memory.limit_bytes:
                return False
            memory.reserved_bytes += batch.limit_bytes
            batch.reserved_bytes = batch.limit_bytes
            self.open = batch
            memory.unsettled[batch] = None
            memory.waiting[self] = None
        return True

    def seal(self) -> PendingBatch | None:
        """The batch to write next, closed to further records; None if there is none. In the turn ``writing``."""
        if self.topic.is_abandoned:
            return None
        if self.sealed is not None:
            if not self.sealed.written and not self.sealed.settled:
                return self.sealed  # its append was tried, and is to be tried again
            self.unseal()  # a signal handler's exception came in between
        with self.lock:
            if self.open is NO_BATCH:
                return None
            self.open.encoder.close()
            self.sealed, self.open = self.open, NO_BATCH
        self.topic.choice.batch_closed(self.number, len(self.topic.buffers))
        return self.sealed

    def unseal(self) -> None:
        """The sealed batch is in the log, or has failed: it waits for acknowledgement and callbacks."""
        batch, self.sealed = self.sealed, None
        if batch is not None:
            self.appended.append(batch)

    def rest(self) -> None:
        """Need nobody's care any more, if all is settled."""
        if self.topic.is_abandoned:  # and a thread of the parent may have the lock
            return
        is_settled = not self.unacknowledged()
        with self.lock:
            if is_settled and self.open is NO_BATCH and self.sealed is None:
                self.memory.waiting.pop(self, None)
                if self.open is not NO_BATCH:  # a signal handler has just sent something
                    self.memory.waiting[self] = None

    def unacknowledged(self) -> list[PendingBatch]:
        """The batches that are in the log and not settled, in their order."""
        return [batch for batch in self.appended.copy() if not batch.settled]

    def due_s(self) -> float:
        """When somebody should look after the oldest record at the latest."""
        batch = self.sealed or self.open
        if batch is not NO_BATCH:
            return batch.due_s
        orphans = self.unacknowledged()  # their thread is syncing them, unless it was interrupted
        return orphans[0].due_s + _ORPHAN_S if orphans else 0.0
