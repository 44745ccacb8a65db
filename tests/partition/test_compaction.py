"""Compaction against a model: after any history, exactly the records stay that Kafka's rules name,
each as it was."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.format import CODEC_NAMES
from pylog.errors import CorruptSegment
from pylog.model import Headers, ProducerRecord, Record
from pylog.partition import Partition
from pylog.partition.cleaner_checkpoint import read_cleaned
from pylog.partition.commit_slots import CommitState
from pylog.partition.compact.engine import IS_BUSY, compact, planned
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.compact.plan import ClosedSegment, groups, plan
from pylog.segment import SegmentReader
from pylog.storage import OsFileSystem
from pylog.testing.manual_clock import ManualClock
from tests.partition.logs import START_MS, append_encoded, flip, marker, open_partition, problems
from tests.storage.filesystems import Faulty, OtherBoot

RETENTION_MS = 5_000
KEYS = [None, b"", b"a", b"b", b"c", b"a longer key"]


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass
class Batch:
    """What the model knows of one batch."""

    end: int
    records: dict[int, Sent]
    producer_id: int = -1
    is_transactional: bool = False
    is_aborted: bool = False
    horizon_ms: int | None = None


@dataclass
class Model:
    batches: list[Batch] = field(default_factory=list)
    open: dict[int, list[Batch]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    dropped_to: int = 0  # the end of the last batch that lost a tombstone because its horizon had come

    def compact(self, end: int, now_ms: int) -> None:
        done = [batch for batch in self.batches if batch.end <= end]
        newest = {
            record.key: offset
            for batch in done
            if not batch.is_aborted
            for offset, record in batch.records.items()
            if record.key is not None
        }
        for batch in done:
            is_past = batch.horizon_ms is not None and now_ms >= batch.horizon_ms
            batch.records = {
                offset: record
                for offset, record in batch.records.items()
                if not batch.is_aborted and newest.get(record.key) == offset
            }
            if is_past and any(record.value is None for record in batch.records.values()):
                batch.records = {at: record for at, record in batch.records.items() if record.value is not None}
                self.dropped_to = max(self.dropped_to, batch.end)
            if batch.horizon_ms is None and any(record.value is None for record in batch.records.values()):
                batch.horizon_ms = now_ms + RETENTION_MS

    def records(self, *, committed: bool) -> dict[int, Sent]:
        return {
            offset: record
            for batch in self.batches
            if not (committed and batch.is_aborted)
            for offset, record in batch.records.items()
        }


headers = st.lists(st.tuples(st.sampled_from(["h", "ä"]), st.sampled_from([None, b"", b"x"])), max_size=2).map(tuple)
record = st.builds(
    Sent,
    st.sampled_from(KEYS),
    st.sampled_from([None, b"", b"v", b"value" * 20]),
    headers,
    st.integers(START_MS - 1000, START_MS + 1000),
)
step = st.one_of(
    st.tuples(
        st.just("send"),
        st.lists(record, min_size=1, max_size=5),
        st.sampled_from([-1, -1, 1, 2]),  # without a producer, or of one
        st.booleans(),
        st.integers(0, len(CODEC_NAMES) - 1),
    ),
    st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact"), st.integers(0, 2 * RETENTION_MS), st.sampled_from([48, 1 << 16])),
)


def send(
    partition: Partition, model: Model, sent: list[Sent], producer_id: int, in_transaction: bool, codec: int
) -> None:
    in_transaction = producer_id >= 0 and (in_transaction or producer_id in model.open)
    encoder = RecordEncoder(1 << 20)
    for each in sent:
        encoder.append(each.timestamp_ms, each.key, each.value, each.headers)
    producer = {}
    if producer_id >= 0:
        sequence = model.sequences.get(producer_id, 0)
        model.sequences[producer_id] = sequence + len(sent)
        producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    base = append_encoded(partition, build_batch(encoder, codec=codec, transactional=in_transaction, **producer))
    batch = Batch(base + len(sent), {base + at: each for at, each in enumerate(sent)}, producer_id, in_transaction)
    model.batches.append(batch)
    if in_transaction:
        model.open.setdefault(producer_id, []).append(batch)


def end_transaction(partition: Partition, model: Model, producer_id: int, committed: bool) -> None:
    for batch in model.open.pop(producer_id, ()):
        batch.is_aborted = not committed
    append_encoded(partition, marker(producer_id, 0, commit=committed))


def found(partition: Partition, isolation_level: str) -> dict[int, Sent]:
    records: list[Record] = list(partition.scan(isolation_level=isolation_level))
    assert [r.offset for r in records] == sorted({r.offset for r in records})
    return {r.offset: Sent(r.key, r.value, r.headers, r.timestamp_ms) for r in records}


dirty = ("send", [Sent(b"dirty", b"", (), START_MS)], -1, False, 0)
twice_more = [
    *[("end", 1, False), ("end", 2, True)],  # else an open transaction keeps all after it from being compacted
    *[("roll",), ("compact", 1, 1 << 16), dirty, ("roll",), ("compact", RETENTION_MS, 1 << 16)],
]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(step, min_size=5, max_size=40))
def test_exactly_what_the_rules_name_stays(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        directory, clock, model = Path(root) / "t-0", ManualClock(START_MS), Model()
        partition = open_partition(directory, clock=clock, segment_bytes=1 << 14, index_interval_bytes=100)
        for name, *arguments in [*steps, *twice_more]:
            if name == "send":
                send(partition, model, *arguments)
            elif name == "end" and arguments[0] in model.open:
                end_transaction(partition, model, *arguments)
            elif name == "roll":
                partition.log.roll()
            elif name == "compact":
                clock.advance(arguments[0] / 1000)
                partition.log.sync(partition.latest_offset)
                options = CompactionOptions(delete_retention_ms=RETENTION_MS, memory_bytes=arguments[1])
                report = compact(partition.log, options)
                if report.passes:
                    model.compact(report.cleaned_to, clock.now_ms())
                    cleaned = read_cleaned(partition.log.directory)
                    assert cleaned.first_dirty == report.cleaned_to
                    assert cleaned.dropped_to >= model.dropped_to
                    if report.passes == 1:  # a part does not know the newer records after it
                        assert cleaned.dropped_to == model.dropped_to
                    model.dropped_to = cleaned.dropped_to
                assert found(partition, "read_uncommitted") == model.records(committed=False)
                if not model.open:
                    assert found(partition, "read_committed") == model.records(committed=True)
                assert problems(directory) == []
        partition.close()
        for path in directory.glob("*.snapshot"):
            path.unlink()
        again = open_partition(directory, OtherBoot(), clock=clock)  # from the segments alone
        assert found(again, "read_uncommitted") == model.records(committed=False)
        assert found(again, "read_committed") == model.records(committed=True)
        for producer_id, sequence in model.sequences.items():
            assert again.log.next_sequence(producer_id) == sequence
        again.close()


@pytest.mark.parametrize("memory_bytes", [48, 16 * 40, 1 << 16])
def test_keys_that_do_not_fit_are_taken_in_parts(tmp_path: Path, memory_bytes: int) -> None:
    partition = open_partition(tmp_path / "t-0")
    for number in range(120):
        encoder = RecordEncoder(1 << 20)
        encoder.append(START_MS, b"%d" % (number % 30), b"%d" % number, ())
        append_encoded(partition, build_batch(encoder))
    partition.log.roll()
    partition.log.sync(120)
    report = compact(partition.log, CompactionOptions(memory_bytes=memory_bytes))
    assert [record.offset for record in partition.scan()] == [*range(90, 120)]
    assert (report.passes > 1) is (memory_bytes < 16 * 34)
    assert (report.records_kept, report.records_dropped) == (30, 90)


@pytest.mark.slow
@pytest.mark.parametrize(("memory_bytes", "batches"), [(48, 3), (1 << 16, 12)], ids=["memory is full", "it changes"])
def test_an_interrupt_while_a_segment_is_left_early_reaches_the_caller(
    tmp_path: Path, memory_bytes: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python closes a generator by itself, and drops what is raised meanwhile."""
    close, closed = SegmentReader.close, itertools.count()

    def interrupted(reader: SegmentReader) -> None:
        close(reader)
        if next(closed) == at:
            raise KeyboardInterrupt

    at = 0
    while True:
        partition = open_partition(tmp_path / f"t-{at}")
        for number in range(12):
            partition.append([ProducerRecord(b"v", key=b"%d" % (number % 6))])
            if number % batches == batches - 1:
                partition.log.roll()
        partition.log.sync(12)
        closed = itertools.count()
        with monkeypatch.context() as patched:
            patched.setattr(SegmentReader, "close", interrupted)
            try:
                compact(partition.log, CompactionOptions(memory_bytes=memory_bytes))
                break
            except KeyboardInterrupt:
                at += 1
    assert at == next(closed) >= 3


