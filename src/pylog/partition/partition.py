"""The application's face of one partition: append, read, offsets.

Checks what it is given and makes records of batches; the rest is ``PartitionLog``. Safe to share
among threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pylog.checks import OfOneProcess, refuse_records, require_count, require_whole
from pylog.codec.format import INT64_MAX
from pylog.errors import ConfigError, OffsetOutOfRange
from pylog.limits import DEFAULT_TIMEOUT_MS, FETCH_BYTES, RECORDS_AT_ONCE
from pylog.model import AppendResult, OffsetAndTimestamp, OffsetRange, ProducerRecord, Record, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN, check_isolation
from pylog.partition.segments import SegmentInfo

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL_RECORD_BYTES = 256


class Partition(OfOneProcess):
    """One partition of a topic. Get it from ``Log.partition(topic, number)``.

    It has no files of its own, and need not be closed: ``Log.close`` closes what the log's users
    share. Once the topic is deleted, every call raises ``TopicNotFound``; its identity stays.
    """

    def __init__(self, log: PartitionLog) -> None:
        """``log`` is what the library itself uses."""
        self.log = log
        self.topic_partition = log.topic_partition
        self.topic, self.number = log.topic_partition
        self.topic_id = log.topic_id

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.number} in {self.log.directory.path!r}>"

    # Writing

    def append(
        self,
        records: Iterable[ProducerRecord] | bytes | bytearray | memoryview,
        *,
        acks: str | int = "all",
        expected_offset: int | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> AppendResult:
        """Append records as one batch: all of them or none, at successive offsets.

        ``records`` are ``ProducerRecord`` values, or one encoded v2 batch, which is checked and
        whose offsets are replaced; control batches, batches of a transaction and of LogAppendTime
        are refused (``ConfigError``). ``expected_offset`` appends only if the log ends exactly
        there, else ``OffsetConflict``.

        On return: ``acks="all"`` has survived power loss (synced), ``acks=1`` survives the death of
        any process (page cache). Raises a kind of ``NotAppended`` (certainly not in the log;
        ``RecordTooLarge`` if all of them together exceed ``max_message_bytes``, ``InvalidRecord``
        for one without a key in a compacted topic), or ``OutcomeUnknown``, ``ReadOnlyLog``,
        ``TopicNotFound``; of records ``SerializationError``, ``InvalidTimestamp``; of an encoded
        batch ``CorruptRecord``, ``MissingCodec``.
        """
        process_id = self.log.directory.filesystem.process_id()
        refuse_records(self.topic, "append")
        _check_append(acks, expected_offset, timeout_ms)
        if isinstance(records, bytes | bytearray | memoryview):
            batch, least_ms = self.log.checked_batch(records)
            result = self.log.append_batch(
                batch, expected_offset=expected_offset, timeout_ms=timeout_ms, min_timestamp_ms=least_ms, process_id=process_id
            )  # fmt: skip
        else:
            result = self.log.append_records(
                records, expected_offset=expected_offset, timeout_ms=timeout_ms, process_id=process_id
            )
        if acks != 1:
            self.log.sync_appended(result)
        return result

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        max_records: int | None = None,
        isolation_level: str = READ_COMMITTED,
    ) -> list[Record]:
        """Records from ``offset`` on: about ``max_bytes`` of stored batches, at most
        ``max_records``; [] at the end.

        With ``isolation_level="read_committed"`` the end is at the first record of a transaction
        that is under way, and records of aborted ones are left out; ``"read_uncommitted"`` returns
        all. ``OffsetOutOfRange``; ``CorruptRecord`` if the batch at the offset is damaged;
        ``MissingCodec``, ``TopicNotFound``.
        """
        _check_read(offset, max_bytes, max_records, isolation_level)
        if max_records is not None and max_records * _SMALL_RECORD_BYTES < max_bytes:
            records = self._read(offset, max_records * _SMALL_RECORD_BYTES, max_records, isolation_level)
            if len(records) == max_records:
                return records  # as most often: without a megabyte fetched and checked for it
        return self._read(offset, max_bytes, max_records, isolation_level)

    def _read(self, offset: int, max_bytes: int, max_records: int | None, isolation_level: str) -> list[Record]:
        records: list[Record] = []
        fetches = self.log.reader.fetches(offset, INT64_MAX, max_bytes=max_bytes, isolation_level=isolation_level)
        for fetched in fetches:
            for view in fetched.batches:
                decoder = view.decoder(self.topic, self.number)
                decoder.skip_to(offset)
                while decoder.remaining and (max_records is None or len(records) < max_records):
                    records += decoder.take(decoder.remaining if max_records is None else max_records - len(records))
                if len(records) == max_records:
                    return records
            if records:  # else the batches have lost all their records after the offset to compaction
                break
        return records

    def scan(
        self, start: int | None = None, end: int | None = None, *, isolation_level: str = READ_COMMITTED
    ) -> Iterator[Record]:
        """Every record from offset ``start`` (the earliest) to ``end`` (exclusive; the latest at
        the time of the call).

        ``isolation_level`` as for ``read``. ``OffsetOutOfRange`` if ``start`` is not in the log;
        ``CorruptRecord`` at a damaged batch; ``MissingCodec``, ``TopicNotFound``.
        """
        check_isolation(isolation_level)
        start, stop = _offset_range(start, end, self.topic_partition, self.log.current())
        return self._scan(start, self._readable_end(stop, isolation_level), isolation_level)

    def _readable_end(self, stop: int, isolation_level: str) -> int:
        """At most ``stop``, and fixed now: a scan of a moment ends there, whatever is decided
        meanwhile."""
        return min(stop, self.log.end_offset(isolation_level, WRITTEN))

    def _scan(self, start: int, stop: int, isolation_level: str) -> Iterator[Record]:
        for view in self.log.batches(start, stop, isolation_level):
            decoder = view.decoder(self.topic, self.number)
            decoder.skip_to(start)
            while records := decoder.take(RECORDS_AT_ONCE):
                for record in records:
                    if record.offset >= stop:
                        return
                    yield record

    def to_arrow(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        headers: bool = False,
        isolation_level: str = READ_COMMITTED,
    ) -> pa.Table:
        """The records from ``start`` to ``end`` as an Arrow table with the columns of Spark's Kafka
        source.

        ``isolation_level`` as for ``read``. Needs the ``arrow`` extra (``ConfigError`` without it).
        Raises as ``scan`` (``OffsetOutOfRange`` if ``start`` is not in the log);
        ``InvalidTimestamp`` for a time out of range in microseconds.
        """
        check_isolation(isolation_level)
        first, stop = _offset_range(start, end, self.topic_partition, self.log.current())
        from pylog import arrow

        stop = self._readable_end(stop, isolation_level)
        views = self.log.batches(first, stop, isolation_level)
        return arrow.table(views, self.topic_partition, first, stop, headers=headers)

    # What is there

    @property
    def earliest_offset(self) -> int:
        """The log start offset: the first one that can be read."""
        return self.log.earliest_offset

    @property
    def latest_offset(self) -> int:
        """The offset after the last visible record."""
        return self.log.latest_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: where ``read_committed`` ends."""
        return self.log.end_offset(READ_COMMITTED, WRITTEN)

    @property
    def durable_offset(self) -> int:
        """The offset below which everything is known to be on the disk."""
        return self.log.durable_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch of appended batches, raised after a power failure that may have removed
        records; -1: unknown yet."""
        return self.log.leader_epoch

    def offset_for_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record at or after a time; None if all are older. ``CorruptSegment``,
        ``MissingCodec``, ``TopicNotFound``."""
        return self.log.offset_for_time(require_count("timestamp_ms", timestamp_ms, 0))

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The segments, oldest first."""
        return self.log.reader.segment_infos()

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, without their indexes."""
        return sum(segment.size_bytes for segment in self.segments)


