"""The snapshot of a table in memory: entries and positions in one file, replaced atomically.

A cache of the topic: a damaged one, or one of another version, counts as missing.

Layout, big-endian (our own, see docs/format.md):

    0  magic "PYLGTABL"     8  int16 version 2     10 uint32 CRC-32C of the rest
    14 uint16 bytes of the identity, uint32 number of positions, uint64 number of entries
    28 the identity: the topic's id, isolation level, and what is kept, separated by spaces
    then per position: int32 partition, int64 offset, int32 leader epoch, int64 log start,
                       int64 clean to
    then per entry: uint32 bytes of the key, int64 offset, int32 partition,
                    uint32 bytes of the value (2**32 - 1: the log has it), the key, the value
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct
from typing import NamedTuple

from pylog.codec.checked_file import HEAD_BYTES, FileKind
from pylog.errors import ConfigError
from pylog.interrupts import own
from pylog.storage import FileSystem, read_whole, write_atomically
from pylog.tables.store import IDENTITY_BYTES_MAX, Entry, Position

KIND = FileKind(b"PYLGTABL", 2, "snapshot of a table")
LIMIT_BYTES = 1 << 30

_COUNTS = Struct(">HIQ")
_POSITION = Struct(">iqiqq")
_ENTRY = Struct(">IqiI")
_NO_VALUE = (1 << 32) - 1


class Snapshot(NamedTuple):
    """What a table has read."""

    identity: str
    positions: dict[int, Position]
    entries: dict[bytes, Entry]


def write_snapshot(
    filesystem: FileSystem,
    path: str,
    identity: str,
    positions: dict[int, Position],
    entries: Collection[tuple[bytes, Entry]],
) -> None:
    """Durable on return. ``ConfigError`` if there is more than a snapshot may have."""
    name = identity.encode()
    data = bytearray(HEAD_BYTES)
    data += _COUNTS.pack(len(name), len(positions), len(entries)) + name
    for partition, position in sorted(positions.items()):
        data += _POSITION.pack(partition, *position)
    for key, (offset, partition, value) in entries:
        data += (
            _ENTRY.pack(len(key), offset, partition, _NO_VALUE if value is None else len(value)) + key + (value or b"")
        )
        if len(data) > LIMIT_BYTES:
            raise ConfigError(
                f"{path}: the table has more than the {LIMIT_BYTES} bytes of a snapshot; use store='rocksdict'",
                path=path, limit_bytes=LIMIT_BYTES, option="store",
            )  # fmt: skip
    KIND.seal(data)
    write_atomically(filesystem, path, data)


def read_snapshot(filesystem: FileSystem, path: str) -> Snapshot | None:
    """None if there is none. ``CorruptSegment`` if it is invalid or of another version."""
    try:
        size_bytes = filesystem.size(path)
        if size_bytes > LIMIT_BYTES:
            raise KIND.damage(path, f"{size_bytes} bytes")
        data = read_whole(filesystem, path, size_bytes)
    except own(FileNotFoundError):
        return None
    if len(data) != size_bytes:
        raise KIND.damage(path, f"{len(data)} of {size_bytes} bytes")
    KIND.check(data, path, HEAD_BYTES + _COUNTS.size)
    name_bytes, position_count, entry_count = _COUNTS.unpack_from(data, HEAD_BYTES)
    at = HEAD_BYTES + _COUNTS.size + name_bytes
    entries_at = at + position_count * _POSITION.size
    if name_bytes > IDENTITY_BYTES_MAX or entries_at + entry_count * _ENTRY.size > len(data):
        raise KIND.damage(path, f"{position_count} positions and {entry_count} entries in {len(data)} bytes")
    found = _POSITION.iter_unpack(memoryview(data)[at:entries_at])
    positions = {partition: Position(*rest).check(path) for partition, *rest in found}
    identity = data[at - name_bytes : at].decode("ascii", "replace")
    return Snapshot(identity, positions, _entries(path, data, entries_at, entry_count))


def _entries(path: str, data: bytes, at: int, count: int) -> dict[bytes, Entry]:
    entries: dict[bytes, Entry] = {}
    unpack, head_bytes, end = _ENTRY.unpack_from, _ENTRY.size, len(data)
    for _ in range(count):
        if at + head_bytes > end:
            raise KIND.damage(path, f"an entry at position {at} of {end}")
        key_bytes, offset, partition, value_bytes = unpack(data, at)
        key_at = at + head_bytes
        value_at = at = key_at + key_bytes
        value = None
        if value_bytes != _NO_VALUE:
            at += value_bytes
            value = data[value_at:at]
        if at > end or offset < 0:
            raise KIND.damage(
                path, f"an entry of {key_bytes} and {value_bytes} bytes and offset {offset} at {key_at} of {end}"
            )
        entries[data[key_at:value_at]] = (offset, partition, value)
    if at != end or len(entries) != count:
        raise KIND.damage(path, f"{len(entries)} of {count} keys, to {at} of {end} bytes")
    return entries