def test_a_second_process_does_not_compact_at_the_same_time(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    filesystem = partition.log.directory.filesystem
    lock = filesystem.lock(str(tmp_path / "t-0" / ".cleaner-lock"))
    assert lock.try_acquire()
    assert compact(partition.log).skipped == (IS_BUSY,)
    lock.close()
    assert compact(partition.log).skipped == ("nothing is dirty",)


def test_the_next_compaction_need_not_wait_until_garbage_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")
    right, paths, locks = OsFileSystem.lock, [], []

    def kept(filesystem: OsFileSystem, path: str, **options: Any) -> Any:
        paths.append(path)
        locks.append(right(filesystem, path, **options))
        return locks[-1]

    monkeypatch.setattr(OsFileSystem, "lock", kept)
    for _ in range(2):
        assert compact(partition.log).skipped == ("nothing is dirty",)
    assert paths.count(str(tmp_path / "t-0" / ".cleaner-lock")) == 2


def test_records_that_are_deleted_between_two_parts_need_not_be_compacted(tmp_path: Path) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem)
    for number in range(12):
        partition.append([ProducerRecord(b"v", key=b"%d" % (number % 6))])
        if number % 3 == 2:
            partition.log.roll()
    partition.log.sync(12)

    def delete(happens: str, path: str) -> None:
        if happens == "replaced" and path.endswith(".cleaner-checkpoint"):
            filesystem.hook = lambda *_: None
            open_partition(directory).log.delete_before(12)

    filesystem.hook = delete
    report = compact(partition.log, CompactionOptions(memory_bytes=48))
    assert (report.passes, report.cleaned_to) == (1, 12)
    assert partition.earliest_offset == 12
    assert compact(partition.log).skipped == ("nothing is dirty",)


