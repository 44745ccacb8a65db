"""A checkpoint: what all groups had committed at one offset of ``__consumer_offsets``.

A cache of the log, so that no process reads its whole history again. It contains only what was
durable: a log cut by a power failure still has all of it. A damaged one counts as missing. After
compaction a first look at 1,000 groups of ten partitions takes 50 ms with it, 75 to 300 without.

Layout, big-endian (our own, see docs/format.md):

    0  magic "PYLGOFFS"     8  int16 version 1     10 uint32 CRC-32C of the rest
    14 int64 offset of the next record     22 uint32 number of entries
    26 uint16 bytes of the topic's id, and the id
    then per entry: uint32 bytes of the key, the key, uint32 bytes of the value, the value
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from pylog.codec.checked_file import HEAD_BYTES, FileKind
from pylog.errors import CorruptSegment, StorageError
from pylog.interrupts import own
from pylog.storage import FileSystem, read_whole, write_atomically

KIND = FileKind(b"PYLGOFFS", 1, "checkpoint of committed offsets")
LIMIT_BYTES = 256 << 20

_FACTS = Struct(">qIH")
_SIZE = Struct(">I")


class Checkpoint(NamedTuple):
    """``next_offset`` is the first one not included; ``entries`` are keys and values of the log."""

    topic_id: str
    next_offset: int
    entries: list[tuple[bytes, bytes]]


def write_checkpoint(filesystem: FileSystem, path: str, checkpoint: Checkpoint) -> None:
    """Write it, durably on return, unless a newer one is there. The caller excludes other writers,
    and has made the commits durable."""
    try:
        there = read_checkpoint(filesystem, path)
    except own(CorruptSegment, StorageError):  # for example a FIFO: it is replaced
        there = None
    if there is not None and there.topic_id == checkpoint.topic_id and there.next_offset >= checkpoint.next_offset:
        return
    topic_id = checkpoint.topic_id.encode()
    data = bytearray(HEAD_BYTES)
    data += _FACTS.pack(checkpoint.next_offset, len(checkpoint.entries), len(topic_id)) + topic_id
    for key, value in checkpoint.entries:
        data += _SIZE.pack(len(key)) + key + _SIZE.pack(len(value)) + value
    if len(data) <= LIMIT_BYTES:
        KIND.seal(data)
        write_atomically(filesystem, path, data)


def read_checkpoint(filesystem: FileSystem, path: str) -> Checkpoint | None:
    """None if there is none. ``CorruptSegment`` if it is invalid or of an unknown version."""
    try:
        data = read_whole(filesystem, path, LIMIT_BYTES + 1)
    except own(FileNotFoundError):
        return None
    if len(data) > LIMIT_BYTES:
        raise KIND.damage(path, f"more than {LIMIT_BYTES} bytes")
    KIND.check(data, path, HEAD_BYTES + _FACTS.size)
    next_offset, count, id_bytes = _FACTS.unpack_from(data, HEAD_BYTES)
    start = HEAD_BYTES + _FACTS.size + id_bytes
    entries = list(_entries(data, start))
    if len(entries) != count or next_offset < 0:
        raise KIND.damage(path, f"{len(entries)} entries of {count}, offset {next_offset}")
    return Checkpoint(data[HEAD_BYTES + _FACTS.size : start].decode("ascii", "replace"), next_offset, entries)


def _entries(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    while at < len(data):
        key, at = _piece(data, at)
        value, at = _piece(data, at)
        yield key, value


def _piece(data: bytes, at: int) -> tuple[bytes, int]:
    size: int = _SIZE.unpack(data[at : at + _SIZE.size].ljust(_SIZE.size, b"\xff"))[0]
    return data[at + _SIZE.size : at + _SIZE.size + size], at + _SIZE.size + size
