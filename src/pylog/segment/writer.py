"""Appends to one segment: the ``.log`` file and the indexes beside it.

The caller holds the partition's lock. A crash during ``append`` leaves a torn or whole batch after
``size_bytes``, and perhaps an index entry for it. ``attach``, ``cut`` and ``adopt`` make the
indexes agree with the log again; so does ``append`` if another writer left entries that it could
not remove.
"""

from __future__ import annotations

from collections.abc import Callable

from pylog.codec.batch import BatchHeader
from pylog.codec.format import BATCH_OVERHEAD, CONTROL_BIT, HEADER_BYTES
from pylog.index import (
    AbortedTransaction,
    OffsetIndexWriter,
    TimeIndexWriter,
    TransactionIndexReader,
    TransactionIndexWriter,
    offset_index,
    time_index,
)
from pylog.segment.naming import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, file_path
from pylog.segment.scan import SegmentScan
from pylog.storage import AppendableFile, Buffer, FileSystem

MAX_RELATIVE_OFFSET = 2**31 - 1
INDEX_ENTRY_BYTES = {OFFSET_INDEX: offset_index.ENTRY.size, TIME_INDEX: time_index.ENTRY.size}


class SegmentWriter:
    """One open segment. ``size_bytes`` and ``next_offset`` are the agreed end, not the file's."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_max_bytes: int,
        index_suffix: str = "",
        log_suffix: str = "",
        wrap: Callable[[AppendableFile], AppendableFile] = lambda file: file,
    ) -> None:
        """Open the files, and create missing ones. ``attach`` must follow, or ``rebuild_start`` for
        new ones.

        ``index_suffix`` is added to the names of new indexes that will replace the present ones,
        ``log_suffix`` to the log's. ``wrap`` gets each file, and returns that which is used.
        """
        self._filesystem = filesystem
        self._directory = directory
        self._wrap = wrap
        self._interval_bytes = index_interval_bytes
        self._offset_entries_max = index_max_bytes // offset_index.ENTRY.size
        self._time_entries_max = index_max_bytes // time_index.ENTRY.size - 1  # one is kept for closing
        self.base_offset = base_offset
        self.file = self._opened(LOG + log_suffix)
        self._offsets = OffsetIndexWriter(self._opened(OFFSET_INDEX + index_suffix), base_offset)
        self._times = TimeIndexWriter(self._opened(TIME_INDEX + index_suffix), base_offset)
        self.size_bytes = 0
        self.next_offset = base_offset
        self.written_alone = True  # every batch was appended through this object
        self.first_timestamp_ms = -1
        self._max_timestamp_ms = -1
        self._max_timestamp_offset = base_offset

    def _opened(self, kind: str) -> AppendableFile:
        file = self._filesystem.open_appendable(file_path(self._directory, self.base_offset, kind))
        file.close_when_idle()
        return self._wrap(file)

    def attach(self, size_bytes: int, next_offset: int) -> None:
        """Take the agreed end, cut index entries after it, and read the batches after the last
        entry.

        ``size_bytes`` and ``next_offset`` are then the end of the last batch: less than was agreed
        if the log is shorter. Reads at most one index interval and one batch.
        """
        self._cut_indexes(size_bytes, next_offset)
        self._stand_at(size_bytes, next_offset)

    def _stand_at(self, size_bytes: int, next_offset: int) -> None:
        if self._offsets.count and not self._times.count:
            self._offsets.clear()  # the two grow together: one was lost, so both are made again below
        self._max_timestamp_ms, self._max_timestamp_offset = self._times.last
        start = self._offsets.last_position if self._offsets.last_position < size_bytes else 0
        self.size_bytes, self.next_offset = size_bytes, next_offset
        self.written_alone = not size_bytes
        self.first_timestamp_ms = -1
        if start:
            for position, header in self._headers(0, 1):
                self._note(position, header)
        end, following = 0, self.base_offset
        for position, header in self._headers(start, size_bytes):
            end, following = position + header.size_bytes, header.last_offset + 1
            self._note(position, header)
            if position - self._offsets.last_position > self._interval_bytes:
                self._index(position, header)  # its entry was lost
        self.size_bytes, self.next_offset = end, following

    def _headers(self, start: int, end: int) -> list[tuple[int, BatchHeader]]:
        """Headers of batches that start in ``[start, end)`` of a region known to be good."""
        scan = SegmentScan(self.file, start, self.size_bytes, next_offset=0, dense=False, check_crc=False)
        found = []
        for position, header in scan:
            if position >= end:
                break
            found.append((position, header))
        return found

    def is_due_to_roll(
        self, header: BatchHeader, segment_bytes: int, segment_ms: int, now_ms: Callable[[], int]
    ) -> bool:
        """Whether the batch needs a new segment: Kafka's ``LogSegment.shouldRoll``, but for
        markers.

        ``header`` has the offsets the batch is about to get. The time of a marker says nothing of
        the records, which may be of long ago: it does not begin a segment.
        """
        if self.size_bytes == 0:
            return False
        relative_end = header.base_offset + header.last_offset_delta + 1 - self.base_offset
        if (
            self.size_bytes + BATCH_OVERHEAD + header.length > segment_bytes
            or relative_end > MAX_RELATIVE_OFFSET  # the log's end is kept relative, too
            or self._offsets.count >= self._offset_entries_max
            or self._times.count >= self._time_entries_max
        ):
            return True
        if self.first_timestamp_ms < 0 or header.attributes & CONTROL_BIT:
            return False
        latest_ms = header.max_timestamp_ms
        return (latest_ms if latest_ms >= 0 else now_ms()) - self.first_timestamp_ms > segment_ms

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Write a stamped batch at the end, and index entries if due. In the page cache on
        return."""
        position, offsets = self.size_bytes, self._offsets
        if not 0 < position - offsets.last_position <= self._interval_bytes:
            self._repair_indexes()  # about to be written to, or ahead
        self.file.pwrite(batch, position)
        self._note(position, header)
        if position - offsets.last_position > self._interval_bytes:
            self._index(position, header)
        self.size_bytes = position + len(batch)
        self.next_offset = header.base_offset + header.last_offset_delta + 1

    def _repair_indexes(self) -> None:
        """Attach again if another writer may have left index entries after the end."""
        offsets, times = self._offsets, self._times
        is_ahead = offsets.count and self._offsets.last_position >= self.size_bytes
        last_indexed = self._offsets.last_offset if offsets.count else self.base_offset - 1
        is_closed = times.count and self._times.last.offset > last_indexed
        if is_ahead or is_closed or offsets.has_changed() or times.has_changed():
            self.attach(self.size_bytes, self.next_offset)

    def adopt(self, position: int, header: BatchHeader) -> None:
        """Take in a whole batch that follows the end in the file, of another writer."""
        self.written_alone = False
        self._note(position, header)
        if position - self._offsets.last_position > self._interval_bytes:
            self._offsets.refresh()  # its writer has probably indexed it
            self._times.refresh()
            if position - self._offsets.last_position > self._interval_bytes:
                self._index(position, header)
        if position and position == self._offsets.last_position:  # its writer may have died between the two entries
            self._times.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset)
        self.size_bytes = position + header.size_bytes
        self.next_offset = header.last_offset + 1

    def _note(self, position: int, header: BatchHeader) -> None:
        if position == 0:
            self.first_timestamp_ms = header.max_timestamp_ms
        latest_ms = header.max_timestamp_ms
        if latest_ms > self._max_timestamp_ms and not header.attributes & CONTROL_BIT:  # of a record
            self._max_timestamp_ms = latest_ms
            self._max_timestamp_offset = header.base_offset + header.last_offset_delta

    def _index(self, position: int, header: BatchHeader) -> None:
        self._offsets.append(header.last_offset, position)
        self._times.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset)

    def cut(self, size_bytes: int, next_offset: int) -> None:
        """Remove everything after the agreed end from the file and the indexes, and take that
        end."""
        if self.file.size() > size_bytes:
            self.file.truncate(size_bytes)
        self.attach(size_bytes, next_offset)

    def _cut_indexes(self, size_bytes: int, next_offset: int) -> None:
        self._offsets.refresh()
        self._times.refresh()
        most = size_bytes // HEADER_BYTES  # each entry is of another batch
        self._offsets.cut(size_bytes, next_offset, most)
        # Only a closing entry follows the last offset entry: see ``finish``.
        indexed_end = self._offsets.last_offset + 1 if self._offsets.count else self.base_offset
        self._times.cut(min(next_offset, indexed_end), most)
        if self._filesystem.exists(file_path(self._directory, self.base_offset, TRANSACTION_INDEX)):
            index = self._transactions()
            index.cut(next_offset)
            index.close()

    def rebuild_start(self) -> None:
        """Clear the indexes and the end: ``adopt`` of every batch from position 0 makes them again.

        The transaction index stays, for readers, until the caller replaces it.
        """
        self._offsets.clear()
        self._times.clear()
        self._stand_at(0, self.base_offset)

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Add the entry of an aborted transaction, unless it is there."""
        path = file_path(self._directory, self.base_offset, TRANSACTION_INDEX)
        if self._filesystem.exists(path):
            reader = TransactionIndexReader(self._filesystem.open_readable(path))
            newest = reader.last()
            reader.close()
            if newest is not None and newest.last_offset >= aborted.last_offset:
                return
        index = self._transactions()
        index.append(aborted)
        index.close()

    def _transactions(self) -> TransactionIndexWriter:
        path = file_path(self._directory, self.base_offset, TRANSACTION_INDEX)
        return TransactionIndexWriter(self._filesystem.open_appendable(path))

    def finish(self) -> None:
        """Write the closing entry of the time index. Doing it twice changes nothing."""
        self._repair_indexes()
        self._times.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset)

    def close(self) -> None:
        self.file.close()
        self._offsets.close()
        self._times.close()
