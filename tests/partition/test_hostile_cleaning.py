"""Files of a compaction that somebody else has put there: nothing is lost by them, and no deleted
key comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import NotAppended, PylogError
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.cleaner_checkpoint import read_cleaned
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.segment.naming import CLEANER_CHECKPOINT, CLEANER_LOCK
from pylog.testing.manual_clock import ManualClock
from tests.partition.logs import file_of, open_partition

RETENTION_MS = 1_000
OPTIONS = CompactionOptions(delete_retention_ms=RETENTION_MS)
KEPT = {b"a": b"2", b"last": b"active"}
BASES = (0, 3, 6, 9)
KINDS = (".log", ".index", ".timeindex", ".seal")


def append(partition: Partition, key: bytes, value: bytes | None) -> None:
    partition.append([ProducerRecord(value, key=key, timestamp_ms=1000)], acks="all")


def fill(partition: Partition) -> None:
    """Closed segments at 0, 3 and 6; the key b is deleted in the second one."""
    for number in range(3):
        append(partition, b"a", b"%d" % number)
        append(partition, b"b", None if number else b"%d" % number)
        append(partition, b"c%d" % number, b"x" * 60)
        partition.log.roll()
    append(partition, b"last", b"active")


def table(partition: Partition) -> dict[bytes | None, bytes]:
    found: dict[bytes | None, bytes] = {}
    for record in partition.scan():
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.value
    return found


@pytest.fixture
def good(tmp_path: Path) -> Path:
    partition = open_partition(tmp_path / "good")
    fill(partition)
    partition.close()
    return tmp_path / "good"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(b"not of this log")
    return path


def _as_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _as_hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def _empty(path: Path, _: Path) -> None:
    path.touch()


def _huge(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("plant", [_as_link, _as_hard_link, _empty, _huge])
@pytest.mark.parametrize("suffix", [".cleaned", ".swap"])
def test_what_nobody_has_decided_is_removed_and_never_written_through(
    good: Path, victim: Path, suffix: str, plant: Callable[[Path, Path], None]
) -> None:
    for base in (0, 3, 4, 9, 1 << 40):
        for kind in KINDS:
            if (kind, suffix) != (".seal", ".swap"):
                plant(file_of(good, base, kind + suffix), victim)
    partition = open_partition(good)
    before = table(partition)
    assert compact(partition.log, OPTIONS).segments_after == 1
    assert table(partition) == before
    assert [path.name for path in good.iterdir() if path.name.endswith((".cleaned", ".swap"))] == []
    assert victim.read_bytes() == b"not of this log"


@pytest.mark.parametrize("name", [CLEANER_CHECKPOINT, CLEANER_LOCK, f"{0:020d}.log.cleaned", f"{0:020d}.seal.swap"])
def test_a_directory_or_a_link_in_the_place_of_a_file_is_never_written_through(
    good: Path, victim: Path, name: str
) -> None:
    path = good / name
    path.mkdir()
    partition = open_partition(good)
    with pytest.raises(PylogError, match=name):
        compact(partition.log, OPTIONS)
    partition.close()
    path.rmdir()
    path.symlink_to(victim)
    partition = open_partition(good)
    with suppress(PylogError):
        compact(partition.log, OPTIONS)
    partition.close()
    path.unlink(missing_ok=True)
    assert victim.read_bytes() == b"not of this log"
    assert table(open_partition(good)).items() >= KEPT.items()


@pytest.mark.parametrize("base", [base for base in BASES if base])
def test_a_decision_under_the_name_of_another_segment_replaces_nothing(good: Path, tmp_path: Path, base: int) -> None:
    """At the active segment's it took the place of records that are nowhere else."""
    other = tmp_path / "other"
    shutil.copytree(good, other)
    partition = open_partition(other)
    compact(partition.log, OPTIONS)
    partition.close()
    for kind in KINDS:
        shutil.copy(file_of(other, 0, kind), file_of(good, base, f"{kind}.swap"))
    logs = {at: file_of(good, at, ".log").read_bytes() for at in BASES}
    with pytest.raises(PylogError, match=r"seal\.swap"):
        table(open_partition(good, read_only=True))
    with pytest.raises(NotAppended, match=r"seal\.swap"):
        append(open_partition(good), b"new", b"x")
    assert {at: file_of(good, at, ".log").read_bytes() for at in BASES} == logs


