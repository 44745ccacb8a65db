"""The ``.commit`` file: what is published of a partition, in two slots written in turn.

Writing a slot publishes: records become visible. A reader takes the valid slot with the later
sequence, without a lock: a slot that is being written fails its checksum, and the other one counts.
Appends never sync the file and nothing maps it: if it is lost or of another boot, a recovery makes
it again from the segments. Its *durable* end stays true in any case, since that is published only
after a sync.

docs/format.md has every byte: a head, then the two slots.

A file of version 1 has no head: two slots of 64 bytes, without a least timestamp, stand where the
head is. It is read, and the first writer upgrades it (``CommitSlots.upgrade``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

from pylog.codec.checksum import crc32c
from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.codec.slot_pair import SEQUENCES, SlotPair, read_again_if_torn
from pylog.errors import CorruptSegment, FormatVersionError, StorageError
from pylog.interrupts import own, was_raised_meanwhile
from pylog.storage import AppendableFile, ReadableFile

VERSION = 2
HEAD_BYTES = 128
SLOT_BYTES = 128
FILE_BYTES = HEAD_BYTES + 2 * SLOT_BYTES
OLD_SLOT_BYTES = 64
OLD_FILE_BYTES = 2 * OLD_SLOT_BYTES

_MAGIC = b"PYLGSLOT"
_HEAD = Struct(">8shh")
_CRC = Struct(">I")
_BODY = Struct(">IIiqiiqqqqqI52x")
_OLD_BODY = Struct(">IIiqiiqqqII")


def _head() -> bytes:
    front = _HEAD.pack(_MAGIC, VERSION, 0)
    return (front + _CRC.pack(crc32c(front))).ljust(HEAD_BYTES, b"\0")


HEAD = _head()


class _Fields(NamedTuple):
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
    least_timestamp_ms: int


class CommitState(_Fields):
    """All that is published. Offsets are absolute; ``written_end`` is a position in the active
    segment.

    No record of the active segment is before ``least_timestamp_ms``: the greatest number while the
    segment is empty, the least if it is unknown. ``CorruptSegment`` if the offsets are not in
    order: log start <= last stable <= high watermark <= log end, and the durable end and the active
    segment's base <= log end.
    """

    __slots__ = ()

    def __new__(cls, **fields: int) -> CommitState:  # noqa: PYI034 - no class is made of this one
        return cls._make(_Fields(**fields))

    @classmethod
    def _make(cls, fields: Iterable[int]) -> CommitState:  # type: ignore[override]  # no class is made of this one
        """A state of these fields, which are checked. ``_replace`` calls it, too."""
        fields = tuple(fields)  # Python unpacks a plain tuple, as ``self[:]`` is, faster than a named one
        _, _, _, base, written, end, durable, stable, start, high, _, _ = fields
        state = tuple.__new__(cls, fields)
        if 0 <= start <= stable <= high <= end <= INT64_MAX and 0 <= base <= end >= durable >= 0 <= written:
            return state
        raise CorruptSegment(
            f"no partition can be in this state: {state}; expected log start <= last stable <= high watermark <= log end, "
            "and the durable end and the active base <= log end",
            **state._asdict(),
        )

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        """For pickle: Spark pickles its plans."""
        return (), self._asdict()

    def successor(self, **changes: int) -> CommitState:
        """The state to publish after this one."""
        return self._replace(sequence=(self.sequence + 1) % SEQUENCES, **changes)

    def durable_to(self, offset: int) -> CommitState:
        """The state to publish after a sync: everything below ``offset`` is on the disk."""
        sequence, boot, epoch, base, written, end, _, stable, start, high, version, least_ms = self
        return self._make(
            (
                (sequence + 1) % SEQUENCES, boot, epoch, base, written, end, offset, stable, start, high, version, least_ms,
            )
        )  # fmt: skip

    def advanced(self, written_end: int, end: int, last_stable_offset: int, least_timestamp_ms: int) -> CommitState:
        """The state to publish after an append to the active segment, which makes everything up to
        ``end`` visible."""
        sequence, boot, epoch, base, _, _, durable, _, start, _, version, _ = self[:]
        return self._make(
            (
                (sequence + 1) % SEQUENCES, boot, epoch, base, written_end, end, durable, last_stable_offset, start, end,
                version, least_timestamp_ms,
            )
        )  # fmt: skip

    def body(self) -> bytes:
        """A slot without its checksum."""
        sequence, boot, epoch, base, written, end, durable, stable, start, high, version, least_ms = self[:]
        return _BODY.pack(
            sequence, boot, epoch, base, written, end - base, durable, stable, start, end - high, least_ms, version
        )


def _decode(body: bytes) -> CommitState | None:
    sequence, boot, epoch, base, written, relative_end, durable, stable, start, lag, least_ms, version = _BODY.unpack(
        body
    )
    if epoch < 0:
        return None
    end = base + relative_end
    try:
        return CommitState._make(
            (sequence, boot, epoch, base, written, end, durable, stable, start, end - lag, version, least_ms)
        )
    except own(CorruptSegment):
        return None


def _decode_old(body: bytes) -> CommitState | None:
    *fields, version = _OLD_BODY.unpack(body)
    least_ms = INT64_MIN if fields[4] else INT64_MAX
    return _decode(_BODY.pack(*fields, least_ms, version))  # the same, but for the least timestamp


SLOTS = SlotPair(HEAD_BYTES, SLOT_BYTES, _decode)
OLD_SLOTS = SlotPair(0, OLD_SLOT_BYTES, _decode_old)


def has_head(data: bytes) -> bool:
    """Whether these are slots of this version. ``FormatVersionError`` for a later one; a damaged
    head counts as none."""
    if data[:HEAD_BYTES] == HEAD:
        return True
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        return False
    _, version, flags = _HEAD.unpack_from(data)
    if _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(data[: _HEAD.size]) or (version, flags) == (VERSION, 0):
        return False
    raise FormatVersionError(
        f"the commit slots have version {version}, flags {flags:#x}; this pylog knows version {VERSION}; upgrade pylog",
        version=version,
        flags=flags,
        expected=VERSION,
    )


def latest(data: bytes) -> CommitState | None:
    """The later valid slot of a whole file. ``FormatVersionError`` for the slots of a later
    version.

    Without a head the slots of version 1 count, if one is valid. Else an upgrade was cut short
    while it wrote the head.
    """
    if not has_head(data) and (old := OLD_SLOTS.latest(data)) is not None:
        return old
    return SLOTS.latest(data)


def slots_in(data: bytes) -> list[tuple[int, int, CommitState | None]]:
    """The start and end of the slots that count in a whole file, and the state in each."""
    pair = OLD_SLOTS if not has_head(data) and OLD_SLOTS.latest(data) is not None else SLOTS
    return pair.each(data)


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
        self._known: tuple[bytes, CommitState | None] = b"", None  # one attribute, so that threads see both or neither

    def close_when_idle(self) -> None:
        """The descriptor may be closed while nothing reads."""
        self._file.close_when_idle()

    def raw(self) -> bytes:
        """The bytes of the file: a cheap way to notice a change."""
        try:
            return self._file.pread(FILE_BYTES, 0)
        except own(FileNotFoundError):
            return b""

    def read(self) -> CommitState | None:
        """What is published, or None if neither slot is valid."""
        try:
            raw = self._file.pread(FILE_BYTES, 0)
        except own(FileNotFoundError):
            raw = b""
        known = self._known
        return known[1] if raw == known[0] else self._decoded(raw)[1]

    def look(self) -> tuple[bytes, CommitState | None]:
        """What is published, and the bytes of the same read."""
        try:
            raw = self._file.pread(FILE_BYTES, 0)
        except own(FileNotFoundError):
            raw = b""
        known = self._known
        return known if raw == known[0] else self._decoded(raw)

    def _decoded(self, raw: bytes) -> tuple[bytes, CommitState | None]:
        state = SLOTS.latest(raw) if raw.startswith(HEAD) else None  # as a rule: fewer calls for each poll
        if state is None:
            raw, state = read_again_if_torn(raw, OLD_FILE_BYTES, latest, self.raw)
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

    @property
    def is_current(self) -> bool:
        """Whether the file is of this version. ``FormatVersionError`` if it is of a later one."""
        return has_head(self.raw())

    def begin(self, state: CommitState | None) -> None:
        """Write the whole file: both slots contain ``state``, or zeros."""
        self._output.pwrite(whole_file(state), 0)

    def upgrade(self, fence: Callable[[], object]) -> bool:
        """Convert slots of version 1 to this version; False if there are none. ``StorageError``.

        The old ones count until the new ones are on the disk and ``fence`` has stopped the writers
        that know only the old ones. If this is cut short in between, the next writer begins again.
        """
        raw, state = self.look()
        if has_head(raw):
            return False
        if state is None:
            self.begin(None)
            return False
        self._output.pwrite(_both(state), HEAD_BYTES)
        self._output.sync()
        fence()
        # First the older of the old slots: a head that is written in part must not leave it as the
        # only valid one.
        self._output.pwrite(bytes(OLD_SLOT_BYTES), 0 if state.sequence & 1 else OLD_SLOT_BYTES)
        self._output.pwrite(HEAD, 0)
        return True

    def publish(self, state: CommitState) -> CommitState:
        """Make ``state``, whose sequence follows the published one, the published state; returns
        it."""
        slot, at = SLOTS.slot(state.body())
        raw = self._known[0]
        self._output.pwrite(slot, at)
        if len(raw) == FILE_BYTES:
            self._known = raw[:at] + slot + raw[at + SLOT_BYTES :], state
        return state

    def sync(self) -> None:
        """Sync the slots, for what no segment records: a new partition, a new log start.
        ``StorageError``.

        Then the page cache has the same bytes as before: some filesystems (btrfs) drop what they
        could not write, and readers would believe older slots. Others (ext4, xfs) count it as
        written, so it is written again before each sync: a sync of another process may have failed.
        """
        raw = self.raw()
        self._output.pwrite(raw, 0)
        try:
            self._output.sync()
        except BaseException as error:
            if isinstance(error, StorageError) or was_raised_meanwhile(error, OSError):
                self._output.pwrite(raw, 0)
            raise


def whole_file(state: CommitState | None) -> bytes:
    """The bytes of a file whose two slots contain ``state``, or zeros."""
    return HEAD + (bytes(2 * SLOT_BYTES) if state is None else _both(state))


def _both(state: CommitState) -> bytes:
    """Two equal slots with successive sequences: ``state`` has the later one."""
    before = state._replace(sequence=(state.sequence - 1) % SEQUENCES)
    slots = (before, state) if state.sequence & 1 else (state, before)
    return b"".join(SLOTS.slot(each.body())[0] for each in slots)
