"""A snapshot's bytes are not trusted: whatever they are, reading gives a snapshot, or says that it
is none."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from pylog.codec.checksum import crc32c
from pylog.errors import ConfigError, CorruptSegment
from pylog.storage import OsFileSystem
from pylog.tables import snapshot
from pylog.tables.snapshot import read_snapshot, write_snapshot
from pylog.tables.store import Entry, Position

ENTRIES: dict[bytes, Entry] = {b"a": (3, 0, b"value"), b"": (2**40, 7, None), b"long" * 50: (0, 0, b"")}
POSITIONS = {0: Position(4, -1, 0, 5), 7: Position(2**40 + 1, 3, 9, 2**41)}


def write(path: Path) -> bytes:
    write_snapshot(OsFileSystem(), str(path), "id read_committed stored", POSITIONS, [*ENTRIES.items()])
    return path.read_bytes()


def with_checksum(data: bytes) -> bytes:
    return data[:10] + struct.pack(">I", crc32c(data[14:])) + data[14:]


def test_a_snapshot_gives_back_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "s")
    assert read_snapshot(OsFileSystem(), str(tmp_path / "s")) == ("id read_committed stored", POSITIONS, ENTRIES)
    assert read_snapshot(OsFileSystem(), str(tmp_path / "missing")) is None


def test_a_snapshot_with_any_byte_changed_or_cut_is_none(tmp_path: Path) -> None:
    path = tmp_path / "s"
    data = write(path)
    for at in range(len(data)):
        for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(CorruptSegment, match="is no snapshot of a table"):
                read_snapshot(OsFileSystem(), str(path))


def test_forged_bytes_with_a_right_checksum_raise_one_error_or_give_a_snapshot(tmp_path: Path, seed: int) -> None:
    path, choose = tmp_path / "s", random.Random(seed)
    data = write(path)
    refused = 0
    for _ in range(2000):
        forged = bytearray(data)
        for _ in range(choose.randrange(1, 4)):
            forged[choose.randrange(14, len(data))] = choose.choice([0, 1, 0x7F, 0x80, 0xFF])
        path.write_bytes(
            with_checksum(bytes(forged[: choose.choice([len(forged), choose.randrange(14, len(forged))])]))
        )
        try:
            found = read_snapshot(OsFileSystem(), str(path))
            assert found is not None
            assert all(key.__class__ is bytes for key in found.entries)
        except CorruptSegment:
            refused += 1
    assert 0 < refused < 2000


def test_a_table_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "LIMIT_BYTES", 300)
    with pytest.raises(ConfigError, match="use store='rocksdict'"):
        write(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
