"""What a compaction meets in the worst case: a full disk, a seal that is not of its segment, a fork
in a signal handler."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import CorruptSegment, ForkedHandle, NotAppended, StorageFull
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.compact import engine
from pylog.partition.compact.batches import Cleaned, clean
from pylog.partition.compact.engine import compact
from pylog.partition.verify import verify_partition
from pylog.segment import SealBuilder
from pylog.segment.naming import EPOCH_CHECKPOINT, file_name
from pylog.segment.seal import encode
from pylog.segment.swap_view import seen_through
from pylog.storage import OsFileSystem, ReadableFile
from tests.partition.logs import TP, cut, everything, file_of, flip, log_file, one, open_partition
from tests.storage.filesystems import Faulty, Killed, full


def three_segments(directory: Path, filesystem: OsFileSystem | None = None) -> Partition:
    partition = open_partition(directory, filesystem or OsFileSystem())
    for number in range(3):
        for key in (b"a", b"b"):
            partition.append([ProducerRecord(b"%d" % number, key=key)], acks=1)
        partition.log.roll()
    partition.append([ProducerRecord(b"last", key=b"c")], acks="all")
    return partition


@pytest.mark.parametrize("operation", ["pwrite", "sync"])
def test_a_full_disk_keeps_nothing_of_a_compaction_that_failed(directory: Path, operation: str) -> None:
    filesystem = Faulty()
    partition = three_segments(directory, filesystem)
    before = everything(partition)

    def fail(happens: str, path: str) -> None:
        if happens == operation and path.endswith(".log.cleaned"):
            raise full(path)

    filesystem.hook = fail
    with pytest.raises(StorageFull):
        compact(partition.log)
    assert [path.name for path in directory.iterdir() if path.name.endswith((".cleaned", ".swap"))] == []
    assert everything(partition) == before
    filesystem.hook = lambda *_: None
    assert compact(partition.log).records_dropped == 4


def test_a_seal_without_the_offsets_that_the_swapped_segment_replaces_removes_none(directory: Path) -> None:
    three_segments(directory).log.close()
    shutil.copy(file_of(directory, 0, ".seal"), file_of(directory, 0, ".seal.swap"))
    before = sorted(path.name for path in directory.iterdir() if path.suffix == ".log")
    with pytest.raises(
        NotAppended, match=r"seal\.swap is of a compaction, but does not say which segments it replaces"
    ):
        open_partition(directory).append([ProducerRecord(b"x")], acks=1)
    assert sorted(path.name for path in directory.iterdir() if path.suffix == ".log") == before


def test_what_is_not_swapped_is_seen_as_it_is(directory: Path) -> None:
    three_segments(directory).log.close()
    for name in (".log", ".seal"):
        file_of(directory, 0, f"{name}.swap").write_bytes(b"swapped")
    seen = seen_through(OsFileSystem(), str(directory), [0])
    sizes = [seen.size(str(file_of(directory, 0, kind))) for kind in (".log", ".index")]
    assert sizes == [7, file_of(directory, 0, ".index").stat().st_size]
    assert seen.names(str(directory)) == OsFileSystem().names(str(directory))


@pytest.mark.parametrize("home", ["another-topic-0", ""])
def test_a_seal_that_is_not_of_the_swapped_segment_removes_none(directory: Path, home: str) -> None:
    partition = three_segments(directory)
    partition.log.close()
    before = sorted(path.name for path in directory.iterdir() if path.suffix in (".log", ".index", ".seal"))
    file_of(directory, 0, ".seal.swap").write_bytes(encode(SealBuilder(home).build(6)))
    with pytest.raises(NotAppended, match=r"seal\.swap.*(another partition|is of a segment of 0 bytes)"):
        open_partition(directory).append([ProducerRecord(b"x")], acks=1)
    after = sorted(path.name for path in directory.iterdir() if path.suffix in (".log", ".index", ".seal"))
    assert after == before


@pytest.mark.parametrize("read_only", [True, False])
def test_a_decided_swap_of_a_segment_that_is_missing_is_damage(directory: Path, read_only: bool) -> None:
    """A swap that is finished meanwhile is not: then the segments are listed again, a few times."""
    three_segments(directory).log.close()
    file_of(directory, 2, ".seal.swap").write_bytes(file_of(directory, 2, ".seal").read_bytes())
    log_file(directory, 2).unlink()
    partition = open_partition(directory, read_only=read_only)
    with pytest.raises(CorruptSegment, match="is missing: the log of a segment that is swapped") as caught:
        partition.read(0)
    assert caught.value.path == str(directory)


class Forking(OsFileSystem):
    """Says that this is another process once ``is_child``."""

    is_child = False

    def process_id(self) -> int:
        return super().process_id() + self.is_child


def test_a_child_of_a_signal_handler_does_not_go_on_with_its_parents_compaction(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem = Forking()
    partition = three_segments(directory, filesystem)
    filesystem_class = type(filesystem)

    def forked(*arguments: Any) -> Cleaned:
        filesystem_class.is_child = True
        return clean(*arguments)

    monkeypatch.setattr(engine, "clean", forked)
    monkeypatch.setattr(filesystem_class, "is_child", False)
    with pytest.raises(ForkedHandle):
        compact(partition.log)
    assert not [path.name for path in directory.iterdir() if path.name.endswith(".swap")]


class Watched(OsFileSystem):
    """Calls ``hook`` before it opens a file."""

    def __init__(self) -> None:
        super().__init__()
        self.hook: Callable[[str], None] | None = None

    def open_readable(self, path: str) -> ReadableFile:
        if self.hook is not None:
            self.hook(path)
        return super().open_readable(path)


def test_a_lookup_by_time_skips_nothing_if_its_segment_is_replaced_before_its_seal_is_read(directory: Path) -> None:
    """The log was the one before, and the seal the one after: so all of it seemed damaged, and was
    skipped."""
    filesystem = Watched()
    partition, reader = (open_partition(directory, each, segment_bytes=1024) for each in (OsFileSystem(), filesystem))
    for key in (b"a", b"b", b"a", b"e"):  # the first two segments are too large to become one
        partition.append([ProducerRecord(b"x" * 400, key=key)], acks="all")
        if key != b"a" or partition.latest_offset > 1:
            partition.log.roll()

    def replace(path: str) -> None:
        if path == str(file_of(directory, 0, ".seal")):
            filesystem.hook = None
            assert compact(partition.log).records_dropped == 1

    filesystem.hook = replace
    found = reader.offset_for_time(0)
    assert filesystem.hook is None
    assert found is not None
    assert found.offset == next(iter(partition.scan())).offset


def test_a_recovery_finishes_the_swap_of_a_process_that_died(directory: Path) -> None:
    """The end of the log is torn, too: then the next writer recovers before it looks at what is
    being swapped."""
    filesystem = Faulty()
    partition = three_segments(directory, filesystem)
    partition.append(one("torn"), acks=1)
    reader = open_partition(directory, read_only=True)
    before = everything(reader)

    def kill(happens: str, path: str) -> None:
        if happens == "replaced" and path.endswith(".seal.swap"):
            raise Killed

    filesystem.hook = kill
    with pytest.raises(Killed):
        compact(partition.log)
    cut(log_file(directory, 6), log_file(directory, 6).stat().st_size - 1)
    writer = open_partition(directory)
    assert writer.append(one("after"), acks="all").base_offset == 7
    assert not [path.name for path in directory.iterdir() if path.name.endswith((".swap", ".cleaned"))]
    left = [(offset, value) for offset, value in before if offset in (4, 5, 6)]
    assert everything(reader) == everything(writer) == [*left, (7, b"after")]
    assert list(verify_partition(OsFileSystem(), str(directory), TP)) == []


def test_a_lookup_by_time_skips_nothing_if_a_recovery_finishes_the_swap_meanwhile(directory: Path) -> None:
    """Also if that process dies, too, before it has recovered: what it publishes first tells the
    reader."""
    compacting, looking, recovering = Faulty(), Watched(), Faulty()
    partition, reader, writer = (
        open_partition(directory, each, segment_bytes=1024) for each in (compacting, looking, recovering)
    )
    for key in (b"a", b"b", b"a"):  # the first two segments are too large to become one
        partition.append([ProducerRecord(b"x" * 400, key=key)], acks="all")
        if partition.latest_offset > 1:
            partition.log.roll()
    partition.append(one("torn"), acks=1)

    def list_then_kill(happens: str, path: str) -> None:
        if path.endswith(".seal.swap"):
            if happens == "replaced":
                raise Killed
            assert len(reader.segments) == 3

    def kill(happens: str, path: str) -> None:
        if happens == "replaced" and path.endswith(".seal"):
            raise Killed

    def recover(path: str) -> None:
        if path == str(file_of(directory, 0, ".seal")):
            looking.hook = None
            with pytest.raises(Killed):
                writer.append(one("after"))

    compacting.hook, recovering.hook = list_then_kill, kill
    with pytest.raises(Killed):
        compact(partition.log)
    cut(log_file(directory, 3), log_file(directory, 3).stat().st_size - 1)
    looking.hook = recover
    found = reader.offset_for_time(0)
    assert looking.hook is None
    assert found is not None
    assert found.offset == 1


@pytest.mark.parametrize("wrong", ["missing", "damaged"])
def test_verify_finds_what_is_wrong_although_a_writer_rolls_and_deletes_meanwhile(directory: Path, wrong: str) -> None:
    filesystem = Watched()
    partition = open_partition(directory)
    for number in range(5):
        partition.append([ProducerRecord(b"%d" % number * 50)], acks="all")
        partition.log.roll()
    if wrong == "missing":
        for path in directory.glob(f"{2:020d}.*"):
            path.unlink()
    else:
        flip(log_file(directory, 2), 66)

    def change(path: str) -> None:
        if path.endswith(f"{1:020d}.log"):
            filesystem.hook = None
            partition.append([ProducerRecord(b"last")], acks="all")
            partition.log.roll()
            partition.log.delete_before(1)

    filesystem.hook = change
    (problem,) = verify_partition(filesystem, str(directory), TP)
    assert filesystem.hook is None
    assert "offsets from 2 to 2: " in str(problem)


@pytest.mark.parametrize(
    "opened",
    [
        EPOCH_CHECKPOINT,  # after it has listed the segments, and before it looks at any of them
        *(file_name(base, kind) for base in (0, 2, 4) for kind in (".log", ".seal", ".index", ".timeindex")),
    ],
)
def test_verify_finds_nothing_wrong_if_segments_are_replaced_before_it_opens_a_file(
    directory: Path, opened: str
) -> None:
    """What it compares is then of two segments."""
    filesystem = Watched()
    partition = three_segments(directory)

    def replace(path: str) -> None:
        if path == f"{directory}/{opened}":
            filesystem.hook = None
            assert compact(partition.log).records_dropped == 4

    filesystem.hook = replace
    assert [str(problem) for problem in verify_partition(filesystem, str(directory), TP)] == []
    assert filesystem.hook is None
