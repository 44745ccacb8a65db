"""Deleting the records of many segments keeps nobody waiting: their files go a few at a time, most
of it without the lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import StorageError, TopicNotFound
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.directory import PartitionDirectory
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.repair import swaps
from pylog.partition.segments import Segments
from pylog.partition.verify import verify_partition
from pylog.partition.write import deletion
from pylog.partition.write.deletion import FILES_AT_ONCE, files_before
from pylog.partition.write.lock import WriteLock
from pylog.segment.files import free
from pylog.segment.naming import DELETED, LOCK, LOG, OFFSET_INDEX, SEAL, SWAP, TIME_INDEX, file_name
from pylog.storage import SLEEP_MAX_S, FileLock, FileSystem, OsFileSystem
from pylog.testing.manual_clock import ManualClock
from tests.partition.logs import TP, bases, batch, boot_of, everything, one, open_partition, values
from tests.storage.filesystems import Faulty, Killed, StandIn

FS = OsFileSystem()


class Holding(StandIn):
    """Notes how many names change, and files go, under each hold of the partition's lock, and
    outside of it."""

    def __init__(self) -> None:
        self.is_held = False
        self.renames: list[int] = [0]  # under each hold
        self.removals_held: list[str] = []
        self.removals = 0
        self.on_release: Callable[[], None] = lambda: None

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        lock = super().lock(path, readable=readable)
        return Noted(lock, self) if path.endswith(f"/{LOCK}") else lock

    def replace(self, old: str, new: str) -> None:
        if self.is_held and new.endswith(DELETED):
            self.renames[-1] += 1
        super().replace(old, new)

    def remove(self, path: str) -> None:
        if self.is_held:
            self.removals_held.append(path)
        else:
            self.removals += 1
        super().remove(path)


class Noted:
    def __init__(self, lock: FileLock, noting: Holding) -> None:
        self._lock = lock
        self._noting = noting
        self.is_in_place, self.abandon, self.close = lock.is_in_place, lock.abandon, lock.close
        self.close_when_idle = lock.close_when_idle
        self.size = 0

    def try_acquire(self) -> bool:
        if not self._lock.try_acquire():
            return False
        self._noting.is_held = True
        self._noting.renames.append(0)
        return True

    def release(self) -> None:
        self._lock.release()
        if self._noting.is_held:
            self._noting.is_held = False
            self._noting.on_release()


def fill(partition: Partition, segments: int) -> None:
    for number in range(segments):
        partition.append(one(f"{number}"), acks=1)
        partition.log.roll()


@pytest.mark.parametrize("segments", [10, 100])
def test_few_files_go_under_one_hold_of_the_lock_however_many_segments_there_are(tmp_path: Path, segments: int) -> None:
    filesystem = Holding()
    partition = open_partition(tmp_path / "t-0", filesystem)
    fill(partition, segments)
    filesystem.renames, filesystem.removals_held, filesystem.removals = [0], [], 0
    assert partition.log.delete_before(segments - 1) == segments - 1
    assert max(filesystem.renames) <= FILES_AT_ONCE
    assert sum(filesystem.renames) >= 4 * (segments - 1), "a log, two indexes, a seal"
    assert {Path(path).suffix for path in filesystem.removals_held} <= {".snapshot"}, "small ones"
    assert filesystem.removals >= 4 * (segments - 1)
    assert bases(tmp_path / "t-0") == [segments - 1, segments]
    assert not list(tmp_path.glob("t-0/*.deleted"))


def test_others_append_while_files_go(tmp_path: Path) -> None:
    filesystem = Holding()
    partition, other = open_partition(tmp_path / "t-0", filesystem), open_partition(tmp_path / "t-0")
    fill(partition, 60)
    appended: list[int] = []

    def append() -> None:
        appended.append(other.append(one("between"), acks=1, timeout_ms=0).base_offset)

    filesystem.on_release = append
    partition.log.delete_before(59)
    filesystem.on_release = lambda: None
    assert len(appended) >= 4
    assert values(other.read(59)) == ["59"]
    assert values(partition.read(60)) == ["between"] * len(appended)
    assert list(verify_partition(FS, str(tmp_path / "t-0"), TP)) == []


def test_two_processes_delete_the_same(tmp_path: Path) -> None:
    filesystem = Holding()
    partition, other = open_partition(tmp_path / "t-0", filesystem), open_partition(tmp_path / "t-0")
    fill(partition, 30)
    others = iter([27, 29])

    def delete() -> None:
        for offset in others:
            assert other.log.delete_before(offset) == offset

    filesystem.on_release = delete
    assert partition.log.delete_before(27) == 27
    assert bases(tmp_path / "t-0") == [29, 30]
    assert partition.earliest_offset == 29
    assert not list(tmp_path.glob("t-0/*.deleted"))


def test_nothing_of_a_new_topic_goes_that_stands_at_the_same_path(tmp_path: Path) -> None:
    directory, filesystem = tmp_path / "t-0", Holding()
    partition = open_partition(directory, filesystem, topic_id="")  # nothing says that the topic is there
    fill(partition, 30)
    holds = iter([False, True])

    def exchange() -> None:
        if next(holds, False):
            PartitionDirectory.retire(FS, ManualClock(), str(directory), 1.0)
            directory.rename(tmp_path / "condemned")
            directory.mkdir()
            PartitionDirectory.create(FS, str(directory), "other", boot_of(FS))
            fill(open_partition(directory), 20)

    filesystem.on_release = exchange
    with pytest.raises(StorageError, match="replaced"):
        partition.log.delete_before(29)
    assert bases(directory) == list(range(21))
    assert [values(open_partition(directory).read(offset)) for offset in (0, 19)] == [["0"], ["19"]]


def test_files_go_only_while_the_log_says_that_they_may(tmp_path: Path) -> None:
    """Spoiled slots: the topic is being deleted, or they were lost, and a recovery is to look at
    the files."""
    directory, filesystem = tmp_path / "t-0", Holding()
    partition = open_partition(directory, filesystem)
    fill(partition, 30)
    holds = iter([False, True])  # the log start was published; a part of the files went

    def spoil() -> None:
        if next(holds, False):
            PartitionDirectory.retire(FS, ManualClock(), str(directory), 1.0)

    filesystem.on_release = spoil
    assert partition.log.delete_before(29) == 29
    assert 2 < len(bases(directory)) < 31


def test_a_deletion_sleeps_longer_between_two_holds_than_those_who_wait_for_the_lock(tmp_path: Path) -> None:
    slept: list[float] = []

    class Slept(ManualClock):
        def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    partition = open_partition(tmp_path / "t-0", clock=Slept())
    fill(partition, 60)
    files = list(files_before(FS.names(str(tmp_path / "t-0")), 59))
    partition.log.delete_before(59)
    assert len(slept) == (len(files) - 1) // FILES_AT_ONCE > 4
    assert min(slept) > SLEEP_MAX_S


@pytest.mark.parametrize("operation", ["replace", "remove"])
def test_what_a_killed_deletion_has_left_goes_with_the_next(tmp_path: Path, operation: str) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem)
    fill(partition, 20)
    count = 0

    def killed(what: str, path: str) -> None:
        nonlocal count
        count += what == operation and (DELETED in path or path.endswith((".log", ".index")))
        if count == 30:
            raise Killed

    filesystem.hook = killed
    with pytest.raises(Killed):
        partition.log.delete_before(19)
    reopened = open_partition(directory)
    assert reopened.earliest_offset == 19
    assert values(reopened.read(19)) == ["19"]
    assert reopened.log.append_batch(batch(b"x")).base_offset == 20
    assert len(bases(directory)) > 2 or list(directory.glob("*.deleted"))
    assert reopened.log.delete_before(19) == 19
    assert bases(directory) == [19, 20]
    assert not list(directory.glob("*.deleted"))
    assert list(verify_partition(FS, str(directory), TP)) == []


def test_a_topic_that_goes_meanwhile_ends_it(tmp_path: Path) -> None:
    directory, filesystem = tmp_path / "t-0", Holding()
    partition = open_partition(directory, filesystem, topic_id="")  # nothing says that the topic is there
    fill(partition, 30)
    holds = iter([False, True])

    def delete_topic() -> None:
        if next(holds, False):
            PartitionDirectory.retire(FS, ManualClock(), str(directory), 1.0)
            directory.rename(tmp_path / "condemned")

    filesystem.on_release = delete_topic
    assert partition.log.delete_before(29) == 29, "they are gone"
    with pytest.raises(TopicNotFound):
        partition.append(one("x"), acks=1)


def test_a_topic_that_goes_before_the_bytes_are_freed_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory was missing, not only the file: that was raised."""
    directory = tmp_path / "root" / "t-0"
    directory.mkdir(parents=True)
    partition = open_partition(directory, OsFileSystem().within(str(tmp_path / "root")), topic_id="")
    fill(partition, 3)

    def late(filesystem: FileSystem, path: str, names: Sequence[str]) -> None:
        if directory.exists():
            directory.rename(tmp_path / "condemned")
        free(filesystem, path, names)

    monkeypatch.setattr(deletion, "free", late)
    assert partition.log.delete_before(2) == 2


