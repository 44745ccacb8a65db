"""Closed segments that lie in a partition they don't belong to, seal, indexes and all: a backup put
back in the wrong directory.

All partitions have the same offsets, sizes and timestamps, so that nothing but the seal's word for
its home tells them apart.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Log
from pylog.errors import CorruptSegment
from pylog.model import ProducerRecord
from pylog.partition import Cursor, Partition
from pylog.segment.seal import decode, encode
from tests.partition.logs import START_MS, bases, batch, everything, file_of, open_partition, snapshot_of, topic_of

CLOSED, RECORDS = 5, 4  # segments, and records in each
BASES = [number * RECORDS for number in range(CLOSED)]
KINDS = (".log", ".seal", ".index", ".timeindex")


def fill(log: Log, topic: str, number: int) -> None:
    partition = log.partition(topic, number)
    for at in range((CLOSED + 1) * RECORDS):
        if at and at % RECORDS == 0:
            partition.log.roll()
        value = b"%s-%d %02d" % (topic[:1].encode(), number, at)
        partition.append([ProducerRecord(value, timestamp_ms=START_MS + at)], acks=1)


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two topics of two partitions each; ``earlier`` beside it has what was in a topic
    before it was created anew."""
    root = tmp_path_factory.mktemp("exchanged") / "log"
    with Log(root, create=True) as log:
        log.create_topic("orders", partitions=2)
        fill(log, "orders", 0)
        log.partition("orders", 0).log.close()
        shutil.copytree(root / "orders-0", root.with_name("earlier"))
        log.delete_topic("orders")
        for topic in ("orders", "payments"):
            log.create_topic(topic, partitions=2)
            fill(log, topic, 0)
            fill(log, topic, 1)
    return root


@pytest.fixture
def root(laid_out: Path, tmp_path: Path) -> Path:
    shutil.copytree(laid_out.with_name("earlier"), tmp_path / "earlier")
    return Path(shutil.copytree(laid_out, tmp_path / "log"))


def exchange(one: Path, other: Path, base: int) -> None:
    """Again, and they are back."""
    for kind in KINDS:
        a, b = file_of(one, base, kind), file_of(other, base, kind)
        content = a.read_bytes()
        shutil.copyfile(b, a)
        b.write_bytes(content)


def damages(partition: Partition) -> Iterator[tuple[CorruptSegment, int]]:
    """What a reader meets who goes on where the errors say, and the offset where. All else is read,
    and is this partition's."""
    offset, name = 0, f"{partition.topic[:1]}-{partition.number} ".encode()
    while offset < partition.latest_offset:
        try:
            fetched = partition.log.fetch(
                Cursor(offset), max_bytes=1, isolation_level="read_uncommitted", visibility="written"
            )
        except CorruptSegment as damage:
            yield damage, offset
            offset = damage.next_offset
            continue
        assert [r.value for view in fetched.batches for r in view.records()] == [name + b"%02d" % offset]
        offset = fetched.cursor.offset


def assert_found(root: Path, topic: str, number: int, base: int) -> None:
    """By reading from the start, from each of its offsets, by time, and by ``verify``, which names
    just that."""
    with Log(root, read_only=True) as log:
        partition = log.partition(topic, number)
        home = f"{log.describe_topic(topic).id}-{number}"
        ((damage, offset),) = damages(partition)
        assert (offset, damage.next_offset, damage.expected) == (base, base + RECORDS, home)
        assert damage.home not in ("", home)
        assert f"belongs to {damage.home}, but it lies in {home}" in str(damage)
        assert (damage.topic, damage.partition, damage.offset) == (topic, number, base)
        for inside in range(base, base + RECORDS):
            with pytest.raises(CorruptSegment, match="this segment is of another partition"):
                partition.read(inside)
            with pytest.raises(CorruptSegment, match="this segment is of another partition"):
                partition.offset_for_time(START_MS + inside)
        (problem,) = (found for found in log.find_problems([topic]) if found.partition == number)
        assert (problem.kind, problem.first_offset) == ("seal", base)
        assert problem.path == damage.path == str(file_of(root / f"{topic}-{number}", base, ".seal"))


@pytest.mark.parametrize("other", ["orders-1", "payments-0", "payments-1"])
def test_every_closed_segment_exchanged_with_another_partition_s_is_found_in_both(root: Path, other: str) -> None:
    """10 of 10 for each pair of partitions: of one topic, of two, with the same number and
    another."""
    topic, _, number = other.partition("-")
    for base in BASES:
        exchange(root / "orders-0", root / other, base)
        assert_found(root, "orders", 0, base)
        assert_found(root, topic, int(number), base)
        exchange(root / "orders-0", root / other, base)
    with Log(root, read_only=True) as log:
        assert log.verify().ok


def test_every_segment_of_an_earlier_life_of_the_topic_is_found(root: Path) -> None:
    for base in BASES:
        exchange(root / "orders-0", root.with_name("earlier"), base)
        assert_found(root, "orders", 0, base)
        exchange(root / "orders-0", root.with_name("earlier"), base)


def test_all_closed_segments_at_once_are_found_by_who_writes_too(root: Path) -> None:
    for base in BASES:
        exchange(root / "orders-0", root / "orders-1", base)
    with Log(root) as log:
        for number in (0, 1):
            partition = log.partition("orders", number)
            assert [offset for _, offset in damages(partition)] == BASES
            assert partition.append([ProducerRecord(b"one more")]).base_offset == partition.latest_offset - 1


