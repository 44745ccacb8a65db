"""The public face of one partition: append, read, offsets.

Wires the writer, the reader and durability together; has no rule of its own. Safe to share among threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pylog.clock import Clock
from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchHeader, BatchView, build_batch, check_header, read_header
from pylog.codec.format import HEADER_BYTES
from pylog.errors import Closed, ConfigError, CorruptRecord, ReadOnlyLog
from pylog.model import AppendResult, OffsetAndTimestamp, ProducerRecord, Record, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.durability import Durability
from pylog.partition.isolation import READ_UNCOMMITTED, WRITTEN, check_isolation, visible_end
from pylog.partition.place import Place
from pylog.partition.published import PublishedView
from pylog.partition.reader import Cursor, Fetched, PartitionReader
from pylog.partition.segments import SegmentInfo
from pylog.partition.settings import PartitionSettings
from pylog.partition.writer import PartitionWriter
from pylog.storage import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

_DEFAULT_TIMEOUT_MS = 120_000
_DEFAULT_FETCH_BYTES = 1 << 20
_RECORDS_AT_ONCE = 1024


class Partition:
    """One partition of a topic. Get it from ``Log.partition(topic, number)``."""

    def __init__(
        self,
        filesystem: FileSystem,
        clock: Clock,
        directory: str,
        topic_partition: TopicPartition,
        settings: Callable[[], PartitionSettings],
        boot: int,
        *,
        topic_id: str,
        read_only: bool,
        foreign: bool,
        log_start: int,
        notify: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._directory = directory
        self._settings = settings
        self._notify = notify
        self._closed = False
        self.topic_partition = topic_partition
        self.topic, self.number = topic_partition
        self.topic_id = topic_id
        place = Place(filesystem, clock, directory, topic_partition, settings, boot)
        self._view = PublishedView(place, foreign=foreign, log_start=log_start)
        self._writer: PartitionWriter | None = None
        if not read_only:
            self._writer = PartitionWriter(place)
            self._durability = Durability(place, self._writer)
        self._reader = PartitionReader(place, self._published, dense=not foreign)

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number} in {self._directory!r}>"

    # Writing

    def append(
        self,
        records: Iterable[ProducerRecord] | bytes | bytearray | memoryview,
        *,
        acks: str | int = "all",
        expected_offset: int | None = None,
        timeout_ms: int = _DEFAULT_TIMEOUT_MS,
    ) -> AppendResult:
        """Append records as one batch: all of them or none, at successive offsets.

        ``records`` are ``ProducerRecord`` values, or one encoded v2 batch, which is checked and whose offsets are replaced;
        control batches, batches of a transaction and of LogAppendTime are refused (``ConfigError``).
        ``expected_offset`` appends only if the log ends exactly there, else ``OffsetConflict``.

        On return: ``acks="all"`` has survived power loss (synced), ``acks=1`` survives the death of any process (page cache).
        Raises a kind of ``NotAppended`` (certainly not in the log), or ``OutcomeUnknown``.
        """
        if acks not in ("all", 1, -1):
            raise ConfigError(f"acks={acks!r}, expected 'all' or 1", option="acks", value=acks)
        if isinstance(records, bytes | bytearray | memoryview):  # noqa: SIM108  (mypy follows it only like this)
            batch = _checked_batch(records)
        else:
            batch = self._encoded(records)
        result = self.append_batch(batch, expected_offset=expected_offset, timeout_ms=timeout_ms)
        if acks != 1:
            self.sync(result.last_offset + 1)
        return result

    def _encoded(self, records: Iterable[ProducerRecord]) -> bytearray:
        encoder = RecordEncoder(self._settings().max_message_bytes)
        now_ms = self._clock.now_ms()
        for record in records:
            value, key, headers, timestamp_ms = record
            encoder.append(now_ms if timestamp_ms is None else timestamp_ms, key, value, headers)
        if encoder.count == 0:
            raise ConfigError("append() got no records", option="records")
        return build_batch(encoder)

    def append_batch(
        self, batch: bytearray, *, expected_offset: int | None = None, timeout_ms: int = _DEFAULT_TIMEOUT_MS
    ) -> AppendResult:
        """Append one batch built by ``pylog.codec``, stamping it in place. Visible on return, not yet synced."""
        if self._writer is None:
            raise self._read_only()
        result = self._writer.append(batch, expected_offset=expected_offset, timeout_ms=timeout_ms)
        self._notify()
        return result

    def sync(self, end_offset: int) -> None:
        """Return when everything below ``end_offset`` is on the medium. ``OutcomeUnknown`` if the disk refused."""
        if self._writer is None:
            raise self._read_only()
        self._durability.sync(end_offset)
        self._notify()

    def roll(self) -> None:
        """Close the active segment and begin a new one, unless it is empty."""
        if self._writer is None:
            raise self._read_only()
        self._writer.roll(_DEFAULT_TIMEOUT_MS)

    def delete_before(self, offset: int) -> int:
        """Advance the log start offset, and remove segments that lie wholly before it. Durable on return."""
        if self._writer is None:
            raise self._read_only()
        return self._writer.delete_before(offset, _DEFAULT_TIMEOUT_MS)

    def _read_only(self) -> ReadOnlyLog:
        return ReadOnlyLog(f"{self._directory} was opened for reading only", path=self._directory)

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int = _DEFAULT_FETCH_BYTES,
        max_records: int | None = None,
        isolation_level: str = READ_UNCOMMITTED,
    ) -> list[Record]:
        """Records from ``offset`` on: about ``max_bytes`` of stored batches, at most ``max_records``; [] at the end.

        ``OffsetOutOfRange``; ``CorruptRecord`` where the batch at the offset is damaged.
        """
        check_isolation(isolation_level)
        records: list[Record] = []
        cursor = Cursor(offset)
        while not records:  # a batch may have lost all its records behind the offset to compaction
            fetched = self.fetch(cursor, max_bytes=max_bytes, isolation_level=isolation_level, visibility=WRITTEN)
            for view in fetched.batches:
                decoder = view.decoder(self.topic, self.number)
                decoder.skip_to(offset)
                while decoder.remaining and (max_records is None or len(records) < max_records):
                    records += decoder.take(decoder.remaining if max_records is None else max_records - len(records))
            if fetched.cursor.offset == cursor.offset or max_records == 0:
                break
            cursor = fetched.cursor
        return records

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Every record from offset ``start`` (the earliest) to ``end`` (exclusive; the latest at the time of the call)."""
        cursor = Cursor(self.earliest_offset if start is None else start)
        stop = self.latest_offset if end is None else end
        while cursor.offset < stop:
            fetched = self.fetch(
                cursor, max_bytes=_DEFAULT_FETCH_BYTES, isolation_level=READ_UNCOMMITTED, visibility=WRITTEN
            )
            for view in fetched.batches:
                decoder = view.decoder(self.topic, self.number)
                decoder.skip_to(cursor.offset)
                for record in iter(lambda decoder=decoder: decoder.take(1024), []):  # type: ignore[misc]
                    for item in record:
                        if item.offset >= stop:
                            return
                        yield item
            if fetched.cursor.offset == cursor.offset:
                return
            cursor = fetched.cursor

    def to_arrow(self, start: int | None = None, end: int | None = None, *, headers: bool = False) -> pa.Table:
        """The records from ``start`` to ``end`` as an Arrow table with the columns of Spark's Kafka source.

        Needs the ``arrow`` extra (``ConfigError`` without it).
        """
        from pylog import arrow

        first = self.earliest_offset if start is None else start
        stop = self.latest_offset if end is None else end
        return arrow.table(self._views(first, stop), self.topic_partition, first, stop, headers=headers)

    def _views(self, start: int, stop: int) -> Iterator[BatchView]:
        """The batches that hold offsets from ``start`` to ``stop``, up to the visible end where that comes first."""
        cursor = Cursor(start)
        while cursor.offset < stop:
            fetched = self.fetch(
                cursor, max_bytes=_DEFAULT_FETCH_BYTES, isolation_level=READ_UNCOMMITTED, visibility=WRITTEN
            )
            yield from fetched.batches
            if fetched.cursor.offset == cursor.offset:
                return
            cursor = fetched.cursor

    def fetch(self, cursor: Cursor, *, max_bytes: int, isolation_level: str, visibility: str) -> Fetched:
        """Whole batches at a cursor: how consumers read (see ``partition/reader.py``)."""
        if self._closed:
            raise Closed(f"{self._directory} has been closed", path=self._directory)
        return self._reader.fetch(cursor, max_bytes=max_bytes, isolation_level=isolation_level, visibility=visibility)

    # What is there

    def _published(self) -> CommitState:
        if self._closed:
            raise Closed(f"{self._directory} has been closed", path=self._directory)
        if self._writer is None or self._view.valid():
            return self._view.state()
        return self._writer.state(_DEFAULT_TIMEOUT_MS)  # recovers what another boot or a lost slot left

    @property
    def earliest_offset(self) -> int:
        """The log start offset: the first one that can be read."""
        return self._published().log_start_offset

    @property
    def latest_offset(self) -> int:
        """The offset behind the last visible record."""
        return self._published().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: where ``read_committed`` ends."""
        return self._published().last_stable_offset

    @property
    def durable_offset(self) -> int:
        """The offset below which everything is known to be on the medium."""
        return self._published().durable_offset

    def end_offset(self, isolation_level: str, visibility: str) -> int:
        """The offset behind the last record that such a reader may see."""
        return visible_end(self._published(), isolation_level, visibility)

    def offset_for_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record at or after a time; None if all are older."""
        return self._reader.offset_for_time(timestamp_ms)

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The segments, oldest first."""
        return self._reader.segment_infos()

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, without their indexes."""
        return sum(segment.size_bytes for segment in self.segments)

    def change_token(self) -> Any:
        """A value that differs whenever something was published since. Costs one read of 128 bytes."""
        return self._view.token()

    def close(self) -> None:
        """Give the files back. Appends after this raise ``Closed``; nothing appended is lost."""
        self._closed = True
        self._reader.close()
        if self._writer is not None:
            self._durability.close()
            self._writer.close()


