"""What times the blocks of an open segment hold: ``<base>.times``, written by whoever appends, for lookups of a range of times.

A seal says it of a closed segment, under its checksum. An open one has none, and without this would be read to its end:
neither indexes nor headers tell of what is younger than a time.

Entry n, big-endian, is about the batches that *begin* in the n-th 64 KiB (our own layout, see docs/format.md):

    0  int64 least timestamp     8  int64 greatest timestamp
    16 uint32 position of the first of them; ffffffff: none begins there
    20 uint32 CRC-32C of the 21 bytes in front of what its own checksum covers
    24 uint32 position up to which it tells, where the next batch begins; ffffffff where none begins in the block
    28 uint32 CRC-32C of bytes 0..27 and of n as a uint32

An entry is written when a batch begins in a later block, by the process that appended all of its batches; or when the log
is closed, for who goes on. Where several appended in turn, or one was killed, there is none that tells of the whole block: then
nothing is known of it. Not synced, and removed where a segment is recovered or sealed. A wrong entry would hide records, so
each has its checksum, and whoever leaves blocks out by it compares it with the batches themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from pylog.codec import COMPILED
from pylog.codec.batch import BatchHeader, BatchView, header_crc
from pylog.codec.checksum import crc32c
from pylog.codec.format import CONTROL_BIT, INT32_MAX, INT64_MAX, INT64_MIN, LOG_APPEND_TIME_BIT
from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.storage import AppendableFile, Buffer, FileSystem

logger = logging.getLogger("pylog.segment")

BLOCK_BYTES = 64 << 10
NO_BATCH = 0xFFFFFFFF
NEAR_BLOCKS = 16  # to leave out fewer is not worth another span

_SHIFT = BLOCK_BYTES.bit_length() - 1
_BODY = Struct(">qqIII")
_CRC = Struct(">I")
ENTRY = Struct(">qqIIII")
_OTHER_TIMES = CONTROL_BIT | LOG_APPEND_TIME_BIT
_WRITTEN_AT_ONCE = 4  # entries: a write costs as much as a few hundred records


class BlockTimes(NamedTuple):
    """One block. No record of a batch that begins there, before ``end``, is before ``least_ms``, or after ``greatest_ms``."""

    least_ms: int
    greatest_ms: int
    position: int
    front_crc: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.position == NO_BATCH

    def may_hold(self, first_ms: int, last_ms: int) -> bool:
        return self.least_ms <= last_ms and self.greatest_ms >= first_ms


EMPTY = BlockTimes(INT64_MAX, INT64_MIN, NO_BATCH, 0, NO_BATCH)


def encode(number: int, block: BlockTimes) -> bytes:
    body = _BODY.pack(*block)
    return body + _CRC.pack(crc32c(_CRC.pack(number), crc32c(body)))


def decode(data: bytes, first: int = 0) -> Iterator[BlockTimes | None]:
    """The entries from number ``first`` on; None for one that was never written, or is damaged."""
    for at in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
        *fields, crc = ENTRY.unpack_from(data, at)
        expected = crc32c(_CRC.pack(first + at // ENTRY.size), crc32c(data[at : at + _BODY.size]))
        yield BlockTimes(*fields) if crc == expected else None


def read_block_times(filesystem: FileSystem, path: str, end: int, *, closed: bool = False) -> list[BlockTimes | None]:
    """What is known of whole blocks of a segment that ends here; fewer than it has where no more are known.

    The last one is whole where the segment is ``closed``, or a batch reaches to its end. ``StorageError``.
    """
    if end > INT32_MAX:  # no segment has as much: a sparse file claims any size
        return []
    try:
        file = filesystem.open_readable(path)
    except own(FileNotFoundError):
        return []
    try:
        blocks = list(decode(file.pread((block_of(end - 1) + 1) * ENTRY.size, 0)))
    finally:
        file.close()
    return [
        block if block is not None and (block.end >= (number + 1) << _SHIFT or (closed and block.end == end)) else None
        for number, block in enumerate(blocks)
    ]


def known_block_times(filesystem: FileSystem, path: str, end: int, *, closed: bool = False) -> list[BlockTimes | None]:
    """As ``read_block_times``; nothing, and a warning, where the system refuses to read it: only speed hangs on it."""
    try:
        return read_block_times(filesystem, path, end, closed=closed)
    except own(StorageError) as error:
        logger.warning("%s; going on without the times of blocks", error)
        return []


def runs_that_may_hold(blocks: list[BlockTimes | None], first_ms: int, last_ms: int) -> list[tuple[int, int]]:
    """Runs of blocks, rising, that may hold records of these times. What is behind ``blocks`` may: one more than there are.

    Between them, and before the first, are ``NEAR_BLOCKS`` or more that are known to hold none, but begin with a batch.
    """
    runs: list[tuple[int, int]] = []
    gap_start = 0
    for number in (*(n for n, b in enumerate(blocks) if b is None or b.may_hold(first_ms, last_ms)), len(blocks)):
        gap = blocks[gap_start:number]
        is_wide = len(gap) >= (NEAR_BLOCKS if runs else 1) and any(b is not None and not b.is_empty for b in gap)
        if is_wide or not (runs or gap):
            runs.append((number, number + 1))
        else:
            runs[-1:] = [(runs[-1][0] if runs else 0, number + 1)]
        gap_start = number + 1
    return runs


class LeastTimes:
    """For who passes over a segment from its start: the least time of the block in which a batch begins, where it is known."""

    def __init__(self, blocks: list[BlockTimes | None]) -> None:
        self._blocks = blocks
        self._number = -1
        self._least_ms = INT64_MIN

    def of_batch(self, position: int, front: memoryview) -> int:
        """The least number there is where nobody knows; also where the block begins with another batch than it should."""
        number = block_of(position)
        if number != self._number:
            block = self._blocks[number] if number < len(self._blocks) else None
            is_it = block is not None and (block.position, block.front_crc) == (position, header_crc(front))
            self._number, self._least_ms = number, block.least_ms if block is not None and is_it else INT64_MIN
        return self._least_ms


def block_of(position: int) -> int:
    return position >> _SHIFT


class BlockTimesWriter:
    """Collects what this process appends to one segment. The caller holds the partition's lock."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._file: AppendableFile | None = None
        self._due: list[tuple[int, BlockTimes]] = []
        self.is_due = False  # there is enough to ``write``
        self._is_refused = False
        self._number = -1
        self._is_known = False
        self._least_ms, self._greatest_ms, self._position, self._front_crc, self._end = EMPTY

    def begin_at(self, last: int, end: int) -> None:
        """Go on behind the batch at ``last``, which ends at ``end``. What was said of the block it begins in is kept if that is
        all that begins there, and what was said of later ones removed. -1 and 0 for an empty segment."""
        self._due, self._is_known, self.is_due, self._is_refused = [], False, False, False
        self._number = last >> _SHIFT
        try:
            self._go_on(end)
        except own(StorageError) as error:
            if not end:  # it may be an earlier segment's, and would be taken for this one's
                raise
            self._refused(error)

    def _go_on(self, end: int) -> None:
        number = self._number
        if not self._filesystem.exists(self._path):
            self.is_due = number >= _WRITTEN_AT_ONCE  # small segments need none
            return
        file, kept = self._opened(), max(number, 0) * ENTRY.size
        block = next(decode(file.pread(ENTRY.size, kept), number), None) if end else None
        if block is not None and block.end == end:
            self._is_known = True
            self._least_ms, self._greatest_ms, self._position, self._front_crc, self._end = block
            kept += ENTRY.size
        if file.size() > kept:
            file.truncate(kept)

    def _refused(self, error: StorageError) -> None:
        self._is_refused = True  # until the segment is opened anew: what was not written is not known
        logger.warning("%s; going on without the times of blocks", error)

    def clear(self) -> None:
        """Remove the file: nothing is known of the segment any more."""
        self.close()
        self._due, self.is_due = [], False
        self._is_known = False
        self._filesystem.remove(self._path)

    def appended(self, position: int, header: BatchHeader, batch: Buffer, min_timestamp_ms: int | None) -> None:
        """This process has written a batch."""
        if min_timestamp_ms is None or header.attributes & _OTHER_TIMES:
            min_timestamp_ms = _least_ms(header, batch)
        number = position >> _SHIFT
        self._end, before = position + header.size_bytes, self._end
        if number != self._number:
            self._leave(number, before)
            self._is_known = True
            self._least_ms, self._greatest_ms = min_timestamp_ms, header.max_timestamp_ms
            self._position, self._front_crc = position, header_crc(batch)
            return
        if min_timestamp_ms < self._least_ms:
            self._least_ms = min_timestamp_ms
        if header.max_timestamp_ms > self._greatest_ms:
            self._greatest_ms = header.max_timestamp_ms

    def passed(self, position: int) -> None:
        """There is a batch of another process."""
        number = position >> _SHIFT
        if number != self._number:
            self._leave(number, self._end)
        self._is_known = False

    def _leave(self, number: int, end: int) -> None:
        if self._is_known and not self._is_refused:
            self._tell(end)
            self._due += ((between, EMPTY) for between in range(self._number + 1, number))
        self._number = number
        is_enough = not self.is_open or len(self._due) >= _WRITTEN_AT_ONCE
        self.is_due = number >= _WRITTEN_AT_ONCE and is_enough and not self._is_refused

    def _tell(self, end: int) -> None:
        block = BlockTimes(self._least_ms, self._greatest_ms, self._position, self._front_crc, end)
        self._due.append((self._number, block))

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def finish(self) -> None:
        """Write down what is known of the last block, too: the segment is closed, or somebody else may go on with it.

        Needs no lock once the file is open: entries stay right whatever others append.
        """
        if self._is_known and self.is_open:
            self._tell(self._end)
            self._is_known = False
        if self.is_open:
            self.write()

    def write(self) -> None:
        """Write down what is known of whole blocks. Where the system refuses that, there is a warning, and no more is written."""
        due, self._due, self.is_due = self._due, [], False
        try:
            if not self._is_refused:
                self._write(due)
        except own(
            FileNotFoundError
        ):  # removed since: another process has closed the segment, and its seal says the same
            self._is_refused = True
        except own(StorageError) as error:
            self._refused(error)

    def _write(self, due: list[tuple[int, BlockTimes]]) -> None:
        file, run, start = self._opened(), bytearray(), due[0][0] if due else 0
        for number, block in due:
            if number != start + len(run) // ENTRY.size:
                file.pwrite(run, start * ENTRY.size)
                run, start = bytearray(), number
            run += encode(number, block)
        if run:
            file.pwrite(run, start * ENTRY.size)

    def _opened(self) -> AppendableFile:
        if self._file is None:
            self._file = self._filesystem.open_appendable(self._path)
            self._file.close_when_idle()
        return self._file

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _least_ms(header: BatchHeader, batch: Buffer) -> int:
    """Of a batch whose producer said nothing, or whose times are not its. The readable codec is too slow to look into it."""
    if COMPILED or header.attributes & _OTHER_TIMES:
        return BatchView(batch, header).least_timestamp_ms()
    return INT64_MIN
