"""Readers while retention and compaction in other processes remove what they read: valid records or
``OffsetOutOfRange``.

``PYLOG_TEST_RACING_READS=1000000`` is the long form.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog import Consumer, Log, ProducerRecord, TopicPartition
from pylog.errors import OffsetOutOfRange
from pylog.partition import Partition
from tests.processes.sharing import forked, result_of

pytestmark = [pytest.mark.processes, pytest.mark.slow]

READS = int(os.environ.get("PYLOG_TEST_RACING_READS", "6000"))
READERS = 3
KEYS = 50
DELETED, COMPACTED, BOTH = "deleted", "compacted", "both"
SMALL = {"segment_bytes": 4096, "index_interval_bytes": 256}
RETENTION = {"retention_bytes": 40_000}
COMPACTION = {"min_cleanable_dirty_ratio": 0.0, "delete_retention_ms": 0}
TOPICS = {
    DELETED: RETENTION,
    COMPACTED: {"cleanup_policy": "compact", **COMPACTION},
    BOTH: {"cleanup_policy": "compact,delete", **RETENTION, **COMPACTION},
}


def value_of(offset: int) -> bytes:
    return b"%d " % offset + b"x" * (offset % 300)


def write(root: Path, is_over: Callable[[], bool]) -> int:
    """Records whose values say their offsets. Every second round is a batch for each record."""
    rounds = 0
    with Log(root) as log:
        while not is_over():
            for topic in TOPICS:
                partition = log.partition(topic, 0)
                first = partition.latest_offset
                records = [ProducerRecord(value_of(first + at), key=b"%d" % ((first + at) % KEYS)) for at in range(20)]
                for piece in [records] if rounds % 2 else [[record] for record in records]:
                    partition.append(piece, acks=1)
            rounds += 1
            time.sleep(0.001)  # the readers and the cleaner need some of two cores
    return rounds


def clean(root: Path, is_over: Callable[[], bool], enough: Path) -> tuple[dict[str, int], Counter[str]]:
    """The starts of the topics, and how many records compactions dropped. Tells when enough is
    gone."""
    dropped: Counter[str] = Counter()
    with Log(root) as log:
        while not is_over():
            report = log.maintain()
            assert report.problems == []
            for partition in report.partitions:
                dropped[partition.topic] += partition.records_dropped
            starts = {topic: log.partition(topic, 0).earliest_offset for topic in TOPICS}
            if min(starts[DELETED], starts[BOTH], dropped[COMPACTED], dropped[BOTH]) > 500:
                enough.touch()
    return starts, dropped


class Reader:
    """Reads in every way, at offsets drawn at random: most of them old ones, which go soon."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()

    def run(self, reads: int, is_enough: Callable[[], bool]) -> Counter[str]:
        while self.counts["reads"] < reads or not is_enough():
            topic = self.random.choice([*TOPICS])
            partition = self.log.partition(topic, 0)
            way = self.random.choice((self.read, self.read, self.read, self.scan, self.poll))
            way(partition, self.draw(partition))
        return self.counts

    def draw(self, partition: Partition) -> int:
        first, end = partition.earliest_offset, partition.latest_offset
        near = self.random.choice((first, first, self.random.randint(first, end), end))
        return max(0, near + self.random.randint(-30, 30))

    def read(self, partition: Partition, offset: int) -> None:
        first = partition.earliest_offset
        bounds = {"max_bytes": self.random.choice((1, 1000, 100_000))}
        if self.random.random() < 0.5:
            bounds["max_records"] = self.random.choice((1, 3, 100))
        self.counts["reads"] += 1
        try:
            records = partition.read(offset, **bounds)
        except OffsetOutOfRange as error:
            self.check_out_of_range(error, offset)
            return
        self.check([(record.offset, record.value) for record in records], offset)
        if offset >= first and offset + KEYS < partition.latest_offset and partition.topic != DELETED:
            assert records, f"{partition.topic}: nothing at {offset}, though each key has a newer record"

    def scan(self, partition: Partition, offset: int) -> None:
        self.counts["reads"] += 1
        seen = []
        try:
            for record in partition.scan(offset):
                seen.append((record.offset, record.value))
                if len(seen) == 500:
                    break
        except OffsetOutOfRange as error:
            self.check_out_of_range(error, seen[-1][0] + 1 if seen else offset)
        self.check(seen, offset)

    def poll(self, partition: Partition, offset: int) -> None:
        place = TopicPartition(partition.topic, 0)
        with Consumer(self.log, auto_offset_reset="earliest") as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            at = 0  # the consumer starts again at the earliest offset
            for _ in range(3):
                self.counts["reads"] += 1
                records = consumer.poll(0)
                self.check([(record.offset, record.value) for record in records], at)
                at = consumer.position(place)

    def check(self, records: list[tuple[int, bytes | None]], offset: int) -> None:
        before = offset - 1
        for at, value in records:
            assert at > before, f"offset {at} after {before}"
            assert value == value_of(at), f"another value at offset {at}"
            before = at
        self.counts["records"] += len(records)

    def check_out_of_range(self, error: OffsetOutOfRange, offset: int) -> None:
        """By the bounds that it names, which the log had: both only rise."""
        self.counts["out of range"] += 1
        partition = self.log.partition(error.topic, 0)
        assert not error.earliest <= offset <= error.latest, f"{error}, but it was read from {offset} on"
        assert error.earliest <= partition.earliest_offset
        assert error.latest <= partition.latest_offset, f"{error}, but it holds less"


def test_a_reader_finds_valid_records_or_is_out_of_range_while_others_delete_and_compact(
    tmp_log_dir: Path, tmp_path: Path, seed: int
) -> None:
    over, enough = tmp_path / "over", tmp_path / "enough"
    with Log(tmp_log_dir) as log:
        for topic, config in TOPICS.items():
            log.create_topic(topic, **SMALL, **config)
            log.partition(topic, 0).append([ProducerRecord(value_of(0), key=b"0")], acks=1)

    def read(number: int) -> Counter[str]:
        logging.disable(logging.WARNING)  # each reset of a position is logged, and pytest keeps that
        with Log(tmp_log_dir, read_only=number % 2 == 1) as log:
            return Reader(log, seed + number).run(-(-READS // READERS), enough.exists)

    writer = forked(lambda: write(tmp_log_dir, over.exists))
    cleaner = forked(lambda: clean(tmp_log_dir, over.exists, enough))
    readers = [forked(lambda number=number: read(number)) for number in range(READERS)]
    try:
        counts = sum((result_of(reader) for reader in readers), Counter[str]())
    finally:
        over.touch()
        rounds, (starts, dropped) = result_of(writer), result_of(cleaner)
    print(f"{dict(counts)}, {rounds} rounds written, starts {starts}, dropped {dict(dropped)}")
    assert counts["reads"] >= READS
    assert counts["out of range"] > READS / 1000
    with Log(tmp_log_dir) as log:
        assert log.verify().problems == []
