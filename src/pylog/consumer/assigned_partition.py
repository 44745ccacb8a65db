"""One partition as a consumer reads it: the position, and what has been read ahead of it.

The position is the truth; everything buffered can be dropped and read again from it, and is (``move_to``) if an
interrupt may have left it half done. Records leave in three steps: whole batches as fetched, one batch being decoded,
and records that were taken and given back. An error met after good records waits in ``failure`` until those are
delivered.
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
    """The bytes read ahead of all partitions of one consumer, against their bound (``fetch_max_bytes``).

    Stored bytes count from the fetch until the last of its batches is used up, the decompressed bytes of a batch while
    it is open. What cannot be less than one batch may exceed the bound by that batch.
    """

    __slots__ = ("batch_limit_bytes", "fetch_bytes", "held_bytes", "limit_bytes", "opened_bytes", "stored_bytes")

    def __init__(self, limit_bytes: int, fetch_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.fetch_bytes = min(fetch_bytes, limit_bytes)  # of one fetch
        self.batch_limit_bytes = max(limit_bytes, DEFAULT_DECOMPRESSED_LIMIT)
        self.stored_bytes: dict[TopicPartition, int] = {}
        self.opened_bytes: dict[TopicPartition, int] = {}
        self.held_bytes = 0  # of both

    def store(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """So many stored bytes are held for this partition, in place of those before."""
        self.held_bytes += size_bytes - self.stored_bytes.pop(topic_partition, 0)
        if size_bytes:
            self.stored_bytes[topic_partition] = size_bytes

    def open(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """So many decompressed bytes, in place of those before."""
        self.held_bytes += size_bytes - self.opened_bytes.pop(topic_partition, 0)
        if size_bytes:
            self.opened_bytes[topic_partition] = size_bytes

    def count_again(self) -> None:
        """After an interrupt, which may have come between two steps."""
        self.held_bytes = sum(self.stored_bytes.values()) + sum(self.opened_bytes.values())

    def allows_fetch(self) -> bool:
        """Whether what one more fetch brings will fit."""
        return self.held_bytes + self.fetch_bytes <= self.limit_bytes


class AssignedPartition:
    """``position`` is None until there is one (``auto_offset_reset="none"`` before a seek)."""

    __slots__ = (
        "_batches", "_budget", "_decoder", "_given_back", "_opened",
        "cursor", "failure", "format", "idle_round", "partition", "paused", "position", "quiet_token", "quiet_turn",
        "topic_id", "topic_partition",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, topic_id: TopicId, budget: Budget) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition: PartitionLog | None = None  # opened when first needed, and again when the topic was replaced
        self.position: int | None = None
        self.cursor: Cursor | None = None  # where the next fetch starts; None: at the position
        self.paused = False
        self.format: RecordFormat[Any] | None = None  # of what is read ahead
        self.failure: PylogError | None = None
        self.quiet_token: object = None  # the partition's change token when there was nothing more to read
        self.idle_round = 0  # the fetcher's round in which it had nothing more
        self.quiet_turn = 0  # the fetcher's turn in which it gave nothing
        self._budget = budget
        self._batches: deque[BatchView] = deque()
        self._opened: BatchView | None = None
        self._decoder: Decoder[Any] | None = None
        self._given_back: list[Record] = []

    # Positions

    def move_to(self, position: int | None) -> None:
        """Go on at ``position``."""
        self.position = position
        self.drop_read_ahead()

    def drop_read_ahead(self) -> None:
        """Free the buffers and forget a failure met there; reading goes on at the position."""
        self.failure = None
        self.cursor = None
        self._decoder = self._opened = None
        self._batches.clear()
        self._given_back = []
        self._budget.store(self.topic_partition, 0)
        self._budget.open(self.topic_partition, 0)
        self.quiet_token = None

    def change_format(self, format: RecordFormat[Any]) -> None:
        """Return records as ``format``. What is read ahead in another one, and a failure met so, is read again."""
        self.format = format
        self.drop_read_ahead()

    def forget_partition(self) -> None:
        """Open the partition again before it is read: this handle of it is no longer good."""
        self.partition = None
        self.quiet_token = None

    def give_back(self, records: list[Record]) -> None:
        """Take back the end of the chunk taken last, which the application did not get to; it comes first again.

        Chunks are of one size at most, so the one taken last left nothing given back before. Doing this twice does no
        harm.
        """
        self._given_back = records
        self.position = records[0].offset

    def take_failure(self) -> PylogError:
        """The failure, to be raised. The position stays, so that it comes up again unless the application seeks."""
        failure, self.failure = self.failure, None
        assert failure is not None
        return failure

    # Reading ahead

    @property
    def is_drained(self) -> bool:
        """True if everything fetched has been taken."""
        return not self._given_back and self._decoder is None and not self._batches

    @property
    def is_waiting(self) -> bool:
        """True if the next thing to do is a fetch, which may bring something."""
        return self.is_drained and self.failure is None and self.quiet_token is None

    def fill(self, fetched: Fetched, size_bytes: int) -> None:
        """Keep what a fetch brought to this drained partition: batches of so many bytes."""
        if fetched.batches:
            self._budget.store(self.topic_partition, size_bytes)
            self._batches.extend(fetched.batches)
        else:
            self.position = fetched.cursor.offset  # past what is never returned: markers, aborted records
        self.cursor = fetched.cursor

    # Taking records

    def take(self, format: RecordFormat[Taken], max_records: int) -> Taken | None:
        """Up to ``max_records`` of what is buffered, in ``format``, the partition's own; the position moves after them.

        None if nothing is buffered, if the budget forbids to open another batch now, or with ``failure`` set.
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
        """The next records of the fetched batches, and what stopped them short, if it was an error."""
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
        """Start on the next batch; None while the budget forbids it."""
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
        """``error`` of the open batch, met at ``position`` (None: the partition's), with where it happened.

        For damage also with the offset after the batch.
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