def test_a_segment_without_seal_is_as_young_as_its_last_append(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0", clock=ManualClock(START_MS))
    partition.append([ProducerRecord(b"v", key=b"a")])
    partition.log.roll()
    partition.log.sync(1)
    options = CompactionOptions(min_compaction_lag_ms=1000)
    assert planned(partition.log, options).dirty == ()
    (seal,) = (tmp_path / "t-0").glob("*.seal")
    seal.unlink()
    assert planned(partition.log, options).reason == "records are younger than min_compaction_lag_ms"
    os.utime(tmp_path / "t-0" / f"{0:020d}.log", ns=(0, (START_MS - 1000) * 1_000_000))
    assert len(planned(partition.log, options).dirty) == 1


def test_a_partition_whose_directory_is_missing_is_said_to_be(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(CorruptSegment, match="is missing, but the topic was not deleted"):
        compact(partition.log)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_damaged_transaction_index_of_a_compacted_segment_hides_no_committed_record(
    tmp_path: Path, is_lost: bool
) -> None:
    directory = tmp_path / "t-0"
    partition, model = open_partition(directory), Model()
    send(partition, model, [Sent(b"a", b"1", (), START_MS)], 1, True, 0)
    end_transaction(partition, model, 1, True)
    send(partition, model, [Sent(b"b", b"2", (), START_MS), Sent(b"c", b"3", (), START_MS)], 1, True, 0)
    end_transaction(partition, model, 1, False)
    partition.log.roll()
    partition.log.sync(partition.latest_offset)
    assert compact(partition.log).records_dropped == 2
    (index,) = directory.glob("*.txnindex")
    assert index.read_bytes()[10:18] == (2).to_bytes(8)  # where the aborted transaction begins
    if is_lost:
        index.unlink()
    else:
        flip(index, 17, 2)
    for read_only in True, False:
        again = open_partition(directory, OtherBoot(), read_only=read_only)
        assert [r.offset for r in again.scan(isolation_level="read_committed")] == [0]
        again.close()


def test_an_open_transaction_ends_what_can_be_compacted(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    model = Model()
    send(partition, model, [Sent(b"a", b"1", (), START_MS)], -1, False, 0)
    partition.log.roll()
    send(partition, model, [Sent(b"a", b"2", (), START_MS)], 1, True, 0)
    partition.log.roll()
    partition.log.sync(2)
    found_plan = planned(partition.log, CompactionOptions())
    assert (found_plan.end, found_plan.reason) == (1, "a transaction is open")


# Pure parts


def segment(base: int, end: int, size_bytes: int = 100, greatest_ms: int = 0) -> ClosedSegment:
    return ClosedSegment(base, end, size_bytes, 8, greatest_ms)


def state(end: int, *, stable: int | None = None, durable: int | None = None, start: int = 0) -> CommitState:
    return CommitState(
        sequence=2, boot=1, leader_epoch=0, active_base=end, written_end=0, log_end_offset=end,
        durable_offset=end if durable is None else durable, last_stable_offset=end if stable is None else stable,
        log_start_offset=start, high_watermark=end, segments_version=0, least_timestamp_ms=0,
    )  # fmt: skip


CLOSED = [segment(0, 10), segment(10, 20), segment(20, 30, greatest_ms=900)]


@pytest.mark.parametrize(
    ("published", "checkpoint", "options", "expected"),
    [
        (state(30), -1, CompactionOptions(), (0, 30, 3, "")),
        (state(30), 10, CompactionOptions(), (10, 30, 3, "")),
        (state(30), 99, CompactionOptions(), (0, 30, 3, "")),
        (state(30, stable=25), 10, CompactionOptions(), (10, 20, 2, "a transaction is open")),
        (state(30, durable=19), 0, CompactionOptions(), (0, 10, 1, "what follows is not durable")),
        (state(30, start=15), 10, CompactionOptions(), (15, 30, 2, "")),
        (
            state(30), 0, CompactionOptions(min_compaction_lag_ms=200),
            (0, 20, 2, "records are younger than min_compaction_lag_ms"),
        ),
        (state(30, durable=5), 0, CompactionOptions(), (0, 0, 0, "what follows is not durable")),
    ],
)  # fmt: skip
def test_what_can_be_compacted(
    published: CommitState, checkpoint: int, options: CompactionOptions, expected: tuple[int, int, int, str]
) -> None:
    made = plan(published, CLOSED, checkpoint, options, 1000)
    assert (made.first_dirty, made.end, len(made.segments), made.reason) == expected


@given(
    st.lists(st.tuples(st.integers(1, 1 << 31), st.integers(0, 3000), st.integers(0, 50)), max_size=20),
    st.integers(100, 4000),
    st.integers(8, 100),
)
def test_groups_are_neighbours_that_fit(sizes: list[tuple[int, int, int]], size_bytes: int, index_bytes: int) -> None:
    closed, base = [], 0
    for span, size, index in sizes:
        closed.append(ClosedSegment(base, base + span, size, index))
        base += span
    made = groups(closed, size_bytes, index_bytes)
    assert [each for group in made for each in group] == closed
    for group in made:
        assert len(group) == 1 or (
            sum(each.size_bytes for each in group) <= size_bytes
            and sum(each.index_bytes for each in group) <= index_bytes
            and group[-1].end - group[0].base < 1 << 31
        )
