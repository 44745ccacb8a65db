"""Wall time stamps records, ages segments and answers questions about time. Whatever it says,
nothing else depends on it."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.model import ProducerRecord, TopicPartition
from tests.findings import expect_none
from tests.partition.logs import START_MS, ManualClock

PACKAGE = Path(__file__).parents[1] / "src" / "pylog"

# Who asks for it, or hands it on, and what for.
ALLOWED = {
    "codec/records.py RecordEncoder.try_append": "the timestamp of a record that has none",
    "partition/partition_log.py PartitionLog.append_records": "the timestamp of a record that has none",
    "producer/accumulator.py Accumulator.__init__": "the timestamp of a record that has none",
    "producer/producer.py Producer.__init__": "the timestamp of a record that has none",
    "partition/write/writer.py PartitionWriter.__init__": "LogAppendTime; the age of a segment whose batches have no time",
    "partition/write/writer.py PartitionWriter._rewrite_segment": "a producer is forgotten after a day, as by Kafka",
    "partition/repair/recovery.py _rebuild_from": "a producer is forgotten a day after its last record, as by Kafka",
    "partition/write/log_end.py LogEnd._attach": "a producer is forgotten a day after its last record, as by Kafka",
    "partition/compact/engine.py _plan": "min_compaction_lag_ms says how old a record must be",
    "partition/compact/engine.py _Compaction._clean_part": "the delete horizon, delete_retention_ms from now",
    "partition/compact/engine.py _Compaction._producers": "a producer is forgotten a day after its last record, as by Kafka",
    "manager/opening.py open_directory": "when the log was created, for people to read",
    "cli/records.py _delete": "how long ago, in the user's words",
    "cleaner/cleaner.py Cleaner.maintain": "the age of records, by which retention deletes",
    "cleaner/cleaner.py Cleaner.compact_if_small": "the age of records, by which compaction waits or is due",
    "transaction/expiry.py expire": "how long nobody has used a transactional id",
    "cleaner/cleaner.py Cleaner.retain": "the age of records, by which retention deletes",
    "cleaner/cleaner.py Cleaner._planned": "passes that time on",
    "cleaner/cleaner.py Cleaner._planned.newest_ms": "passes that time on",
    "cleaner/compaction.py Compaction._run": "the age of records, by which compaction waits or is due",
    "cleaner/step.py Target.overdue_ms": "how long something has been due, for people to read",
    "cleaner/cleaner.py _detail": "how far a record's time is ahead, for people to read",
    "group/membership.py Membership._join": "when a member joined, for people to read",
    "group/admin.py GroupAdmin._reset_to": "when an offset was committed, as Kafka notes it, for people to read",
    "group/offsets.py OffsetStore.encoded": "the timestamp of the records, which have none",
    "group/offsets.py OffsetStore.write_as_they_are": "the timestamp of the records",
    "topic_changes/copying.py TopicCopy.translated": "the commit's timestamp",
    "topic_changes/positions.py _positions": "the commit's timestamp",
    "transaction/admin.py TransactionAdmin._described": "the age of an open transaction, for people to read",
    "transaction/offsets.py TransactionOffsets._commits": "when an offset was committed, as Kafka notes it, for people to read",
    "transaction/owner.py TransactionOwner._start": "when a transaction began, as Kafka notes it, for people to read",
    "transaction/owner.py TransactionOwner._append": "when a decision was made, as Kafka notes it, for people to read",
    "transaction/outcomes.py Outcomes.decide_now": "when a decision was made, as Kafka notes it, for people to read",
    "transaction/table.py TransactionTable._append": "the timestamp of the records, which have none",
    "partition/write/writer.py PartitionWriter._append_marker": "the timestamp of a marker, as Kafka has it",
    "producer/send_named.py NamedSender.__init__": "the timestamp of a record that has none",
    "outbox/table.py Outbox.add": "the timestamp of a record that has none",
    "consumer/commit_tracker.py CommitTracker._prepare": "when an offset was committed, as Kafka notes it, for people to read",
    "consumer/offset_lookup.py OffsetLookup.start_position": "auto_offset_reset says how long ago",
    "cli/consume.py _seek": "--from-time says how long ago",
    "cli/group_reset.py _run": "--to-time says how long ago",
}


def places_that_ask(tree: ast.AST, path: str) -> Iterator[str]:
    """Where ``now_ms`` of something, or the machine's clock itself, is called or passed on."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Attribute) and child.attr == "now_ms":
            yield path
        if isinstance(child, ast.Name) and child.id == "machine_ns":
            yield path
        named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
        yield from places_that_ask(child, f"{path}.{child.name}" if named else path)  # type: ignore[attr-defined]


