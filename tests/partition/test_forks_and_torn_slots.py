"""Moments that are rare and short: a fork in the midst of things, a slot torn twice, a lock that
stays taken after a sync."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import CorruptSegment, DeliveryTimeout, ForkedHandle, NotAppended, OffsetConflict, OutcomeUnknown
from pylog.manager.producer_ids import ProducerIds
from pylog.partition.commit_slots import (
    HEAD_BYTES,
    SLOT_BYTES,
    CommitSlots,
    CommitSlotsReader,
    CommitState,
    whole_file,
)
from pylog.partition.verify import verify_partition
from pylog.partition.write import durability
from pylog.storage import OsFileSystem, fork
from tests.partition.logs import (
    TP,
    ManualClock,
    append_encoded,
    batch,
    cut,
    durability_of,
    everything,
    file_of,
    flip,
    headers,
    in_turn,
    log_file,
    marker,
    one,
    open_partition,
)
from tests.storage.filesystems import Faulty, Nth, ReadsInTurn, io_error
from tests.system import fail

FS = OsFileSystem()
STATE = CommitState(
    sequence=7, boot=1, leader_epoch=0, active_base=0, written_end=100, log_end_offset=3, durable_offset=2,
    last_stable_offset=3, log_start_offset=1, high_watermark=3, segments_version=0, least_timestamp_ms=-5,
)  # fmt: skip


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls in this process what runs in a forked child, for objects made from now on."""
    monkeypatch.setattr(fork, "_methods", {})
    return fork._run


def test_after_a_fork_everything_of_a_partition_is_opened_anew(tmp_path: Path, forked: Any) -> None:
    partition = open_partition(tmp_path / "t-0", segment_bytes=1024)
    neighbour = open_partition(tmp_path / "t-0", segment_bytes=1024)
    for number in range(12):
        partition.append(one(f"{number}" + "x" * 200), acks="all" if number % 2 else 1)
        if number % 5 == 0:
            forked()
    neighbour.append(one("neighbour"), acks="all")
    assert [offset for offset, _ in everything(partition)] == list(range(13))
    partition.close()
    neighbour.close()


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("operation", ["open", "pread"])
def test_a_child_forked_while_its_parent_opens_the_segment_changes_nothing(
    tmp_path: Path, forked: Any, operation: str, suffix: str
) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    before = open_partition(directory, index_interval_bytes=1)
    for value in "abc":
        before.append(one(value), acks=1)
    partition = open_partition(directory, filesystem, index_interval_bytes=1)

    def fork_here(happened: str, path: str) -> None:
        if happened == operation and path.endswith(suffix):
            filesystem.hook = lambda operation, path: None
            for kind in (".index", ".timeindex"):  # the parent goes on meanwhile
                file_of(directory, 0, kind).write_bytes(b"of the parent")
            forked()

    filesystem.hook = fork_here
    with pytest.raises((ForkedHandle, NotAppended)):
        partition.append(one("of the child"), acks=1)
    assert len(everything(open_partition(directory, read_only=True))) == 3
    for kind in (".index", ".timeindex"):
        assert file_of(directory, 0, kind).read_bytes() == b"of the parent"


def test_after_a_fork_producer_ids_are_reserved_anew(tmp_path: Path, forked: Any) -> None:
    ids = ProducerIds(FS, ManualClock(), f"{tmp_path}/ids")
    first = ids.next()
    assert ids.next() == first + 1
    forked()
    assert ids.next() == first + 1000


def test_a_child_that_comes_back_into_its_parents_append_writes_nothing(directory: Path, forked: Any) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)
    before = log_file(directory).read_bytes()

    def hook(operation: str, path: str) -> None:
        if operation == "pwrite" and path.endswith(".log"):
            filesystem.hook = lambda operation, path: None
            forked()
            raise io_error(path)

    filesystem.hook = hook
    with pytest.raises(Exception, match=r"handler forked|cannot sync") as caught:
        partition.append(one("b"), acks=1)
    assert caught.value is not None
    assert log_file(directory).read_bytes() == before


def test_slots_that_read_torn_twice_are_read_again(tmp_path: Path) -> None:
    good = whole_file(STATE.successor())
    torn = good[:HEAD_BYTES] + b"\0" + good[HEAD_BYTES + 1 : -SLOT_BYTES] + b"\0" + good[1 - SLOT_BYTES :]
    assert CommitSlotsReader(ReadsInTurn(torn, torn, good)).read() == STATE.successor()
    assert CommitSlotsReader(ReadsInTurn(torn)).read() is None
    short = ReadsInTurn(good[:10], good)
    assert CommitSlotsReader(short).read() is None  # too short to be caught in the midst of a write