def test_an_exchanged_segment_is_read_again_once_it_is_back_without_opening_anew(root: Path) -> None:
    with Log(root, read_only=True) as log:
        exchange(root / "orders-0", root / "orders-1", BASES[2])
        partition = log.partition("orders", 0)
        for _ in range(2):
            assert [offset for _, offset in damages(partition)] == [BASES[2]]
        exchange(root / "orders-0", root / "orders-1", BASES[2])
        assert list(damages(partition)) == []


def test_the_sealer_says_so_once_and_leaves_the_seal_that_accuses(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    exchange(root / "orders-0", root / "orders-1", BASES[1])
    seal = file_of(root / "orders-0", BASES[1], ".seal").read_bytes()
    with Log(root) as log, caplog.at_level(logging.WARNING, "pylog.partition"):
        for _ in range(2):
            log.partition("orders", 0).append([ProducerRecord(b"one more")], acks=1)
            log.partition("orders", 0).log.roll()
    assert file_of(root / "orders-0", BASES[1], ".seal").read_bytes() == seal
    assert [record.getMessage().count("is of another partition") for record in caplog.records] == [1]


def test_a_recovery_leaves_the_seal_that_accuses(root: Path) -> None:
    exchange(root / "orders-0", root / "orders-1", BASES[1])
    (root / "orders-0" / ".commit").unlink()
    with Log(root) as log:
        assert [offset for _, offset in damages(log.partition("orders", 0))] == [BASES[1]]


# What is no exchange


def test_a_copy_of_a_whole_log_is_right(root: Path) -> None:
    with Log(root) as log:
        assert log.verify().ok
        assert [list(damages(log.partition(topic, n))) for topic in ("orders", "payments") for n in (0, 1)] == [[]] * 4


def test_a_seal_that_does_not_say_where_it_belongs_is_as_good_as_ever(root: Path) -> None:
    """As seals were before they said it; then nobody knows."""
    for directory in (root / "orders-0", root / "orders-1"):
        for base in BASES:
            path = file_of(directory, base, ".seal")
            seal = decode(path.read_bytes(), str(path))
            assert seal.home
            path.write_bytes(encode(seal._replace(home="")))
    with Log(root) as log:
        assert log.verify().ok
        assert list(damages(log.partition("orders", 0))) == []
    exchange(root / "orders-0", root / "orders-1", BASES[1])
    with Log(root) as log:
        assert log.verify().ok


def test_a_segment_without_its_seal_belongs_where_it_lies(root: Path) -> None:
    """The way out for records that do belong there, which the error names; the next roll seals them
    anew."""
    exchange(root / "orders-0", root / "orders-1", BASES[1])
    for number in (0, 1):
        file_of(root / f"orders-{number}", BASES[1], ".seal").unlink()
    with Log(root) as log:
        for number in (0, 1):
            log.partition("orders", number).append([ProducerRecord(b"one more")], acks=1)
            log.partition("orders", number).log.roll()
            assert len(everything(log.partition("orders", number))) == (CLOSED + 1) * RECORDS + 1
        assert log.verify().ok
        for number in (0, 1):
            path = file_of(root / f"orders-{number}", BASES[1], ".seal")
            assert decode(path.read_bytes(), str(path)).home == f"{log.describe_topic('orders').id}-{number}"


def test_a_topic_created_anew_begins_without_the_seals_of_its_earlier_life(root: Path) -> None:
    with Log(root) as log:
        before = log.describe_topic("orders").id
        log.delete_topic("orders")
        log.create_topic("orders", partitions=2)
        fill(log, "orders", 0)
        assert log.verify().ok
        assert list(damages(log.partition("orders", 0))) == []
        assert log.describe_topic("orders").id != before


def test_who_held_the_earlier_topic_seals_nothing_of_the_one_created_anew_though_its_bytes_are_the_same(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "log" / "orders-0"

    def begun(log: Log) -> Partition:
        """Two segments; the first has no seal yet."""
        partition = topic_of(log, "orders", segment_bytes=40_000)
        while len(bases(directory)) < 2:
            partition.log.append_batch(batch(b"x"))
        assert not file_of(directory, 0, ".seal").exists()
        return partition

    with Log(tmp_path / "log", create=True) as one, Log(tmp_path / "log") as other:
        earlier = begun(one)
        first_life = file_of(directory, 0, ".log").read_bytes()
        other.delete_topic("orders")
        anew = begun(other)
        assert file_of(directory, 0, ".log").read_bytes() == first_life
        earlier.log.close()
        assert not file_of(directory, 0, ".seal").exists()
        anew.log.close()
        assert file_of(directory, 0, ".seal").exists()
        assert other.verify().ok


def test_seals_among_kafka_s_files_may_be_of_any_log(tmp_path: Path) -> None:
    """A partition's directory can be given to a broker, seals and all; its topic has another id
    there."""
    partition = open_partition(tmp_path / "t-0", topic_id="of-pylog")
    for value in "ab":
        partition.append([ProducerRecord(value.encode())], acks=1)
        partition.log.roll()
    partition.close()
    (tmp_path / "t-0" / ".commit").unlink()
    before = snapshot_of(tmp_path)
    kafka = open_partition(tmp_path / "t-0", topic_id="of-kafka", is_kafka=True, read_only=True)
    assert everything(kafka) == [(0, b"a"), (1, b"b")]
    assert snapshot_of(tmp_path) == before
