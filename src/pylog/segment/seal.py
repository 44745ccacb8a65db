"""The ``.seal`` file of a closed segment: what its bytes must be. So any flipped bit is found.

Kafka's CRC covers a batch from its attributes on. The seal covers the 21 bytes before (base offset,
length, leader epoch, magic, CRC) by every batch's position and the CRC-32C of these bytes. So a
damaged length hides no batches after it, and no other offset or epoch is taken for the right one.

docs/format.md has every byte.

A seal records what was written, not that it is durable. Its home shows swapped files.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator
from operator import le, lt
from struct import Struct
from typing import NamedTuple

from pylog.codec.batch import BatchHeader, header_crc
from pylog.codec.checksum import crc32c
from pylog.codec.format import CONTROL_BIT, HEADER_BYTES, INT32_MAX, INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.segment.aborted_digest import DIGEST_BYTES, AbortedDigest
from pylog.segment.naming import LOG, SEAL, file_path, temporary_path
from pylog.storage import FileSystem, ReadableFile

MAGIC = b"PYLGSEAL"
VERSION = 1
HAS_TIMES = 1
HAS_HOME = 2
HAS_LEAST = 4
RISING = 8
HAS_ABORTED = 16
KNOWN_FLAGS = HAS_TIMES | HAS_HOME | HAS_LEAST | RISING | HAS_ABORTED
TIMES_EVERY = 64  # batches
LEAST_EVERY_BYTES = 64 << 10
HOME_LIMIT_BYTES = 80  # a topic's id has at most 64 characters, a partition's number 5

_HEAD = Struct(">8shhIqqqii")
_CRC = Struct(">I")
_BODY_START = _HEAD.size + _CRC.size
_ENTRY_BYTES = _TIME_BYTES = 8
_LEAST_BATCH_BYTES = HEADER_BYTES
_PIECE_BYTES = 64 << 10
_NEXT_BASE = Struct(">q")
_Put = Callable[[Callable[[], object]], object]


class Seal(NamedTuple):
    """What a closed segment contains. ``positions`` and ``header_crcs`` have one item a batch.

    ``greatest_ms`` has one item for every 64 batches: the greatest timestamp up to there.
    ``least_ms`` has one for every 64 KiB: no record of the batches that begin there is before it.
    It is INT64_MAX if none begins, INT64_MIN if unknown. ``home`` names the partition. Each may be
    empty. Offsets are dense if ``next_base`` is -1; else they only rise, and the next segment is
    there. ``aborted`` is what the transaction index must be, None if unknown.
    """

    size_bytes: int
    first_offset: int
    last_offset: int
    least_epoch: int
    greatest_epoch: int
    positions: array[int]
    header_crcs: array[int]
    greatest_ms: array[int] = array("q")
    home: str = ""
    least_ms: array[int] = array("q")
    next_base: int = -1
    aborted: AbortedDigest | None = None

    @property
    def is_dense(self) -> bool:
        return self.next_base < 0

    def gap_end(self, offset: int) -> int:
        """The offset before which nothing is missing, if every batch before ``offset`` was met and
        none is left."""
        return max(offset, self.next_base) if offset > self.last_offset else offset

    def number_at(self, position: int) -> int | None:
        """The ordinal of the batch that starts at ``position``."""
        number = bisect_left(self.positions, position)
        return number if number < len(self.positions) and self.positions[number] == position else None

    def end_of(self, number: int) -> int:
        """The position where the batch of this ordinal ends."""
        return self.positions[number + 1] if number + 1 < len(self.positions) else self.size_bytes


class SealBuilder:
    """Collects a seal from the batches of a segment, in order from its start."""

    def __init__(self, home: str = "") -> None:
        self._home = home
        self._positions = array("I")
        self._crcs = array("I")
        self._greatest_ms = array("q")
        self._least_ms = array("q")
        self._first_offset = -1
        self._last_offset = -1
        self._least_epoch = self._greatest_epoch = -1
        self.end_position = 0

    def add(
        self, position: int, header: BatchHeader, front: bytes | bytearray | memoryview, least_ms: int = INT64_MIN
    ) -> None:
        """``front``: what the batch's own CRC leaves out. No record is before ``least_ms``."""
        epoch = header.leader_epoch
        if not self._positions:
            self._first_offset = header.base_offset
            self._least_epoch = self._greatest_epoch = epoch
        elif epoch > self._greatest_epoch:
            self._greatest_epoch = epoch
        elif epoch < self._least_epoch:
            self._least_epoch = epoch
        self._last_offset = header.last_offset
        greatest_ms = INT64_MIN if header.attributes & CONTROL_BIT else header.max_timestamp_ms
        if self._greatest_ms:
            greatest_ms = max(greatest_ms, self._greatest_ms[-1])
        if len(self._positions) % TIMES_EVERY:
            self._greatest_ms[-1] = greatest_ms
        else:
            self._greatest_ms.append(greatest_ms)
        number = position // LEAST_EVERY_BYTES
        while len(self._least_ms) <= number:
            self._least_ms.append(INT64_MAX)
        self._least_ms[number] = min(self._least_ms[number], least_ms)
        self._positions.append(position)
        self._crcs.append(header_crc(front))
        self.end_position = position + header.size_bytes

    def build(self, next_base: int = -1, aborted: AbortedDigest | None = None) -> Seal:
        """``next_base``: the next segment's if offsets may have gaps. ``aborted``: of all of it."""
        least_ms = self._least_ms
        if any(least > INT64_MIN for least in least_ms):
            least_ms.extend([INT64_MAX] * (_blocks(self.end_position) - len(least_ms)))
        else:
            least_ms = array("q")
        return Seal(
            self.end_position, self._first_offset, self._last_offset, self._least_epoch, self._greatest_epoch,
            self._positions, self._crcs, self._greatest_ms, self._home, least_ms, next_base, aborted,
        )  # fmt: skip