def test_a_check_of_a_log_reads_slots_again_that_read_torn_twice(directory: Path) -> None:
    open_partition(directory).append(one("a"))
    cut(log_file(directory), 10)
    expected = list(verify_partition(FS, str(directory), TP))
    assert expected  # the published batch is gone: only the slots tell that it was there
    good = (directory / ".commit").read_bytes()
    torn = good[:HEAD_BYTES] + bytes(len(good) - HEAD_BYTES)

    class Torn(OsFileSystem):
        def open_readable(self, path: str) -> Any:
            return ReadsInTurn(torn, good) if path.endswith(".commit") else super().open_readable(path)

    assert list(verify_partition(Torn(), str(directory), TP)) == expected


def test_a_publication_into_an_empty_file_is_read_back(tmp_path: Path) -> None:
    slots = CommitSlots(FS.open_appendable(f"{tmp_path}/.commit"))
    assert slots.read() is None
    slots.begin(None)
    assert slots.read() is None
    published = slots.publish(STATE)
    assert slots.read() == published


def test_a_durable_end_that_cannot_be_published_is_published_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(durability, "DEFAULT_TIMEOUT_MS", 20)
    directory = tmp_path / "t-0"
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)
    lock = FS.lock(f"{directory}/.lock")

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            assert lock.try_acquire()

    filesystem.hook = hook
    partition.log.sync(1)
    assert "durable end 1 not published" in caplog.text
    assert partition.durable_offset == 0
    filesystem.hook = lambda operation, path: None
    lock.close()
    partition.append(one("b"), acks="all")
    assert partition.durable_offset == 2


