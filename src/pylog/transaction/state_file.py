"""The ``state`` file of a transactional id: its state during this boot, in two slots written in
turn.

Appends and readers look at it without a lock, so it is small. It is never synced: after another
boot every owner is dead, and the table alone decides.

Layout of a slot, 64 bytes, big-endian (our own, see docs/format.md):

    0  uint32 CRC-32C of bytes 4..63     4  uint32 sequence (wraps)    8  uint32 boot
    12 int64 producer id                 20 int16 epoch                22 int8 status, 23 zero
    24 int32 timeout in ms               28 int64 last activity in ms  36 16 bytes: the owner
    52 zeros
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pylog.codec.slot_pair import SEQUENCES, SlotPair, read_again_if_torn
from pylog.errors import StorageError
from pylog.interrupts import own, suppress
from pylog.storage import AppendableFile, ReadableFile, after_fork_in_child
from pylog.transaction.state import OWNER_BYTES, Status, TransactionState

SLOT_BYTES = 64
FILE_BYTES = 2 * SLOT_BYTES

_BODY = Struct(f">IIqhbxiq{OWNER_BYTES}s12x")


class _Slot(NamedTuple):
    sequence: int
    boot: int
    state: TransactionState

    def body(self) -> bytes:
        """A slot without its checksum."""
        producer_id, epoch, status, owner, timeout_ms, active_ms = self.state
        return _BODY.pack(self.sequence, self.boot, producer_id, epoch, status, timeout_ms, active_ms, owner)


class _Known(NamedTuple):
    """The bytes of the file at the last look, or publication, and what they say."""

    raw: bytes
    state: TransactionState | None
    sequence: int


def _decode(body: bytes) -> _Slot | None:
    sequence, boot, producer_id, epoch, status, timeout_ms, active_ms, owner = _BODY.unpack(body)
    try:
        state = TransactionState(producer_id, epoch, Status(status), owner, timeout_ms, active_ms)
    except own(ValueError):
        return None
    return _Slot(sequence, boot, state) if producer_id >= 0 and epoch >= 0 and timeout_ms >= 0 else None


_SLOTS = SlotPair(0, SLOT_BYTES, _decode)


class StateFile:
    """Reads the state; publishes with the id's lock held."""

    def __init__(self, file: ReadableFile | AppendableFile, boot: int) -> None:
        self._file = file
        self._boot = boot
        self._known = _Known(b"", None, 0)
        if hasattr(file, "pwrite"):
            after_fork_in_child(self._close_in_child)

    def _close_in_child(self) -> None:
        """If a signal handler forked, what it interrupted must not publish in the child."""
        with suppress(StorageError):
            self._file.close()

    def read(self) -> TransactionState | None:
        """The state; None if nothing was published since the machine was booted."""
        return self._look().state

    def _look(self) -> _Known:
        raw, known = self._file.pread(FILE_BYTES, 0), self._known
        if raw == known.raw:
            return known
        raw, slot = read_again_if_torn(raw, 1, _SLOTS.latest, lambda: self._file.pread(FILE_BYTES, 0))
        state = slot.state if slot is not None and slot.boot == self._boot else None
        self._known = known = _Known(raw, state, 0 if slot is None else slot.sequence)
        return known

    def publish(self, state: TransactionState) -> TransactionState:
        """Make ``state`` the state; returns it. The caller holds the lock."""
        assert hasattr(self._file, "pwrite")
        raw, _, before = self._look()  # not ``self._known``: another thread may have seen a slot half written
        sequence = (before + 1) % SEQUENCES
        slot, at = _SLOTS.slot(_Slot(sequence, self._boot, state).body())
        self._file.pwrite(slot, at)
        self._known = _Known(raw[:at].ljust(at, b"\0") + slot + raw[at + SLOT_BYTES :], state, sequence)
        return state

    def close(self) -> None:
        self._file.close()
