"""The ``.commit`` file: what is published of a partition, in two slots written in turn.

Publishing a slot is the moment a record becomes visible. A reader takes the valid slot with the later sequence, without a
lock: a slot caught in the middle of a write fails its checksum, and the other one stands. The file is a cache of what the
segments say plus the promise of what is visible: it is never synced and never mapped, and when it is lost or of another
boot it is made again from the segments. What it says of the *durable* end stays true whatever happens, since that was
published only after a sync.

Layout of a slot, 64 bytes, big-endian (our own, see docs/format.md):

    0  uint32 CRC-32C of bytes 4..63      4  uint32 sequence (wraps)      8  uint32 boot      12 int32 leader epoch
    16 int64 active segment's base       24 int32 written end (position)  28 int32 log end offset - base
    32 int64 durable end offset          40 int64 last stable offset      48 int64 log start offset
    56 uint32 log end offset - high watermark      60 uint32 version of the segment list
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pylog.codec.checksum import crc32c
from pylog.codec.format import INT64_MAX
from pylog.errors import StorageError
from pylog.interrupts import own, was_raised_meanwhile
from pylog.storage import AppendableFile, ReadableFile, latest_slot, next_sequence

SLOT_BYTES = 64
FILE_BYTES = 2 * SLOT_BYTES

_CRC = Struct(">I")
_BODY = Struct(">IIiqiiqqqII")
_TORN_READS_MAX = 100


class CommitState(NamedTuple):
    """Everything published. Offsets are absolute; ``written_end`` is a position in the active segment."""

    sequence: int
    boot: int
    leader_epoch: int
    active_base: int
    written_end: int
    log_end_offset: int
    durable_offset: int
    last_stable_offset: int
    log_start_offset: int
    high_watermark: int
    segments_version: int

    def successor(self, **changes: int) -> CommitState:
        """The state to publish after this one."""
        return self._replace(sequence=next_sequence(self.sequence), **changes)

    def encode(self) -> bytes:
        body = _BODY.pack(
            self.sequence,
            self.boot,
            self.leader_epoch,
            self.active_base,
            self.written_end,
            self.log_end_offset - self.active_base,
            self.durable_offset,
            self.last_stable_offset,
            self.log_start_offset,
            self.log_end_offset - self.high_watermark,
            self.segments_version,
        )
        return _CRC.pack(crc32c(body)) + body


def decode_slot(data: bytes) -> CommitState | None:
    """The state in one slot, or None where it is torn, empty or impossible."""
    if len(data) != SLOT_BYTES or _CRC.unpack_from(data)[0] != crc32c(data[_CRC.size :]):
        return None
    sequence, boot, epoch, base, written, relative_end, durable, stable, start, lag, version = _BODY.unpack_from(
        data, 4
    )
    end = base + relative_end
    # An all-zero slot has a wrong checksum (CRC-32C of zeros is not zero), so it never gets here.
    if (
        base < 0
        or epoch < 0
        or written < 0
        or relative_end < 0
        or end > INT64_MAX
        or not 0 <= start <= end
        or not 0 <= durable <= end
        or not 0 <= stable <= end
        or lag > end
    ):
        return None
    return CommitState(sequence, boot, epoch, base, written, end, durable, stable, start, end - lag, version)


def latest(data: bytes) -> CommitState | None:
    """The later of the two valid slots."""
    return latest_slot(data, SLOT_BYTES, decode_slot)


def next_version(version: int) -> int:
    """The version of the segment list after ``version``; it wraps."""
    return (version + 1) % (1 << 32)


class CommitSlotsReader:
    """Reads what is published. Safe in any number of processes and threads.

    A file that was removed or replaced while it was idle publishes nothing.
    """

    __slots__ = ("_file", "_known")

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._known: tuple[bytes, CommitState | None] = (
            b"",
            None,
        )  # one attribute, so that threads see both or neither

    def close_when_idle(self) -> None:
        """The descriptor may be closed while nobody reads."""
        self._file.close_when_idle()

    def raw(self) -> bytes:
        """The bytes as they stand: cheap to compare for change."""
        try:
            return self._file.pread(FILE_BYTES, 0)
        except own(FileNotFoundError):
            return b""

    def read(self) -> CommitState | None:
        """What is published, or None where neither slot is valid."""
        try:
            raw = self._file.pread(FILE_BYTES, 0)
        except own(FileNotFoundError):
            raw = b""
        known = self._known
        return known[1] if raw == known[0] else self._decoded(raw)[1]

    def look(self) -> tuple[bytes, CommitState | None]:
        """What is published, with the bytes that say so, of one and the same read."""
        try:
            raw = self._file.pread(FILE_BYTES, 0)
        except own(FileNotFoundError):
            raw = b""
        known = self._known
        return known if raw == known[0] else self._decoded(raw)

    def _decoded(self, raw: bytes) -> tuple[bytes, CommitState | None]:
        state = latest(raw)
        for _ in range(_TORN_READS_MAX):
            if state is not None or len(raw) < FILE_BYTES:
                break
            raw = self.raw()  # both slots torn: the writer was faster twice during one read
            state = latest(raw)
        self._known = known = raw, state
        return known

    def close(self) -> None:
        self._file.close()


class CommitSlots(CommitSlotsReader):
    """Reads and publishes. The caller holds the partition's lock while publishing."""

    __slots__ = ("_output",)

    def __init__(self, file: AppendableFile) -> None:
        super().__init__(file)
        self._output = file

    def publish(self, state: CommitState) -> CommitState:
        """Make ``state``, whose sequence follows the published one, the published state; returns it."""
        slot, at = state.encode(), SLOT_BYTES * (state.sequence & 1)
        raw = self._known[0]
        self._output.pwrite(slot, at)
        if len(raw) == FILE_BYTES:
            self._known = raw[:at] + slot + raw[at + SLOT_BYTES :], state
        return state

    def sync(self) -> None:
        """Put the slots on the medium; only where they say what no segment does: a new partition, a new log start.

        ``StorageError``, and then they say in the page cache what they said before: some filesystems (btrfs) take back what
        they could not write, and older slots would be believed. Others (ext4, xfs) take what they could not write for written:
        so it is written again before, whoever's sync it was that failed.
        """
        raw = self.raw()
        self._output.pwrite(raw, 0)
        try:
            self._output.sync()
        except BaseException as error:
            if isinstance(error, StorageError) or was_raised_meanwhile(error, OSError):
                self._output.pwrite(raw, 0)
            raise
