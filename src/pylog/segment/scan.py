"""Walks the batches of a segment file from a position, checks each, and reports where and why the
walk ended.

Never writes. Memory is bounded whatever the file claims: a batch is checked in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pylog.codec import COMPILED
from pylog.codec.batch import BatchHeader, BatchView, check_header, read_header
from pylog.codec.checksum import crc32c
from pylog.codec.format import (
    CODEC_MASK,
    CODEC_NAMES,
    CRC_START,
    HEADER_BYTES,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    KNOWN_ATTRIBUTES,
    MAGIC,
    MAGIC_POSITION,
)
from pylog.errors import CorruptRecord, CorruptSegment, MissingCodec
from pylog.interrupts import own
from pylog.segment.naming import LOG, offset_of
from pylog.storage import ReadableFile

_CHUNK_BYTES = 1 << 20
_WINDOW_BYTES = 16 << 10
_LOOKED_INTO_BYTES = 4 << 20
_DECOMPRESSED_MAX_BYTES = 32 << 20
_CHECKED_TIMES_MAX = 4
_CANDIDATES_MAX = 16_384  # bytes of an honest file look like a header once in a hundred million
_MAGIC_BYTE = re.escape(bytes([MAGIC]))
_NOT_NEGATIVE = rb"[\0-\x7f]"  # the highest byte of such a number
_MINUS_ONE_OR_MORE = rb"[\0-\x7f\xff]"
_ATTRIBUTES = b"[%b]" % b"".join(
    rb"\x%02x" % low for low in range(KNOWN_ATTRIBUTES + 1) if low & CODEC_MASK < len(CODEC_NAMES)
)


class SegmentScan:
    """An iterator of ``(position, header)`` over whole, valid, continuing batches in ``[position,
    end)``.

    After the last one, ``position`` is where the walk stopped and ``problem`` is the reason, None
    at a clean end. With ``dense=False`` offsets may leave gaps (compacted logs). With
    ``check_crc=False`` only headers are read.
    """

    def __init__(
        self,
        file: ReadableFile,
        position: int,
        end: int,
        *,
        next_offset: int,
        dense: bool = True,
        check_crc: bool = True,
    ) -> None:
        self.file = file
        self._end = end
        self._dense = dense
        self._check_crc = check_crc
        self._window = memoryview(b"")
        self._window_start = 0
        self.position = position
        self.next_offset = next_offset
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while (position := self.position) < self._end:
            header = self._header_at(position)
            if header is None:
                return
            self.position = position + header.size_bytes
            self.next_offset = header.last_offset + 1
            yield position, header

    def _header_at(self, position: int) -> BatchHeader | None:
        left = self._end - position
        if left < HEADER_BYTES:
            self.problem = f"{left} bytes left, too few for a batch header of {HEADER_BYTES}"
            return None
        start = position - self._window_start
        if start + HEADER_BYTES > len(self._window):
            self._move_window(position, HEADER_BYTES)
            start = 0
            if len(self._window) < HEADER_BYTES:
                self.problem = f"the file ends at {position + len(self._window)}, before {self._end}"
                return None
        header = read_header(self._window, start)
        problem = check_header(header) or self._discontinuity(header)
        size = header.size_bytes
        if problem is None and size > left:
            problem = f"batch of {size} bytes, but {left} bytes are left"
        if problem is None and self._check_crc:
            problem = self._crc_mismatch(position, size, header.crc)
        self.problem = problem
        return None if problem else header

    def _discontinuity(self, header: BatchHeader) -> str | None:
        wrong = header.base_offset != self.next_offset if self._dense else header.base_offset < self.next_offset
        return f"base offset {header.base_offset}, expected {self.next_offset}" if wrong else None

    def _crc_mismatch(self, position: int, size: int, expected: int) -> str | None:
        start = position - self._window_start
        if start + size <= len(self._window):
            crc = crc32c(self._window[start + CRC_START : start + size])
        else:
            crc, at, end = 0, position + CRC_START, position + size
            while at < end:
                piece = self._bytes(at, min(end - at, _CHUNK_BYTES))
                if not piece:
                    return f"the file ends at {at}, inside the batch"
                crc = crc32c(piece, crc)
                at += len(piece)
        return None if crc == expected else f"checksum {crc:#010x}, expected {expected:#010x}"

    def damage(self, where: str = "", more: str = "", **facts: object) -> CorruptSegment:
        """The error for the place where the walk stopped, with ``facts`` and words about that place
        and about the problem."""
        return CorruptSegment(
            f"{self.file.path} is damaged at position {self.position}, offset {self.next_offset}{where}: {self.problem}{more}",
            path=self.file.path, position=self.position, offset=self.next_offset, problem=self.problem, **facts,
        )  # fmt: skip

    def front(self, position: int) -> memoryview:
        """The bytes of the batch just yielded, at ``position``, that its own checksum leaves
        out."""
        return self._bytes(position, CRC_START)

    def least_timestamp_ms(self, position: int, header: BatchHeader) -> int:
        """A time before which the batch just yielded, at ``position``, has no record.

        INT64_MIN for a large batch, or one that cannot be decompressed: ``verify`` reports why.
        """
        if header.size_bytes > _LOOKED_INTO_BYTES or not COMPILED:  # too slow for the writer that seals
            return INT64_MIN
        view = BatchView(self._bytes(position, header.size_bytes), header)
        try:
            return view.least_timestamp_ms(_DECOMPRESSED_MAX_BYTES)
        except own(CorruptRecord, MissingCodec):
            return INT64_MIN

    def _bytes(self, position: int, size: int) -> memoryview:
        """``size`` bytes of the file, from the window if they are in it."""
        start = position - self._window_start
        if start < 0 or start + size > len(self._window):
            self._move_window(position, size)
            start = 0
        return self._window[start : start + size]

    def _move_window(self, position: int, size: int) -> None:
        want = max(size, _CHUNK_BYTES if self._check_crc else _WINDOW_BYTES)
        self._window = memoryview(self.file.pread(min(want, self._end - position), position))
        self._window_start = position


def find_next_batch(file: ReadableFile, position: int, end: int, minimum_offset: int) -> tuple[int, BatchHeader] | None:
    """The first whole valid batch after ``position`` whose base offset is at least
    ``minimum_offset``; None without one.

    To report the damage in between; a reader needs more to continue there. Bytes can be made to
    look like many batches, each as long as the file. So it gives up with ``CorruptSegment`` after
    too many false headers, or after it checksummed four times the bytes: then it is unknown whether
    a whole batch follows.
    """
    if end - position < HEADER_BYTES:
        return None
    limit_bytes = _CHECKED_TIMES_MAX * (end - position)
    checked_bytes = 0
    for number, (where, header) in enumerate(_candidates(file, position, end, minimum_offset)):
        is_plausible = where + header.size_bytes <= end and check_header(header) is None
        checked_bytes += header.size_bytes if is_plausible else 0
        if number == _CANDIDATES_MAX or checked_bytes > limit_bytes:
            raise CorruptSegment(
                f"{file.path}: looking for a whole batch after position {position} was given up at position {where}: too much "
                f"looks like batches and is none (more than {_CANDIDATES_MAX} headers, or {limit_bytes} bytes to checksum); "
                "restore the file from a copy",
                path=file.path,
                position=position,
                given_up_at=where,
                limit_bytes=limit_bytes,
                limit_headers=_CANDIDATES_MAX,
            )
        if is_plausible:
            scan = SegmentScan(file, where, where + header.size_bytes, next_offset=header.base_offset)
            if next(iter(scan), None) is not None:
                return where, header
    return None


def _candidates(file: ReadableFile, position: int, end: int, minimum_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Where a batch may begin, by its header. A regular expression skips everything else."""
    base = offset_of(file.path.rpartition("/")[2], LOG)
    highest = INT64_MAX if base is None else base + INT32_MAX
    minimum_offset = max(minimum_offset, base or 0)
    if minimum_offset > highest:
        return
    looks_like_one = _header_pattern(minimum_offset, highest, end - position)
    for start in range(position, end, _CHUNK_BYTES):
        chunk = file.pread(min(_CHUNK_BYTES + HEADER_BYTES - 1, end - start), start)
        for found in looks_like_one.finditer(chunk):
            begin = found.start() - MAGIC_POSITION
            header = read_header(chunk, begin)
            if minimum_offset <= header.base_offset <= highest:
                yield start + begin, header


