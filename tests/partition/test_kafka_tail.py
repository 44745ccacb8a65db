"""A directory that Kafka writes is looked at again and again: each look finds what a first look
would, and reads what is new."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pylog.catalog import TopicConfig
from pylog.partition import Partition
from pylog.partition.directory import PartitionDirectory
from pylog.partition.read.published import PublishedView
from pylog.storage import OsFileSystem
from pylog.storage.os_filesystem import OsReadableFile
from pylog.testing import ManualClock
from tests.partition.logs import TP, add, append_encoded, batch, boot_of, log_file, marker, open_partition


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Partition]:
    """What is appended here is copied to ``theirs``, as Kafka would write it."""
    with closing(open_partition(tmp_path / "orders-0")) as partition:
        yield partition


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    directory = tmp_path / "theirs" / "orders-0"
    directory.mkdir(parents=True)
    return directory


def copy(source: Path, theirs: Path) -> None:
    """Bring what was appended over, without removing what is there."""
    for path in source.glob("*.log"):
        there = theirs / path.name
        add(there, path.read_bytes()[there.stat().st_size if there.exists() else 0 :])


def view_of(directory: Path) -> PublishedView:
    filesystem = OsFileSystem()
    there = PartitionDirectory(
        filesystem, ManualClock(), str(directory), TP, TopicConfig, boot_of(filesystem), "", is_kafka=True
    )
    return PublishedView(there, log_start=0)


def test_every_look_finds_what_a_first_look_finds(source: Partition, theirs: Path, tmp_path: Path) -> None:
    """Batches, transactions that stay open for a while, and new segments, in any order."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    copy(tmp_path / "orders-0", theirs)
    view, sequence, is_open = view_of(theirs), 0, False
    for _ in range(60):
        what = dice.choice(["plain", "transactional", "end", "roll", "nothing"])
        if what == "plain":
            append_encoded(source, batch(*[b"v"] * dice.randint(1, 5)))
        elif what == "transactional":
            append_encoded(source, batch(b"t", producer_id=7, epoch=0, sequence=sequence, transactional=True))
            sequence, is_open = sequence + 1, True
        elif what == "end" and is_open:
            append_encoded(source, marker(7, 0, commit=dice.random() < 0.5))
            is_open = False
        elif what == "roll":
            source.log.roll()
        copy(tmp_path / "orders-0", theirs)
        found = view.current()
        assert found == view_of(theirs).current()
        assert found.log_end_offset == source.latest_offset
        assert (found.last_stable_offset < found.log_end_offset) is is_open


def test_a_look_reads_what_is_new(
    source: Partition, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(50):
        append_encoded(source, batch(os.urandom(10_000)))
    copy(tmp_path / "orders-0", theirs)
    view = view_of(theirs)
    view.current()
    append_encoded(source, batch(b"new"))
    copy(tmp_path / "orders-0", theirs)
    read: list[int] = []
    pread = OsReadableFile.pread

    def counted(self: Any, size: int, position: int) -> bytes:
        data = pread(self, size, position)
        read.append(len(data))
        return data

    monkeypatch.setattr(OsReadableFile, "pread", counted)
    assert view.current().log_end_offset == 51
    assert sum(read) < 1000


@pytest.mark.parametrize("behind", [[], [b"t", b"more"], [b"more" * 100]])
def test_a_segment_that_was_cut_and_written_on_is_assessed_anew(
    source: Partition, theirs: Path, tmp_path: Path, behind: list[bytes]
) -> None:
    """A follower of Kafka's does that. Its transaction that was open is gone with what was cut."""
    append_encoded(source, batch(b"kept"))
    copy(tmp_path / "orders-0", theirs)
    kept = log_file(theirs).stat().st_size
    append_encoded(source, batch(b"t", producer_id=7, epoch=0, sequence=0, transactional=True))
    copy(tmp_path / "orders-0", theirs)
    view = view_of(theirs)
    assert view.current().last_stable_offset == 1
    os.truncate(log_file(theirs), kept)
    with closing(open_partition(tmp_path / "other")) as other:
        append_encoded(other, batch(b"kept"))
        for value in behind:  # "t" is as long as what was cut
            append_encoded(other, batch(value))
        copy(tmp_path / "other", theirs)
        assert view.current() == view_of(theirs).current()
        assert view.current().last_stable_offset == other.latest_offset == 1 + len(behind)


def test_a_torn_end_is_no_end_until_it_is_whole(source: Partition, theirs: Path, tmp_path: Path) -> None:
    append_encoded(source, batch(b"a"))
    copy(tmp_path / "orders-0", theirs)
    view = view_of(theirs)
    assert view.current().log_end_offset == 1
    size = log_file(theirs).stat().st_size
    append_encoded(source, batch(b"b" * 100))
    copy(tmp_path / "orders-0", theirs)
    whole = log_file(theirs).read_bytes()
    for end in (size + 5, size + 80, len(whole)):
        log_file(theirs).write_bytes(whole[:end])
        state = view.current()
        assert (state.log_end_offset, state.written_end) == ((2, end) if end == len(whole) else (1, size))
        assert state == view_of(theirs).current()