def _of(offset: int, checksum: str = "") -> bytes:
    return f"0\n1\nt 0 {offset}{checksum}\n".encode()


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    "content",
    [
        *map(_of, (-1, 6, 9, 10, 1 << 62, 1 << 63, 10**40)),
        _of(9, " 00000000"), _of(9, " x y"), b"", b"0\n1\n", b"1\n1\nt 0 6\n", b"0\n1\nu 0 6\n", b"0\n1\nt 1 6\n",
        b"\xff" * 100, b"0\n" * 1000,
    ],
)  # fmt: skip
def test_no_key_comes_back_by_a_checkpoint_with_any_content(good: Path, content: bytes) -> None:
    (good / CLEANER_CHECKPOINT).write_bytes(content)
    _compact_until_tombstones_are_gone(good)


@pytest.mark.one_in(8)
def test_no_key_comes_back_by_a_checkpoint_of_which_a_bit_was_flipped(good: Path, tmp_path: Path) -> None:
    partition = open_partition(good)
    compact(partition.log, OPTIONS)
    fill(partition)
    append(partition, b"b", b"to be deleted")
    partition.log.roll()
    append(partition, b"b", None)
    partition.log.roll()
    append(partition, b"last", b"active")
    partition.close()
    content = (good / CLEANER_CHECKPOINT).read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        copy = tmp_path / "copy"
        shutil.copytree(good, copy)
        (copy / CLEANER_CHECKPOINT).write_bytes(flipped)
        _compact_until_tombstones_are_gone(copy)
        shutil.rmtree(copy)


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_no_key_comes_back_if_the_disk_has_lost_segments_that_were_compacted(tmp_path: Path, lost: int) -> None:
    """It has lost the slots, too: only they tell that these segments were durable."""
    settings = {"segment_bytes": 1024}  # two records fill a segment, so each stays alone
    partition = open_partition(tmp_path, **settings)
    append(partition, b"b", b"to be deleted")
    for number in range(9):
        append(partition, b"%d" % number, b"x" * 400)
    assert compact(partition.log, OPTIONS).cleaned_to == read_cleaned(partition.log.directory).first_dirty == 9
    partition.close()
    (tmp_path / ".commit").unlink()
    bases = [int(path.stem) for path in sorted(tmp_path.glob("*.log"))]
    assert bases == [0, 3, 5, 7, 9]
    for base in bases[-lost:]:
        for path in tmp_path.glob(f"{base:020d}.*"):
            path.unlink()
    partition = open_partition(tmp_path, **settings)
    append(partition, b"b", None)
    assert read_cleaned(partition.log.directory).first_dirty == bases[-lost]
    for number in range(9):
        append(partition, b"new %d" % number, b"x" * 400)
    append(partition, b"last", b"active")
    partition.close()
    _compact_until_tombstones_are_gone(tmp_path, {b"last": b"active"}, **settings)


def test_a_recovery_does_without_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, b"a", b"1")
    partition.close()
    (tmp_path / ".commit").unlink()
    (tmp_path / CLEANER_CHECKPOINT).mkdir()
    partition = open_partition(tmp_path)
    append(partition, b"a", b"2")
    assert table(partition) == {b"a": b"2"}


def _compact_until_tombstones_are_gone(directory: Path, kept: Mapping[bytes, bytes] = KEPT, **settings: Any) -> None:
    clock = ManualClock()
    partition = open_partition(directory, clock=clock, **settings)
    before = table(partition)
    assert before.items() >= kept.items()
    for _ in range(3):
        compact(partition.log, OPTIONS)
        assert table(partition) == before
        clock.advance(RETENTION_MS / 1000 + 1)
        append(partition, b"last", b"active")
        partition.log.roll()
    assert problems_of(partition) == []


def problems_of(partition: Partition) -> list[bytes | None]:
    """The keys that have more than one record in what was compacted; a tombstone is one, too."""
    end = compact(partition.log, OPTIONS).cleaned_to
    keys = [record.key for record in partition.scan() if record.offset < end]
    return [key for key in keys if keys.count(key) > 1]