def _header_pattern(lowest: int, highest: int, longest: int) -> re.Pattern[bytes]:
    """Finds a magic byte if the bytes around it may be a header's (``HEADER_STRUCT`` has the
    fields).

    Its offset is between ``lowest`` and ``highest``, which in a segment share all but their lowest
    bytes; its length is at most ``longest``. Of the other fields it checks the signs, of the
    attributes the codec.
    """
    tops = range(lowest >> 32, (highest >> 32) + 1)
    offset = b"|".join(re.escape(top.to_bytes(4, "big")) for top in tops) if len(tops) <= 2 else _NOT_NEGATIVE + b".{3}"
    length = rb"[\0-\x%02x]" % (min(longest, INT32_MAX) >> 24)
    before = b"(?:%b).{4}" % offset + length + b".{3}" + _MINUS_ONE_OR_MORE + b".{3}" + _MAGIC_BYTE
    after = (
        rb".{4}\x00" + _ATTRIBUTES + _NOT_NEGATIVE + b".{19}"  # the delta's other bytes, and two timestamps
        + _MINUS_ONE_OR_MORE + b".{7}" + _MINUS_ONE_OR_MORE + b"." + _MINUS_ONE_OR_MORE + b".{3}"
        + _NOT_NEGATIVE + b".{3}"
    )  # fmt: skip
    return re.compile(_MAGIC_BYTE + b"(?<=%b)(?=%b)" % (before, after), re.DOTALL)