def encode(seal: Seal) -> bytes:
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        (HAS_TIMES if seal.greatest_ms else 0)
        | (HAS_HOME if seal.home else 0)
        | (HAS_LEAST if seal.least_ms else 0)
        | (0 if seal.is_dense else RISING)
        | (0 if seal.aborted is None else HAS_ABORTED),
        len(seal.positions),
        seal.size_bytes,
        seal.first_offset,
        seal.last_offset,
        seal.least_epoch,
        seal.greatest_epoch,
    )
    entries = array("I", [0]) * (2 * len(seal.positions))
    entries[0::2] = seal.positions
    entries[1::2] = seal.header_crcs
    times = _big_endian(seal.greatest_ms + seal.least_ms)
    next_base = b"" if seal.is_dense else _NEXT_BASE.pack(seal.next_base)
    home = seal.home.encode("ascii")
    aborted = b"" if seal.aborted is None else seal.aborted.pack(head, home)
    body = aborted + _big_endian(entries).tobytes() + times.tobytes() + next_base + home
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def _big_endian(numbers: array[int]) -> array[int]:
    """The numbers, changed in place: from the machine's byte order to the file's, or back."""
    if sys.byteorder == "little":  # pragma: no branch - the machine's own
        numbers.byteswap()
    return numbers


def decode(data: bytes, path: str) -> Seal:
    """The seal in ``data``. ``CorruptSegment``; ``FormatVersionError`` if it is newer."""
    if len(data) < _BODY_START or data[: len(MAGIC)] != MAGIC:
        raise CorruptSegment(f"{path} is not a seal: {len(data)} bytes without its magic", path=path, position=0)
    _, version, flags, count, size, first, last, least, greatest = _HEAD.unpack_from(data)
    crc = crc32c(data[_BODY_START:], crc32c(data[: _HEAD.size]))
    if crc != _CRC.unpack_from(data, _HEAD.size)[0]:  # first, so that a flipped bit does not pass for another version
        raise CorruptSegment(f"{path} is damaged: checksum {crc:#010x} over {len(data)} bytes", path=path, position=0)
    if version != VERSION or flags & ~KNOWN_FLAGS:
        raise FormatVersionError(
            f"{path} has seal version {version}, flags {flags:#x}; this pylog knows version {VERSION}, "
            f"flags {KNOWN_FLAGS:#x}",
            path=path,
            version=version,
            expected=VERSION,
        )
    entries_start, home_start = _entries_start(flags), _home_start(count, size, flags)
    times_start = entries_start + count * _ENTRY_BYTES
    least_end = home_start - (_NEXT_BASE.size if flags & RISING else 0)
    least_start = least_end - _least_bytes(size, flags)
    home_bytes = len(data) - home_start
    if not (0 < home_bytes <= HOME_LIMIT_BYTES if flags & HAS_HOME else home_bytes == 0):
        raise CorruptSegment(f"{path} has {len(data)} bytes for {count} batches", path=path, position=0)
    entries, times, least_times = array("I"), array("q"), array("q")
    entries.frombytes(data[entries_start:times_start])
    times.frombytes(data[times_start:least_start])
    least_times.frombytes(data[least_start:least_end])
    next_base = _NEXT_BASE.unpack_from(data, least_end)[0] if flags & RISING else -1
    home = data[home_start:].decode("ascii", "replace")
    _big_endian(entries)
    seal = Seal(
        size, first, last, least, greatest, entries[0::2], entries[1::2], _big_endian(times), home,
        _big_endian(least_times), next_base, _aborted_in(data, flags, data[home_start:], path),
    )  # fmt: skip
    if not _is_possible(seal) or (flags & RISING and not _can_precede(seal)):
        raise CorruptSegment(f"{path} says what no segment of {size} bytes can be", path=path, position=0)
    return seal


