"""Planning and reading, without a Spark session: which offsets, which records, what is loss, what
is damage."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pylog import Log
from pylog.codec.batch import BatchView, read_header
from pylog.codec.format import HEADER_BYTES
from pylog.errors import (
    ConfigError,
    CorruptSegment,
    InvalidPartition,
    LogNotFound,
    OffsetOutOfRange,
    PylogError,
    TopicNotFound,
)
from pylog.model import LOG_APPEND_TIME, ProducerRecord, TopicPartition
from pylog.partition.read.cursor import Fetched
from pylog.partition.read.reader import PartitionReader
from pylog.spark.source.partition_range import PartitionRange
from pylog.storage import OsFileSystem
from tests.arrow.rows import CORNERS, T0, expected, rows, view_of
from tests.partition.logs import append_encoded, batch, flip, log_file, marker, snapshot_of
from tests.spark.reading import KAFKA, append_view, offsets, planned, read, read_ranges

TP = TopicPartition("orders", 0)


def orders(log: Log, batches: int = 10, records: int = 3, value_bytes: int = 100, **config: Any) -> None:
    """A topic of three partitions, the first of which is filled, in several segments."""
    log.create_topic("orders", partitions=3, segment_bytes=4 * value_bytes + 1024, **config)
    for number in range(batches):
        values = [bytes([number]) * value_bytes] * records
        log.partition(*TP).append([ProducerRecord(value, timestamp_ms=T0) for value in values], acks=1)


def scanned(log: Log, *topics: str, **how: Any) -> list[dict[str, Any]]:
    """What the partitions themselves give."""
    return [
        row
        for topic in topics
        for number in range(log.describe_topic(topic).partitions)
        for row in expected(log.partition(topic, number).scan(), **how)
    ]


# Which records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_corner_in_every_codec(log: Log, codec: str) -> None:
    log.create_topic("orders", partitions=2)
    for partition in (1, 0, 1):
        append_view(log, view_of(CORNERS, codec=codec), partition=partition)
    found = read(log.path, includeHeaders=True)
    assert found == scanned(log, "orders", headers=True)
    assert len(found) == 3 * len(CORNERS)


def test_several_segments_and_empty_partitions(log: Log) -> None:
    orders(log)
    assert len(log.partition(*TP).segments) > 3
    assert read(log.path) == scanned(log, "orders")
    assert [piece.source.topic_partition for piece in planned(log.path)] == [TP]


def test_append_time(log: Log) -> None:
    orders(log, message_timestamp_type="LogAppendTime")
    assert read(log.path) == scanned(log, "orders", timestamp_type=LOG_APPEND_TIME)


def test_a_log_without_records_has_nothing_to_plan(log: Log) -> None:
    assert planned(log.path) == []
    log.create_topic("orders")
    assert planned(log.path) == []


def test_topics_are_chosen_by_name_by_pattern_and_by_partition(log: Log) -> None:
    log.manager.create_topic("__consumer_offsets", internal=True)
    log.add_partitions("__consumer_offsets", 2)
    for topic in ("orders", "orders-eu", "payments", "__consumer_offsets"):
        if topic not in log.topics():
            log.create_topic(topic, partitions=2)
        for partition in range(2):
            append_view(log, view_of(CORNERS[:1]), topic, partition)

    def chosen(**given: Any) -> list[str]:
        return [f"{row['topic']}/{row['partition']}" for row in read(log.path, **given)]

    assert chosen() == ["orders/0", "orders/1", "orders-eu/0", "orders-eu/1", "payments/0", "payments/1"]
    assert chosen(subscribe="payments,orders") == ["payments/0", "payments/1", "orders/0", "orders/1"]
    assert chosen(subscribePattern="orders.*") == ["orders/0", "orders/1", "orders-eu/0", "orders-eu/1"]
    assert chosen(subscribePattern="order|y") == chosen()
    assert chosen(subscribePattern="s$") == ["orders/0", "orders/1", "payments/0", "payments/1"]
    assert chosen(subscribePattern="^rders") == []
    assert chosen(subscribePattern="offsets") == []
    assert chosen(subscribe="__consumer_offsets") == ["__consumer_offsets/0", "__consumer_offsets/1"]
    assert chosen(assign={"payments": [1], "orders": [0]}) == ["payments/1", "orders/0"]


def test_a_pattern_that_finds_no_topic_is_warned_of(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(9):
        log.create_topic(f"orders-{number}")
    assert planned(log.path, subscribePattern="payments") == []
    [said] = [record.getMessage() for record in caplog.records]
    assert said == (
        f"subscribePattern 'payments' finds no topic in {str(log.path)!r}, so nothing is read; its topics: orders-0, "
        "orders-1, orders-2, orders-3, orders-4, orders-5, orders-6, orders-7, …"
    )
    caplog.clear()
    planned(log.path, subscribePattern="orders")
    assert not caplog.records


def test_what_is_named_must_be_there(log: Log) -> None:
    orders(log)
    with pytest.raises(TopicNotFound, match="no topic 'order'"):
        planned(log.path, subscribe="order")
    with pytest.raises(InvalidPartition, match="topic 'orders' has no partition 3"):
        planned(log.path, assign={"orders": [3]})


def test_offsets_are_fixed_when_the_query_is_planned(log: Log) -> None:
    orders(log)
    ranges = planned(log.path)
    before = scanned(log, "orders")
    for _ in range(5):
        append_view(log, view_of(CORNERS))
    log.partition(*TP).log.roll()
    append_view(log, view_of(CORNERS))
    assert list(read_ranges(ranges)) == before
    assert len(read(log.path)) == len(before) + 6 * len(CORNERS)


@pytest.mark.slow
def test_every_range_of_offsets(log: Log) -> None:
    orders(log)
    everything = scanned(log, "orders")
    for start in range(0, 31, 2):
        for end in range(start, 31):
            given = {
                "startingOffsets": {"orders": {"0": start, "1": -2, "2": 0}},
                "endingOffsets": {"orders": {"0": end, "1": -1, "2": 0}},
            }
            assert read(log.path, **given) == everything[start:end]


def test_offsets_must_name_exactly_the_partitions_that_are_read(log: Log) -> None:
    orders(log)
    with pytest.raises(ConfigError, match="startingOffsets lacks orders-1, orders-2"):
        planned(log.path, startingOffsets={"orders": {"0": 0}})
    everything = {"orders": {"0": 1, "1": -1, "2": -1}, "payments": {"0": 1}}
    with pytest.raises(ConfigError, match="endingOffsets has orders-1, orders-2, payments-0"):
        planned(log.path, assign={"orders": [0]}, endingOffsets=everything)


@pytest.mark.parametrize(
    ("starting", "ending", "said", "left"),
    [
        (
            "earliest",
            {"0": 31},
            "offsets 5 to 31 of orders-0 were asked for, read_committed can read 5 to 30",
            range(5, 30),
        ),
        ({"0": 31}, "latest", "never written, or were before the topic was created again", []),
        ({"0": 4}, {"0": 9}, "retention has removed the first of them", range(5, 9)),
        ({"0": 1}, {"0": 4}, "retention has removed the first of them", []),
        ("earliest", {"0": 4}, "retention has removed the first of them", []),
    ],
)
def test_offsets_that_are_not_there_are_data_loss(
    log: Log, starting: Any, ending: Any, said: str, left: Any, caplog: pytest.LogCaptureFixture
) -> None:
    orders(log)
    log.delete_records(TP, 5)
    given = {
        "assign": {"orders": [0]},
        "startingOffsets": starting if isinstance(starting, str) else {"orders": starting},
        "endingOffsets": ending if isinstance(ending, str) else {"orders": ending},
    }
    with pytest.raises(OffsetOutOfRange) as caught:
        planned(log.path, **given)
    assert said in str(caught.value)
    assert (caught.value.earliest, caught.value.latest) == (5, 30)
    assert offsets(read(log.path, failOnDataLoss=False, **given)) == [*left]
    assert said in caplog.text


def test_transactions_decide_what_is_committed(log: Log) -> None:
    log.create_topic("orders")
    partition = log.partition(*TP)
    append_encoded(partition, batch(b"plain"))
    append_encoded(partition, batch(b"kept", producer_id=1, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, marker(1, 0, commit=True))
    append_encoded(partition, batch(b"aborted", producer_id=2, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, marker(2, 0, commit=False))
    append_encoded(partition, batch(b"open", producer_id=3, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, batch(b"behind it"))
    assert offsets(read(log.path)) == [0, 1]
    assert offsets(read(log.path, isolationLevel="read_uncommitted")) == [0, 1, 3, 5, 6]
    ending = {"assign": {"orders": [0]}, "endingOffsets": {"orders": {"0": 7}}}
    with pytest.raises(OffsetOutOfRange, match="a transaction among the last of them is not decided yet"):
        planned(log.path, **ending)
    assert offsets(read(log.path, isolationLevel="read_uncommitted", **ending)) == [0, 1, 3, 5, 6]


# Directories


def test_one_partition_directory_by_itself(log: Log, tmp_path: Path) -> None:
    orders(log)
    alone = log.path / "orders-0"
    assert read(alone) == scanned(log, "orders")
    assert read(alone, subscribe="orders") == read(alone, assign={"orders": [0]}) == read(alone)
    with pytest.raises(InvalidPartition, match="no partition 1"):
        planned(alone, assign={"orders": [1]})
    with pytest.raises(TopicNotFound, match="the path holds 'orders' alone"):
        planned(alone, subscribe="payments")
    log.delete_records(TP, 4)  # inside a batch: what the commit slots say of it holds here, too
    assert offsets(read(alone)) == [*range(4, 30)]
    shutil.copytree(alone, tmp_path / "orders-0")
    assert read(tmp_path / "orders-0") == scanned(log, "orders")
    assert planned(log.path / "orders-2") == []


def test_closed_segments_of_another_partition_are_named_by_the_executor(log: Log, tmp_path: Path) -> None:
    orders(log)
    for number in range(10):
        values = [bytes([100 + number]) * 100] * 3
        log.partition("orders", 1).append([ProducerRecord(value, timestamp_ms=T0) for value in values], acks=1)
    log.partition("orders", 0).log.close()
    log.partition("orders", 1).log.close()
    assert planned(log.path)[0].source.topic_id == log.describe_topic("orders").id
    segments = [path.stem for path in sorted((log.path / "orders-0").glob("*.seal"))]
    for path in (log.path / "orders-1").glob(f"{segments[1]}.*"):
        shutil.copyfile(path, log.path / "orders-0" / path.name)
    with pytest.raises(CorruptSegment, match="this segment is of another partition") as caught:
        read(log.path, assign={"orders": [0]})
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, int(segments[1]))
    assert len(read(log.path, assign={"orders": [1]})) == 30


def test_a_partition_s_directory_by_itself_may_have_any_name(log: Log, tmp_path: Path) -> None:
    orders(log)
    log.partition(*TP).log.close()
    assert list((log.path / "orders-0").glob("*.seal"))
    alone = shutil.copytree(log.path / "orders-0", tmp_path / "kept-7")
    assert offsets(read(alone)) == [*range(30)]


def test_a_path_that_holds_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogNotFound, match="there is no directory"):
        planned(tmp_path / "missing")
    with pytest.raises(LogNotFound, match=r"neither a log \(it has no .pylog\), nor a Kafka broker's"):
        planned(tmp_path)
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(LogNotFound, match="neither a log"):
        planned(tmp_path / "orders-0")
    (tmp_path / "file").touch()
    with pytest.raises(LogNotFound, match="there is no directory"):
        planned(tmp_path / "file")


def kafka_rows(topic: str, isolation_level: str) -> list[dict[str, Any]]:
    """What a Java consumer read, as rows."""
    found = []
    for text in (KAFKA / "expected" / f"{topic}.{isolation_level}.jsonl").read_text().splitlines():
        line = json.loads(text)
        pairs = [[*pair.values()] if isinstance(pair, dict) else pair for pair in line["headers"]]
        found.append(
            {
                "key": None if line["key"] is None else bytes.fromhex(line["key"]),
                "value": shortened(bytes.fromhex(line["value"]) if line.get("value") is not None else None, line),
                "topic": topic,
                "partition": line["partition"],
                "offset": line["offset"],
                "timestamp": line["timestamp"] * 1000,
                "timestampType": ["CreateTime", "LogAppendTime"].index(line["timestamp_type"]),
                "headers": [
                    {"key": name, "value": None if value is None else bytes.fromhex(value)} for name, value in pairs
                ]
                or None,
            }
        )
    return found


def shortened(value: bytes | None, line: dict[str, Any] | None = None) -> bytes | str | None:
    """A long value is known by its digest."""
    if line is not None and "value_sha256" in line:
        return str(line["value_sha256"])
    return hashlib.sha256(value).hexdigest() if value is not None and len(value) > 1024 else value


needs_kafka = pytest.mark.skipif(not KAFKA.is_dir(), reason=f"no directories of Kafka's in {KAFKA}")
TOPICS = sorted({path.name.partition(".")[0] for path in KAFKA.glob("expected/*.read_committed.jsonl")})


@needs_kafka
@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_brokers_directory_is_read_as_a_java_consumer_reads_it(topic: str, isolation_level: str) -> None:
    found = read(KAFKA / "log", subscribe=topic, isolationLevel=isolation_level, includeHeaders=True)
    assert [row | {"value": shortened(row["value"])} for row in found] == kafka_rows(topic, isolation_level)


@needs_kafka
def test_a_brokers_internal_topics_are_read_only_by_name() -> None:
    assert {piece.source.topic_partition.topic for piece in planned(KAFKA / "log")} == {*TOPICS} - {"empty"}
    assert len(read(KAFKA / "log", subscribe="__consumer_offsets")) > 0


@needs_kafka
def test_a_broker_need_not_have_all_partitions_of_a_topic(tmp_path: Path) -> None:
    for name in ("keyed-0", "keyed-2"):
        shutil.copytree(KAFKA / "log" / name, tmp_path / "kafka" / name)
    wanted = [row for row in read(KAFKA / "log", subscribe="keyed") if row["partition"] != 1]
    assert read(tmp_path / "kafka") == wanted
    with pytest.raises(InvalidPartition, match=r"topic 'keyed' has no partition 1 in .*, but 0, 2"):
        planned(tmp_path / "kafka", assign={"keyed": [1]})


@needs_kafka
def test_one_partition_of_a_broker_knows_its_log_start(tmp_path: Path) -> None:
    assert offsets(read(KAFKA / "log" / "trimmed-0")) == [
        row["offset"] for row in kafka_rows("trimmed", "read_committed")
    ]
    shutil.copytree(KAFKA / "log" / "keyed-1", tmp_path / "keyed-1")
    assert len(read(tmp_path / "keyed-1")) == len(read(KAFKA / "log", assign={"keyed": [1]})) > 0


# Loss between planning and reading


def test_retention_before_the_task_began(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    orders(log)
    everything = scanned(log, "orders")
    failing, forgiving = planned(log.path), planned(log.path, failOnDataLoss=False)
    log.delete_records(TP, 20)
    with pytest.raises(
        OffsetOutOfRange, match=r"offset 0 of orders-0 was lost: retention has removed what is before offset 20 "
    ):
        list(read_ranges(failing))
    assert list(read_ranges(forgiving)) == everything[18:]  # the batches that are left, whole
    assert "retention has removed what is before offset 20" in caplog.text
    log.delete_records(TP, 30)
    assert list(read_ranges(forgiving)) == []


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_retention_while_a_task_reads(log: Log, fail_on_data_loss: bool) -> None:
    orders(log, batches=100, value_bytes=30_000)
    reading = read_ranges(planned(log.path, failOnDataLoss=fail_on_data_loss))
    found = [next(reading)["offset"]]
    log.delete_records(TP, 270)
    if fail_on_data_loss:
        with pytest.raises(OffsetOutOfRange, match="retention has removed what is before offset 270"):
            list(reading)
    else:
        found += offsets(list(reading))
        assert found[-30:] == [*range(270, 300)]
        assert found == sorted(set(found))
        assert len(found) < 250


def test_records_deleted_inside_a_segment_were_there_when_the_query_was_planned(log: Log) -> None:
    orders(log)
    ranges, everything = planned(log.path), scanned(log, "orders")
    log.delete_records(TP, 1)
    assert list(read_ranges(ranges)) == everything


@pytest.mark.parametrize("created_anew", [False, True])
def test_a_topic_that_was_deleted(log: Log, created_anew: bool) -> None:
    orders(log)
    failing, forgiving = planned(log.path), planned(log.path, failOnDataLoss=False)
    log.delete_topic("orders")
    if created_anew:
        orders(log, batches=20)
    with pytest.raises(OffsetOutOfRange, match="was lost: the topic was deleted, or deleted and created again"):
        list(read_ranges(failing))
    assert list(read_ranges(forgiving)) == []  # nothing of the new one: those are other records


def test_a_partition_whose_directory_was_removed_since_it_was_planned(log: Log) -> None:
    """It was "the topic was deleted"."""
    orders(log)
    failing = planned(log.path)
    shutil.rmtree(log.path / "orders-0")
    with pytest.raises(OffsetOutOfRange, match=r"was lost: the directory of partition 0 .* the topic was not deleted"):
        list(read_ranges(failing))
    with pytest.raises(CorruptSegment, match="the directory of partition 0 of 'orders' is missing"):
        planned(log.path)


def test_a_topic_created_anew_while_a_task_reads(log: Log) -> None:
    orders(log, batches=100, value_bytes=30_000)
    reading = read_ranges(planned(log.path))
    next(reading)
    log.delete_topic("orders")
    orders(log, batches=100, value_bytes=30_000)
    with pytest.raises(OffsetOutOfRange, match="deleted and created again"):
        list(reading)


@needs_kafka
def test_retention_in_a_brokers_directory_is_no_gap(tmp_path: Path) -> None:
    directory = tmp_path / "kafka"
    shutil.copytree(KAFKA / "log", directory)
    failing = planned(directory, subscribe="rolled")
    forgiving = planned(directory, subscribe="rolled", failOnDataLoss=False)
    everything = list(read_ranges(failing))
    first, second = sorted((directory / "rolled-0").glob("*.log"))[:2]
    first.unlink()
    base = int(second.stem)
    with pytest.raises(
        OffsetOutOfRange, match=f"offset 0 of rolled-0 was lost: retention has removed what is before offset {base}"
    ):
        list(read_ranges(failing))
    assert list(read_ranges(forgiving)) == everything[base:]
    shutil.rmtree(directory / "rolled-0")
    with pytest.raises(OffsetOutOfRange, match="the topic was deleted"):
        list(read_ranges(failing))
    assert list(read_ranges(forgiving)) == []


@needs_kafka
def test_a_brokers_partition_that_vanishes_behind_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(KAFKA / "log" / "compacted-0", tmp_path / "compacted-0")
    ranges = planned(tmp_path / "compacted-0", startingOffsets={"compacted": {"0": 1}})
    fetch = PartitionReader.fetch

    def fetch_and_remove(self: PartitionReader, *args: Any, **how: Any) -> Fetched:
        try:
            return fetch(self, *args, **how)
        finally:
            shutil.rmtree(tmp_path / "compacted-0", ignore_errors=True)

    monkeypatch.setattr(PartitionReader, "fetch", fetch_and_remove)
    with pytest.raises(OffsetOutOfRange, match="the topic was deleted"):
        list(read_ranges(ranges))


# Damage


@pytest.mark.slow
def test_a_flipped_bit_is_found_or_changes_no_row(log: Log, seed: int) -> None:
    orders(log)
    ranges, everything = planned(log.path), scanned(log, "orders")
    dice, caught = random.Random(seed), 0
    for path in (log_file(log.path / "orders-0"), log_file(log.path / "orders-0", ranges[0].published.active_base)):
        for position in dice.sample(range(path.stat().st_size), 100):
            flip(path, position)
            damage, found = outcome(ranges)
            flip(path, position)
            if damage is None:
                assert found == everything
            else:
                caught += 1
                assert (damage.topic, damage.partition, damage.path) == ("orders", 0, str(path))
                assert f"orders-0 is damaged at offset {damage.offset}, file {path}: " in str(damage)
    assert caught > 150
    assert list(read_ranges(ranges)) == everything


def outcome(ranges: list[PartitionRange]) -> tuple[CorruptSegment | None, list[dict[str, Any]]]:
    try:
        return None, list(read_ranges(ranges))
    except CorruptSegment as damage:
        return damage, []


def test_damage_that_its_checksum_covers_names_offset_and_file(log: Log) -> None:
    orders(log)
    good = bytearray(view_of(CORNERS[:2]).buffer)
    good[HEADER_BYTES] ^= 1
    view = BatchView(good, read_header(good))
    with pytest.raises(PylogError):
        view.check_crc()
    import crc32c

    good[17:21] = crc32c.crc32c(good[21:]).to_bytes(4, "big")
    append_view(log, BatchView(good, read_header(good)))
    path = log_file(log.path / "orders-0", log.partition(*TP).segments[-1].base_offset)
    with pytest.raises(CorruptSegment, match=f"orders-0 is damaged at offset 30, file {path}: batch at offset 30"):
        read(log.path)


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("cut_bytes", [None, 1, 100])
def test_a_segment_that_is_missing_or_cut_is_damage_not_loss(log: Log, number: int, cut_bytes: int | None) -> None:
    orders(log)
    ranges = planned(log.path)
    path = Path(log.partition(*TP).segments[number].path)
    if cut_bytes is None:
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size - cut_bytes)
    with pytest.raises(CorruptSegment, match="orders-0 is damaged at offset "):
        list(read_ranges(ranges))


# Light, read-only, lock-free


def test_reading_changes_nothing_and_waits_for_no_lock(log: Log) -> None:
    orders(log)
    before, times = snapshot_of(log.path), times_of(log.path)
    everything = scanned(log, "orders")
    filesystem = OsFileSystem()
    locks = [filesystem.lock(str(path)) for path in log.path.rglob("*lock")]
    assert len(locks) >= 2
    try:
        assert all(lock.try_acquire() for lock in locks)
        assert read(log.path) == everything
        assert read(log.path / "orders-0") == everything
    finally:
        for lock in locks:
            lock.close()
    assert snapshot_of(log.path) == before
    assert times_of(log.path) == times


def times_of(directory: Path) -> dict[str, tuple[int, int, int]]:
    found = {str(path): path.stat() for path in [directory, *directory.rglob("*")]}
    return {name: (stat.st_mtime_ns, stat.st_ino, stat.st_mode) for name, stat in found.items()}


def test_permission_to_read_is_enough() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        path = Path(name) / "log"
        with Log(path) as log:
            orders(log)
            everything = scanned(log, "orders")
        for below in [path, *path.rglob("*")]:
            below.chmod(0o555 if below.is_dir() else 0o444)
        try:
            with nobody():
                with pytest.raises(PermissionError):
                    (path / "orders-0" / "new").touch()
                assert read(path) == everything
                assert read(path / "orders-0") == everything
        finally:
            for below in [path, *path.rglob("*")]:
                if below.is_dir():
                    below.chmod(0o755)


class nobody:  # noqa: N801  (reads as what it is in a with statement)
    """Without root's right to write everywhere, where the tests run as root."""

    def __enter__(self) -> None:
        self.was = os.geteuid()
        if self.was == 0:
            os.seteuid(65534)

    def __exit__(self, *_: object) -> None:
        if self.was == 0:
            os.seteuid(0)


def test_another_boot_is_read_without_repairing_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(log)
    everything, before = scanned(log, "orders"), snapshot_of(log.path)
    monkeypatch.setattr(OsFileSystem, "boot_id", lambda _: "another")
    assert read(log.path) == everything
    assert snapshot_of(log.path) == before


def test_rows_may_be_few_columns(log: Log) -> None:
    from pyspark.sql.types import LongType, StructField, StructType, TimestampType

    from pylog.spark.source.ranges import record_batches
    from pylog.spark.source.schema import arrow_schema

    orders(log)
    wanted = StructType([StructField("timestamp", TimestampType()), StructField("offset", LongType(), nullable=False)])
    found = [
        row
        for piece in planned(log.path)
        for part in record_batches(piece, arrow_schema(wanted, include_headers=False))
        for row in rows(part)
    ]
    assert found == [{"timestamp": T0 * 1000, "offset": offset} for offset in range(30)]
