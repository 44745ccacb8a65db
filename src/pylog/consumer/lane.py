"""One partition as a consumer reads it: the position, and what has been read ahead of it.

The position is the truth; everything buffered can be dropped and read again from it, and is (``move_to``) where an
interrupt may have left it half done. Records leave in three steps: whole batches as fetched, one batch being decoded,
and records that were taken and given back (``ready``). An error met behind good records waits in ``failure`` until those
are delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylog.codec.batch import BatchView
from pylog.codec.compression import DEFAULT_DECOMPRESSED_LIMIT
from pylog.codec.format import NONE
from pylog.consumer.subscription import name_of
from pylog.errors import CorruptRecord, PylogError
from pylog.model import Record, TopicPartition
from pylog.partition import Cursor

if TYPE_CHECKING:
    from pylog.codec import RecordDecoder
    from pylog.consumer.subscription import TopicId
    from pylog.partition import Fetched, Partition

DECODE_RECORDS_MAX = 4_096
"""Records decoded in one call: bounds what a hostile batch can make of few bytes, and is plenty for speed."""

Transform = Callable[[list[Record]], tuple[list[Record], PylogError | None]]
"""What the deserializers do to records: the good ones before the first failure, and that failure."""


class Budget:
    """The bytes read ahead by all lanes of one consumer, against their bound (``fetch_max_bytes``).

    Stored bytes count from the fetch until the last of its batches is used up, the decompressed bytes of a batch while
    it is open. What cannot be less than one batch may exceed the bound by that batch.
    """

    __slots__ = ("batch_limit_bytes", "limit_bytes", "opened_bytes", "stored_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.batch_limit_bytes = max(limit_bytes, DEFAULT_DECOMPRESSED_LIMIT)
        self.stored_bytes: dict[TopicPartition, int] = {}
        self.opened_bytes: dict[TopicPartition, int] = {}

    @property
    def held_bytes(self) -> int:
        return sum(self.stored_bytes.values()) + sum(self.opened_bytes.values())

    def allows_fetch(self, size_bytes: int) -> bool:
        """Whether so many stored bytes fit."""
        return self.held_bytes + size_bytes <= self.limit_bytes

    def allows_open(self) -> bool:
        """Whether one more batch may be decompressed."""
        return not self.opened_bytes or self.held_bytes < self.limit_bytes


class Lane:
    """One assigned partition. ``position`` is None until there is one (``auto_offset_reset="none"`` before a seek)."""

    __slots__ = (
        "_batches", "_budget", "_cursor", "_decoder", "_opened", "_ready", "_transform",
        "failure", "idle_round", "partition", "paused", "position", "quiet_token", "topic_id", "topic_partition",
    )  # fmt: skip

    def __init__(
        self, topic_partition: TopicPartition, topic_id: TopicId, budget: Budget, transform: Transform | None
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition: Partition | None = None  # opened when first needed, and again when the topic was replaced
        self.position: int | None = None
        self.paused = False
        self.failure: PylogError | None = None
        self.quiet_token: object = None  # the partition's change token when there was nothing more to read
        self.idle_round = 0  # the fetcher's round in which it had nothing more
        self._budget = budget
        self._transform = transform
        self._cursor: Cursor | None = None
        self._batches: deque[BatchView] = deque()
        self._opened: BatchView | None = None
        self._decoder: RecordDecoder | None = None
        self._ready: list[Record] = []

    # Positions

    def move_to(self, position: int | None) -> None:
        """Go on at ``position``."""
        self.position = position
        self.drop_read_ahead()

    def drop_read_ahead(self) -> None:
        """Free the buffers and forget a failure met there; reading goes on at the position."""
        self.failure = None
        self._cursor = None
        self._decoder = self._opened = None
        self._batches.clear()
        self._ready = []
        self._budget.stored_bytes.pop(self.topic_partition, None)
        self._budget.opened_bytes.pop(self.topic_partition, None)
        self.quiet_token = None

    def forget_partition(self) -> None:
        """Open the partition again before it is read: this handle of it is no longer good."""
        self.partition = None
        self.quiet_token = None

    def give_back(self, records: list[Record]) -> None:
        """Take back the end of the chunk taken last, which the application did not get to; it comes first again.

        Chunks are of one size at most, so the one taken last left nothing in ``ready``. Doing this twice does no harm.
        """
        self._ready = records
        self.position = records[0].offset

    def take_failure(self) -> PylogError:
        """The failure, to be raised. The position stays, so that it comes up again unless the application seeks."""
        failure, self.failure = self.failure, None
        assert failure is not None
        return failure

    # Reading ahead

    @property
    def cursor(self) -> Cursor:
        """Where the next fetch starts."""
        if self._cursor is None:
            assert self.position is not None
            self._cursor = Cursor(self.position)
        return self._cursor

    @property
    def is_drained(self) -> bool:
        """True where everything fetched has been taken."""
        return not self._ready and self._decoder is None and not self._batches

    def fill(self, fetched: Fetched) -> bool:
        """Keep what a fetch brought to this drained lane. False if it brought nothing and did not get further."""
        moved = bool(fetched.batches) or fetched.cursor.offset > self.cursor.offset
        if fetched.batches:
            self._budget.stored_bytes[self.topic_partition] = sum(view.header.size_bytes for view in fetched.batches)
            self._batches.extend(fetched.batches)
        else:
            self.position = fetched.cursor.offset  # past what is never returned: markers, aborted records
        self._cursor = fetched.cursor
        return moved

    # Taking records

    def take(self, max_records: int) -> list[Record]:
        """Up to ``max_records`` of what is buffered; the position moves behind them.

        [] where nothing is buffered, where the budget forbids to open another batch now, or with ``failure`` set.
        """
        failure = self.failure
        records = self._ready[:max_records]
        if records:
            del self._ready[:max_records]
        elif failure is None:
            records, failure = self._decode(max_records)
        self._advance(records, failure)
        return records

    def _advance(self, records: list[Record], failure: PylogError | None) -> None:
        if records:
            self.position = records[-1].offset + 1
        if failure is not self.failure:
            self.drop_read_ahead()
            self.failure = failure
        elif self.is_drained and self._cursor is not None:
            self._budget.stored_bytes.pop(self.topic_partition, None)
            self.position = self._cursor.offset

    def _decode(self, max_records: int) -> tuple[list[Record], PylogError | None]:
        """The next records of the fetched batches, and what stopped them short, if it was an error."""
        records: list[Record] = []
        failure: PylogError | None = None
        while len(records) < max_records and (self._decoder is not None or self._batches):
            try:
                decoder = self._decoder or self._open_batch()
                if decoder is None:
                    break
                more = decoder.take(min(max_records - len(records), DECODE_RECORDS_MAX))
            except PylogError as error:
                failure = self._located(error, records)
                break
            if records:
                records += more
            else:
                records = more
            if not decoder.remaining or not more:
                self._close_batch()
        if self._transform is None or not records:
            return records, failure
        records, unreadable = self._transform(records)
        return records, unreadable or failure

    def _open_batch(self) -> RecordDecoder | None:
        """Start on the next batch; None while the budget forbids it."""
        if not self._budget.allows_open():
            return None
        view = self._opened = self._batches.popleft()
        decoder = view.decoder(*self.topic_partition, self._budget.batch_limit_bytes)
        assert self.position is not None
        if view.base_offset < self.position:
            decoder.skip_to(self.position)
        if view.header.codec != NONE:  # else the decoder reads the stored bytes themselves
            self._budget.opened_bytes[self.topic_partition] = decoder.size_bytes
        self._decoder = decoder
        return decoder

    def _close_batch(self) -> None:
        self._decoder = self._opened = None
        self._budget.opened_bytes.pop(self.topic_partition, None)

    def _located(self, error: PylogError, before: list[Record]) -> PylogError:
        """``error`` of the open batch, with where it happened and, for damage, the offset behind the batch."""
        topic, partition = self.topic_partition
        assert self.position is not None
        offset = before[-1].offset + 1 if before else self.position
        view = self._opened
        if view is None or not isinstance(error, CorruptRecord):
            error.facts.update(topic=topic, partition=partition, offset=offset)
            return error
        facts = {**error.facts, "topic": topic, "partition": partition, "offset": max(offset, view.base_offset)}
        located = CorruptRecord(
            f"{name_of(self.topic_partition)}, batch of offsets {view.base_offset} to {view.last_offset}: {error}",
            **facts, base_offset=view.base_offset, next_offset=view.last_offset + 1,
        )  # fmt: skip
        located.__cause__ = error
        return located
