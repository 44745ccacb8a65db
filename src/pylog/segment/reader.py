"""Reads one segment: finds the batch of an offset, and hands out whole, checked batches. Takes no
lock, writes nothing.

Every batch handed out has passed: header, framing, checksum, continuity with the one before, and in
a closed segment its seal; one that is to end a transaction says how. Damage is raised as
``CorruptSegment`` with file, position and offsets. It does not hide the batches after it:
``next_position`` is where they continue, and offsets after the damage are found as before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

from pylog.codec.batch import BatchHeader, BatchView, check_header, header_crc, read_header, size_at
from pylog.codec.control import read_marker
from pylog.codec.format import HEADER_BYTES, INT64_MAX
from pylog.errors import CorruptRecord, CorruptSegment, FormatVersionError, MissingCodec
from pylog.index import OffsetIndexReader
from pylog.interrupts import own
from pylog.segment.naming import LOG, OFFSET_INDEX, SEAL, file_path
from pylog.segment.outline import nothing_known
from pylog.segment.scan import SegmentScan
from pylog.segment.seal import Seal, check_home, read_seal
from pylog.storage import FileSystem, ReadableFile

T = TypeVar("T")

logger = logging.getLogger("pylog.segment")

_WINDOW_BYTES = 4 << 10
_LARGE_BYTES = 4 << 20  # a batch of more is checked in pieces before it is read whole
BATCH_LIMIT_BYTES = 128 << 20
_NUMBERS = count()  # of the readers of this process: a position counts in the file that it was found in


class SegmentReader:
    """One open segment. ``closed=True`` says that it will not grow, so its seal, if any,
    applies."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        *,
        closed: bool,
        dense: bool = True,
        home: str = "",
        end_offset: int | None = None,
        batch_limit_bytes: Callable[[], int] = lambda: BATCH_LIMIT_BYTES,
    ) -> None:
        """``dense=False`` if offsets may have gaps, as in Kafka's directories; else the seal, if
        there is one, records it.

        ``home`` names the partition of its seal, and ``end_offset`` is the next segment's base, if
        they are known. ``batch_limit_bytes`` is called for a batch of more than 128 MiB, which is
        read up to this limit.
        """
        self._batch_limit_bytes = batch_limit_bytes
        self._filesystem = filesystem
        self._directory = directory
        self.dense_by_default = dense
        self._closed = closed
        self._home = home
        self._end_offset = end_offset
        self._seal: Seal | None = None
        self._seal_was_read = False
        self.number = next(_NUMBERS)
        self.outline = nothing_known(base_offset)  # of lookups by time: see ``time_lookup.py``
        self.base_offset = base_offset
        self.path = file_path(directory, base_offset, LOG)
        self.file = filesystem.open_readable(self.path)

    @property
    def dense(self) -> bool:
        """Whether each batch continues the one before, without a gap."""
        return self.dense_by_default and (self.seal is None or self.seal.is_dense)

    def gap_end(self, offset: int) -> int:
        """The offset before which nothing is missing, if no batch here reaches ``offset``. In
        Kafka's nothing records it."""
        if not self.dense_by_default:
            return INT64_MAX
        return offset if self.seal is None else self.seal.gap_end(offset)

    def size(self) -> int:
        return self.file.size()

    def close_when_idle(self) -> None:
        """Its descriptor may be closed while nothing reads. ``FileNotFoundError`` if the file was
        replaced by then."""
        self.file.close_when_idle()

    def close(self) -> None:
        self.file.close()

    @property
    def seal(self) -> Seal | None:
        """The seal of a closed segment. A damaged one is logged once and counts as absent.

        ``CorruptSegment``, each time, for the seal of another partition: then the segment is not of
        this one either.
        """
        if self._closed and not self._seal_was_read:
            size, seal = self.file.size(), None
            try:
                seal = read_seal(self._filesystem, self._directory, self.base_offset, size)
            except own(CorruptSegment, FormatVersionError) as damage:
                logger.warning("%s; reading on without it", damage)
            if seal is not None and seal.home != self._home:
                path = file_path(self._directory, self.base_offset, SEAL)
                check_home(seal.home, self._home, path, next_position=size, next_offset=self._end_offset)
            self._seal = seal
            self._seal_was_read = True  # last: another thread that sees this uses the seal
        return self._seal

    # Finding

    def locate(self, offset: int, end: int, start: int | None = None) -> int:
        """The position of the first batch before ``end`` whose last offset is at or after
        ``offset``; ``end`` without one.

        Starts at position ``start``, by default where the index points. ``CorruptSegment`` if the
        offset is in a damaged batch.
        """
        previous: tuple[int, BatchHeader | None] | None = None
        for position, header in self.headers(self.indexed_start(offset, end) if start is None else start, end):
            if header is not None and header.last_offset >= offset:
                if header.base_offset > offset and previous is not None:
                    self._require_intact(previous[0], end)  # a gap: is the batch before it to blame?
                return position
            previous = position, header
        if previous is not None and self.seal is not None:
            self._require_intact(previous[0], end)
        return end

    def indexed_start(self, offset: int, end: int) -> int:
        """Where to start looking for ``offset``: the index entry, if a batch at or before the
        offset is there."""
        if offset <= self.base_offset:
            return 0  # the first batch has no entry
        index = self.open_index(OffsetIndexReader, OFFSET_INDEX)
        if index is None:
            return 0
        try:
            indexed, position = index.floor(offset)
        finally:
            index.close()
        header = self.header_at(position, end) if position > 0 else None
        if header is None:
            return 0
        # Kafka before 4.1 indexed whole appends, so there the entry may name a later batch's last
        # offset.
        agrees = header.last_offset == indexed if self.dense_by_default else header.last_offset <= indexed
        return position if agrees and self.base_offset <= header.base_offset <= offset else 0

    def open_index(self, reader: Callable[[ReadableFile, int], T], suffix: str) -> T | None:
        """A ``reader`` of the index file with this suffix, which the caller closes; None if there
        is no such file."""
        try:
            file = self._filesystem.open_readable(file_path(self._directory, self.base_offset, suffix))
        except own(FileNotFoundError):
            return None
        return reader(file, self.base_offset)

    def header_at(self, position: int, end: int) -> BatchHeader | None:
        """The header at a position that an index names; None if no well-formed one is there before
        ``end``."""
        front = self.file.pread(HEADER_BYTES, position) if position + HEADER_BYTES <= end else b""
        if len(front) < HEADER_BYTES or check_header(header := read_header(front)) is not None:
            return None
        return header

    def sealed_header(self, seal: Seal, number: int) -> BatchHeader | None:
        """The header of a batch by its number in the seal; None if other bytes are there."""
        front = self.file.pread(HEADER_BYTES, seal.positions[number])
        intact = len(front) == HEADER_BYTES and header_crc(front) == seal.header_crcs[number]
        return read_header(front) if intact else None

    def headers_from(self, offset: int) -> SegmentScan:
        """The batches from ``offset`` on, without a look at checksums and gaps."""
        size = self.size()
        return SegmentScan(self.file, self.locate(offset, size), size, next_offset=0, dense=False, check_crc=False)

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader | None]]:
        """Batch positions and headers up to ``end``. A damaged header is None in a sealed segment;
        else it raises."""
        seal = self.seal
        if seal is not None:
            if position >= end:
                return  # no batch begins there, and the search must not begin again at the first
            for number in range(seal.number_at(position) or 0, len(seal.positions)):
                position = seal.positions[number]
                if position >= end:
                    return
                yield position, self.sealed_header(seal, number)
            return
        window, window_start = b"", position
        next_offset = self.base_offset if position == 0 else None
        while position < end:
            if position - window_start + HEADER_BYTES > len(window):
                window, window_start = self.file.pread(min(_WINDOW_BYTES, end - position), position), position
            if len(window) - (position - window_start) < HEADER_BYTES:
                raise self.damage(position, f"{end - position} bytes left, too few for a batch header")
            header = read_header(window, position - window_start)
            problem = self._problem(header, None, position, end, next_offset)
            if problem is not None:
                raise self.damage(position, problem)
            yield position, header
            position += header.size_bytes
            next_offset = header.last_offset + 1

    def _require_intact(self, position: int, end: int) -> None:
        """Raise the damage of the batch at ``position``, if its offsets may be damaged."""
        try:
            self.read(position, end, max_bytes=HEADER_BYTES)
        except own(CorruptSegment) as damage:
            if not damage.is_whole:
                raise

    # Reading

    def read(self, position: int, end: int, *, max_bytes: int, next_offset: int | None = None) -> list[BatchView]:
        """Whole batches from ``position``, up to ``max_bytes`` of them but at least one; [] at
        ``end``.

        ``next_offset`` is the offset of the first one, if the caller knows it. Damage in a later
        batch ends the list before it; damage in the first raises.
        """
        want = min(max_bytes, end - position)
        if want <= 0:
            return []
        data = memoryview(self.file.pread(max(want, min(HEADER_BYTES, end - position)), position))
        batches: list[BatchView] = []
        at = 0
        while position + at < end:
            if batches and len(data) - at < max(HEADER_BYTES, size_at(data, at)):
                break  # it ends after what was read: the next read checks it
            view, problem = self._batch_at(data, at, position + at, end, next_offset)
            if problem is not None:
                if batches:
                    break
                raise self.damage(position + at, problem, view)
            if view is None:  # the first one, and it reaches beyond what was read
                wanted = HEADER_BYTES
                if len(data) >= HEADER_BYTES:
                    header = read_header(data)
                    wanted = header.size_bytes
                    problem = self._large_problem(header, position)
                    if problem is not None:
                        raise self.damage(position, problem)
                data = memoryview(self.file.pread(wanted, position))
                if len(data) < wanted:
                    raise self.damage(position, f"the file ends at {position + len(data)}, inside a batch")
                continue
            batches.append(view)
            at += len(view.buffer)
            next_offset = view.header.last_offset + 1
        return batches

    def _large_problem(self, header: BatchHeader, position: int) -> str | None:
        """What is wrong with a batch that is too large to be read before it is checked."""
        if header.size_bytes <= _LARGE_BYTES:
            return None
        end = position + header.size_bytes
        scan = SegmentScan(self.file, position, end, next_offset=header.base_offset)
        if next(iter(scan), None) is None:
            return scan.problem
        limit_bytes = BATCH_LIMIT_BYTES
        if header.size_bytes > limit_bytes:
            limit_bytes = max(limit_bytes, self._batch_limit_bytes())
        if header.size_bytes > limit_bytes:
            return (
                f"batch of {header.size_bytes} bytes, the limit is {limit_bytes}; it is whole, and is read where "
                "the topic's max_message_bytes allows as much"
            )
        return None

    def _batch_at(
        self, data: memoryview, at: int, position: int, end: int, next_offset: int | None
    ) -> tuple[BatchView | None, str | None]:
        """The batch at ``data[at:]`` and what is wrong with it. Neither if ``data`` ends inside it.

        Only the problem if its header or checksum is wrong; both if it is a whole batch with a
        malformed marker.
        """
        left = len(data) - at
        if left < HEADER_BYTES:
            too_few = position + HEADER_BYTES > end
            return None, f"{end - position} bytes left, too few for a batch header" if too_few else None
        header = read_header(data, at)
        problem = self._problem(header, data[at : at + HEADER_BYTES], position, end, next_offset)
        if problem is not None:
            return None, problem
        batch_bytes = header.size_bytes
        if left < batch_bytes:
            return None, None
        view = BatchView(data[at : at + batch_bytes], header)
        try:
            view.check_crc()
        except own(CorruptRecord) as damage:
            return None, str(damage)
        return view, _marker_problem(view)

    def _problem(
        self, header: BatchHeader, front: memoryview | None, position: int, end: int, next_offset: int | None
    ) -> str | None:
        """What is wrong with a header or its position. ``front``: its bytes, to compare them with a
        seal."""
        seal = self.seal
        if seal is not None and front is not None:
            number = seal.number_at(position)
            if number is None or header_crc(front) != seal.header_crcs[number]:
                return "the batch header differs from the seal of this segment"
        problem = check_header(header)
        if problem is not None:
            return problem
        if position + header.size_bytes > end:
            return f"batch of {header.size_bytes} bytes, but {end - position} bytes are left"
        if (
            next_offset is not None
            and header.base_offset != next_offset
            and (header.base_offset < next_offset or self.dense)
        ):
            return f"base offset {header.base_offset}, expected {next_offset}"
        if self._closed and self._end_offset is not None and header.last_offset >= self._end_offset:
            return f"offsets to {header.last_offset}, but the next segment begins at {self._end_offset}"
        return None

    def damage(self, position: int, problem: str, whole: BatchView | None = None) -> CorruptSegment:
        """The error for a damaged batch, and where to continue if the seal records it or the batch
        is ``whole``."""
        seal = self.seal
        next_position = next_offset = None
        if whole is not None:
            next_position, next_offset = position + whole.header.size_bytes, whole.last_offset + 1
        number = seal.number_at(position) if seal is not None else None
        if seal is not None and number is not None:
            for following in range(number + 1, len(seal.positions)):
                header = self.sealed_header(seal, following)
                if header is not None:
                    next_position, next_offset = seal.positions[following], header.base_offset
                    break
            else:
                next_position, next_offset = seal.size_bytes, seal.last_offset + 1
        resumed = f"; readable again from offset {next_offset}" if next_offset is not None else ""
        return CorruptSegment(
            f"{self.path} is damaged at position {position}: {problem}{resumed}",
            path=self.path,
            position=position,
            problem=problem,
            next_position=next_position,
            next_offset=next_offset,
            is_whole=whole is not None,
        )


def _marker_problem(view: BatchView) -> str | None:
    """What is wrong with the marker in a batch that should end a transaction."""
    header = view.header
    if not header.is_control or header.producer_id < 0 or not header.count:
        return None
    try:
        read_marker(view)
    except own(CorruptRecord) as damage:
        return str(damage)
    except own(MissingCodec):
        return None
    return None