@pytest.fixture
def made_durable(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the snapshots that deletions make durable."""
    offsets: list[int] = []
    make_durable = snapshots.make_durable
    monkeypatch.setattr(snapshots, "make_durable", lambda *given: (offsets.append(given[2]), make_durable(*given))[1])
    return offsets


def test_a_deletion_that_is_begun_again_makes_the_snapshot_durable_that_is_left_now(
    tmp_path: Path, made_durable: list[int]
) -> None:
    """Others may have rolled since it was begun: the snapshot that was made durable then goes with
    the files."""
    partition = open_partition(tmp_path / "t-0")
    fill(partition, 5)
    for _ in range(2):
        partition.log.delete_before(3)
    assert made_durable == [3, 3]


def test_a_deletion_up_to_a_roll_that_was_killed_makes_the_snapshot_of_the_roll_durable(
    tmp_path: Path, made_durable: list[int]
) -> None:
    """The new base is published, and its file is not there yet."""
    killed, other = open_partition(tmp_path / "t-0"), open_partition(tmp_path / "t-0")
    other.append(one("0"), acks=1)
    fill(killed, 2)
    for kind in (LOG, OFFSET_INDEX, TIME_INDEX):
        (tmp_path / "t-0" / file_name(3, kind)).unlink()
    assert other.log.delete_before(3) == 3
    assert made_durable == [3]


def test_a_deletion_knows_of_rolls_after_its_listing(
    tmp_path: Path, made_durable: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, other = open_partition(tmp_path / "t-0"), open_partition(tmp_path / "t-0")
    fill(partition, 2)
    segments, appends = PartitionDirectory.segments, iter(range(3))

    def then_rolled(directory: PartitionDirectory) -> Segments:
        listed = segments(directory)
        for _ in appends:
            other.append(one("x"), acks=1)
            other.log.roll()
        return listed

    monkeypatch.setattr(PartitionDirectory, "segments", then_rolled)
    assert partition.log.delete_before(3) == 3
    assert made_durable == [3]


def test_what_a_killed_sealer_left_of_a_segment_goes_with_the_segment(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0", segment_bytes=200)
    fill(partition, 6)
    found = bases(tmp_path / "t-0")
    names = [f"{base:020d}.seal.77-9a47655976a72289.tmp" for base in found]
    for name in names:
        (tmp_path / "t-0" / name).write_bytes(b"half")
    partition.log.delete_before(found[3])
    left = sorted(name for name in names if (tmp_path / "t-0" / name).exists())
    assert left == sorted(name for name in names if int(name[:20]) >= found[3])


@pytest.mark.parametrize("hold", [0, 1], ids=["before the first files go", "between files"])
def test_a_directory_that_goes_meanwhile_ends_it(tmp_path: Path, hold: int) -> None:
    directory, filesystem = tmp_path / "t-0", Holding()
    partition = open_partition(directory, filesystem, topic_id="")  # nothing says that the topic is there
    fill(partition, 30)
    holds = iter([number == hold for number in range(hold + 1)])

    def delete_topic() -> None:
        if next(holds, False):
            directory.rename(tmp_path / "condemned")

    filesystem.on_release = delete_topic
    assert partition.log.delete_before(29) == 29, "they are gone"
    assert not directory.exists()


def test_a_deletion_waits_for_the_swap_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition, other = open_partition(tmp_path / "t-0"), open_partition(tmp_path / "t-0")
    for key in (b"a", b"b", b"c", b"a", b"b", b"a", b"b"):
        partition.append([ProducerRecord(b"v", key=key)], acks="all")
        partition.log.roll()
    is_decided, waits = threading.Event(), threading.Event()
    finish, holding, remove_before = swaps.finish, WriteLock.holding, deletion.remove_before

    def finishes_while_another_waits(grant: Grant) -> None:
        is_decided.set()
        assert waits.wait(30)
        finish(grant)

    def holds(lock: WriteLock, timeout_ms: int, work: Any) -> Any:
        if work is bool:
            waits.set()
        return holding(lock, timeout_ms, work)

    def during_a_swap(*arguments: Any) -> None:
        compacting.start()
        assert is_decided.wait(30)
        remove_before(*arguments)

    monkeypatch.setattr(swaps, "finish", finishes_while_another_waits)
    monkeypatch.setattr(WriteLock, "holding", holds)
    monkeypatch.setattr(deletion, "remove_before", during_a_swap)
    compacting = threading.Thread(target=compact, args=(other.log, CompactionOptions()))
    assert partition.log.delete_before(3) == 3
    compacting.join()
    assert bases(tmp_path / "t-0") == [3, 7]
    assert list(verify_partition(FS, str(tmp_path / "t-0"), TP)) == []


def test_files_of_deleted_records_stay_while_a_swap_is_not_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its process has died. The next writer finishes it; until then the segments are not as they
    are listed."""
    directory, filesystem = tmp_path / "t-0", Holding()
    partition = open_partition(directory, filesystem)
    for key in (b"a", b"b", b"c", b"a", b"b", b"a", b"b"):
        partition.append([ProducerRecord(b"v", key=key)], acks="all")
        partition.log.roll()

    def dies(operation: str, path: str) -> None:
        if operation == "replaced" and path.endswith(SEAL + SWAP):
            raise Killed

    def compact_and_die() -> None:
        filesystem.on_release = lambda: None
        with pytest.raises(Killed):
            compact(open_partition(directory, Faulty(dies)).log, CompactionOptions())

    filesystem.on_release = compact_and_die
    assert partition.log.delete_before(3) == 3
    assert bases(directory) == list(range(8))
    assert "others change the segments; files of deleted records stay until the next deletion" in caplog.text
    assert partition.append(one("next"), acks=1).base_offset == 7
    assert partition.log.delete_before(3) == 3
    assert bases(directory) == [3, 7]
    assert [offset for offset, _ in everything(partition)] == [5, 6, 7]
    assert list(verify_partition(FS, str(directory), TP)) == []
