"""acks="all" under a disk that refuses: what is acknowledged was synced; what was not is said to be
unknown or absent."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import (
    CorruptSegment,
    NotAppended,
    OffsetOutOfRange,
    OutcomeUnknown,
    PylogError,
    StorageError,
    StorageFull,
)
from pylog.partition import Partition
from pylog.partition.directory import PartitionDirectory
from pylog.storage import AppendableFile, OsFileSystem
from tests.partition.logs import (
    START_MS,
    ManualClock,
    append_encoded,
    assert_indexes_follow_from_the_log,
    batch,
    durability_of,
    everything,
    file_of,
    log_file,
    many,
    marker,
    one,
    open_partition,
    problems,
)
from tests.storage.filesystems import Faulty, Killed, Nth, OtherBoot, full, io_error, nothing
from tests.system import fail


def sync_fails(n: int, *, for_ever: bool = False, suffix: str = ".log") -> Faulty:
    """The n-th sync of such a file is refused; with ``for_ever`` every one from then on."""
    filesystem = Faulty()
    seen = 0

    def hook(operation: str, path: str) -> None:
        nonlocal seen
        if operation == "sync" and path.endswith(suffix):
            seen += 1
            if seen == n + 1 or (for_ever and seen > n):
                raise io_error(path)

    filesystem.hook = hook
    return filesystem


def assert_durable(directory: Path, filesystem: Faulty) -> None:
    """Every log file that stands in the directory has been synced since it was last written."""
    unsynced = [path for path in directory.glob("*.log") if os.stat(path).st_ino in filesystem.unsynced]
    assert unsynced == []


Inode = Callable[[Path], int]


@pytest.fixture
def inode_of() -> Iterator[Inode]:
    """The number of a file. It stays open, so no other file gets the number."""
    with ExitStack() as kept:
        yield lambda path: os.fstat(kept.enter_context(path.open("rb")).fileno()).st_ino


def syncs_per_file(filesystem: Faulty) -> dict[int, int]:
    return {inode: sum(i == inode for _, i in filesystem.synced_inodes) for _, inode in filesystem.synced_inodes}


def test_acks_all_returns_after_the_log_and_its_directory_were_synced(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    filesystem.operations.clear()
    partition.append(one("a"), acks="all")
    assert_durable(directory, filesystem)
    assert filesystem.count("sync_directory") == 1
    assert partition.durable_offset == 1
    partition.append(one("b"), acks="all")
    assert filesystem.count("sync_directory") == 1  # the name is durable already


def test_acks_one_syncs_nothing_but_the_seal_of_a_closed_segment(tmp_path: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(tmp_path / "t-0", filesystem)
    filesystem.operations.clear()
    filesystem.synced_inodes.clear()
    for _ in range(3):
        partition.append(one("a"), acks=1)
    assert filesystem.count("sync") == 0
    partition.log.roll()
    assert [".seal." in path for path, _ in filesystem.synced_inodes] == [True]
    assert filesystem.count("sync_directory") == 0
    assert partition.durable_offset == 0


def test_acks_all_after_a_roll_syncs_the_closed_segments_too(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    for number in range(3):
        partition.append(one(f"{number}"), acks=1)
        partition.log.roll()
    partition.append(one("last"), acks="all")
    assert_durable(directory, filesystem)
    assert partition.durable_offset == 4


def test_acks_all_syncs_the_indexes_of_closed_segments_before_it_says_that_they_are_durable(directory: Path) -> None:
    """Recovery makes anew only the indexes from the durable segment on; the others must be on the
    medium."""
    filesystem = Faulty()
    partition = open_partition(directory, filesystem, index_interval_bytes=0)
    for number in range(3):
        made = batch(b"%d" % number, producer_id=7, epoch=0, sequence=number, transactional=True)
        append_encoded(partition, made)
        append_encoded(partition, marker(7, 0, commit=False))
        partition.log.roll()
    partition.append(one("last"), acks="all")
    unsynced = {name for inode, paths in filesystem.unsynced.items() for name in paths if os.path.exists(name)}
    closed = {
        f"{directory}/{base:020d}{kind}" for base in (0, 2, 4) for kind in (".log", ".index", ".timeindex", ".txnindex")
    }
    assert closed & {name for name in unsynced if os.stat(name).st_ino in filesystem.unsynced} == set()
    assert os.path.exists(f"{directory}/{4:020d}.txnindex")


def test_a_sync_that_failed_once_is_answered_with_a_new_file(directory: Path) -> None:
    filesystem = sync_fails(1)
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks="all")
    failed = os.stat(log_file(directory)).st_ino
    assert partition.append(one("b"), acks="all").base_offset == 1
    assert os.stat(log_file(directory)).st_ino != failed
    assert_durable(directory, filesystem)
    assert syncs_per_file(filesystem)[failed] == 2  # one that worked, one that failed, none after
    assert partition.durable_offset == 2
    partition.append(one("c"), acks="all")
    assert [value for _, value in everything(partition)] == [b"a", b"b", b"c"]
    assert [value for _, value in everything(open_partition(directory, OtherBoot(1)))] == [b"a", b"b", b"c"]
    assert_indexes_follow_from_the_log(directory, 4096)


def test_a_disk_that_never_syncs_again_acknowledges_nothing(directory: Path) -> None:
    filesystem = sync_fails(1, for_ever=True, suffix="")
    filesystem.hook, hook = (lambda operation, path: None), filesystem.hook
    partition = open_partition(directory, filesystem)
    filesystem.hook = hook
    partition.append(one("a"), acks="all")
    first = os.stat(log_file(directory)).st_ino
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            partition.append(one("b"), acks="all")
    assert partition.durable_offset == 1
    assert syncs_per_file(filesystem)[first] == 2
    assert [value for _, value in everything(partition)] == [b"a", b"b", b"b", b"b"]


def test_a_disk_that_recovers_makes_everything_durable(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    filesystem.hook = sync_fails(0, for_ever=True, suffix="").hook
    with pytest.raises(OutcomeUnknown):
        partition.append(one("a"), acks="all")
    filesystem.hook = lambda operation, path: None
    partition.append(one("b"), acks="all")
    assert_durable(directory, filesystem)
    assert partition.durable_offset == 2


def test_a_closed_segment_whose_sync_fails_is_copied(directory: Path) -> None:
    filesystem = sync_fails(0)
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)
    partition.log.roll()
    old = os.stat(log_file(directory)).st_ino
    partition.append(one("b"), acks="all")
    assert os.stat(log_file(directory)).st_ino != old
    assert_durable(directory, filesystem)
    assert [value for _, value in everything(partition)] == [b"a", b"b"]


def test_a_writer_syncs_the_file_that_another_put_in_place(directory: Path) -> None:
    failing = Faulty()
    first = open_partition(directory, failing)
    filesystem = Faulty()
    second = open_partition(directory, filesystem)
    second.append(one("a"), acks="all")
    failing.hook = sync_fails(0).hook
    first.append(one("b"), acks="all")  # replaces the file
    second.append(one("c"), acks="all")
    assert_durable(directory, filesystem)


def test_a_writer_killed_in_a_rewrite_does_not_lead_others_astray(directory: Path) -> None:
    dying, healthy = Faulty(), open_partition(directory)
    healthy.append(one("a"), acks=1)
    first = open_partition(directory, dying)

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            raise io_error(path)
        if operation == "replaced" and path.endswith(".log"):
            raise Killed

    dying.hook = hook
    with pytest.raises(Killed):
        first.append(one("b"), acks="all")
    healthy.append(one("c"), acks=1)
    assert [value for _, value in everything(open_partition(directory))] == [b"a", b"b", b"c"]


def test_a_failed_sync_is_distrusted_by_other_processes_until_the_segment_was_copied(
    directory: Path, inode_of: Inode
) -> None:
    """The system reports the failure once: whoever opens the file afterwards would sync it without
    an error."""
    failing, filesystem = Faulty(), Faulty()
    first, second = open_partition(directory, failing), open_partition(directory, filesystem)
    first.append(one("a"), acks="all")
    failing.hook = sync_fails(0, for_ever=True, suffix="").hook
    with pytest.raises(OutcomeUnknown):
        first.append(one("b"), acks="all")  # neither the file nor its copy
    suspect = inode_of(log_file(directory))
    filesystem.synced_inodes.clear()
    second.append(one("c"), acks="all")
    assert suspect not in syncs_per_file(filesystem)
    assert os.stat(log_file(directory)).st_ino != suspect
    assert second.durable_offset == 3
    second.append(one("d"), acks="all")
    assert syncs_per_file(filesystem)[os.stat(log_file(directory)).st_ino] == 2  # trusted again: no further copy
    assert [path.name for path in directory.glob("*.unsynced")] == []


def test_a_closed_segment_that_another_process_could_not_sync_is_copied_and_not_synced_again(
    directory: Path, inode_of: Inode
) -> None:
    failing, filesystem = Faulty(), Faulty()
    first, second = open_partition(directory, failing), open_partition(directory, filesystem)
    first.append(one("a"), acks=1)
    first.log.roll()
    suspect = inode_of(log_file(directory))
    failing.hook = sync_fails(0, for_ever=True, suffix="").hook
    with pytest.raises(OutcomeUnknown):
        first.append(one("b"), acks="all")  # neither the file nor its copy
    published, copies = second.log.writable().publish_durable, []

    def publish(end_offset: int, synced: Collection[int], timeout_ms: int) -> bool:
        copies.append(os.stat(log_file(directory)).st_ino)
        if len(copies) == 1:  # another process could not sync the copy either
            first.log.writable().failed_syncs.mark(0)
        return published(end_offset, synced, timeout_ms)

    second.log.writable().publish_durable = publish
    second.append(one("c"), acks="all")
    assert suspect not in syncs_per_file(filesystem)
    assert len({suspect, *copies}) == 3
    assert_durable(directory, filesystem)
    assert [value for _, value in everything(second)] == [b"a", b"b", b"c"]
    assert [path.name for path in directory.glob("*.unsynced")] == []


def test_slots_that_are_spoiled_during_a_sync_take_nothing_back(directory: Path) -> None:
    """The records are on the disk. The next writer recovers them, and publishes that."""
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)

    def spoil(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            PartitionDirectory.retire(OsFileSystem(), ManualClock(), str(directory), 0)

    filesystem.hook = spoil
    partition.append(one("a"), acks="all")
    filesystem.hook = nothing
    assert_durable(directory, filesystem)
    with contextlib.closing(open_partition(directory, OtherBoot(0))) as after:
        assert after.append(one("b"), acks="all").base_offset == 1
        assert [value for _, value in everything(after)] == [b"a", b"b"]


def test_a_sync_that_another_process_saw_fail_before_it_was_published_is_made_again(
    directory: Path, inode_of: Inode
) -> None:
    failing, filesystem = Faulty(), Faulty()
    first, second = open_partition(directory, failing), open_partition(directory, filesystem)
    first.append(one("a"), acks="all")
    second.append(one("b"), acks="all")
    failing.hook = sync_fails(0, for_ever=True, suffix="").hook
    suspect = inode_of(log_file(directory))
    published, late = second.log.writable().publish_durable, []

    def publish(end_offset: int, synced: Collection[int], timeout_ms: int) -> bool:
        if not late:
            late.append(1)
            with pytest.raises(OutcomeUnknown):
                first.log.sync(second.latest_offset)
        return published(end_offset, synced, timeout_ms)

    second.log.writable().publish_durable = publish
    second.append(one("c"), acks="all")
    assert late
    assert os.stat(log_file(directory)).st_ino != suspect
    assert_durable(directory, filesystem)
    assert second.durable_offset == 3


def test_a_writer_killed_in_a_rewrite_leaves_no_sync_of_the_old_file_that_counts(directory: Path) -> None:
    """It was killed between the two publications; a neighbour may have opened the old file between
    the first and the rename."""
    dying, filesystem = Faulty(), Faulty()
    first, second = open_partition(directory, dying), open_partition(directory, filesystem)
    second.append(one("a"), acks="all")

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            raise io_error(path)
        if operation == "replace" and path.endswith(".log"):
            # opens the old file, under the new version
            durability_of(second)._sync_active(second.log.writable().published())
        if operation == "replaced" and path.endswith(".log"):
            raise Killed

    second.log.writable().rewrite_segment = lambda *_: None  # the lock is the dying one's
    dying.hook = hook
    with pytest.raises(Killed):
        first.append(one("b"), acks="all")
    del second.log.writable().rewrite_segment
    second.append(one("c"), acks="all")
    assert_durable(directory, filesystem)
    assert [value for _, value in everything(second)] == [b"a", b"b", b"c"]


def test_who_opens_the_old_file_in_the_midst_of_a_rewrite_is_told_when_the_new_one_is_there(directory: Path) -> None:
    failing, filesystem = Faulty(), Faulty()
    first, second = open_partition(directory, failing), open_partition(directory, filesystem)
    second.append(one("a"), acks="all")

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            raise io_error(path)
        if operation == "replace" and path.endswith(".log"):
            second.log.writable().rewrite_segment = lambda *_: None  # first has the lock
            # opens the old file, under the new version
            durability_of(second)._sync_active(second.log.writable().published())
            del second.log.writable().rewrite_segment

    failing.hook = hook
    first.append(one("b"), acks="all")
    failing.hook = lambda operation, path: None
    second.append(one("c"), acks="all")
    assert_durable(directory, filesystem)
    assert [value for _, value in everything(second)] == [b"a", b"b", b"c"]


def test_a_disk_that_takes_no_marker_either_is_distrusted_here(directory: Path, inode_of: Inode) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks="all")
    suspect = inode_of(log_file(directory))
    fails = sync_fails(0, for_ever=True, suffix="").hook

    def hook(operation: str, path: str) -> None:
        fails(operation, path)
        if operation == "open" and path.endswith((".unsynced", ".rewrite")):
            raise full(path)

    filesystem.hook = hook
    with pytest.raises(OutcomeUnknown):
        partition.append(one("b"), acks="all")
    filesystem.hook = lambda operation, path: None
    before = syncs_per_file(filesystem)[suspect]
    partition.append(one("c"), acks="all")
    assert syncs_per_file(filesystem)[suspect] == before
    assert_durable(directory, filesystem)


def test_recovery_does_not_repeat_a_sync_that_failed(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(0))
    partition.append(one("a"), acks=1)
    partition.close()
    filesystem = sync_fails(0)
    again = open_partition(directory, filesystem)
    old = os.stat(log_file(directory)).st_ino
    for value in ("b", "c"):
        with contextlib.suppress(NotAppended):
            again.append(one(value), acks=1)
    assert syncs_per_file(filesystem)[old] == 1
    assert everything(again)[-1][1] == b"c"


def test_a_closed_segment_deleted_while_it_is_synced_is_no_error(directory: Path) -> None:
    filesystem = Faulty()
    partition, other = open_partition(directory, filesystem), open_partition(directory)
    partition.append(one("a"), acks=1)
    partition.log.roll()
    partition.append(one("b"), acks=1)

    def hook(operation: str, path: str) -> None:
        if (operation, path) == ("open", str(log_file(directory))):
            other.log.delete_before(1)

    filesystem.hook = hook
    partition.log.sync(2)
    assert partition.durable_offset == 2


def test_an_active_segment_rolled_and_deleted_while_it_is_synced_is_no_error(directory: Path) -> None:
    filesystem = Faulty()
    partition, other = open_partition(directory, filesystem), open_partition(directory)
    partition.append(one("a"), acks=1)

    def hook(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log"):
            filesystem.hook = lambda operation, path: None
            other.log.roll()
            other.append(one("b"), acks=1)
            other.log.delete_before(1)

    filesystem.hook = hook
    partition.log.sync(1)
    assert partition.durable_offset == 2
    assert [value for _, value in everything(partition)] == [b"b"]


@pytest.mark.parametrize("call", ["append", "roll", "delete_before", "sync"])
def test_a_partition_directory_that_was_moved_is_missing(tmp_path: Path, call: str) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    partition.append(one("a"), acks=1)
    directory.rename(tmp_path / "moved")
    calls = {
        "append": lambda: [partition.append(one("x" * 500), acks=1) for _ in range(20)],
        "roll": partition.log.roll,
        "delete_before": lambda: [partition.log.roll(), partition.log.delete_before(1)],
        "sync": lambda: partition.log.sync(1),
    }
    if call == "append":
        partition = open_partition(tmp_path / "moved", segment_bytes=1024)
        partition.append(one("b"), acks=1)
        (tmp_path / "moved").rename(tmp_path / "again")
    with pytest.raises(
        (CorruptSegment, NotAppended, OutcomeUnknown), match="is missing, but the topic was not deleted"
    ):
        calls[call]()


def test_a_directory_that_is_gone_while_it_is_synced_is_missing(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)

    def hook(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log"):
            shutil.rmtree(directory)

    filesystem.hook = hook
    with pytest.raises(OutcomeUnknown, match="is missing, but the topic was not deleted"):
        partition.log.sync(1)


def test_a_lock_that_is_taken_while_a_sync_failed_makes_the_outcome_unknown(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem, clock=ManualClock())
    partition.append(one("a"), acks="all")
    held = OsFileSystem().lock(f"{directory}/.lock")

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            assert held.try_acquire()
            raise io_error(path)

    filesystem.hook = hook
    try:
        with pytest.raises(OutcomeUnknown):
            partition.append(one("b"), acks="all")
    finally:
        held.close()


def test_syncing_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    filesystem = Faulty(Nth(1000, {"pread"}, lambda path: AssertionError("it reads for ever")))
    partition = open_partition(tmp_path / "t-0", filesystem)
    with pytest.raises(PylogError):
        partition.log.sync(1)


# A disk that is full, at every write in turn

WRITES = {"pwrite", "open", "replace"}
INTERVAL_BYTES = 200


def appends_and_rolls(partition: Partition, outcomes: list[bytes]) -> None:
    """A fixed sequence: small and large batches, idempotent and plain, that roll three times."""
    sequence = 0
    for number in range(24):
        value = b"%d " % number + b"x" * (37 * (number % 7))
        idempotent: dict[str, Any] = {"producer_id": 7, "epoch": 0, "sequence": sequence} if number % 2 else {}
        try:
            append_encoded(partition, batch(value, timestamp_ms=START_MS + number, **idempotent))
        except NotAppended:
            continue
        sequence += number % 2
        outcomes.append(value)


def full_disk(n: int, operations: set[str]) -> tuple[Faulty, Nth]:
    nth = Nth(n, operations, full)
    return Faulty(nth), nth


@pytest.mark.slow
@pytest.mark.parametrize("operations", [{"pwrite"}, {"open"}, {"replace"}], ids=["pwrite", "open", "rename"])
def test_with_the_disk_full_at_any_moment_each_append_is_there_or_not_appended(
    tmpfs_dir: Path, operations: set[str]
) -> None:
    n = 0
    while True:
        directory = tmpfs_dir / f"{n}" / "t-0"
        open_partition(directory).close()
        filesystem, nth = full_disk(n, operations)
        partition = open_partition(directory, filesystem, segment_bytes=1024, index_interval_bytes=INTERVAL_BYTES)
        acknowledged: list[bytes] = []
        appends_and_rolls(partition, acknowledged)
        if not nth.raised:
            break
        assert len(acknowledged) >= 22, f"{nth.raised} cost {24 - len(acknowledged)} appends"
        assert [value for _, value in everything(partition)] == acknowledged, nth.raised
        other = open_partition(directory, segment_bytes=1024, index_interval_bytes=INTERVAL_BYTES)
        append_encoded(other, batch(b"after", timestamp_ms=START_MS + 99))
        assert [value for _, value in everything(other)] == [*acknowledged, b"after"], nth.raised
        assert_indexes_follow_from_the_log(directory, INTERVAL_BYTES)
        n += 1
    print(f"{n} refusals of {sorted(operations)}")
    assert n >= 3
    assert len(acknowledged) == 24


@pytest.mark.parametrize("suffix", [".snapshot.tmp"])
def test_a_roll_that_fails_leaves_no_closing_entry_in_the_time_index(directory: Path, suffix: str) -> None:
    """The roll is due for a large batch; a small one then goes into the segment that was about to
    be closed."""
    nth = Nth(0, {"open", "pwrite"}, full, suffix=suffix)
    partition = open_partition(directory, Faulty(nth), segment_bytes=1024, index_interval_bytes=INTERVAL_BYTES)
    append_encoded(partition, batch(b"a" * 500, timestamp_ms=START_MS))
    with pytest.raises(StorageFull):
        append_encoded(partition, batch(b"b" * 500, timestamp_ms=START_MS + 1))
    assert nth.raised
    append_encoded(partition, batch(b"c" * 10, timestamp_ms=START_MS + 2))
    assert_indexes_follow_from_the_log(directory, INTERVAL_BYTES)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["pwrite", "truncate", "open", "replace"])
def test_an_input_output_error_at_any_moment_leaves_a_log_that_goes_on(tmpfs_dir: Path, operation: str) -> None:
    """EIO instead of ENOSPC; an append may also end with its outcome unknown, and then either is
    right."""
    n = 0
    while True:
        directory = tmpfs_dir / f"{n}" / "t-0"
        open_partition(directory).close()
        nth = Nth(n, {operation}, io_error)
        partition = open_partition(directory, Faulty(nth), segment_bytes=1024, index_interval_bytes=INTERVAL_BYTES)
        certain: list[bytes] = []
        unknown: list[bytes] = []
        for number in range(24):
            value = b"%d " % number + b"x" * (37 * (number % 7))
            try:
                append_encoded(partition, batch(value, timestamp_ms=START_MS + number))
            except NotAppended:
                continue
            except OutcomeUnknown:
                unknown.append(value)
            else:
                certain.append(value)
        if not nth.raised:
            break
        found = [value for _, value in everything(open_partition(directory))]
        assert [value for value in found if value not in unknown] == certain, nth.raised
        assert len(unknown) <= 1
        n += 1
    print(f"{n} refusals of {operation}")


@pytest.mark.slow
def test_a_kill_at_any_change_keeps_every_acknowledged_record(tmpfs_dir: Path) -> None:
    """The process dies before its n-th change of the disk, for every n; what it had acknowledged is
    there, in order."""
    n = 0
    while True:
        directory = tmpfs_dir / f"{n}" / "t-0"
        open_partition(directory).close()
        nth = Nth(n, {"pwrite", "open", "replace", "replaced", "truncate", "remove"}, lambda path: Killed())
        dead = False

        def hook(operation: str, path: str, nth: Nth = nth) -> None:
            nonlocal dead
            if dead:  # what runs while the exception rises must not reach the disk either
                raise Killed
            try:
                nth(operation, path)
            except Killed:
                dead = True
                raise

        partition = open_partition(directory, Faulty(hook), segment_bytes=1024, index_interval_bytes=INTERVAL_BYTES)
        acknowledged: list[bytes] = []
        try:
            for number in range(16):
                value = b"%d " % number + b"x" * (61 * (number % 5))
                append_encoded(partition, batch(value, timestamp_ms=START_MS + number))
                acknowledged.append(value)
        except Killed:
            pass
        if not dead:
            break
        other = open_partition(directory, segment_bytes=1024, index_interval_bytes=INTERVAL_BYTES)
        append_encoded(other, batch(b"after", timestamp_ms=START_MS + 99))
        found = [value for _, value in everything(other)]
        assert found[: len(acknowledged)] == acknowledged, nth.raised
        assert len(found) - len(acknowledged) in (1, 2), nth.raised
        assert found[-1] == b"after"
        n += 1
    print(f"killed before {n} changes")
    assert n > 20


def test_a_short_disk_gives_storage_full_with_the_path(tmp_path: Path) -> None:
    nth = Nth(0, {"pwrite"}, full, suffix=".log")
    partition = open_partition(tmp_path / "t-0", Faulty(nth))
    with pytest.raises(StorageFull) as caught:
        partition.append(many("a"), acks=1)
    assert caught.value.retriable
    assert str(caught.value.path).endswith(".log")
    assert isinstance(caught.value, NotAppended)
    assert isinstance(caught.value, StorageError)
    assert partition.append(many("a"), acks=1).base_offset == 0


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".snapshot"])
def test_a_side_file_that_cannot_be_opened_now_is_no_failed_sync(tmp_path: Path, kind: str) -> None:
    """Too many open files, say: nothing is known against the segment, so nobody copies it."""
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem)
    partition.log.append_batch(batch(b"x", producer_id=1, epoch=0, sequence=0))
    partition.log.roll()
    partition.append(one("y"), acks=1)
    before = log_file(directory).stat().st_ino
    opened = filesystem.open_appendable

    def refuse(path: str, *, create: bool = True) -> AppendableFile:
        if path.endswith(kind) and not create:
            raise StorageError(f"cannot open {path!r}: Too many open files", path=path, errno=errno.EMFILE)
        return opened(path, create=create)

    filesystem.open_appendable = refuse
    with pytest.raises(OutcomeUnknown, match="Too many open files"):
        partition.log.sync(2)
    assert not list(directory.glob("*.unsynced"))
    filesystem.open_appendable = opened
    partition.log.sync(2)
    assert log_file(directory).stat().st_ino == before


def test_a_log_that_cannot_be_opened_again_for_a_sync_is_no_failed_sync(directory: Path) -> None:
    """Its descriptor was closed while it was idle, and now there are too many: no sync was
    tried."""
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("x"), acks=1)
    before = log_file(directory).stat().st_ino

    def refuse(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            raise StorageError("Too many open files", path=path, errno=errno.EMFILE, reopening=True)

    filesystem.hook = refuse
    with pytest.raises(OutcomeUnknown, match="Too many open files"):
        partition.log.sync(1)
    assert not list(directory.glob("*.unsynced"))
    filesystem.hook = nothing
    partition.log.sync(1)
    assert log_file(directory).stat().st_ino == before


def test_a_sync_that_failed_as_a_signal_handler_raised_is_not_trusted_when_it_is_repeated(directory: Path) -> None:
    """The handler's exception comes in the place of the error, and reaches the caller unchanged."""

    class Interrupted(BaseException):
        pass

    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("x"), acks=1)
    before = log_file(directory).stat().st_ino

    def interrupt(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            try:
                fail(OSError(errno.EIO, "Input/output error"))
            except OSError:
                raise Interrupted  # noqa: B904 - as Python does

    filesystem.hook = interrupt
    with pytest.raises(Interrupted):
        partition.log.sync(1)
    assert file_of(directory, 0, ".unsynced").exists()
    filesystem.hook = nothing
    partition.log.sync(1)
    assert log_file(directory).stat().st_ino != before
    assert not list(directory.glob("*.unsynced"))
    assert everything(partition) == [(0, b"x")]


def test_a_record_that_a_failed_sync_of_another_process_took_back_is_of_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")

    def cut(_end_offset: int) -> None:
        raise OffsetOutOfRange("ends at offset 0", offset=1, latest=0)

    monkeypatch.setattr(partition.log, "sync", cut)
    with pytest.raises(OutcomeUnknown, match="cut again by a failed sync"):
        partition.append(one("x"))


def test_ctrl_c_in_an_append_leaves_what_a_kill_would_leave(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)

    def interrupt(operation: str, path: str) -> None:
        if operation == "wrote" and path.endswith(".log"):
            raise KeyboardInterrupt

    filesystem.hook = interrupt
    with pytest.raises(KeyboardInterrupt):
        partition.append(one("b"), acks=1)
    filesystem.hook = nothing
    partition.append(one("c"), acks=1)
    assert [record.value for record in partition.scan()] == [b"a", b"b", b"c"]  # what was whole is taken in
    assert problems(directory) == []


def test_a_failed_append_that_cannot_be_taken_back_may_be_in_the_log(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)

    def refuse(operation: str, path: str) -> None:
        if path.endswith(".log") and operation in ("wrote", "truncate"):
            raise io_error(path)

    filesystem.hook = refuse
    with pytest.raises(OutcomeUnknown, match="could not be taken back"):
        partition.append(one("b"), acks=1)
    filesystem.hook = nothing
    assert partition.append(one("c"), acks=1).base_offset == 2
    assert [record.value for record in partition.scan()] == [b"a", b"b", b"c"]
