"""Walks the batches of a segment file from a position, checking each, and says where and why the walk ended.

Yields headers upward; what they mean (producer state, offsets, epochs) is the partition's business. Never writes.
Memory is bounded whatever the file claims: a batch is checked in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylog.codec.batch import BatchHeader, check_header, read_header
from pylog.codec.checksum import crc32c
from pylog.codec.format import CRC_START, HEADER_BYTES
from pylog.storage import ReadableFile

_CHUNK_BYTES = 1 << 20
_WINDOW_BYTES = 16 << 10


class SegmentScan:
    """An iterator of ``(position, header)`` over whole, valid, continuing batches in ``[position, end)``.

    After the last one, ``position`` is where the walk stopped and ``problem`` says why, or is None at a clean end.
    With ``dense=False`` offsets may leave gaps (compacted logs). With ``check_crc=False`` only headers are read.
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
        while self.position < self._end:
            header = self._header_here()
            if header is None:
                return
            position = self.position
            self.position += header.size_bytes
            self.next_offset = header.last_offset + 1
            yield position, header

    def _header_here(self) -> BatchHeader | None:
        left = self._end - self.position
        if left < HEADER_BYTES:
            self.problem = f"{left} bytes left, too few for a batch header of {HEADER_BYTES}"
            return None
        front = self._bytes(self.position, HEADER_BYTES)
        if len(front) < HEADER_BYTES:
            self.problem = f"the file ends at {self.position + len(front)}, before {self._end}"
            return None
        header = read_header(front)
        self.problem = check_header(header) or self._discontinuity(header)
        if self.problem is None and header.size_bytes > left:
            self.problem = f"batch of {header.size_bytes} bytes, but {left} bytes are left"
        if self.problem is None and self._check_crc:
            self.problem = self._crc_mismatch(header)
        return None if self.problem else header

    def _discontinuity(self, header: BatchHeader) -> str | None:
        wrong = header.base_offset != self.next_offset if self._dense else header.base_offset < self.next_offset
        return f"base offset {header.base_offset}, expected {self.next_offset}" if wrong else None

    def _crc_mismatch(self, header: BatchHeader) -> str | None:
        crc, at, end = 0, self.position + CRC_START, self.position + header.size_bytes
        while at < end:
            piece = self._bytes(at, min(end - at, _CHUNK_BYTES))
            if not piece:
                return f"the file ends at {at}, inside the batch"
            crc = crc32c(piece, crc)
            at += len(piece)
        return None if crc == header.crc else f"checksum {crc:#010x}, expected {header.crc:#010x}"

    def front(self, position: int) -> memoryview:
        """The header bytes of the batch at ``position``, which was just yielded."""
        return self._bytes(position, HEADER_BYTES)

    def _bytes(self, position: int, size: int) -> memoryview:
        """``size`` bytes of the file, from the window if they are in it."""
        start = position - self._window_start
        if start < 0 or start + size > len(self._window):
            want = max(size, _CHUNK_BYTES if self._check_crc else _WINDOW_BYTES)
            self._window = memoryview(self.file.pread(min(want, self._end - position), position))
            self._window_start, start = position, 0
        return self._window[start : start + size]


def find_next_batch(file: ReadableFile, position: int, end: int, minimum_offset: int) -> tuple[int, BatchHeader] | None:
    """The first whole valid batch after ``position`` whose base offset is at least ``minimum_offset``; None without one.

    For saying what damage lies between, never for reading on by itself. Looks for the magic byte, then judges.
    """
    for start in range(position, end, _CHUNK_BYTES):
        chunk = file.pread(min(_CHUNK_BYTES + HEADER_BYTES, end - start), start)
        at = chunk.find(b"\x02")
        while at >= 0:
            begin = at - 16
            if begin >= 0 and begin + HEADER_BYTES <= len(chunk):
                header = read_header(chunk, begin)
                if header.base_offset >= minimum_offset and check_header(header) is None:
                    where = start + begin
                    scan = SegmentScan(file, where, min(end, where + header.size_bytes), next_offset=header.base_offset)
                    if next(iter(scan), None) is not None:
                        return where, header
            at = chunk.find(b"\x02", at + 1)
    return None
