"""The same histories, cleaned by a real Kafka broker and by pylog: the same records stay, in
batches with the same headers.

Run by ``scripts/test --engines``.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.record.memory_records import MemoryRecords

from pylog import Log
from pylog.catalog.topic import TopicOptions
from pylog.codec.batch import BatchHeader
from pylog.codec.format import DELETE_HORIZON_BIT
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions, CompactionReport
from tests.codec.reference import scan_headers
from tests.engines.broker import COMPACTED, ORACLE, Broker
from tests.engines.histories import History
from tests.foreign.interchange import Plain

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

REMEMBERS, FORGETS, STAMPED, SPLIT = "remembers", "forgets", "stamped", "split"
TOPICS = {REMEMBERS: 15, FORGETS: 15, STAMPED: 10, SPLIT: 10}
DELETE_RETENTION_MS = {REMEMBERS: 10 * 86_400_000, FORGETS: 1, STAMPED: 1, SPLIT: 1}  # a round takes longer than 1 ms
SEGMENT_BYTES = 4096
OPTIONS: dict[str, TopicOptions] = {
    STAMPED: {"message_timestamp_type": "LogAppendTime"},
    SPLIT: {"segment_bytes": SEGMENT_BYTES},  # what is left does not fit into one segment
}
KAFKAS_OPTIONS = {
    STAMPED: {"message.timestamp.type": "LogAppendTime"},
    SPLIT: {"internal.segment.bytes": str(SEGMENT_BYTES)},
}
CONFIGS = {
    topic: {
        **COMPACTED,
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": str(retention_ms),
        **KAFKAS_OPTIONS.get(topic, {}),
    }
    for topic, retention_ms in DELETE_RETENTION_MS.items()
}
ROUNDS = 3  # of an aborted transaction: the records go, the marker gets its horizon, the marker goes
LEVELS = ["read_committed", "read_uncommitted"]


class Batch(NamedTuple):
    """A batch as another reader decodes it, without what no reader sees: how long it is, and from
    what its times count.

    Kafka counts them from the first record that is left, pylog from where they were counted before.
    """

    header: BatchHeader
    records: tuple[Plain, ...]


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


def batches(directory: Path) -> list[Batch]:
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        read = MemoryRecords(data)
        for _, header in scan_headers(data):
            batch = read.next_batch()
            assert batch is not None, path
            assert batch.validate_crc(), path
            records = tuple(Plain(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch)
            found.append(Batch(header._replace(crc=0, length=0, leader_epoch=0, base_timestamp_ms=0), records))
    return found


def differences(ours: Sequence[Batch], theirs: Sequence[Batch], end: int, late: set[int]) -> tuple[list[str], int]:
    """What is wrong, if anything, and how many batches without records only pylog keeps.

    It keeps the last batch of each producer before ``end``, the end of what was compacted: what
    follows might be lost. Kafka keeps that of the whole log. The marker of a transaction that still
    has such a batch goes later: ``late`` has these offsets.
    """
    last = {b.header.producer_id: b.header.base_offset for b in ours if b.header.base_offset < end and not is_marker(b)}
    others = set(theirs)
    more = [b for b in ours if b not in others and not b.records and b.header.base_offset in last.values()]
    late.update(marker for batch in more if (marker := marker_after(ours, batch)) is not None)
    left = {b for b in ours if b not in more}
    for batch in [b for b in left - others if is_marker(b) and b.header.base_offset in late]:
        left.remove(batch)
        others -= {b for b in others if b.header == with_horizon(batch.header)}
    return [
        *(f"only pylog has {batch}" for batch in ours if batch in left - others),
        *(f"only Kafka has {batch}" for batch in theirs if batch in others - left),
    ], len(more)


def is_marker(batch: Batch) -> bool:
    return batch.header.is_control


def marker_after(batches: Sequence[Batch], batch: Batch) -> int | None:
    """Where the transaction of this batch ends."""
    ends = (
        b.header.base_offset
        for b in batches
        if is_marker(b)
        and b.header.producer_id == batch.header.producer_id
        and b.header.base_offset > batch.header.base_offset
    )
    return next(ends, None) if batch.header.is_transactional else None


def with_horizon(header: BatchHeader) -> BatchHeader:
    return header._replace(attributes=header.attributes | DELETE_HORIZON_BIT)


class Cleaned:
    """The histories in a log of pylog's, and the broker that has their files, too."""

    def __init__(self, log: Log, broker: Broker, seed: int) -> None:
        self.log, self.broker = log, broker
        self.counts: Counter[str] = Counter()
        self.cleaned_to: Counter[str] = Counter()  # by the round before
        self.late: defaultdict[str, set[int]] = defaultdict(set)
        self.options = {
            topic: CompactionOptions(delete_retention_ms=retention_ms)
            for topic, retention_ms in DELETE_RETENTION_MS.items()
        }
        random = Random(seed)
        self.histories: dict[str, History] = {}
        for topic, partitions in TOPICS.items():
            log.create_topic(topic, partitions=partitions, index_interval_bytes=64, **OPTIONS.get(topic, {}))
            for number in range(partitions):
                self.histories[f"{topic}-{number}"] = History(random.randrange(1 << 32), log.partition(topic, number))

    def write_part(self, *, ends_all: bool) -> dict[str, int]:
        """One part more of each. Where it begins."""
        begins = {name: history.end for name, history in self.histories.items()}
        for history in self.histories.values():
            history.write_part(ends_all=ends_all)
        return begins

    def compact(self) -> dict[str, CompactionReport]:
        return {
            name: compact(history.partition.log, self.options[name.rpartition("-")[0]])
            for name, history in self.histories.items()
        }

    def check_round(self, title: str, *, same_segments: bool = False) -> None:
        """pylog compacts, while the broker does. Both leave the same, of the same files also in the
        same segments."""
        cleaned_to = {name: report.cleaned_to for name, report in self.compact().items()}
        assert self.broker.wait_until_cleaned(cleaned_to) == {name: end for name, end in cleaned_to.items() if end}
        self.broker.stop()
        found = []
        for name in self.histories:
            at_ours, at_theirs = self.log.path / name, self.broker.directory / name
            ours, theirs = batches(at_ours), batches(at_theirs)
            wrong, more = differences(ours, theirs, cleaned_to[name], self.late[name])
            if same_segments and segments(at_ours) != segments(at_theirs):
                wrong.append(f"segments of pylog {segments(at_ours)}, of Kafka {segments(at_theirs)}")
            found += [f"{title}: {name}: {line}" for line in wrong]
            self._count(title, theirs)
            if cleaned_to[name] > self.cleaned_to[name]:
                self._count_tombstones(name, theirs)
            self.cleaned_to[name] = cleaned_to[name]
            self.counts[f"{title}: batches without records that only pylog keeps"] += more
        assert not found, f"{len(found)} differences\n" + "\n".join(line[:1000] for line in found[:20])

    def _count(self, title: str, theirs: Sequence[Batch]) -> None:
        data = [record for batch in theirs if not is_marker(batch) for record in batch.records]
        self.counts[f"{title}: records"] += len(data)
        self.counts[f"{title}: tombstones"] += sum(record.value is None for record in data)
        self.counts[f"{title}: markers"] += sum(is_marker(batch) and bool(batch.records) for batch in theirs)
        self.counts[f"{title}: batches without records"] += sum(not batch.records for batch in theirs)

    def _count_tombstones(self, name: str, theirs: Sequence[Batch]) -> None:
        """Those that an earlier round has seen have got their horizon then."""
        topic = name.rpartition("-")[0]
        offsets = [record.offset for batch in theirs for record in batch.records if record.value is None]
        seen = sum(offset < self.cleaned_to[name] for offset in offsets)
        self.counts[f"{topic}: tombstones seen by an earlier round"] += seen
        self.counts[f"{topic}: new tombstones"] += len(offsets) - seen

    # pylog's files in the broker

    def rows(self, level: str) -> dict[str, list[Plain]]:
        return {
            name: [Plain(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in scan]
            for name, scan in (
                (name, history.partition.scan(isolation_level=level)) for name, history in self.histories.items()
            )
        }

    async def rows_of_aiokafka(self, level: str) -> dict[str, list[Plain]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.broker.address, isolation_level=level, auto_offset_reset="earliest"
        )
        await consumer.start()
        found: dict[str, list[Plain]] = {name: [] for name in self.histories}
        try:
            partitions = [AiokafkaPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            for partition in partitions:
                while await consumer.position(partition) < ends[partition]:
                    for name, records in (await consumer.getmany(timeout_ms=500)).items():
                        found[f"{name.topic}-{name.partition}"] += [
                            Plain(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records
                        ]
        finally:
            await consumer.stop()
        return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    home = tmp_path / "broker"
    home.mkdir()
    broker = Broker(home, log_cleaner_backoff_ms=100)
    try:
        yield broker
    finally:
        broker.stop()


def test_a_broker_and_pylog_leave_the_same_of_50_histories(tmp_path: Path, broker: Broker, seed: int) -> None:
    with Log(tmp_path / "log") as log:
        it = Cleaned(log, broker, seed)
        for number in range(ROUNDS):
            begins = it.write_part(ends_all=number == ROUNDS - 1)
            if number == 0:
                broker.serve(log.path, TOPICS, CONFIGS)
            else:
                broker.take(log.path, begins)
                broker.start()
            it.check_round(f"round {number + 1}", same_segments=number == 0)
        check_dump(log.path)

        everything = dict.fromkeys(it.histories, 0)
        broker.take(log.path, everything)  # what pylog has cleaned; from here on the broker cleans it
        broker.start()
        for level in LEVELS:
            assert asyncio.run(it.rows_of_aiokafka(level)) == it.rows(level), level
        broker.stop()
        begins = it.write_part(ends_all=True)
        broker.take(log.path, begins)
        broker.start()
        it.check_round("what pylog had cleaned, cleaned again by Kafka")
        check_horizons(it.counts)
        print(*(f"{name}: {count}" for name, count in it.counts.items()), sep="\n")


def check_horizons(counts: Counter[str]) -> None:
    """Tombstones stay until their horizon, and no longer."""
    for topic, retention_ms in DELETE_RETENTION_MS.items():
        assert counts[f"{topic}: new tombstones"], topic
        assert bool(counts[f"{topic}: tombstones seen by an earlier round"]) is (retention_ms > 1), topic


def check_dump(directory: Path) -> None:
    """What Kafka's dump tool says."""
    done = subprocess.run([ORACLE, "dump", directory], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
