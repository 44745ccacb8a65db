"""What recovery does where one thing is missing or wrong among many that are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.catalog import TopicConfig
from pylog.codec.batch import stamp
from pylog.errors import CorruptSegment, NotAppended
from pylog.index import AbortedTransaction, encode_transactions
from pylog.partition import Partition
from pylog.partition.directory import PartitionDirectory
from pylog.partition.producers import snapshots
from pylog.partition.repair.recovery import epochs_of
from pylog.partition.segments import Segments
from pylog.partition.verify import verify_partition
from pylog.storage import OsFileSystem
from tests.partition.logs import (
    START_MS,
    TP,
    ManualClock,
    append_encoded,
    assert_indexes_follow_from_the_log,
    batch,
    cut,
    everything,
    file_of,
    flip,
    headers,
    log_file,
    marker,
    one,
    open_partition,
    snapshot_of,
)
from tests.storage.filesystems import OtherBoot


def three_segments(directory: Path, *, durable: int) -> None:
    """Offsets 0 to 29, ten in a segment; durable up to an offset, as of the boot before the tests'
    own."""
    partition = open_partition(directory, OtherBoot(1))
    for offset in range(30):
        if offset in (10, 20):
            partition.log.roll()
        append_encoded(partition, batch(b"%d" % offset, timestamp_ms=START_MS + offset))
        if offset == durable - 1:
            partition.log.sync(durable)
    partition.close()


def cut_before(directory: Path, base: int, offset: int) -> None:
    path = log_file(directory, base)
    cut(path, next(position for position, header in headers(path) if header.base_offset == offset))


def open_after_power_was_lost(directory: Path, clock: ManualClock | None = None) -> Partition:
    return open_partition(directory, OtherBoot(2), clock=clock)


def test_durable_records_missing_before_a_later_segment_are_named_and_nothing_is_changed(directory: Path) -> None:
    three_segments(directory, durable=15)
    cut_before(directory, 10, 13)
    before = snapshot_of(directory)
    with pytest.raises(NotAppended, match="offsets 13 to 14 are missing") as caught:
        open_after_power_was_lost(directory).append(one("more"), acks=1)
    assert isinstance(caught.value.__cause__, CorruptSegment)
    assert {name: data for name, data in snapshot_of(directory).items() if name != ".lock"} == {
        name: data for name, data in before.items() if name != ".lock"
    }


@pytest.mark.parametrize("durable", [12, 13])
def test_records_missing_behind_the_durable_end_take_later_segments_along(directory: Path, durable: int) -> None:
    three_segments(directory, durable=durable)
    cut_before(directory, 10, 13)
    partition = open_after_power_was_lost(directory)
    assert partition.append(one("13"), acks=1).base_offset == 13
    assert everything(partition) == [(n, b"%d" % n) for n in range(14)]


def test_damage_at_the_end_of_a_segment_drops_no_later_one_when_the_slots_are_lost(directory: Path) -> None:
    three_segments(directory, durable=0)
    path = log_file(directory, 10)
    cut(path, path.stat().st_size - 3)
    (directory / ".commit").unlink()
    before = snapshot_of(directory)
    with pytest.raises(NotAppended, match="a segment follows at offset 20"):
        open_after_power_was_lost(directory).append(one("more"), acks=1)
    assert snapshot_of(directory).items() >= {n: d for n, d in before.items() if n != ".lock"}.items()


def test_a_segment_that_grows_again_has_no_seal_of_its_shorter_self(directory: Path) -> None:
    three_segments(directory, durable=0)
    log_file(directory, 20).unlink()
    assert file_of(directory, 10, ".seal").exists()
    partition = open_after_power_was_lost(directory)
    for offset in range(20, 24):
        partition.append(one(f"{offset}"), acks=1)
    assert not file_of(directory, 10, ".seal").exists()
    partition.log.roll()
    partition.append(one("24"), acks=1)
    assert everything(open_partition(directory, OtherBoot(2))) == [(n, b"%d" % n) for n in range(25)]


def test_deleted_records_stay_deleted_when_power_is_lost(directory: Path) -> None:
    three_segments(directory, durable=30)
    open_partition(directory, OtherBoot(1)).log.delete_before(13)
    partition = open_after_power_was_lost(directory)
    assert partition.earliest_offset == 13
    partition.append(one("30"), acks=1)
    assert partition.earliest_offset == 13
    assert everything(partition) == [(n, b"%d" % n) for n in range(13, 31)]


def test_a_log_that_ends_before_its_start_begins_there_empty(directory: Path) -> None:
    """Records were deleted up to an offset, and a loss of power took the records behind it, and
    some before it."""
    partition = open_partition(directory, OtherBoot(1))
    for number in range(6):
        append_encoded(partition, batch(b"%d" % number))
    partition.log.delete_before(4)
    partition.close()
    cut_before(directory, 0, 2)
    again = open_after_power_was_lost(directory)
    assert again.append(one("4"), acks=1).base_offset == 4
    assert (again.earliest_offset, again.latest_offset, [s.base_offset for s in again.segments]) == (4, 5, [4])
    assert everything(again) == [(4, b"4")]
    assert not log_file(directory, 0).exists()
    again.log.close()
    assert list(verify_partition(OtherBoot(2), str(directory), TP)) == []
    (directory / ".commit").unlink()
    assert everything(open_after_power_was_lost(directory)) == [(4, b"4")]


def test_leader_epochs_made_again_are_those_of_the_batches(tmp_path: Path) -> None:
    directory = PartitionDirectory(OsFileSystem(), ManualClock(), str(tmp_path), TP, TopicConfig, 0, "id")
    both = Segments((0, 2))
    assert epochs_of(directory, both).starts == []
    made = [batch(b"x") for _ in range(3)]
    for offset, (encoded, epoch) in enumerate(zip(made, (-1, 5, 6), strict=True)):
        stamp(encoded, offset, epoch)
    log_file(tmp_path).write_bytes(made[0] + made[1])
    log_file(tmp_path, 2).write_bytes(made[2])
    assert epochs_of(directory, both).starts == [(0, 0), (5, 1), (6, 2)]


def test_a_lost_index_of_a_durable_segment_is_made_again_after_a_loss_of_power(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1), index_interval_bytes=100)
    for offset in range(20):
        if offset in (8, 16):
            partition.log.roll()
        append_encoded(partition, batch(b"x" * 50, timestamp_ms=START_MS + offset))
    partition.log.sync(20)
    partition.close()
    for kind in (".index", ".timeindex"):
        file_of(directory, 0, kind).unlink()
    again = open_partition(directory, OtherBoot(2), index_interval_bytes=100)
    again.append(one("x", START_MS + 20), acks=1)
    assert_indexes_follow_from_the_log(directory, 100)


def test_the_first_producer_id_is_an_id_like_any_other(directory: Path) -> None:
    first, second = open_partition(directory), open_partition(directory)
    for sequence in range(4):
        made = batch(b"%d" % sequence, producer_id=0, epoch=0, sequence=sequence)
        handle, other = (first, second) if sequence % 2 else (second, first)
        assert handle.log.append_batch(bytearray(made)).base_offset == sequence
        assert tuple(other.log.append_batch(bytearray(made))[:2]) == (sequence, sequence)
        assert handle.log.append_batch(bytearray(made)).duplicate
    first.log.roll()
    for boot in (0, 7):
        reopened = open_partition(directory, OtherBoot(boot) if boot else None)
        assert reopened.log.append_batch(batch(b"3", producer_id=0, epoch=0, sequence=3)).duplicate


@pytest.mark.parametrize(
    "left", [b"", bytes(34), b"\xff" * 34, b"\x11" * 40], ids=["nothing", "zeros", "ones", "garbage"]
)
def test_an_index_of_aborts_that_power_has_spoilt_is_made_anew(directory: Path, left: bytes) -> None:
    partition = open_partition(directory, OtherBoot(1))
    append_encoded(partition, batch(b"aborted", producer_id=7, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, marker(7, 0, commit=False))
    partition.append(one("plain"), acks=1)
    partition.close()
    file_of(directory, 0, ".txnindex").write_bytes(left)
    again = open_after_power_was_lost(directory)
    again.append(one("after"), acks=1)
    assert everything(again, "read_committed") == [(2, b"plain"), (3, b"after")]


def test_an_index_of_aborts_that_never_were_goes(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1))
    append_encoded(partition, batch(b"committed", producer_id=7, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, marker(7, 0, commit=True))
    partition.close()
    stale = encode_transactions([AbortedTransaction(7, 0, 1, 0)])  # of a file that had these blocks before
    file_of(directory, 0, ".txnindex").write_bytes(stale)
    assert everything(open_after_power_was_lost(directory), "read_committed") == [(0, b"committed")]


def test_an_open_transaction_outlives_the_memory_of_its_producer(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1))
    append_encoded(partition, batch(b"undecided", producer_id=7, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, batch(b"forgotten", producer_id=8, epoch=0, sequence=0))
    partition.log.roll()
    append_encoded(partition, batch(b"of nobody"))  # what is in the last two segments is remembered whatever its time
    partition.log.roll()
    partition.close()
    clock = ManualClock()
    clock.seconds = 2 * 86_400
    for boot in (1, 2):
        later = open_partition(directory, OtherBoot(boot), clock=clock)
        later.append(one("later"), acks=1)
        assert later.last_stable_offset == 0
        assert everything(later, "read_committed") == []
        assert 7 in later.log.writable()._end.producers.entries
        assert boot == 2 or 8 not in later.log.writable()._end.producers.entries
        later.close()


def test_a_producers_new_epoch_leaves_its_open_transaction_open(directory: Path) -> None:
    partition = open_partition(directory)
    append_encoded(partition, batch(b"first", producer_id=7, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, batch(b"second", producer_id=7, epoch=1, sequence=0, transactional=True))
    assert partition.last_stable_offset == 0
    append_encoded(partition, marker(7, 1, commit=True))
    assert partition.last_stable_offset == 3


def test_the_last_stable_offset_is_that_of_the_oldest_open_transaction(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for producer_id in (7, 8, 9):
        append_encoded(
            partition, batch(b"%d" % producer_id, producer_id=producer_id, epoch=0, sequence=0, transactional=True)
        )
    assert partition.last_stable_offset == 0
    append_encoded(partition, marker(7, 0, commit=True))
    assert partition.last_stable_offset == 1


def test_producers_are_known_up_to_the_end_that_is_asked_for_and_no_further(directory: Path) -> None:
    partition = open_partition(directory)
    for sequence in range(4):
        append_encoded(partition, batch(b"x", producer_id=7, epoch=0, sequence=sequence))
        if sequence % 2:
            partition.log.roll()
    segments = Segments.among(OsFileSystem().names(str(directory)))
    assert segments.snapshots == (2, 4)
    for end in range(5):
        states = snapshots.load(OsFileSystem(), str(directory), segments, end, START_MS)
        known = states.entries[7].batches[-1].last_sequence if end else -1
        assert known == end - 1
        assert bool(states.entries) == bool(end)


def test_a_recovery_begins_another_leader_epoch_and_offsets_of_lost_records_are_told_by_theirs(tmp_path: Path) -> None:
    three_segments(tmp_path, durable=20)
    cut_before(tmp_path, 20, 25)
    again = open_after_power_was_lost(tmp_path)
    assert (again.leader_epoch, again.latest_offset) == (1, 25)
    assert (again.log.end_of_leader_epoch(0), again.log.end_of_leader_epoch(1)) == (25, 25)
    again.append(one("x"), acks=1)
    assert (again.log.end_of_leader_epoch(0), again.log.end_of_leader_epoch(1)) == (25, 26)
    again.log.close()
    assert list(verify_partition(OtherBoot(2), str(tmp_path), TP)) == []
    # And the power took it again: nothing is left of epoch 1, whose number is not used anew.
    cut_before(tmp_path, 20, 25)
    again = open_partition(tmp_path, OtherBoot(3))
    assert (again.leader_epoch, again.log.end_of_leader_epoch(0), again.log.end_of_leader_epoch(1)) == (2, 25, 25)
    again.append(one("y"), acks=1)
    assert again.log.end_of_leader_epoch(1) == 25
    again.close()
    assert list(verify_partition(OtherBoot(3), str(tmp_path), TP)) == []


def test_a_recovery_keeps_the_leader_epoch_whose_first_batch_is_damaged(directory: Path) -> None:
    """The batch is below the durable end: a reader reports its damage, and the others can be
    read."""
    three_segments(directory, durable=25)
    position, _ = headers(log_file(directory))[0]
    flip(log_file(directory), position + 4)
    partition = open_after_power_was_lost(directory)
    assert partition.append(one("after")).base_offset == 30
    assert partition.leader_epoch == 1
    assert partition.log.end_of_leader_epoch(0) == 30
    with pytest.raises(CorruptSegment):
        partition.read(0)
    assert [record.offset for record in partition.scan(1)] == [*range(1, 31)]


def test_leader_epochs_end_at_the_greatest_there_can_be(tmp_path: Path) -> None:
    three_segments(tmp_path, durable=20)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2147483647 20\n")
    for boot in (2, 3):
        again = open_partition(tmp_path, OtherBoot(boot))
        assert again.leader_epoch == 2**31 - 1
        again.append(one("x"), acks=1)
        again.close()


def test_verify_judges_after_a_loss_of_power_only_indexes_that_were_synced(directory: Path) -> None:
    """The others are made again by the next writer, whatever they are."""
    three_segments(directory, durable=15)
    for base in (10, 20):
        cut(file_of(directory, base, ".timeindex"), 0)
    file_of(directory, 20, ".index").write_bytes(b"?" * 9)
    (directory / "leader-epoch-checkpoint").write_bytes(b"?")
    file_of(directory, 20, ".snapshot").write_bytes(b"?")
    assert list(verify_partition(OtherBoot(2), str(directory), TP)) == []
    cut(file_of(directory, 0, ".timeindex"), 0)
    (problem,) = verify_partition(OtherBoot(2), str(directory), TP)
    assert (problem.kind, problem.path) == ("timeindex", str(file_of(directory, 0, ".timeindex")))
    assert len(list(verify_partition(OtherBoot(1), str(directory), TP))) > 3
