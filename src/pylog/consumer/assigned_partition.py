"""One partition of a consumer: its position, and what has been read ahead.

The position is the truth. Everything buffered can be dropped and read again from it; ``move_to``
does so if an interrupt may have left a step half done. Records are buffered in three forms: fetched
batches, one batch being decoded, and records that were taken and given back. An error after good
records waits in ``failure`` until those records are delivered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from pylog.codec.batch import BatchView
from pylog.codec.compression import DEFAULT_DECOMPRESSED_LIMIT
from pylog.consumer.decoding import Decoder, RecordFormat, Taken
from pylog.consumer.subscription import name_of
from pylog.errors import CorruptRecord, PylogError
from pylog.interrupts import own
from pylog.model import Record, TopicPartition

if TYPE_CHECKING:
    from pylog.consumer.subscription import TopicId
    from pylog.partition import Cursor, Fetched
    from pylog.partition.partition_log import PartitionLog


class Budget:
    """The bytes read ahead by one consumer in all partitions, limited by ``fetch_max_bytes``.

    Stored bytes count from the fetch until the last of its batches is used up. The decompressed
    bytes of a batch count while it is open. One batch may exceed the limit.
    """

    __slots__ = ("batch_limit_bytes", "fetch_bytes", "held_bytes", "limit_bytes", "opened_bytes", "stored_bytes")

    def __init__(self, limit_bytes: int, fetch_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.fetch_bytes = min(fetch_bytes, limit_bytes)  # per fetch
        self.batch_limit_bytes = max(limit_bytes, DEFAULT_DECOMPRESSED_LIMIT)
        self.stored_bytes: dict[TopicPartition, int] = {}
        self.opened_bytes: dict[TopicPartition, int] = {}
        self.held_bytes = 0  # the sum of both

    def store(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Set the stored bytes held for this partition."""
        self.held_bytes += size_bytes - self.stored_bytes.pop(topic_partition, 0)
        if size_bytes:
            self.stored_bytes[topic_partition] = size_bytes

    def open(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Set the decompressed bytes held for this partition."""
        self.held_bytes += size_bytes - self.opened_bytes.pop(topic_partition, 0)
        if size_bytes:
            self.opened_bytes[topic_partition] = size_bytes

    def count_again(self) -> None:
        """Repair the sum after an interrupt between two steps."""
        self.held_bytes = sum(self.stored_bytes.values()) + sum(self.opened_bytes.values())

    def allows_fetch(self) -> bool:
        """Whether one more fetch fits."""
        return self.held_bytes + self.fetch_bytes <= self.limit_bytes


class AssignedPartition:
    """``position`` is None while unknown (``auto_offset_reset="none"`` before a seek)."""

    __slots__ = (
        "_batches", "_budget", "_decoder", "_given_back", "_opened",
        "cursor", "failure", "format", "idle_round", "look_again", "partition", "paused", "position", "quiet_since_s",
        "quiet_token", "topic_id", "topic_partition", "unmarked_since_s",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, topic_id: TopicId, budget: Budget) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition: PartitionLog | None = None  # opened on first use, and again after the topic was replaced
        self.position: int | None = None
        self.cursor: Cursor | None = None  # where the next fetch starts; None: at the position
        self.paused = False
        self.format: RecordFormat[Any] | None = None  # of the records read ahead
        self.failure: PylogError | None = None
        self.quiet_token: object = None  # the partition's change token when there was nothing more to read
        self.idle_round = 0  # the fetcher's last round in which the partition had nothing more
        self.quiet_since_s = 0.0  # when it was last found to have nothing more
        self.look_again = False  # more may become readable without a change of the partition
        self.unmarked_since_s: float | None = None  # when a transaction was first found over, but without a marker
        self._budget = budget
        self._batches: deque[BatchView] = deque()
        self._opened: BatchView | None = None
        self._decoder: Decoder[Any] | None = None
        self._given_back: list[Record] = []

    # Positions

    def move_to(self, position: int | None) -> None:
        """Continue at ``position``."""
        self.position = position
        self.drop_read_ahead()

    def drop_read_ahead(self) -> None:
        """Free the buffers and forget a failure met there. Reading continues at the position."""
        self.failure = None
        self.cursor = None
        self._decoder = self._opened = None
        self._batches.clear()
        self._given_back = []
        self._budget.store(self.topic_partition, 0)
        self._budget.open(self.topic_partition, 0)
        self.quiet_token = None
        self.look_again = False

    def change_format(self, format: RecordFormat[Any]) -> None:
        """Return records as ``format``. Drops what was read ahead in another one, and its
        failure."""
        self.format = format
        self.drop_read_ahead()

    def forget_partition(self) -> None:
        """Open the partition again before the next read: this handle is no longer valid."""
        self.partition = None
        self.quiet_token = None

    def give_back(self, records: list[Record]) -> None:
        """Take back the end of the last chunk, which the application did not reach.

        It is returned first. Chunks have one maximum size, so none given back before is left.
        Repeating this is harmless.
        """
        self._given_back = records
        self.position = records[0].offset

    def take_failure(self) -> PylogError:
        """The failure, to be raised. It recurs at the same position unless the application
        seeks."""
        failure, self.failure = self.failure, None
        assert failure is not None
        return failure

    # Reading ahead

    @property
    def is_drained(self) -> bool:
        """True if everything fetched was taken."""
        return not self._given_back and self._decoder is None and not self._batches

    @property
    def is_waiting(self) -> bool:
        """True if a fetch comes next and may return something."""
        return self.is_drained and self.failure is None and self.quiet_token is None

    def fill(self, fetched: Fetched, size_bytes: int) -> None:
        """Keep the result of a fetch for this drained partition. The batches have
        ``size_bytes``."""
        if fetched.batches:
            self._budget.store(self.topic_partition, size_bytes)
            self._batches.extend(fetched.batches)
        else:
            self.position = fetched.cursor.offset  # past batches that are never returned: markers, aborted records
        self.cursor = fetched.cursor

    # Taking records

    def take(self, format: RecordFormat[Taken], max_records: int) -> Taken | None:
        """Up to ``max_records`` buffered records in the partition's ``format``. Moves the position.

        None if nothing is buffered, if the budget allows no new batch, or if ``failure`` is set.
        """
        chunk: Taken | None = None
        failure = self.failure
        if self._given_back:
            chunk = cast(Taken, self._given_back[:max_records])  # an iteration gave them back: they are in its format
            del self._given_back[:max_records]
        elif failure is None:
            chunk, failure = self._decode(format, max_records)
        if chunk:
            self.position = format.next_offset(chunk)
        if failure is not self.failure:
            self.drop_read_ahead()
            self.failure = failure
        elif self.cursor is not None and self.is_drained:
            self._budget.store(self.topic_partition, 0)
            self.position = self.cursor.offset
        return chunk or None

    def _decode(self, format: RecordFormat[Taken], max_records: int) -> tuple[Taken | None, PylogError | None]:
        """The next records of the fetched batches, and the error that ended them early, if any."""
        chunk: Taken | None = None
        failure: PylogError | None = None
        left = max_records
        while (self._decoder is not None or self._batches) and left > 0 and not (chunk and format.is_full(chunk)):
            try:
                decoder = self._decoder or self._open_batch(format)
                if decoder is None:
                    break
                more = decoder.take(min(left, format.decode_records_max))
            except own(PylogError) as error:
                failure = self._located(error, format.next_offset(chunk) if chunk else None)
                break
            left -= len(more)
            if chunk:
                chunk.extend(more)
            else:
                chunk = more
            if not decoder.remaining or not more:
                self._decoder = self._opened = None
                if self._budget.opened_bytes:
                    self._budget.open(self.topic_partition, 0)
        if chunk and format.transform is not None:
            chunk, unfit = format.transform(chunk)
            failure = unfit or failure
        return chunk, failure

    def _open_batch(self, format: RecordFormat[Taken]) -> Decoder[Taken] | None:
        """Open the next batch; None while the budget does not allow it."""
        budget = self._budget
        if budget.opened_bytes and budget.held_bytes >= budget.limit_bytes:
            return None
        view = self._opened = self._batches.popleft()
        decoder, held_bytes = format.decoder(view, self.topic_partition, budget.batch_limit_bytes)
        assert self.position is not None
        if view.header.base_offset < self.position:
            decoder.skip_to(self.position)
        if held_bytes:
            budget.open(self.topic_partition, held_bytes)
        self._decoder = decoder
        return decoder

    def _located(self, error: PylogError, position: int | None) -> PylogError:
        """``error`` of the open batch, with its location. ``position`` None is the partition's.

        A ``CorruptRecord`` also gets the offset after the batch.
        """
        topic, partition = self.topic_partition
        offset = self.position if position is None else position
        assert offset is not None
        view = self._opened
        if view is None or not isinstance(error, CorruptRecord):
            error.facts.update({"offset": offset, **error.facts, "topic": topic, "partition": partition})
            return error
        facts = {**error.facts, "topic": topic, "partition": partition, "offset": max(offset, view.base_offset)}
        located = CorruptRecord(
            f"{name_of(self.topic_partition)}, batch of offsets {view.base_offset} to {view.last_offset}: {error}",
            **facts, base_offset=view.base_offset, next_offset=view.last_offset + 1,
        )  # fmt: skip
        located.__cause__ = error
        return located
