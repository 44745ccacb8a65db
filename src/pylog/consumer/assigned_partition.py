"""One partition as a consumer reads it: the position, and what has been read ahead of it.

The position is the truth; everything buffered can be dropped and read again from it, and is (``move_to``) where an
interrupt may have left it half done. Records leave in three steps: whole batches as fetched, one batch being decoded,
and records that were taken and given back (``ready``). An error met behind good records waits in ``failure`` until those
are delivered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from pylog.codec.batch import BatchView
from pylog.codec.compression import DEFAULT_DECOMPRESSED_LIMIT
from pylog.consumer.decoding import Decoder, Form, Taken
from pylog.consumer.subscription import name_of
from pylog.errors import CorruptRecord, PylogError
from pylog.interrupts import own
from pylog.model import Record, TopicPartition
from pylog.partition import Cursor

if TYPE_CHECKING:
    from pylog.consumer.subscription import TopicId
    from pylog.partition import Fetched
    from pylog.partition.partition_log import PartitionLog


class Budget:
    """The bytes read ahead by all lanes of one consumer, against their bound (``fetch_max_bytes``).

    Stored bytes count from the fetch until the last of its batches is used up, the decompressed bytes of a batch while
    it is open. What cannot be less than one batch may exceed the bound by that batch.
    """

    __slots__ = ("batch_limit_bytes", "held_bytes", "limit_bytes", "opened_bytes", "stored_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
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

    def allows_fetch(self, size_bytes: int) -> bool:
        """Whether so many stored bytes fit."""
        return self.held_bytes + size_bytes <= self.limit_bytes

    def allows_open(self) -> bool:
        """Whether one more batch may be decompressed."""
        return not self.opened_bytes or self.held_bytes < self.limit_bytes


class Lane:
    """One assigned partition. ``position`` is None until there is one (``auto_offset_reset="none"`` before a seek)."""

    __slots__ = (
        "_batches", "_budget", "_cursor", "_decoder", "_opened", "_ready",
        "failure", "form", "idle_round", "partition", "paused", "position", "quiet_token", "quiet_turn",
        "topic_id", "topic_partition",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition, topic_id: TopicId, budget: Budget) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition: PartitionLog | None = None  # opened when first needed, and again when the topic was replaced
        self.position: int | None = None
        self.paused = False
        self.form: Form[Any] | None = None  # what is read ahead is decoded for
        self.failure: PylogError | None = None
        self.quiet_token: object = None  # the partition's change token when there was nothing more to read
        self.idle_round = 0  # the fetcher's round in which it had nothing more
        self.quiet_turn = 0  # the fetcher's turn in which it gave nothing
        self._budget = budget
        self._cursor: Cursor | None = None
        self._batches: deque[BatchView] = deque()
        self._opened: BatchView | None = None
        self._decoder: Decoder[Any] | None = None
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
        self._budget.store(self.topic_partition, 0)
        self._budget.open(self.topic_partition, 0)
        self.quiet_token = None

    def change_form(self, form: Form[Any]) -> None:
        """Hand out records as ``form``. What is read ahead for another one, and a failure met so, is read again."""
        self.form = form
        self.drop_read_ahead()

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

    @property
    def is_waiting(self) -> bool:
        """True where the next thing to do is a fetch, which may bring something."""
        return self.is_drained and self.failure is None and self.quiet_token is None

    def fill(self, fetched: Fetched) -> bool:
        """Keep what a fetch brought to this drained lane. False if it brought nothing and did not get further."""
        moved = bool(fetched.batches) or fetched.cursor.offset > self.cursor.offset
        if fetched.batches:
            self._budget.store(self.topic_partition, sum(view.header.size_bytes for view in fetched.batches))
            self._batches.extend(fetched.batches)
        else:
            self.position = fetched.cursor.offset  # past what is never returned: markers, aborted records
        self._cursor = fetched.cursor
        return moved

    # Taking records

    def take(self, form: Form[Taken], max_records: int) -> Taken:
        """Up to ``max_records`` of what is buffered, as ``form``, the lane's own; the position moves behind them.

        None where nothing is buffered, where the budget forbids to open another batch now, or with ``failure`` set.
        """
        failure = self.failure
        if self._ready:
            chunk = cast(Taken, self._ready[:max_records])  # an iteration gave them back: they are in its form
            del self._ready[:max_records]
        elif failure is None:
            chunk, failure = self._decode(form, max_records)
        else:
            chunk = form.nothing()
        self._advance(form.next_offset(chunk) if chunk else None, failure)
        return chunk

    def _advance(self, position: int | None, failure: PylogError | None) -> None:
        if position is not None:
            self.position = position
        if failure is not self.failure:
            self.drop_read_ahead()
            self.failure = failure
        elif self.is_drained and self._cursor is not None:
            self._budget.store(self.topic_partition, 0)
            self.position = self._cursor.offset

    def _decode(self, form: Form[Taken], max_records: int) -> tuple[Taken, PylogError | None]:
        """The next records of the fetched batches, and what stopped them short, if it was an error."""
        chunk = form.nothing()
        failure: PylogError | None = None
        while len(chunk) < max_records and not form.is_full(chunk) and (self._decoder is not None or self._batches):
            try:
                decoder = self._decoder or self._open_batch(form)
                if decoder is None:
                    break
                more = decoder.take(min(max_records - len(chunk), form.at_once))
            except own(PylogError) as error:
                failure = self._located(error, form.next_offset(chunk) if chunk else None)
                break
            if chunk:
                chunk.extend(more)
            else:
                chunk = more
            if not decoder.remaining or not more:
                self._close_batch()
        if not chunk:
            return chunk, failure
        chunk, unfit = form.finish(chunk)
        return chunk, unfit or failure

    def _open_batch(self, form: Form[Taken]) -> Decoder[Taken] | None:
        """Start on the next batch; None while the budget forbids it."""
        if not self._budget.allows_open():
            return None
        view = self._opened = self._batches.popleft()
        decoder, held_bytes = form.decoder(view, self.topic_partition, self._budget.batch_limit_bytes)
        assert self.position is not None
        if view.base_offset < self.position:
            decoder.skip_to(self.position)
        if held_bytes:
            self._budget.open(self.topic_partition, held_bytes)
        self._decoder = decoder
        return decoder

    def _close_batch(self) -> None:
        self._decoder = self._opened = None
        self._budget.open(self.topic_partition, 0)

    def _located(self, error: PylogError, position: int | None) -> PylogError:
        """``error`` of the open batch, met at ``position`` (None: the lane's), with where it happened.

        For damage also with the offset behind the batch.
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
