"""What a seal records of its segment's transaction index, so that a lost, damaged or foreign index
is noticed.

Every other index only points at batches, which are checked. This one decides what
``read_committed`` leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from pylog.codec.checksum import crc32c
from pylog.errors import CorruptSegment
from pylog.index import AbortedTransaction, encode_transactions, transaction_index
from pylog.interrupts import own
from pylog.segment.naming import TRANSACTION_INDEX, file_path
from pylog.storage import FileSystem

_FIELDS = Struct(">II")
_CRC = Struct(">I")
DIGEST_BYTES = _FIELDS.size + _CRC.size
_PIECE_BYTES = 64 << 10


class AbortedDigest(NamedTuple):
    """How many aborted transactions have their marker in a segment, and the CRC-32C of their
    entries."""

    entries: int
    crc: int

    @classmethod
    def of(cls, transactions: Iterable[AbortedTransaction]) -> AbortedDigest:
        data = encode_transactions(transactions)
        return cls(len(data) // transaction_index.ENTRY.size, crc32c(data))

    def matches_index(self, filesystem: FileSystem, directory: str, base_offset: int) -> bool:
        """Whether the index of this segment has these entries and nothing else. A missing one has
        none."""
        try:
            file = filesystem.open_readable(file_path(directory, base_offset, TRANSACTION_INDEX))
        except own(FileNotFoundError):
            return not self.entries
        try:
            size, crc = file.size(), 0
            if size != self.entries * transaction_index.ENTRY.size:
                return False
            for position in range(0, size, _PIECE_BYTES):
                crc = crc32c(file.pread(min(_PIECE_BYTES, size - position), position), crc)
            return crc == self.crc
        finally:
            file.close()

    def pack(self, head: bytes, home: bytes) -> bytes:
        """The fields in a seal with this head and home: with a CRC of their own, to be read without
        the rest."""
        fields = _FIELDS.pack(*self)
        return fields + _CRC.pack(_crc_of(head, fields, home))

    @classmethod
    def unpack(cls, data: bytes, head: bytes, home: bytes, path: str) -> AbortedDigest:
        """Return the digest. Raises ``CorruptSegment`` if the fields do not agree with their
        CRC."""
        fields = data[: _FIELDS.size]
        if len(data) != DIGEST_BYTES or _CRC.unpack_from(data, _FIELDS.size)[0] != _crc_of(head, fields, home):
            raise CorruptSegment(f"{path} is damaged: its part on aborted transactions", path=path, position=0)
        return cls(*_FIELDS.unpack(fields))


def _crc_of(head: bytes, fields: bytes, home: bytes) -> int:
    return crc32c(home, crc32c(fields, crc32c(head)))