def _can_precede(seal: Seal) -> bool:
    """Whether a segment of these batches can end before ``next_base``: offsets are relative."""
    most = seal.first_offset + INT32_MAX + 1 if seal.positions else INT64_MAX
    return seal.last_offset < seal.next_base <= most


def _aborted_in(front: bytes, flags: int, home: bytes, path: str) -> AbortedDigest | None:
    if not flags & HAS_ABORTED:
        return None
    return AbortedDigest.unpack(front[_BODY_START : _BODY_START + DIGEST_BYTES], front[: _HEAD.size], home, path)


def _entries_start(flags: int) -> int:
    return _BODY_START + (DIGEST_BYTES if flags & HAS_ABORTED else 0)


def _home_start(count: int, segment_bytes: int, flags: int) -> int:
    times_bytes = _TIME_BYTES * -(-count // TIMES_EVERY) if flags & HAS_TIMES else 0
    more_bytes = _least_bytes(segment_bytes, flags) + (_NEXT_BASE.size if flags & RISING else 0)
    return _entries_start(flags) + count * _ENTRY_BYTES + times_bytes + more_bytes


def _least_bytes(segment_bytes: int, flags: int) -> int:
    return _TIME_BYTES * _blocks(segment_bytes) if flags & HAS_LEAST else 0


def _blocks(segment_bytes: int) -> int:
    return -(-segment_bytes // LEAST_EVERY_BYTES)


def _is_possible(seal: Seal) -> bool:
    """Whether positions and times rise, offsets are possible and the home is text."""
    positions = seal.positions
    if not seal.home.isascii():
        return False
    if not positions:
        return seal.size_bytes == 0
    return (
        positions[0] == 0
        and positions[-1] <= seal.size_bytes - _LEAST_BATCH_BYTES
        and 0 <= seal.first_offset <= seal.last_offset
        and all(map(lt, positions, positions[1:]))
        and all(map(le, seal.greatest_ms, seal.greatest_ms[1:]))
        and (seal.aborted is None or seal.aborted.entries <= len(positions))
    )


def write_seal(
    filesystem: FileSystem, directory: str, base: int, seal: Seal, *, put: _Put = lambda rename: rename()
) -> None:
    """Write the seal of a segment. ``put`` is called last: with what puts the seal in its place.

    Several processes may seal one segment: each writes its own file, and the last rename counts. It
    is synced before, so that a power failure leaves a whole seal or none.
    """
    path = file_path(directory, base, SEAL)
    temporary = temporary_path(path, filesystem.process_id(), filesystem.random_bytes(8))
    try:
        file = filesystem.open_appendable(temporary)
        try:
            file.pwrite(encode(seal), 0)
            file.sync()
        finally:
            file.close()
        put(lambda: filesystem.replace(temporary, path))
    finally:
        filesystem.remove(temporary)


def check_home(found: str, expected: str, path: str, **facts: int | None) -> None:
    """Raises ``CorruptSegment``, with these facts, if a seal is of another partition ("": any)."""
    if found and expected and found != expected:
        problem = f"its seal says that it belongs to {found}, but it lies in {expected} (topic id and partition)"
        raise CorruptSegment(
            f"{path}: this segment is of another partition, or of another life of the topic: {problem}; restore the segment "
            "from its own copy, or remove the seal if the records do belong here",
            path=path, position=0, problem=problem, home=found, expected=expected, is_whole=False, **facts,
        )  # fmt: skip


def check_seal(filesystem: FileSystem, directory: str, base_offset: int) -> Generator[int, None, str]:
    """Read a seal to its end, yield the size of each piece, return its home. ``CorruptSegment``.

    It is not compared with the segment: if they differ, the segment may be damaged.
    """
    path = file_path(directory, base_offset, SEAL)
    file = filesystem.open_readable(path)
    try:
        size = _plausible_size(file, filesystem.size(file_path(directory, base_offset, LOG)))
        head = file.pread(_BODY_START, 0)
        if len(head) < _BODY_START or head[: len(MAGIC)] != MAGIC:
            raise CorruptSegment(f"{path} is not a seal: {size} bytes without its magic", path=path, position=0)
        crc = crc32c(head[: _HEAD.size])
        for position in range(_BODY_START, size, _PIECE_BYTES):
            piece = file.pread(_PIECE_BYTES, position)
            crc = crc32c(piece, crc)
            yield len(piece)
        if crc != _CRC.unpack_from(head, _HEAD.size)[0]:
            raise CorruptSegment(f"{path} is damaged: checksum {crc:#010x} over {size} bytes", path=path, position=0)
        return _home_in(file, head)
    finally:
        file.close()


def _home_in(file: ReadableFile, head: bytes) -> str:
    """The home named in a seal with this head, without reading the rest."""
    _, version, flags, count, size, *_ = _HEAD.unpack_from(head)
    if version != VERSION or flags & ~KNOWN_FLAGS or not flags & HAS_HOME or not 0 <= size <= INT32_MAX:
        return ""
    return file.pread(HOME_LIMIT_BYTES, _home_start(count, size, flags)).decode("ascii", "replace")


def _plausible_size(file: ReadableFile, segment_bytes: int) -> int:
    """The size of a seal. ``CorruptSegment`` if too large: a sparse file claims any size."""
    size = file.size()
    segment_bytes_max = min(segment_bytes, INT32_MAX)
    most = segment_bytes_max // _LEAST_BATCH_BYTES + 1
    limit = _home_start(most, segment_bytes_max, KNOWN_FLAGS) + HOME_LIMIT_BYTES
    if size > limit:
        raise CorruptSegment(
            f"{file.path} has {size} bytes, a seal of a segment of {segment_bytes} bytes has at most {limit}",
            path=file.path,
            position=0,
        )
    return size


def read_seal(filesystem: FileSystem, directory: str, base_offset: int, segment_bytes: int) -> Seal | None:
    """The seal of a segment of this size, or None. Reads no more than it can be long."""
    try:
        return decode_seal_file(filesystem.open_readable(file_path(directory, base_offset, SEAL)), segment_bytes)
    except own(FileNotFoundError):
        return None


def decode_seal_file(file: ReadableFile, segment_bytes: int) -> Seal:
    """The seal in an open file, which is closed. Reads no more than it can be long."""
    try:
        size = _plausible_size(file, segment_bytes)
        front = file.pread(_BODY_START, 0)  # a file that cannot be a seal is not read whole
        return decode(file.pread(size, 0) if front.startswith(MAGIC) else front, file.path)
    finally:
        file.close()


def read_aborted(filesystem: FileSystem, directory: str, base_offset: int, home: str) -> AbortedDigest | None:
    """What the seal records of the transaction index, without reading the rest; None if nothing.

    ``CorruptSegment`` if that part is damaged, or if the seal is not of the partition ``home``.
    """
    path = file_path(directory, base_offset, SEAL)
    try:
        file = filesystem.open_readable(path)
    except own(FileNotFoundError):
        return None
    try:
        front = file.pread(_entries_start(HAS_ABORTED), 0)
        if len(front) < _BODY_START or not front.startswith(MAGIC):
            raise CorruptSegment(f"{path} is not a seal: no magic", path=path, position=0)
        _, version, flags, count, size, *_ = _HEAD.unpack_from(front)
        if version != VERSION or flags & ~KNOWN_FLAGS or not flags & HAS_ABORTED or not 0 <= size <= INT32_MAX:
            return None
        found = file.pread(HOME_LIMIT_BYTES + 1, _home_start(count, size, flags))
        aborted = _aborted_in(front, flags, found, path)
    finally:
        file.close()
    check_home(found.decode("ascii", "replace"), home, path)
    return aborted


def rising_seal(filesystem: FileSystem, directory: str, base_offset: int) -> Seal | None:
    """The seal of a segment with gaps between offsets; None if dense, or if unreadable."""
    try:
        size = filesystem.size(file_path(directory, base_offset, LOG))
        seal = read_seal(filesystem, directory, base_offset, size)
    except own(CorruptSegment, FormatVersionError):
        return None
    return None if seal is None or seal.is_dense or seal.next_base > base_offset + INT32_MAX + 1 else seal