def _checked_batch(data: bytes | bytearray | memoryview) -> bytearray:
    """A copy of one encoded batch, if it is one. ``CorruptRecord`` tells why not, ``ConfigError`` what may not be appended."""
    batch = bytearray(data)
    if len(batch) < HEADER_BYTES:
        raise CorruptRecord(f"a batch has at least {HEADER_BYTES} bytes, got {len(batch)}", size_bytes=len(batch))
    header = read_header(batch)
    problem = check_header(header)
    if problem is None and header.size_bytes != len(batch):
        problem = f"its length says {header.size_bytes} bytes, got {len(batch)}"
    if problem is None and header.last_offset_delta != header.count - 1:
        problem = f"its last offset delta is {header.last_offset_delta}, but it has {header.count} records"
    if problem is not None:
        raise CorruptRecord(f"not a batch: {problem}", problem=problem)
    _refuse_what_the_log_writes(header)
    view = BatchView(batch, header)
    view.check_crc()
    decoder = view.decoder("", 0)
    while decoder.take(_RECORDS_AT_ONCE):
        pass
    return batch


def _refuse_what_the_log_writes(header: BatchHeader) -> None:
    """Markers and transactions are a coordinator's, LogAppendTime is the log's: from anyone else they would stay for ever."""
    for is_so, what in (
        (header.is_control, "a control batch"),
        (header.is_transactional, "of a transaction, which nothing here would end"),
        (header.is_log_append_time, "stamped with a LogAppendTime"),
    ):
        if is_so:
            raise ConfigError(
                f"append() got a batch that is {what}; decode it and append its records instead",
                option="records",
                attributes=header.attributes,
            )
