"""The public face of one partition: append, read, offsets.

Wires the writer, the reader and durability together; has no rule of its own. Safe to share among threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pylog.checks import OfOneProcess, require_count, require_whole
from pylog.clock import Clock
from pylog.codec.batch import BatchView
from pylog.errors import Closed, NotAppended, OffsetOutOfRange, OutcomeUnknown, ReadOnlyLog, StorageError
from pylog.interrupts import own
from pylog.model import AppendResult, OffsetAndTimestamp, OffsetRange, ProducerRecord, Record, TopicPartition
from pylog.partition.arguments import check_append, check_read, offset_range
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import Place
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.read.published import PublishedView
from pylog.partition.read.reader import Cursor, Fetched, PartitionReader
from pylog.partition.read.visibility import READ_UNCOMMITTED, WRITTEN, visible_end
from pylog.partition.segments import SegmentInfo
from pylog.partition.settings import PartitionSettings
from pylog.partition.write.batch_input import checked_batch, encoded_batch
from pylog.partition.write.durability import Durability
from pylog.partition.write.writer import PartitionWriter
from pylog.segment.naming import COMMIT_SLOTS
from pylog.storage import FileSystem

if TYPE_CHECKING:
    import pyarrow as pa

_DEFAULT_TIMEOUT_MS = 120_000
_DEFAULT_FETCH_BYTES = 1 << 20
_SMALL_RECORD_BYTES = 256


class Partition(OfOneProcess):
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
        sync_catalog: Callable[[], None],
        require_slots_version: Callable[[], object] = bool,
        why_read_only: str = "it was opened with read_only=True",
    ) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._directory = directory
        self._settings = settings
        self._notify = notify
        self._why_read_only = why_read_only
        self._closed = False
        self.topic_partition = topic_partition
        self.topic, self.number = topic_partition
        self.topic_id = topic_id
        sealed_for = "" if foreign else topic_id  # what lies among Kafka's files may be of any log
        place = Place(
            filesystem, clock, directory, topic_partition, settings, boot, sealed_for,
            require_slots_version=require_slots_version,
        )  # fmt: skip
        self._view = PublishedView(place, foreign=foreign, log_start=log_start)
        self._writer: PartitionWriter | None = None
        if not read_only:
            self._writer = PartitionWriter(place)
            self._durability = Durability(place, self._writer, sync_catalog)
        self._reader = PartitionReader(place, self._published, dense=not foreign, look=self._look)

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
        Raises a kind of ``NotAppended`` (certainly not in the log; ``RecordTooLarge`` where all of them together exceed
        ``max_message_bytes``), or ``OutcomeUnknown``.
        """
        check_append(acks, expected_offset, timeout_ms)
        if isinstance(records, bytes | bytearray | memoryview):
            batch, least_ms = checked_batch(records)
        else:
            batch, least_ms = encoded_batch(records, self._limit_bytes(), self._clock.now_ms())
        result = self.append_batch(
            batch, expected_offset=expected_offset, timeout_ms=timeout_ms, min_timestamp_ms=least_ms
        )
        if acks != 1:
            try:
                self.sync(result.last_offset + 1)
            except own(OffsetOutOfRange) as error:
                raise OutcomeUnknown(f"appended, and cut again by a failed sync: {error}", **error.facts) from error
        return result

    def _limit_bytes(self) -> int:
        try:
            return self._settings().max_message_bytes
        except own(StorageError) as error:
            raise NotAppended(f"nothing was appended: {error}", **error.facts) from error

    def append_batch(
        self,
        batch: bytearray,
        *,
        expected_offset: int | None = None,
        timeout_ms: int = _DEFAULT_TIMEOUT_MS,
        min_timestamp_ms: int | None = None,
    ) -> AppendResult:
        """Append one batch built by ``pylog.codec``, stamping it in place. Visible on return, not yet synced.

        ``min_timestamp_ms`` is what its encoder said, where the caller knows it: lookups by time leave out more then.
        """
        if self._writer is None:
            raise self._read_only()
        result = self._writer.append(
            batch, expected_offset=expected_offset, timeout_ms=timeout_ms, min_timestamp_ms=min_timestamp_ms
        )
        self._notify()
        return result

    def next_sequence(self, producer_id: int, timeout_ms: int = _DEFAULT_TIMEOUT_MS) -> int | None:
        """The sequence number that must come next of a producer, None where nothing is known of it.

        So whoever numbers batches knows after a crash which of them are in. ``DeliveryTimeout`` as for an append.
        """
        if self._writer is None:
            raise self._read_only()
        return self._writer.next_sequence(producer_id, timeout_ms)

    def sync(self, end_offset: int, timeout_ms: int | None = None) -> None:
        """Return when everything below ``end_offset`` is on the medium. ``OutcomeUnknown`` if the disk refused.

        For ``timeout_ms`` (default: two minutes) it waits for the partition's lock, to tell others.
        """
        if self._writer is None:
            raise self._read_only()
        self._durability.sync(require_whole("end_offset", end_offset), timeout_ms)
        self._notify()

    def settle(self, timeout_ms: int) -> None:
        """Take in what a writer that died in the midst of an append has left, or cut it: as the next append would.

        ``DeliveryTimeout`` where the partition's lock is not free in time; ``StorageError``, ``CorruptSegment``.
        """
        self._check_open()
        if self._writer is None:
            raise self._read_only()
        self._writer.state(timeout_ms)

    def is_syncing_here(self) -> bool:
        """Whether this thread is in the midst of ``sync``: a signal handler, which has interrupted it, can't sync."""
        return self._writer is not None and self._durability.is_syncing_here()

    def roll(self) -> None:
        """Close the active segment and begin a new one, unless it is empty."""
        if self._writer is None:
            raise self._read_only()
        self._writer.roll(_DEFAULT_TIMEOUT_MS)

    def delete_before(self, offset: int) -> int:
        """Advance the log start offset, and remove segments that lie wholly before it. Durable on return."""
        if self._writer is None:
            raise self._read_only()
        return self._writer.delete_before(require_whole("offset", offset), _DEFAULT_TIMEOUT_MS)

    def _read_only(self) -> ReadOnlyLog:
        return ReadOnlyLog(
            f"{self._directory} can only be read: {self._why_read_only}",
            path=self._directory,
            reason=self._why_read_only,
        )

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
        check_read(offset, max_bytes, max_records, isolation_level)
        if max_records is not None and max_records * _SMALL_RECORD_BYTES < max_bytes:
            records = self._read(offset, max_records * _SMALL_RECORD_BYTES, max_records, isolation_level)
            if len(records) == max_records:
                return records  # as most often: without a megabyte fetched and checked for it
        return self._read(offset, max_bytes, max_records, isolation_level)

    def _read(self, offset: int, max_bytes: int, max_records: int | None, isolation_level: str) -> list[Record]:
        records: list[Record] = []
        cursor = Cursor(offset)
        while not records:  # a batch may have lost all its records behind the offset to compaction
            fetched = self.fetch(cursor, max_bytes=max_bytes, isolation_level=isolation_level, visibility=WRITTEN)
            for view in fetched.batches:
                decoder = view.decoder(self.topic, self.number)
                decoder.skip_to(offset)
                while decoder.remaining and (max_records is None or len(records) < max_records):
                    records += decoder.take(decoder.remaining if max_records is None else max_records - len(records))
                if len(records) == max_records:
                    return records
            if fetched.cursor.offset == cursor.offset:
                break
            cursor = fetched.cursor
        return records

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Every record from offset ``start`` (the earliest) to ``end`` (exclusive; the latest at the time of the call).

        ``OffsetOutOfRange`` where ``start`` is not in the log; ``CorruptRecord`` at a damaged batch.
        """
        return self._scan(*self._range(start, end))

    def _range(self, start: int | None, end: int | None) -> OffsetRange:
        return offset_range(start, end, self.topic_partition, self._published())

    def _scan(self, start: int, stop: int) -> Iterator[Record]:
        cursor = Cursor(start)
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

        Needs the ``arrow`` extra (``ConfigError`` without it). ``OffsetOutOfRange`` where ``start`` is not in the log.
        """
        first, stop = self._range(start, end)
        from pylog import arrow

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

    def fetch(
        self, cursor: Cursor, *, max_bytes: int, isolation_level: str, visibility: str, quiet_token: object = None
    ) -> Fetched:
        """Whole batches at a cursor: how consumers read (see ``partition/read/reader.py``).

        None of them while ``change_token`` is the ``quiet_token``.
        """
        return self._reader.fetch(
            cursor,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            visibility=visibility,
            quiet_token=quiet_token,
        )

    def _check_open(self) -> None:
        if self._closed:
            self._settings()  # it may have been closed because its topic is gone: then that is what is said
            raise Closed(f"{self._directory} has been closed", path=self._directory)

    # What is there

    def _published(self) -> CommitState:
        self._check_open()
        state = self._view.published()
        if state is not None:
            return state
        if self._writer is None:
            return self._view.state()
        return self._writer.state(_DEFAULT_TIMEOUT_MS)  # recovers what another boot or a lost slot left

    def _look(self) -> tuple[CommitState, object]:
        """What is published, and the ``change_token`` that it was then."""
        self._check_open()
        state, token = self._view.look()
        return self._published() if state is None else state, token

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

    @property
    def leader_epoch(self) -> int:
        """Which epoch appends are stamped with: raised where power was lost, and records with it perhaps. -1: not known yet."""
        return self._published().leader_epoch

    def end_of_leader_epoch(self, leader_epoch: int) -> int:
        """The offset behind the last record of this leader epoch, or an earlier one.

        Who has read further under that epoch has read records that were lost. ``CorruptSegment`` where the checkpoint of
        epochs is damaged.
        """
        end = self.latest_offset  # before the epochs: a recovery in between is then in both
        return min(LeaderEpochs.load(self._filesystem, self._directory).end_of(leader_epoch, end), end)

    def end_offset(self, isolation_level: str, visibility: str) -> int:
        """The offset behind the last record that such a reader may see."""
        return visible_end(self._published(), isolation_level, visibility)

    def offset_for_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record at or after a time; None if all are older."""
        return self._reader.offset_for_time(require_count("timestamp_ms", timestamp_ms, 0))

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The segments, oldest first."""
        return self._reader.segment_infos()

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments, without their indexes."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def published_path(self) -> str:
        """The file that is written with every publication, but for directories of Kafka's."""
        return f"{self._directory}/{COMMIT_SLOTS}"

    def change_token(self) -> Any:
        """A value that differs whenever something was published since. Costs one read of 384 bytes."""
        self._check_open()
        return self._view.token()

    def look_anew(self) -> None:
        """Let ``change_token`` tell of a file of publications that was replaced by hand, as with a backup."""
        self._check_open()
        self._view.look_anew()

    def close(self) -> None:
        """Give the files back, and seal what is due. Appends after this raise ``Closed``; nothing appended is lost."""
        self._closed = True
        self._reader.close()
        self._view.let_go()
        if self._writer is not None:
            self._durability.close()
            self._writer.close()
