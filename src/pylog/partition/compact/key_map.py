"""The newest offset of each key, in memory of a fixed size. The readable version: slow, and the specification of a faster one.

One array of entries, each a hash of the key (16 bytes) and an offset plus one (8 bytes; 0: the entry is free). An entry stands
in the slot that its hash says, or in the next free one. The hash is keyed with a secret of each compaction, so that nobody can
make two keys of one hash: the older of them would be dropped for the newer.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

ENTRY = Struct("<16sQ")
SECRET_BYTES = 16
_LOAD_FACTOR = 0.9
_NUMBERS = Struct("<QQ")


class KeyMap:
    """Of the keys whose hash is ``part`` of ``parts``: others are neither taken nor found."""

    def __init__(self, memory_bytes: int, secret: bytes, part: int = 0, parts: int = 1) -> None:
        self._slots = max(memory_bytes // ENTRY.size, 2)
        self._most = max(int(self._slots * _LOAD_FACTOR), 1)
        self._entries = bytearray(self._slots * ENTRY.size)
        self._secret = secret
        self._part, self._parts = part, parts
        self.count = 0

    def put(self, key: bytes, offset: int) -> bool:
        """Note that the newest record of ``key`` is at ``offset``, if none later is known. False if there is no room."""
        slot, hashed = self._slot(key)
        if slot < 0:
            return True
        _, known = ENTRY.unpack_from(self._entries, slot)
        if not known:
            if self.count >= self._most:
                return False
            self.count += 1
        ENTRY.pack_into(self._entries, slot, hashed, max(known, offset + 1))
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of ``key`` is known."""
        slot, _ = self._slot(key)
        return slot >= 0 and bool(ENTRY.unpack_from(self._entries, slot)[1] > offset + 1)

    def _slot(self, key: bytes) -> tuple[int, bytes]:
        """The position of the key's entry, or of the free one where it belongs; -1 for a key of another part."""
        hashed = blake2b(key, digest_size=16, key=self._secret).digest()
        of_part, of_slot = _NUMBERS.unpack(hashed)
        if self._parts > 1 and of_part % self._parts != self._part:
            return -1, hashed
        slot = of_slot % self._slots
        while True:
            position = slot * ENTRY.size
            found, known = ENTRY.unpack_from(self._entries, position)
            if not known or found == hashed:
                return position, hashed
            slot = (slot + 1) % self._slots
