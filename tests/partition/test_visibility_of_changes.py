"""What other processes see, and are kept from, at each moment in which one of them changes a
partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.errors import DeliveryTimeout, OffsetConflict, OffsetOutOfRange, OutcomeUnknown, RecordTooLarge
from pylog.partition import Cursor
from pylog.partition.commit_slots import latest
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, add, append_encoded, bases, batch, everything, log_file, one, open_partition
from tests.storage.filesystems import Faulty, Nth, io_error

CONFIG = {"segment_bytes": 1024, "index_interval_bytes": 100}


def is_locked(directory: Path) -> bool:
    lock = OsFileSystem().lock(f"{directory}/.lock")
    taken = lock.try_acquire()
    lock.close()
    return not taken


def test_at_any_moment_of_an_append_others_see_whole_records_and_nothing_else(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem, **CONFIG)
    follower = open_partition(directory, read_only=True)
    acknowledged: list[bytes] = []
    looked: list[str] = []

    def look(operation: str, path: str) -> None:
        is_published = (directory / ".commit").read_bytes() != slots
        if operation == "pwrite" and path.endswith(".log"):
            add(Path(path), bytes(30))  # as far as a large write may have come
        for reader in (follower, open_partition(directory, read_only=True)):
            assert reader.offset_for_time(START_MS + 1) is None
            seen = [value for _, value in everything(reader)]
            assert seen[: len(acknowledged)] == acknowledged
            assert len(seen) - len(acknowledged) <= is_published
        looked.append(operation)

    for number in range(16):
        value = b"%d " % number + b"x" * (61 * (number % 5))
        slots = (directory / ".commit").read_bytes()
        filesystem.hook = look
        append_encoded(partition, batch(value))
        filesystem.hook = lambda operation, path: None
        acknowledged.append(value)
        assert [value for _, value in everything(follower)] == acknowledged
    assert len(bases(directory)) > 2
    assert len(looked) > 50


def test_the_lock_is_held_from_the_first_write_of_an_append_to_its_publication(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem, **CONFIG)
    writes: list[str] = []

    def look(operation: str, path: str) -> None:
        if operation in {"pwrite", "wrote", "truncate"} and ".seal." not in path:
            assert is_locked(directory), f"{operation} {path}"
            writes.append(path)

    filesystem.hook = look
    for _ in range(8):
        append_encoded(partition, batch(b"x" * 300))
        assert not is_locked(directory)
    assert {Path(path).name.lstrip("0123456789") for path in writes} >= {".log", ".index", ".timeindex", ".commit"}


def test_a_writer_waits_for_whoever_holds_the_lock_file(directory: Path) -> None:
    partition = open_partition(directory)
    lock = OsFileSystem().lock(f"{directory}/.lock")
    assert lock.try_acquire()
    for call in (
        lambda: partition.append(one("a"), acks=1, timeout_ms=5),
        lambda: partition.log.writable().roll(5),
        lambda: partition.log.writable().delete_before(0, 5),
    ):
        with pytest.raises(DeliveryTimeout):
            call()
    lock.close()
    assert partition.append(one("a"), acks=1, timeout_ms=5).base_offset == 0


def test_a_roll_is_published_before_its_file_is_made(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem, **CONFIG)
    made: list[int] = []

    def look(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log") and not Path(path).exists():
            state = latest((directory / ".commit").read_bytes())
            assert state is not None
            made.append(int(Path(path).stem))
            assert (state.active_base, state.written_end) == (made[-1], 0)

    filesystem.hook = look
    for _ in range(8):
        append_encoded(partition, batch(b"x" * 300))
    assert made == bases(directory)[1:] != []


def test_what_others_appended_is_taken_in_without_a_recovery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pylog")
    directory = tmp_path / "t-0"
    handles = [open_partition(directory, **CONFIG) for _ in range(2)]
    for number in range(24):
        handles[number % 2].append(one(f"{number}" + "x" * (number * 10)), acks="all" if number % 3 else 1)
        if number % 3:
            assert {handle.durable_offset for handle in handles} == {number + 1}
        elif number:
            assert {handle.durable_offset for handle in handles} == {number}
    assert [offset for offset, _ in everything(handles[0])] == list(range(24))
    assert caplog.messages == []


def test_an_append_that_fails_behind_its_publication_has_an_unknown_outcome(directory: Path) -> None:
    filesystem = Faulty()
    partition, other = open_partition(directory, filesystem), open_partition(directory)
    partition.append(one("a"), acks=1)
    filesystem.hook = Nth(0, {"wrote"}, io_error, suffix=".commit")
    with pytest.raises(OutcomeUnknown):
        partition.append(one("b"), acks=1)
    filesystem.hook = lambda operation, path: None
    assert [value for _, value in everything(other)] == [b"a", b"b"]  # somebody may have acted on it
    assert partition.append(one("c"), acks=1).base_offset == 2
    assert [value for _, value in everything(other)] == [b"a", b"b", b"c"]


def test_records_that_are_not_durable_are_not_shown_beside_those_that_are(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(one("durable"), acks="all")
    partition.append(one("written"), acks=1)
    for visibility, wanted in (("written", [0, 1]), ("durable", [0])):
        fetched = partition.log.fetch(
            Cursor(0), max_bytes=1 << 20, isolation_level="read_uncommitted", visibility=visibility
        )
        assert [view.base_offset for view in fetched.batches] == wanted
        assert fetched.cursor.offset == fetched.end_offset == len(wanted)


@pytest.mark.parametrize(("kind", "stamped"), [("CreateTime", -1), ("LogAppendTime", START_MS)])
def test_a_result_says_when_it_was_appended_where_the_log_stamps_it(tmp_path: Path, kind: str, stamped: int) -> None:
    partition = open_partition(tmp_path / "t-0", message_timestamp_type=kind)
    assert tuple(partition.append(one("a", timestamp_ms=5), acks=1)) == (0, 0, stamped, False)
    made = batch(b"b", timestamp_ms=5, producer_id=7, epoch=0, sequence=0)
    assert tuple(partition.log.append_batch(bytearray(made))) == (1, 1, stamped, False)
    assert tuple(partition.log.append_batch(bytearray(made))) == (1, 1, stamped, True)


def test_of_two_that_expect_the_same_end_one_succeeds(tmp_path: Path) -> None:
    first, second = (open_partition(tmp_path / "t-0") for _ in range(2))
    assert first.append(one("a"), acks=1, expected_offset=0).base_offset == 0
    with pytest.raises(OffsetConflict):
        second.append(one("b"), acks=1, expected_offset=0)
    assert second.append(one("b"), acks=1, expected_offset=1).base_offset == 1


def test_a_batch_larger_than_the_topic_takes_is_refused(tmp_path: Path) -> None:
    largest = batch(b"x" * 200)
    partition = open_partition(tmp_path / "t-0", max_message_bytes=len(largest))
    with pytest.raises(RecordTooLarge) as caught:
        partition.append(bytes(batch(b"x" * 201)), acks=1)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (len(largest) + 1, len(largest))
    assert partition.append(bytes(largest), acks=1).base_offset == 0


def test_a_deletion_by_one_process_takes_segments_from_the_others_lists(directory: Path) -> None:
    first, second, reader = (open_partition(directory, read_only=n == 2) for n in range(3))
    for number in range(3):
        first.append(one(f"{number}"), acks=1)
        first.log.roll()
    everything(reader)
    assert len(second.segments) == len(reader.segments) == 4
    assert first.log.delete_before(0) == 0
    for outside in (-1, 4):
        with pytest.raises(OffsetOutOfRange):
            first.log.delete_before(outside)
    assert first.log.delete_before(2) == 2
    assert first.log.delete_before(1) == 2
    for handle in (first, second, reader):
        assert [segment.base_offset for segment in handle.segments] == [2, 3]
        assert everything(handle) == [(2, b"2")]
    assert not log_file(directory, 1).exists()
