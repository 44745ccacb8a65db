"""Idempotent producers and transactions: what a partition remembers of them, and for how long."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import crc32c
import pytest

from pylog.codec.batch import BatchView, read_header, stamp
from pylog.codec.producer_entries import PRODUCER_ENTRY
from pylog.errors import ConfigError, CorruptSegment, NotAppended, OutOfOrderSequence, ProducerFenced, StorageFull
from pylog.index import AbortedTransaction, TransactionIndexReader
from pylog.model import TopicPartition
from pylog.partition import Partition
from pylog.partition.producers.snapshots import fold, read, save
from pylog.partition.producers.state import BatchTrace, ProducerEntry, ProducerStates
from pylog.partition.read.visibility import aborted_among
from pylog.partition.verify import verify_partition
from pylog.storage import OsFileSystem
from tests.partition.logs import (
    START_MS,
    append_encoded,
    batch,
    everything,
    file_of,
    log_file,
    marker,
    no_marker,
    open_partition,
)
from tests.storage.filesystems import Faulty, Nth, OtherBoot, full, io_error, nothing

LAST = 2**31 - 1


@pytest.mark.parametrize("is_durable", [True, False])
def test_records_are_deleted_on_a_full_disk_if_the_snapshot_that_is_left_was_synced(
    tmp_path: Path, is_durable: bool
) -> None:
    def no_room(operation: str, path: str) -> None:
        if path.endswith(".tmp"):
            raise full(path)

    filesystem = Faulty()
    partition = open_partition(tmp_path / "t-0", filesystem)
    for sequence in range(3):
        send(partition, sequence)
        partition.log.roll()
    if is_durable:
        partition.log.sync(3)
    filesystem.hook = no_room
    if not is_durable:
        with pytest.raises(StorageFull):
            partition.log.delete_before(2)
        assert partition.earliest_offset == 0
        return
    assert partition.log.delete_before(2) == 2
    assert [segment.base_offset for segment in partition.segments] == [2, 3]
    filesystem.hook = nothing
    partition.close()
    reopened = open_partition(tmp_path / "t-0", OtherBoot(1))
    assert send(reopened, 2) == (2, 2, True)
    assert send(reopened, 3) == (3, 3, False)


def send(
    partition: Partition, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7
) -> tuple[int, int, bool]:
    made = batch(*[b"s%d" % sequence] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)
    result = partition.log.append_batch(made)
    return result.base_offset, result.last_offset, result.duplicate


def in_transaction(partition: Partition, value: bytes, sequence: int, *, producer_id: int = 7, epoch: int = 0) -> int:
    return append_encoded(
        partition, batch(value, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
    )


def committed(partition: Partition) -> list[bytes]:
    return [value for _, value in everything(partition, "read_committed")]


def log_append_time() -> bytearray:
    made = batch(b"v")
    stamp(made, 0, -1, START_MS)
    return made


REFUSED = {
    "of a transaction": batch(b"v", producer_id=7, epoch=0, sequence=0, transactional=True),
    "a control batch": marker(7, 0, commit=False),
    "LogAppendTime": log_append_time(),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_only_a_coordinator_or_the_log_writes_is_no_callers_batch(tmp_path: Path, what: str) -> None:
    partition = open_partition(tmp_path / "t-0")
    with pytest.raises(ConfigError, match=what) as caught:
        partition.append(bytes(REFUSED[what]))
    assert caught.value.option == "records"
    assert (partition.latest_offset, partition.last_stable_offset) == (0, 0)
    assert append_encoded(partition, bytearray(REFUSED[what])) == 0


# Idempotence


def test_each_of_the_last_five_batches_is_recognised_with_its_first_offsets(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for number in range(7):
        assert send(partition, number * 2, 2) == (number * 2, number * 2 + 1, False)
    for number in range(2, 7):
        assert send(partition, number * 2, 2) == (number * 2, number * 2 + 1, True)
    assert partition.latest_offset == 14
    with pytest.raises(OutOfOrderSequence) as caught:
        send(partition, 2, 2)
    assert (caught.value.sequence, caught.value.expected) == (2, 14)


def test_a_batch_that_overlaps_an_earlier_one_is_out_of_order(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    send(partition, 0, 4)
    for sequence, count in ((0, 3), (1, 3), (2, 4), (0, 5)):
        with pytest.raises(OutOfOrderSequence):
            send(partition, sequence, count)
    assert send(partition, 4) == (4, 4, False)


def test_a_gap_is_out_of_order_and_appends_nothing(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    send(partition, 0)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 2)
    assert partition.latest_offset == 1


def test_batches_of_a_producer_without_sequences_are_no_repeats(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for number in range(2):
        made = batch(b"%d" % number, producer_id=7, epoch=0, sequence=-1)
        assert partition.append(bytes(made), acks=1)[::3] == (number, False)


def test_an_unknown_producer_may_begin_anywhere(tmp_path: Path) -> None:
    assert send(open_partition(tmp_path / "t-0"), 41) == (0, 0, False)


def test_an_older_epoch_is_fenced_and_a_newer_begins_at_zero(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    send(partition, 0, epoch=3)
    with pytest.raises(ProducerFenced) as caught:
        send(partition, 1, epoch=2)
    assert (caught.value.producer_epoch, caught.value.current_epoch) == (2, 3)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 1, epoch=4)
    assert send(partition, 0, epoch=4) == (1, 1, False)
    with pytest.raises(ProducerFenced):
        send(partition, 1, epoch=3)


def test_sequences_wrap_after_the_greatest(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    send(partition, LAST - 3, 3)
    assert send(partition, LAST, 3) == (3, 5, False)  # sequences LAST, 0, 1
    assert send(partition, LAST, 3) == (3, 5, True)
    assert send(partition, 2) == (6, 6, False)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 4)


def test_sequences_that_end_at_the_greatest_are_followed_by_zero(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    send(partition, LAST - 1, 2)
    assert send(partition, 0) == (2, 2, False)


@pytest.mark.parametrize("count", [2, 3])
def test_a_wrapped_sequence_survives_a_snapshot(tmp_path: Path, count: int) -> None:
    partition = open_partition(tmp_path / "t-0")
    send(partition, LAST, count)
    partition.log.roll()
    again = open_partition(tmp_path / "t-0")
    assert send(again, LAST, count) == (0, count - 1, True)
    assert send(again, count - 1) == (count, count, False)


@pytest.mark.parametrize("boot", [0, 1], ids=["reopened", "after a loss of power"])
def test_duplicates_are_recognised_after_reopening(tmp_path: Path, boot: int) -> None:
    partition = open_partition(tmp_path / "t-0", OtherBoot(0))
    for number in range(6):
        send(partition, number)
    partition.close()
    again = open_partition(tmp_path / "t-0", OtherBoot(boot))
    for number in range(1, 6):
        assert send(again, number) == (number, number, True)
    with pytest.raises(OutOfOrderSequence):
        send(again, 0)
    assert send(again, 6) == (6, 6, False)


@pytest.mark.parametrize("boot", [0, 1], ids=["reopened", "after a loss of power"])
def test_the_last_batch_before_a_snapshot_and_all_behind_it_are_recognised(tmp_path: Path, boot: int) -> None:
    """Kafka's snapshot holds the last batch of a producer only; so the ones before it are forgotten
    by a new process."""
    partition = open_partition(tmp_path / "t-0", OtherBoot(0))
    for number in range(3):
        send(partition, number)
    partition.log.roll()
    send(partition, 3)
    partition.close()
    again = open_partition(tmp_path / "t-0", OtherBoot(boot))
    assert send(again, 3) == (3, 3, True)
    assert send(again, 2) == (2, 2, True)
    if boot == 0:
        with pytest.raises(OutOfOrderSequence):
            send(again, 1)
    else:  # recovery went through all of the segments again
        assert send(again, 1) == (1, 1, True)


def test_a_duplicate_sent_through_another_handle_is_recognised(tmp_path: Path) -> None:
    first, second = open_partition(tmp_path / "t-0"), open_partition(tmp_path / "t-0")
    for number in range(10):
        sender, other = (first, second) if number % 3 else (second, first)
        assert send(sender, number) == (number, number, False)
        assert send(other, number) == (number, number, True)
    assert first.latest_offset == second.latest_offset == 10


def test_a_batch_adopted_from_a_writer_that_died_is_a_duplicate_when_sent_again(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    send(partition, 0)
    from pylog.codec.batch import stamp

    unpublished = batch(b"s1", producer_id=7, epoch=0, sequence=1)
    stamp(unpublished, 1, 0)
    with file_of(tmp_path / "t-0", 0, ".log").open("ab") as file:
        file.write(unpublished)
    assert send(partition, 1) == (1, 1, True)


def test_a_damaged_snapshot_gives_way_to_the_one_before(directory: Path) -> None:
    partition = open_partition(directory)
    send(partition, 0)
    partition.log.roll()
    send(partition, 1)
    partition.log.roll()
    partition.close()
    file_of(directory, 2, ".snapshot").write_bytes(b"\x00\x01 damaged, and long enough")
    again = open_partition(directory)
    assert send(again, 1) == (1, 1, True)
    assert send(again, 2) == (2, 2, False)


def ahead(last_offset: int, transaction_start: int | None) -> bytes:
    """A snapshot whose checksum is right, of producer 7."""
    states = ProducerStates()
    entry = states.entries[7] = ProducerEntry(0, -1, transaction_start)
    entry.batches.append(BatchTrace(500, 500, last_offset, last_offset, START_MS))
    return states.encode()


@pytest.mark.parametrize("boot", [0, 1], ids=["reopened", "after a loss of power"])
@pytest.mark.parametrize(("last_offset", "transaction_start"), [(2, None), (10**12, None), (1, 2), (1, 10**12)])
def test_a_snapshot_that_speaks_of_what_lay_ahead_gives_way_to_the_one_before(
    directory: Path, caplog: pytest.LogCaptureFixture, boot: int, last_offset: int, transaction_start: int | None
) -> None:
    partition = open_partition(directory, OtherBoot(0))
    for number in range(2):
        send(partition, number)
        partition.log.roll()
    partition.close()
    file_of(directory, 2, ".snapshot").write_bytes(ahead(last_offset, transaction_start))
    again = open_partition(directory, OtherBoot(boot))
    assert send(again, 1) == (1, 1, True)
    assert send(again, 2) == (2, 2, False)
    assert again.last_stable_offset == 3
    if boot == 0:
        assert (
            f"is of offset 2, but says of producer 7 that its {'' if transaction_start is None else 'open '}"
            in caplog.text
        )


@pytest.mark.parametrize("transaction_start", [3, 10**12])
def test_what_read_committed_shows_never_comes_from_a_snapshot_that_looks_ahead(
    directory: Path, transaction_start: int
) -> None:
    partition = open_partition(directory, OtherBoot(0))
    append_encoded(partition, batch(b"plain"))
    in_transaction(partition, b"open", 0)
    append_encoded(partition, batch(b"later"))
    partition.log.roll()
    partition.close()
    file_of(directory, 3, ".snapshot").write_bytes(ahead(1, transaction_start))
    reader = open_partition(directory, OtherBoot(1), read_only=True)
    assert reader.last_stable_offset == 1
    assert committed(reader) == [b"plain"]


def test_a_snapshot_that_knows_all_before_it_is_taken(tmp_path: Path) -> None:
    states = ProducerStates()
    entry = states.entries[7] = ProducerEntry(0, -1, 1)
    entry.batches.append(BatchTrace(5, 6, 1, 2, START_MS))
    save(OsFileSystem(), str(tmp_path), states, 3)
    assert read(OsFileSystem(), str(tmp_path), 3).first_open_offset() == 1
    states.entries[8] = ProducerEntry(0, -1, 3)
    save(OsFileSystem(), str(tmp_path), states, 3)
    with pytest.raises(CorruptSegment) as caught:
        read(OsFileSystem(), str(tmp_path), 3)
    assert (caught.value.producer_id, caught.value.transaction_start, caught.value.offset) == (8, 3, 3)


@pytest.mark.parametrize(("last_offsets", "is_taken"), [([9, 1], True), ([1, 9], False)])
def test_of_two_entries_of_one_producer_the_last_one_is_looked_at(
    tmp_path: Path, last_offsets: list[int], is_taken: bool
) -> None:
    """Nobody writes such a snapshot. Only what is taken from it must be before its end."""
    entries = b"".join(PRODUCER_ENTRY.pack(7, 0, at, at, 0, START_MS, -1, -1) for at in last_offsets)
    body = struct.pack(">i", 2) + entries
    file_of(tmp_path, 5, ".snapshot").write_bytes(struct.pack(">hI", 1, crc32c.crc32c(body)) + body)
    with nullcontext() if is_taken else pytest.raises(CorruptSegment, match="its last batch ends at 9"):
        states = read(OsFileSystem(), str(tmp_path), 5)
        assert [(batch.last_sequence, batch.last_offset) for batch in states.last_batches(7)] == [(1, 1)]


# Snapshots


def test_a_snapshot_has_kafkas_bytes() -> None:
    states = ProducerStates()
    entry = states.entries[4000] = ProducerEntry(2, 7)
    entry.batches.append(BatchTrace(5, 9, 15, 19, START_MS))
    golden = "0001da85cfca000000010000000000000fa00002000000090000000000000013000000040000018bcfe5680000000007ffffffffffffffff"
    assert states.encode().hex() == golden
    read = ProducerStates.decode(bytes.fromhex(golden), "golden").entries[4000]
    assert (read.epoch, read.coordinator_epoch, read.transaction_start) == (2, 7, None)
    assert read.batches == [BatchTrace(5, 9, 15, 19, START_MS)]


@pytest.mark.parametrize("field", range(8))
def test_a_number_that_nothing_can_have_is_refused_in_a_snapshot(field: int) -> None:
    """The id, the epoch, the last sequence, the last offset, how many records, the time, the
    coordinator's epoch, the start."""
    entry = struct.Struct(">qhiqiqiq")
    good = [7, 0, 5, 9, 2, START_MS, 3, 4]
    may_be_negative = {5, 6}
    for number, is_right in ((good[field], True), (-1, field not in {0, 3, 4}), (-2, field in may_be_negative)):
        body = struct.pack(">i", 1) + entry.pack(*good[:field], number, *good[field + 1 :])
        data = struct.pack(">hI", 1, crc32c.crc32c(body)) + body
        if is_right:
            assert list(ProducerStates.decode(data, "x").entries) == ([7] if field else [good[0]])
        else:
            with pytest.raises(CorruptSegment, match="says what cannot be"):
                ProducerStates.decode(data, "x")