def test_a_batch_without_sequence_of_a_known_producer_is_appended(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for sequence in (0, -1, -1):
        append_encoded(partition, batch(b"x", producer_id=7, epoch=0, sequence=sequence))
    assert partition.latest_offset == 3
    append_encoded(partition, batch(b"x", producer_id=7, epoch=0, sequence=40))  # nothing is known to compare it with
    assert partition.latest_offset == 4


def test_a_marker_of_an_unknown_producer_ends_nothing_and_is_remembered(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for commit in (True, False):
        append_encoded(partition, marker(9, 4, commit=commit))
    assert partition.last_stable_offset == partition.latest_offset == 2
    with pytest.raises(NotAppended, match="epoch 4 has written since"):
        append_encoded(partition, batch(b"x", producer_id=9, epoch=3, sequence=0))


def test_a_log_without_offsets_left_refuses_appends(directory: Path) -> None:
    open_partition(directory).close()
    end = 2**63 - 2**31
    slots = CommitSlots(FS.open_appendable(f"{directory}/.commit"))
    state = slots.read()
    assert state is not None
    base = end - 100
    for _ in range(2):
        state = slots.publish(
            state.successor(
                active_base=base, log_end_offset=base, durable_offset=base, last_stable_offset=base,
                log_start_offset=base, high_watermark=base, segments_version=5,
            )
        )  # fmt: skip
    log_file(directory, base).touch()
    partition = open_partition(directory)
    for number in range(101):
        append_encoded(partition, batch(b"%d" % number))
    with pytest.raises(NotAppended, match="no offsets are left"):
        append_encoded(partition, batch(b"one too many"))
    assert partition.latest_offset == end + 1


def test_what_others_published_damaged_is_an_error_and_nothing_is_appended(directory: Path) -> None:
    first, second = open_partition(directory), open_partition(directory)
    first.append(one("a"), acks=1)
    second.append(one("b"), acks=1)
    position = headers(log_file(directory))[1][0]
    flip(log_file(directory), position + 16)  # the magic byte
    before = log_file(directory).read_bytes()
    with pytest.raises(NotAppended, match="below the published end: magic"):
        first.append(one("c"), acks=1)
    assert log_file(directory).read_bytes() == before


def test_an_open_handle_notices_that_published_bytes_were_cut_off(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = open_partition(directory), open_partition(directory)
    for value in ("a", "b"):
        first.append(one(value), acks=1)
    second.append(one("c"), acks=1)
    cut(log_file(directory), headers(log_file(directory))[1][0])
    assert first.append(one("after"), acks=1).base_offset == 1
    assert "ends at offset 2, " in caplog.text
    assert "published were 3 and " in caplog.text
    assert everything(second) == [(0, b"a"), (1, b"after")]


def test_a_log_file_that_vanished_under_an_open_handle_is_recovered_from(directory: Path) -> None:
    first = open_partition(directory)
    first.append(one("a"), acks=1)
    first.log.roll()
    first.append(one("b"), acks=1)
    log_file(directory, 1).unlink()
    second = open_partition(directory)
    assert second.append(one("c"), acks=1).base_offset == 1
    assert everything(second) == [(0, b"a"), (1, b"c")]


def test_an_expected_offset_that_is_wrong_says_where_the_log_ends(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    with pytest.raises(OffsetConflict) as caught:
        partition.append(one("a"), acks=1, expected_offset=3)
    assert (caught.value.log_end_offset, caught.value.expected_offset) == (0, 3)


def test_a_rewrite_that_another_process_has_done_already_is_not_done_again(directory: Path) -> None:
    partition = open_partition(directory)
    partition.append(one("a"), acks=1)
    inode = log_file(directory).stat().st_ino
    partition.log.writable().rewrite_segment(0, 1000)  # nothing distrusts it
    assert log_file(directory).stat().st_ino == inode


def test_a_reader_whose_directory_was_taken_away_says_that_it_is_missing(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    writer, reader = open_partition(directory), open_partition(directory, read_only=True)
    writer.append(one("a"), acks=1)
    assert len(everything(reader)) == 1
    writer.log.roll()
    directory.rename(tmp_path / "elsewhere")
    with pytest.raises(CorruptSegment, match="is missing, but the topic was not deleted"):
        everything(reader)
    with pytest.raises(CorruptSegment, match="is missing, but the topic was not deleted"):
        reader.offset_for_time(0)


def test_an_interrupt_in_the_midst_of_an_append_leaves_what_a_kill_would_leave(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)
    filesystem.hook = Nth(0, {"wrote"}, lambda _: KeyboardInterrupt(), suffix=".log")
    with pytest.raises(KeyboardInterrupt):
        partition.append(one("b"), acks=1)
    assert everything(partition) == [(0, b"a")]
    assert partition.append(one("c"), acks=1).base_offset == 2  # the whole batch was adopted
    assert everything(partition) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_sync_that_is_interrupted_by_its_own_thread_is_refused_and_closing_is_harmless(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(one("a"), acks=1)
    with in_turn(durability_of(partition).turn):
        assert partition.log.is_syncing_here()
        with pytest.raises(OutcomeUnknown, match="signal handler"):
            partition.log.sync(1)
        durability_of(partition).close()
    partition.log.sync(1)
    assert partition.durable_offset == 1


def test_a_snapshot_that_is_removed_while_it_is_looked_for_gives_way_to_the_one_before(directory: Path) -> None:
    partition = open_partition(directory)
    for sequence in range(4):
        append_encoded(partition, batch(b"x", producer_id=7, epoch=0, sequence=sequence))
        partition.log.roll()

    class Vanishing(OsFileSystem):
        def open_readable(self, path: str) -> Any:
            if path.endswith("4.snapshot"):
                fail(FileNotFoundError(path))
            return super().open_readable(path)

    other = open_partition(directory, Vanishing())
    assert other.log.append_batch(batch(b"x", producer_id=7, epoch=0, sequence=3)).duplicate
    with pytest.raises(DeliveryTimeout):
        other.log.writable()._lock.holding(1000, lambda _: other.append(one("inside"), acks=1))


def test_a_snapshot_that_the_disk_does_not_take_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BYTES", 100)
    directory = tmp_path / "t-0"
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)

    def hook(operation: str, path: str) -> None:
        if operation == "open" and ".snapshot" in path:
            raise io_error(path)

    filesystem.hook = hook
    for sequence in range(3):
        append_encoded(partition, batch(b"x" * 200, producer_id=7, epoch=0, sequence=sequence))
    assert "no producer snapshot at offset" in caplog.text
    again = open_partition(directory)
    assert again.log.append_batch(batch(b"x" * 200, producer_id=7, epoch=0, sequence=2)).duplicate


@pytest.mark.parametrize(("error", "told"), [(io_error("x"), NotAppended), (KeyboardInterrupt(), KeyboardInterrupt)])
def test_a_roll_that_fails_leaves_the_log_as_it_was(
    directory: Path, error: BaseException, told: type[BaseException]
) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("a"), acks=1)
    filesystem.hook = Nth(0, {"pwrite"}, lambda _: error, suffix=".commit")
    with pytest.raises(told):
        partition.log.roll()
    assert len(partition.segments) == 1
    assert partition.append(one("b"), acks=1).base_offset == 1
    partition.log.roll()
    assert [segment.base_offset for segment in partition.segments] == [0, 2]


@pytest.mark.parametrize("part", ["durability", "writer"])
def test_an_interrupt_of_a_close_that_waits_for_another_thread_is_what_is_raised(tmp_path: Path, part: str) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(one("a"), acks=1)
    closed = getattr(partition.log._writing, part)
    turn = closed.turn if part == "durability" else closed._lock._turn
    is_held, is_over = threading.Event(), threading.Event()

    def work_slowly() -> None:
        with in_turn(turn):
            is_held.set()
            is_over.wait()

    thread = threading.Thread(target=work_slowly)
    thread.start()
    is_held.wait()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            closed.close()
    finally:
        signal.signal(signal.SIGALRM, before)
        is_over.set()
        thread.join()
    partition.close()
