"""The transaction index of a closed segment is lost, cut, or another one: no reader shows an
aborted record.

The seal records what the index must be. A reader that finds another one reads the segment instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylog import Consumer, Log
from pylog.errors import CorruptSegment
from pylog.index import AbortedTransaction, encode_transactions
from pylog.index.transaction_index import ENTRY
from pylog.model import TopicPartition
from pylog.partition import Partition
from pylog.partition.compact.engine import compact
from pylog.segment import AbortedDigest, read_aborted
from pylog.segment.seal import Seal, decode, encode
from pylog.storage import OsFileSystem
from tests.partition.logs import append_encoded, batch, everything, file_of, flip, marker, open_partition
from tests.spark.reading import read
from tests.storage.filesystems import OtherBoot

TP = TopicPartition("orders", 0)
YES = [b"yes 1", b"yes 3", b"yes 8", b"yes 9"]
ABORTED = [AbortedTransaction(7, 0, 5, 4), AbortedTransaction(8, 4, 6, 7)]


def fill(partition: Partition) -> None:
    """Segments at 0, 2, 7 and 9: a transaction over two of them and one in the second are aborted
    in the second."""
    sequences = {7: 0, 8: 0}

    def data(producer_id: int, value: bytes) -> None:
        sequence, sequences[producer_id] = sequences[producer_id], sequences[producer_id] + 1
        append_encoded(
            partition,
            batch(value, key=value, producer_id=producer_id, epoch=0, sequence=sequence, transactional=True),
        )

    data(7, b"no 0")
    append_encoded(partition, batch(b"yes 1", key=b"yes 1"))
    partition.log.roll()
    data(7, b"no 2")
    append_encoded(partition, batch(b"yes 3", key=b"yes 3"))
    data(8, b"no 4")
    append_encoded(partition, marker(7, 0, commit=False))
    append_encoded(partition, marker(8, 0, commit=False))
    partition.log.roll()
    data(7, b"yes 7".replace(b"7", b"8"))  # committed in the last segment
    append_encoded(partition, batch(b"yes 9", key=b"yes 9"))
    partition.log.roll()
    append_encoded(partition, marker(7, 0, commit=True))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Log(tmp_path / "log") as log:
        log.create_topic("orders")
        fill(log.partition(*TP))
    return tmp_path / "log"


def by_scan(root: Path) -> list[bytes]:
    with Log(root, read_only=True) as log:
        return [record.value for record in log.partition(*TP).scan()]


def by_reads_from_each_offset(root: Path) -> list[bytes]:
    with Log(root, read_only=True) as log:
        partition = log.partition(*TP)
        found = {
            r.offset: r.value
            for offset in range(partition.earliest_offset, partition.latest_offset)
            for r in partition.read(offset)
        }
    return [found[offset] for offset in sorted(found)]


def by_consumer(root: Path) -> list[bytes]:
    with Log(root, read_only=True) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        return [record.value for records in iter(lambda: consumer.poll(0.0), []) for record in records]


def by_arrow(root: Path) -> list[bytes]:
    with Log(root, read_only=True) as log:
        return list(log.partition(*TP).to_arrow()["value"].to_pylist())


def by_consumer_in_arrow(root: Path) -> list[bytes]:
    with Log(root, read_only=True) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        tables = iter(lambda: consumer.poll_arrow(0.0), None)
        found: list[bytes] = []
        for table in tables:
            if not table.num_rows:
                return found
            found += table["value"].to_pylist()
    return found


def by_spark(root: Path) -> list[bytes]:
    return [row["value"] for row in read(root, subscribe="orders", isolationLevel="read_committed")]


READERS = [by_scan, by_reads_from_each_offset, by_consumer, by_arrow, by_consumer_in_arrow, by_spark]


def lose(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lose_the_last_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: -ENTRY.size])


def lose_the_first_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[ENTRY.size :])


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def add_an_entry(path: Path) -> None:
    """A well-formed one, which hides a committed record."""
    path.write_bytes(path.read_bytes() + encode_transactions([AbortedTransaction(7, 7, 8, 9)]))


def add_much(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(1 << 40)


def move_the_start(path: Path) -> None:
    """Well-formed: the transaction began later."""
    path.write_bytes(encode_transactions([ABORTED[0]._replace(first_offset=2), ABORTED[1]]))


DAMAGE = [
    lose, empty, lose_the_last_entry, lose_the_first_entry, tear, add_an_entry, add_much, move_the_start,
]  # fmt: skip


def index_of(root: Path, base: int = 2) -> Path:
    return file_of(root / "orders-0", base, ".txnindex")


def test_the_seals_record_the_aborted_transactions(root: Path) -> None:
    assert index_of(root).read_bytes() == encode_transactions(ABORTED)
    for base, expected in ((0, []), (2, ABORTED), (7, [])):
        path = file_of(root / "orders-0", base, ".seal")
        seal = decode(path.read_bytes(), str(path))
        assert seal.aborted == AbortedDigest.of(expected)
        assert seal.aborted == read_aborted(OsFileSystem(), str(path.parent), base, seal.home)


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_leaves_out_what_was_aborted(root: Path, reader: Callable[[Path], list[bytes]]) -> None:
    assert reader(root) == YES


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_no_reader_believes_an_index_that_is_not_the_one_the_seal_records(
    root: Path, damage: Callable[[Path], None], reader: Callable[[Path], list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    damage(index_of(root))
    assert reader(root) == YES
    assert "00000000000000000002.txnindex' is not the index that the seal of its segment records" in caplog.text


@pytest.mark.parametrize("damage", DAMAGE)
def test_verify_reports_it_and_a_recovery_makes_the_index_again(root: Path, damage: Callable[[Path], None]) -> None:
    damage(index_of(root))
    with Log(root, read_only=True) as log:
        assert {problem.kind for problem in log.verify().problems} == {"txnindex"}
    index_of(root).unlink(missing_ok=True)  # as docs/operations.md says
    (root / "orders-0" / ".commit").unlink()
    with Log(root) as log:
        append_encoded(log.partition(*TP), batch(b"more"))
        assert log.verify().problems == []
    assert index_of(root).read_bytes() == encode_transactions(ABORTED)


def test_a_flipped_bit_is_noticed_in_every_byte(root: Path) -> None:
    right = index_of(root).read_bytes()
    for position in range(len(right)):
        flip(index_of(root), position, 1 << (position % 8))
        assert by_scan(root) == YES, position
        index_of(root).write_bytes(right)


@pytest.mark.parametrize("damage", DAMAGE)
def test_compaction_does_not_believe_it_either(root: Path, damage: Callable[[Path], None]) -> None:
    """Else it would keep what was aborted, or drop what was committed, for ever."""
    damage(index_of(root))
    with Log(root) as log:
        partition = log.partition(*TP).log
        partition.sync(partition.latest_offset)
        report = compact(partition)
        assert report.records_dropped == 3
    assert by_scan(root) == YES


@pytest.mark.parametrize("base", [0, 7])
def test_an_index_of_a_segment_without_aborts_hides_nothing(root: Path, base: int) -> None:
    index_of(root, base).write_bytes(encode_transactions([AbortedTransaction(7, 7, base + 1, 9)]))
    for reader in READERS:
        assert reader(root) == YES
    with Log(root, read_only=True) as log:
        assert {problem.kind for problem in log.verify().problems} == {"txnindex"}


def test_an_index_is_compared_once_and_not_at_each_fetch(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    matches = AbortedDigest.matches_index

    def counted(digest: AbortedDigest, filesystem: OsFileSystem, directory: str, base: int) -> bool:
        compared.append(base)
        return matches(digest, filesystem, directory, base)

    monkeypatch.setattr(AbortedDigest, "matches_index", counted)
    for damage in (None, lose):
        if damage is not None:
            damage(index_of(root))
        with Log(root, read_only=True) as log:
            partition = log.partition(*TP)
            for _ in range(3):
                assert [r.value for offset in (0, 2) for r in partition.read(offset, max_records=1)] == YES[:2]
    assert compared == [0, 2, 0, 2]  # the later one's last stable offset decides about all before


# What cannot be made again


def test_if_the_batches_do_not_show_what_the_seal_records_reading_says_so(root: Path) -> None:
    """The segment where the transaction began is gone, and so is the snapshot that remembered
    it."""
    lose(index_of(root))
    with Log(root) as log:
        log.delete_records(TP, 2)
    assert by_scan(root) == YES[1:]  # the snapshot remembers
    for path in (root / "orders-0").glob("*.snapshot"):
        path.unlink()
    for reader in READERS:
        with pytest.raises(
            CorruptSegment, match="2 aborted transactions, which are not the 2 that the batches show"
        ) as caught:
            reader(root)
        assert caught.value.path == str(index_of(root))
        assert (caught.value.entries, caught.value.expected) == (2, 2)
    index_of(root).write_bytes(encode_transactions(ABORTED))
    assert by_scan(root) == YES[1:]


def test_without_the_producers_before_a_segment_its_seal_records_nothing(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = open_partition(directory)
    fill(partition)
    partition.log.delete_before(2)
    file_of(directory, 2, ".seal").unlink()
    file_of(directory, 2, ".snapshot").unlink()
    reopened = open_partition(directory)
    append_encoded(reopened, batch(b"yes 11"))
    reopened.log.roll()  # seals what was left
    assert "00000000000000000002.seal" in {path.name for path in directory.iterdir()}
    assert decode(file_of(directory, 2, ".seal").read_bytes(), "").aborted is None
    assert "the seal will not record the aborted transactions" in caplog.text
    assert [value for _, value in everything(reopened, "read_committed")] == [*YES[1:], b"yes 11"]


def test_a_seal_records_what_the_batches_show_if_the_index_is_lost_before(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = open_partition(directory)
    fill(partition)
    file_of(directory, 2, ".seal").unlink()
    file_of(directory, 2, ".txnindex").unlink()
    with caplog.at_level(logging.WARNING):
        reopened = open_partition(directory)
        append_encoded(reopened, batch(b"yes 11"))
        reopened.log.roll()
    assert "00000000000000000002.txnindex' is lost or damaged" in caplog.text
    assert decode(file_of(directory, 2, ".seal").read_bytes(), "").aborted == AbortedDigest.of(ABORTED)
    assert [value for _, value in everything(reopened, "read_committed")] == [*YES, b"yes 11"]


# Seals of every kind


def sealed_as(directory: Path, base: int, change: Callable[[Seal], Seal]) -> None:
    path = file_of(directory, base, ".seal")
    path.write_bytes(encode(change(decode(path.read_bytes(), ""))))


def test_a_seal_of_an_earlier_version_says_nothing_of_the_index(root: Path) -> None:
    sealed_as(root / "orders-0", 2, lambda seal: seal._replace(aborted=None))
    assert by_scan(root) == YES
    with Log(root, read_only=True) as log:
        assert log.verify().problems == []
    lose(index_of(root))
    assert by_scan(root) == [b"no 0", b"yes 1", b"no 2", b"yes 3", b"no 4", *YES[2:]]  # a limit: docs/guarantees.md


def test_verify_finds_a_seal_that_records_another_index(root: Path) -> None:
    sealed_as(root / "orders-0", 2, lambda seal: seal._replace(aborted=AbortedDigest.of(ABORTED[:1])))
    with Log(root, read_only=True) as log:
        (problem,) = log.verify().problems
    assert (problem.kind, problem.problem) == ("seal", "records 1 aborted transactions, not the 2 of the batches")
    with pytest.raises(CorruptSegment, match="1 aborted transactions, which are not the 2 that"):
        by_scan(root)


def flipped_bits_of_the_seal(root: Path) -> Iterator[None]:
    path = file_of(root / "orders-0", 2, ".seal")
    right = path.read_bytes()
    for position in range(len(right)):
        flip(path, position, 1 << (position % 8))
        yield
        path.write_bytes(right)


def test_a_damaged_seal_counts_as_absent(root: Path) -> None:
    """Then the index is believed, as before the segment was sealed."""
    for _ in flipped_bits_of_the_seal(root):
        assert by_scan(root) == YES


def test_a_segment_exchanged_with_another_partitions_is_noticed_by_a_reader_of_an_earlier_one(root: Path) -> None:
    sealed_as(root / "orders-0", 2, lambda seal: seal._replace(home="other-0"))
    with Log(root, read_only=True) as log:
        partition = log.partition(*TP)
        with pytest.raises(CorruptSegment, match="belongs to other-0"):
            partition.read(0, max_bytes=1)


def test_after_a_power_failure_older_segments_are_still_compared(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(0))
    fill(partition)
    partition.log.sync(partition.latest_offset)
    partition.close()
    lose(file_of(directory, 2, ".txnindex"))
    reader = open_partition(directory, OtherBoot(1), read_only=True)
    assert [value for _, value in everything(reader, "read_committed")] == YES
    writer = open_partition(directory, OtherBoot(1))
    append_encoded(writer, batch(b"yes 11"))
    assert file_of(directory, 2, ".txnindex").read_bytes() == encode_transactions(ABORTED)
    assert [value for _, value in everything(writer, "read_committed")] == [*YES, b"yes 11"]


def test_a_recovery_leaves_an_index_that_it_cannot_make_again(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = open_partition(directory, OtherBoot(0))
    fill(partition)
    partition.log.sync(partition.latest_offset)
    partition.close()
    sealed_as(directory, 2, lambda seal: seal._replace(aborted=AbortedDigest(3, 0)))
    writer = open_partition(directory, OtherBoot(1))
    append_encoded(writer, batch(b"yes 11"))
    assert "cannot be made again" in caplog.text
    assert file_of(directory, 2, ".txnindex").read_bytes() == encode_transactions(ABORTED)


def test_kafkas_directories_have_no_seals_and_their_index_is_believed(directory: Path) -> None:
    partition = open_partition(directory)
    fill(partition)
    partition.close()
    for path in (*directory.glob("*.seal"), directory / ".commit"):
        path.unlink()
    reader = open_partition(directory, is_kafka=True, read_only=True)
    assert [value for _, value in everything(reader, "read_committed")] == YES


def test_an_index_that_is_lost_after_a_reader_compared_it(root: Path) -> None:
    with Log(root, read_only=True) as log:
        partition = log.partition(*TP)
        assert [record.value for record in partition.scan()] == YES
        index_of(root).unlink()
        assert [record.value for record in partition.scan()] == YES


def test_a_reader_without_an_active_segment_shows_what_is_committed_in_a_compacted_one(directory: Path) -> None:
    """A roll is published before its file is there, so a power failure may leave the compacted
    segment as the last."""
    partition = open_partition(directory)
    for number, is_committed in enumerate((False, True)):
        made = batch(b"%d" % number, key=b"%d" % number, producer_id=7, epoch=0, sequence=number, transactional=True)
        append_encoded(partition, made)
        append_encoded(partition, marker(7, 0, commit=is_committed))
    partition.log.roll()
    partition.log.sync(4)
    assert compact(partition.log).records_dropped == 1
    partition.close()
    file_of(directory, 4, ".log").unlink()
    (directory / ".commit").unlink()
    reader = open_partition(directory, OtherBoot(), read_only=True)
    assert everything(reader, "read_committed") == [(2, b"1")]
    assert list(reader.log.reader.aborted_since(0)) == []


def test_a_partition_without_segments_has_no_aborted_transactions(directory: Path) -> None:
    open_partition(directory).close()
    file_of(directory, 0, ".log").unlink()
    (directory / ".commit").unlink()
    reader = open_partition(directory, OtherBoot(), read_only=True)
    assert list(reader.log.reader.aborted_since(0)) == []