def test_every_flipped_bit_and_every_prefix_of_a_snapshot_is_refused() -> None:
    from pylog.errors import CorruptSegment, FormatVersionError

    states = ProducerStates()
    states.entries[1] = ProducerEntry(0, -1, 5)
    states.entries[2] = ProducerEntry(1)
    data = states.encode()
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises((CorruptSegment, FormatVersionError)):
            ProducerStates.decode(bytes(changed), "flipped")
    for length in range(len(data)):
        with pytest.raises((CorruptSegment, FormatVersionError)):
            ProducerStates.decode(data[:length], "prefix")


# Transactions


def test_read_committed_stops_at_the_first_open_transaction(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    append_encoded(partition, batch(b"plain"))
    in_transaction(partition, b"open", 0)
    append_encoded(partition, batch(b"later"))
    assert (partition.last_stable_offset, partition.latest_offset) == (1, 3)
    assert committed(partition) == [b"plain"]
    append_encoded(partition, marker(7, 0, commit=True))
    assert partition.last_stable_offset == 4
    assert committed(partition) == [b"plain", b"open", b"later"]
    assert [offset for offset, _ in everything(partition, "read_committed")] == [0, 1, 2]


def test_read_committed_drops_what_was_aborted_and_nothing_else(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    in_transaction(partition, b"aborted", 0)
    in_transaction(partition, b"committed", 0, producer_id=8)
    append_encoded(partition, batch(b"plain"))
    in_transaction(partition, b"aborted too", 1)
    append_encoded(partition, marker(7, 0, commit=False))
    in_transaction(partition, b"next one", 2)
    assert committed(partition) == []  # producer 8 is open from offset 1 on
    append_encoded(partition, marker(8, 0, commit=True))
    assert partition.last_stable_offset == 5
    assert committed(partition) == [b"committed", b"plain"]
    append_encoded(partition, marker(7, 0, commit=True))
    assert committed(partition) == [b"committed", b"plain", b"next one"]
    assert [value for _, value in everything(partition)] == [
        *(b"aborted", b"committed", b"plain", b"aborted too", b"next one"),
    ]


def test_the_transaction_index_has_kafkas_fields(directory: Path) -> None:
    """Two transactions overlap: the last stable offset of the first to end is where the other
    began."""
    partition = open_partition(directory)
    in_transaction(partition, b"a", 0)
    in_transaction(partition, b"b", 0, producer_id=8)
    append_encoded(partition, marker(7, 0, commit=False))
    append_encoded(partition, marker(8, 0, commit=False))
    path = file_of(directory, 0, ".txnindex")
    reader = TransactionIndexReader(OsFileSystem().open_readable(str(path)))
    assert list(reader.entries()) == [AbortedTransaction(7, 0, 2, 1), AbortedTransaction(8, 1, 3, 4)]
    assert path.stat().st_size == 2 * 34


def test_committing_leaves_no_transaction_index(directory: Path) -> None:
    partition = open_partition(directory)
    in_transaction(partition, b"a", 0)
    append_encoded(partition, marker(7, 0, commit=True))
    assert not file_of(directory, 0, ".txnindex").exists()


def aborted_over_segments(directory: Path) -> Partition:
    """One transaction over three segments, aborted in the third; plain records between."""
    partition = open_partition(directory, OtherBoot(0))
    in_transaction(partition, b"no 0", 0)
    append_encoded(partition, batch(b"yes 1"))
    partition.log.roll()
    in_transaction(partition, b"no 2", 1)
    append_encoded(partition, batch(b"yes 3"))
    partition.log.roll()
    in_transaction(partition, b"no 4", 2)
    append_encoded(partition, marker(7, 0, commit=False))
    append_encoded(partition, batch(b"yes 6"))
    return partition


YES = [b"yes 1", b"yes 3", b"yes 6"]


@pytest.mark.parametrize("boot", [0, 1], ids=["reopened", "after a loss of power"])
def test_an_aborted_transaction_over_segments_stays_aborted(directory: Path, boot: int) -> None:
    partition = aborted_over_segments(directory)
    assert committed(partition) == YES
    partition.log.close()
    again = open_partition(directory, OtherBoot(boot))
    assert committed(again) == YES
    assert again.last_stable_offset == 7
    again.log.roll()
    assert committed(again) == YES


@pytest.mark.parametrize("boot", [0, 1], ids=["reopened", "after a loss of power"])
def test_a_transaction_stays_open_over_reopening_and_segments(directory: Path, boot: int) -> None:
    partition = open_partition(directory, OtherBoot(0))
    append_encoded(partition, batch(b"plain"))
    in_transaction(partition, b"open", 0)
    partition.log.roll()
    append_encoded(partition, batch(b"more"))
    partition.close()
    again = open_partition(directory, OtherBoot(boot))
    assert again.last_stable_offset == 1
    assert committed(again) == [b"plain"]
    append_encoded(again, marker(7, 0, commit=False))
    assert committed(again) == [b"plain", b"more"]


@pytest.mark.parametrize("durable", [False, True], ids=["not synced", "acknowledged with acks=all"])
def test_an_aborted_transaction_stays_aborted_when_power_took_its_index(directory: Path, durable: bool) -> None:
    partition = aborted_over_segments(directory)
    if durable:
        partition.log.sync(7)
    partition.log.close()
    file_of(directory, 4, ".txnindex").unlink()  # as a loss of power leaves a file that was never synced
    assert committed(open_partition(directory, OtherBoot(1))) == YES


@pytest.mark.parametrize("is_kafka", [False, True], ids=["pylog", "kafka"])
@pytest.mark.parametrize("is_open", [False, True], ids=["no transaction", "an open transaction"])
def test_a_control_batch_that_says_nothing_hides_no_other_batch(
    directory: Path, is_kafka: bool, is_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    open_partition(directory).close()
    first = batch(b"first", producer_id=7, epoch=0, sequence=0, transactional=is_open)
    made = [first, no_marker(), batch(b"last")]
    for offset, encoded in enumerate(made):
        stamp(encoded, offset, 0)
    log_file(directory).write_bytes(b"".join(made))
    (directory / ".commit").unlink()
    partition = open_partition(directory, is_kafka=is_kafka, read_only=is_kafka)
    assert (partition.earliest_offset, partition.latest_offset) == (0, 3)
    assert partition.last_stable_offset == (0 if is_open else 3)  # nobody knows how it ended: it stays undecided
    assert "offset 1, is no marker and is skipped" in caplog.text
    read = partial(partition.read, isolation_level="read_uncommitted")
    assert [record.value for record in read(0)] == [b"first"]
    assert [record.value for record in read(2)] == [b"last"]
    with pytest.raises(CorruptSegment, match=r"control record.*offset 2") as caught:
        read(1)
    assert (caught.value.path, caught.value.position) == (str(log_file(directory)), len(first))
    assert (caught.value.next_offset, caught.value.next_position) == (2, len(first) + len(made[1]))
    problems = verify_partition(OsFileSystem(), str(directory), TopicPartition("t", 0), is_kafka=is_kafka)
    assert [(found.kind, found.first_offset) for found in problems if found.kind == "batch"] == [("batch", 1)]
    if not is_kafka:
        append_encoded(partition, marker(7, 0, commit=False))
        assert partition.last_stable_offset == 4


def test_a_gap_behind_a_control_batch_that_says_nothing_is_a_gap(directory: Path) -> None:
    directory.mkdir()
    made = [no_marker(), batch(b"last")]
    for offset, encoded in zip((0, 5), made, strict=True):
        stamp(encoded, offset, 0)
    log_file(directory).write_bytes(b"".join(made))
    partition = open_partition(directory, is_kafka=True, read_only=True)
    assert [record.offset for record in partition.read(3)] == [5]


def test_a_control_batch_too_large_for_a_marker_is_not_read_whole() -> None:
    header = read_header(no_marker())._replace(length=2**31 - 1)
    states = ProducerStates()
    assert fold(states, header, 0, Unreadable()) is None
    assert states.entries == {}


class Unreadable:
    path = "segment"

    def pread(self, size: int, position: int) -> bytes:
        raise AssertionError("read")

    def size(self) -> int:
        raise AssertionError("asked")

    def close(self) -> None:
        return None


def test_an_index_of_more_aborts_than_its_segment_can_have_is_refused_where_it_matters(directory: Path) -> None:
    partition = open_partition(directory)
    append_encoded(partition, batch(b"plain"))
    with file_of(directory, 0, ".txnindex").open("ab") as file:
        file.truncate(1 << 40)
    assert committed(partition) == [b"plain"]
    partition.log.roll()
    in_transaction(partition, b"no", 0)
    append_encoded(partition, marker(7, 0, commit=False))
    assert committed(partition) == [b"plain"]  # the other segment's index decides about this one's batches
    assert partition.read(0, isolation_level="read_committed")[0].value == b"plain"
    partition = open_partition(directory)
    append_encoded(partition, batch(b"last"))
    in_transaction(partition, b"yes", 1)
    append_encoded(partition, marker(7, 0, commit=True))
    file_of(directory, 1, ".txnindex").unlink()
    with file_of(directory, 1, ".txnindex").open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptSegment, match="markers at most") as caught:
        committed(partition)
    assert caught.value.path.endswith(".txnindex")
    assert caught.value.offset == 1
    assert [value for _, value in everything(partition)] == [b"plain", b"no", b"last", b"yes"]
    problems = list(verify_partition(OsFileSystem(), str(directory), TopicPartition("t", 0)))
    assert {problem.kind for problem in problems} == {"txnindex"}


def test_as_many_aborted_transactions_are_read_as_decide_about_the_batches() -> None:
    """A later abort may belong to a transaction that began before; one whose last stable offset
    lies behind says no."""
    made = [batch(b"v", producer_id=producer, epoch=0, sequence=0, transactional=True) for producer in (7, 8, 7)]
    for offset, encoded in enumerate(made):
        stamp(encoded, offset, 0)
    views = [BatchView(encoded, read_header(encoded)) for encoded in made]
    taken: list[int] = []

    def markers(*transactions: AbortedTransaction) -> Iterator[AbortedTransaction]:
        for transaction in transactions:
            taken.append(transaction.last_offset)
            yield transaction

    first, second = AbortedTransaction(7, 0, 1, 1), AbortedTransaction(8, 1, 9, 10)
    assert aborted_among(views, markers(first, second, AbortedTransaction(7, 2, 20, 21))) == {0, 1}
    assert taken == [1, 9]
    taken.clear()
    assert aborted_among(views[:1], markers(first, second)) == {0}
    assert taken == [1]
    plain = batch(b"plain")
    assert aborted_among([BatchView(plain, read_header(plain))], markers(second)) == set()
    assert taken == [1]


def test_an_abort_that_could_not_be_published_hides_nothing(tmp_path: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(tmp_path / "t-0", filesystem)
    append_encoded(partition, batch(b"kept", producer_id=7, epoch=0, sequence=0, transactional=True))
    filesystem.hook = Nth(0, {"pwrite"}, io_error, suffix=".commit")
    with pytest.raises(NotAppended):
        append_encoded(partition, marker(7, 0, commit=False))
    filesystem.hook = lambda operation, path: None
    append_encoded(partition, marker(7, 0, commit=True))
    for handle in (partition, open_partition(tmp_path / "t-0")):
        assert everything(handle, "read_committed") == [(0, b"kept")]


def test_an_abort_marker_adopted_from_a_writer_that_died_is_indexed_once(directory: Path) -> None:
    partition = open_partition(directory)
    in_transaction(partition, b"no", 0)
    unpublished = marker(7, 0, commit=False)
    stamp(unpublished, 1, 0)
    with file_of(directory, 0, ".log").open("ab") as file:
        file.write(unpublished)
    assert append_encoded(partition, batch(b"yes")) == 2
    assert committed(partition) == [b"yes"]
    second = open_partition(directory)
    append_encoded(second, batch(b"yes"))
    assert file_of(directory, 0, ".txnindex").stat().st_size == 34