def all_places() -> set[str]:
    found = set()
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        if name != "clock.py":
            found |= {
                place.replace(f"{name}.", f"{name} ") for place in places_that_ask(ast.parse(file.read_text()), name)
            }
    return found


@pytest.mark.slow
def test_wall_time_is_asked_for_where_it_is_allowed_and_nowhere_else() -> None:
    asked = all_places()
    expect_none(
        sorted(asked - set(ALLOWED)), "may the answer depend on it? Then add the line to ALLOWED, with the reason"
    )
    expect_none(sorted(set(ALLOWED) - asked), "no longer ask for wall time: delete their lines in ALLOWED")


def test_a_new_place_that_asks_for_wall_time_is_found() -> None:
    source = "class A:\n    def f(self):\n        return self._clock.now_ms() > self._deadline\n"
    assert list(places_that_ask(ast.parse(source), "x.py")) == ["x.py.A.f"]


class Wild(ManualClock):
    """Its wall time is what ``ms`` says at each call."""

    def __init__(self, ms: Callable[[int], int]) -> None:
        super().__init__()
        self._ms = ms
        self._calls = 0

    def now_ms(self) -> int:
        self._calls += 1
        return self._ms(self._calls)


TEN_YEARS_MS = 10 * 366 * 86_400_000
CLOCKS: dict[str, Callable[[random.Random], Callable[[int], int]]] = {
    "jumps": lambda chance: lambda _: START_MS + chance.choice((-1, 0, 1)) * TEN_YEARS_MS,
    "is frozen": lambda _: lambda _: START_MS,
    "goes backwards": lambda _: lambda calls: START_MS - calls * 3_600_000,
    "is at zero": lambda _: lambda _: 0,
    "runs away": lambda _: lambda calls: START_MS + calls * TEN_YEARS_MS // 10,
}


def outcomes(root: Path, clock: ManualClock) -> list[Any]:
    """What a program sees of a log over its life, without timestamps and segments, which are what
    wall time may change."""
    seen: list[Any] = []
    for kind in ("CreateTime", "LogAppendTime"):
        with Log(root, clock=clock, segment_bytes=4096, message_timestamp_type=kind) as log:
            log.create_topic(kind, partitions=2)
            log.alter_topic(kind, segment_ms=1000)
            seen.append((log.topics(), log.describe_topic(kind).config.segment_ms))
            with Producer(log, acks="all", linger_ms=0) as producer:
                sent = [producer.send(kind, b"%d" % n, key=b"%d" % (n % 5), partition=n % 2) for n in range(40)]
                seen += [delivery.result().offset for delivery in sent]
            partition = log.partition(kind, 0)
            seen += [partition.append([ProducerRecord(b"%d" % n)], acks=1)[:2] for n in range(10)]
            seen += [tuple(partition.log.append_batch(numbered(n))[:2]) for n in (0, 1, 2, 1, 0)]
            partition.log.roll()
            seen += [partition.durable_offset, partition.latest_offset, log.delete_records(TopicPartition(kind, 0), 7)]
        with Log(root, clock=clock) as log:
            partition = log.partition(kind, 0)
            seen.append(partition.append([ProducerRecord(b"after reopening")])[:2])
            with Consumer(log, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition(kind, 0), TopicPartition(kind, 1)])
                read = []
                while records := consumer.poll(0.0):
                    read += [(record.partition, record.offset, record.key, record.value) for record in records]
                seen += sorted(read, key=lambda record: record[0])  # no order is promised between partitions
            seen.append(log.verify().problems)
    with Log(root, clock=clock) as log:
        log.delete_topic("CreateTime")
        seen.append(log.topics())
    return seen


def numbered(sequence: int) -> bytearray:
    """A batch with a producer's sequence number."""
    encoder = RecordEncoder(1000)
    encoder.append(START_MS, None, b"sequence %d" % sequence, ())
    return build_batch(encoder, producer_id=70_000, producer_epoch=0, base_sequence=sequence)


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", CLOCKS)
def test_a_wall_clock_that_lies_changes_nothing_but_timestamps(tmpfs_dir: Path, seed: int, behaviour: str) -> None:
    wild = Wild(CLOCKS[behaviour](random.Random(seed)))
    assert outcomes(tmpfs_dir / "wild", wild) == outcomes(tmpfs_dir / "right", ManualClock())
    assert wild._calls > 50