def _check_append(acks: object, expected_offset: object, timeout_ms: object) -> None:
    if not isinstance(acks, str | int) or isinstance(acks, bool) or acks not in ("all", 1, -1):
        raise ConfigError(f"acks={acks!r:.80}, expected 'all' or 1", option="acks", value=acks)
    if expected_offset is not None:
        require_count("expected_offset", expected_offset, 0)
    require_count("timeout_ms", timeout_ms, 0)


def _check_read(offset: object, max_bytes: object, max_records: object, isolation_level: str) -> None:
    require_whole("offset", offset)
    require_count("max_bytes", max_bytes, 1)
    if max_records is not None:
        require_count("max_records", max_records, 1)
    check_isolation(isolation_level)


def _offset_range(start: int | None, end: int | None, partition: TopicPartition, state: CommitState) -> OffsetRange:
    """From ``start`` (None: the earliest) to ``end`` (None: the latest), in a partition in this
    state."""
    first, latest = state.log_start_offset, state.high_watermark
    stop = latest if end is None else require_count("end", end, 0)
    if start is None:
        return OffsetRange(first, stop)
    if not first <= require_whole("start", start) <= latest:
        raise OffsetOutOfRange(
            f"offset {start} of {partition.topic}-{partition.partition} is out of range: the log holds {first} to {latest}",
            topic=partition.topic,
            partition=partition.partition,
            offset=start,
            earliest=first,
            latest=latest,
        )
    if end is not None and stop < start:
        raise ConfigError(f"end {stop} is before start {start}", option="end", value=end, start=start)
    return OffsetRange(start, stop)
