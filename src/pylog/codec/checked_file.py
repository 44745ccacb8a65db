"""The head of a file that is replaced as a whole, and is a cache: its kind, its version, and a
checksum of the rest.

Layout, big-endian (our own, see docs/format.md):

    0  8 bytes magic     8  int16 version     10 uint32 CRC-32C of the rest
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pylog.codec.checksum import crc32c
from pylog.errors import CorruptSegment

_HEAD = Struct(">8shI")
HEAD_BYTES = _HEAD.size


class FileKind(NamedTuple):
    """``name`` is how errors call it."""

    magic: bytes
    version: int
    name: str

    def seal(self, data: bytearray) -> None:
        """Write the head over the first ``HEAD_BYTES`` bytes, which are left free for it."""
        with memoryview(data) as view:
            crc = crc32c(view[HEAD_BYTES:])
        _HEAD.pack_into(data, 0, self.magic, self.version, crc)

    def check(self, data: bytes, path: str, least_bytes: int = HEAD_BYTES) -> None:
        """Raises ``CorruptSegment`` unless the head is of this kind and version, and the rest is as
        it was written."""
        if len(data) < least_bytes:
            raise self.damage(path, f"{len(data)} bytes")
        magic, version, crc = _HEAD.unpack_from(data)
        if magic != self.magic or version != self.version or crc != crc32c(memoryview(data)[HEAD_BYTES:]):
            raise self.damage(path, f"magic {magic!r}, version {version}, checksum {crc:#010x}")

    def damage(self, path: str, what: str) -> CorruptSegment:
        """The error for bytes that are no such file."""
        return CorruptSegment(f"{path} is no {self.name}: {what}", path=path, position=0)
