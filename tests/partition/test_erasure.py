"""Erasing keys against a model: after any history, exactly the records of these keys are gone, and
no file has their bytes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, build_batch
from pylog.codec.format import CODEC_NAMES
from pylog.errors import (
    CorruptRecord,
    CorruptSegment,
    ForkedHandle,
    LogLocked,
    StorageError,
    StorageFull,
    TopicNotFound,
)
from pylog.log import Log
from pylog.model import AppendResult, Headers, ProducerRecord
from pylog.partition import Partition
from pylog.partition.compact import erasure
from pylog.partition.compact.engine import IS_BUSY, compact
from pylog.partition.compact.erasure import ErasedPartition, erase
from pylog.partition.compact.options import CompactionOptions
from pylog.segment.naming import CLEANER_LOCK, may_hold_records
from pylog.storage import FileLock
from pylog.testing.manual_clock import ManualClock
from tests.codec.reference import scan_headers
from tests.partition.logs import START_MS, file_of, flip, log_file, marker, open_partition, problems, topic_of
from tests.partition.test_compaction import KEYS, RETENTION_MS, Batch, Model, Sent, end_transaction, found, send
from tests.storage.filesystems import Faulty, OtherBoot, StandIn, full, nothing

NAMED = [key for key in KEYS if key is not None]


def erase_in(partition: Partition, *keys: bytes, tombstones: bool = False, timeout_ms: int = 1000) -> ErasedPartition:
    return erase(partition.log, frozenset(keys), tombstones=tombstones, timeout_ms=timeout_ms)


def erase_in_model(model: Model, keys: set[bytes], end: int, now_ms: int, *, tombstones: bool) -> tuple[int, int]:
    """How many records go, and how many tombstones come."""
    if tombstones:
        present = {
            record.key
            for batch in model.batches
            for record in batch.records.values()
            if record.value is not None or record.headers
        }
        keys = keys & present
    gone = 0
    for batch in model.batches:
        left = {offset: record for offset, record in batch.records.items() if record.key not in keys}
        gone += len(batch.records) - len(left)
        batch.records = left
    if tombstones and keys:
        made = {end + at: Sent(key, None, (), now_ms) for at, key in enumerate(sorted(keys))}
        model.batches.append(Batch(end + len(keys), made))
    return gone, len(keys) if tombstones else 0


def values_on_disk(directory: Path) -> set[bytes]:
    """Every value in every file that can have records, whether something reads it or not."""
    values = set()
    for path in directory.iterdir():
        if not may_hold_records(path.name):
            continue
        data = path.read_bytes()
        for position, header in scan_headers(data):
            view = BatchView(data[position : position + header.size_bytes], header)
            if not header.is_control:
                values |= {record.value for record in view.records()}
    return values


record = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from([None, 0, 20]),
    st.lists(st.tuples(st.just("h"), st.sampled_from([None, b"x"])), max_size=1).map(tuple),
    st.integers(START_MS - 1000, START_MS + 1000),
)
step = st.one_of(
    st.tuples(
        st.just("send"),
        st.lists(record, min_size=1, max_size=5),
        st.sampled_from([-1, -1, 1, 2]),
        st.booleans(),
        st.integers(0, len(CODEC_NAMES) - 1),
    ),
    st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("erase"), st.sets(st.sampled_from(NAMED), min_size=1, max_size=3), st.booleans()),
)


class Run:
    """A partition and its model, side by side."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self.directory = directory
        self.clock = ManualClock(START_MS)
        self.model = Model()
        self.partition = open_partition(
            directory, clock=self.clock, segment_bytes=segment_bytes, index_interval_bytes=100
        )
        self.erased = set[bytes]()
        self.number = 0

    def send(self, records: list[tuple[bytes | None, int | None, Headers, int]], *arguments: int) -> None:
        sent = []
        for key, size, headers, timestamp_ms in records:
            self.number += 1
            value = None if size is None else b"<%d>" % self.number + b"v" * size
            sent.append(Sent(key, value, headers, timestamp_ms))
        send(self.partition, self.model, sent, *arguments)

    def end(self, producer_id: int, committed: bool) -> None:
        if producer_id in self.model.open:
            end_transaction(self.partition, self.model, producer_id, committed)

    def roll(self) -> None:
        self.partition.log.roll()

    def compact(self) -> None:
        self.partition.log.sync(self.partition.latest_offset)
        report = compact(self.partition.log, CompactionOptions(delete_retention_ms=RETENTION_MS))
        if report.passes:
            self.model.compact(report.cleaned_to, self.clock.now_ms())

    def erase(self, keys: set[bytes], tombstones: bool) -> None:
        before, end = self.values(), self.partition.latest_offset
        counts = erase_in_model(self.model, keys, end, self.clock.now_ms(), tombstones=tombstones)
        done = erase_in(self.partition, *keys, tombstones=tombstones)
        assert (done.end_offset, done.records, done.tombstones) == (end, *counts)
        self.erased |= before - self.values()
        assert not self.erased & values_on_disk(self.directory)
        assert problems(self.directory) == []
        self.check(self.partition)

    def values(self) -> set[bytes]:
        return {r.value for r in self.model.records(committed=False).values() if r.value is not None}

    def check(self, partition: Partition) -> None:
        assert found(partition, "read_uncommitted") == self.model.records(committed=False)
        if not self.model.open:
            assert found(partition, "read_committed") == self.model.records(committed=True)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(step, min_size=5, max_size=40), st.sampled_from([1 << 10, 1 << 14]))
def test_exactly_the_records_of_the_keys_go(steps: list[tuple[Any, ...]], segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        run = Run(Path(root) / "t-0", segment_bytes)
        for name, *arguments in [*steps, ("erase", set(NAMED[:2]), False), ("erase", set(NAMED[2:]), True)]:
            getattr(run, name)(*arguments)
        for producer_id in list(run.model.open):
            run.end(producer_id, producer_id == 1)
        run.check(run.partition)
        run.partition.close()
        for path in run.directory.glob("*.snapshot"):
            path.unlink()
        again = open_partition(run.directory, OtherBoot(), clock=run.clock)  # from the segments alone
        run.check(again)
        for producer_id, sequence in run.model.sequences.items():
            assert again.log.next_sequence(producer_id) == sequence
        assert problems(run.directory) == []
        again.close()


# What others have left, or do meanwhile


def filled(directory: Path, *, keys: int = 5, records: int = 60, **changes: int) -> Partition:
    """Records of one batch each, in segments of a few."""
    partition = open_partition(directory, segment_bytes=changes.pop("segment_bytes", 1024), **changes)
    for number in range(records):
        encoder = RecordEncoder(1 << 20)
        encoder.append(START_MS, b"k%d" % (number % keys), b"value-%d-" % (number % keys) + b"x" * 20, ())
        partition.log.append_batch(build_batch(encoder))
    return partition


def bytes_in(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


def test_no_file_has_the_bytes_of_an_erased_record(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    assert b"value-3-" in bytes_in(tmp_path)
    done = erase_in(partition, b"k3")
    assert (done.records, done.segments > 3) == (12, True)
    assert b"value-3-" not in bytes_in(tmp_path)
    assert len(list(partition.scan())) == 48


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)), ids=CODEC_NAMES)
def test_compressed_records_go_too(tmp_path: Path, codec: int) -> None:
    partition = open_partition(tmp_path)
    encoder = RecordEncoder(1 << 20)
    for number in range(30):
        encoder.append(START_MS, b"k%d" % (number % 5), b"value-%d-" % (number % 5) * 20, ())
    partition.log.append_batch(build_batch(encoder, codec=codec))
    assert erase_in(partition, b"k3", b"k4").records == 12
    assert values_on_disk(tmp_path) == {b"value-%d-" % number * 20 for number in range(3)}
    assert [record.offset for record in partition.scan()] == [number for number in range(30) if number % 5 < 3]
    assert problems(tmp_path) == []


def test_an_emptied_batch_keeps_its_offsets_and_its_producers_numbers(tmp_path: Path) -> None:
    partition, model = open_partition(tmp_path), Model()
    for key in (b"k1", b"k3"):
        send(partition, model, [Sent(key, b"value", (), START_MS)] * 3, 1, False, 0)
    assert erase_in(partition, b"k3").records == 3
    partition.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    again = open_partition(tmp_path, OtherBoot())
    assert (again.latest_offset, again.log.next_sequence(1)) == (6, 6)
    assert [record.offset for record in again.scan()] == [0, 1, 2]
    assert problems(tmp_path) == []


def test_segments_without_the_keys_stay_as_they_are(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    for _ in range(40):
        partition.append([ProducerRecord(b"x" * 60, key=b"other")])
    before = {path.name: path.stat().st_ino for path in tmp_path.glob("*.log")}
    done = erase_in(partition, b"k3")
    after = {path.name: path.stat().st_ino for path in tmp_path.glob("*.log")}
    same = [name for name in before if after[name] == before[name]]
    assert len(before) - len(same) == done.segments
    assert len(same) >= 3
    assert set(before) == set(after)  # nothing of the key is in the active segment: it is not closed


def test_a_key_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    for absent in (b"k", b"k33", b"", b"x" * (2 << 20)):  # the first is part of others, the last longer than any record
        before = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
        assert erase_in(partition, absent, tombstones=True)[3:6] == (0, 0, 0)
        assert before == {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}


def test_leftovers_of_others_go_too(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    for kind in (".log.deleted", ".log.rewrite", ".log.cleaned", ".log.swap", ".index.swap"):
        (tmp_path / f"{7:020d}{kind}").write_bytes(b"value-3-")
    erase_in(partition, b"k3")
    assert b"value-3-" not in bytes_in(tmp_path)
    assert problems(tmp_path) == []


def test_records_before_the_log_start_go_too(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    start = partition.segments[0].end_offset - 1  # inside of the first segment
    partition.log.delete_before(start)
    erase_in(partition, b"k3")
    assert b"value-3-" not in bytes_in(tmp_path)
    assert partition.earliest_offset == start


def test_an_open_transaction_holds_nothing_back(tmp_path: Path) -> None:
    partition, model = filled(tmp_path), Model()
    first = partition.latest_offset
    model.sequences[1] = 0
    send(partition, model, [Sent(b"k3", b"value-3-open", (), START_MS), Sent(b"k4", b"4", (), START_MS)], 1, True, 0)
    done = erase_in(partition, b"k3")
    assert done.records == 13
    assert b"value-3-" not in bytes_in(tmp_path)
    assert partition.last_stable_offset == first
    partition.log.append_batch(marker(1, 0, commit=True))
    committed = [record.offset for record in partition.scan() if record.offset >= first]
    assert committed == [first + 1]
    assert problems(tmp_path) == []


def test_an_aborted_transaction_stays_aborted(tmp_path: Path) -> None:
    partition, model = filled(tmp_path), Model()
    first = partition.latest_offset
    send(partition, model, [Sent(b"k3", b"value-3-", (), START_MS), Sent(b"k4", b"4", (), START_MS)], 1, True, 0)
    partition.log.roll()
    send(partition, model, [Sent(b"k3", b"value-3-", (), START_MS)], 1, True, 0)
    partition.log.append_batch(marker(1, 0, commit=False))
    partition.log.roll()
    erase_in(partition, b"k3")
    assert b"value-3-" not in bytes_in(tmp_path)
    assert [record.offset for record in partition.scan() if record.offset >= first] == []
    (index,) = tmp_path.glob("*.txnindex")
    index.unlink()  # the seal still says what it must be
    again = open_partition(tmp_path, read_only=True)
    assert [record.offset for record in again.scan() if record.offset >= first] == []


def test_damage_does_not_keep_the_rest_from_being_erased(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    partition.log.roll()
    segments = partition.segments
    flip(log_file(tmp_path, segments[2].base_offset), 100)
    with pytest.raises(CorruptRecord) as raised:
        erase_in(partition, b"k3")
    assert raised.value.facts["path"] == segments[2].path
    kept = [segment.path for segment in partition.segments if b"value-3-" in Path(segment.path).read_bytes()]
    assert kept == [segments[2].path]


def test_a_compaction_in_another_process_is_waited_for(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    lock = partition.log.directory.filesystem.lock(str(tmp_path / ".cleaner-lock"))
    assert lock.try_acquire()
    with pytest.raises(LogLocked):
        erase_in(partition, b"k3", timeout_ms=0)
    assert b"value-3-" in bytes_in(tmp_path)
    lock.close()
    assert erase_in(partition, b"k3", timeout_ms=0).records == 12
    assert compact(partition.log).skipped != (IS_BUSY,)


def test_a_reader_under_way_reads_on(tmp_path: Path) -> None:
    partition, reader = filled(tmp_path), open_partition(tmp_path, read_only=True)
    scan = reader.scan()
    seen = [next(scan) for _ in range(7)]
    erase_in(partition, b"k3")
    seen += scan
    offsets = [record.offset for record in seen]
    assert offsets == sorted(set(offsets))
    assert {offset for offset in range(60) if offset % 5 != 3} <= set(offsets)


def test_tombstones_stay_and_are_not_written_twice(tmp_path: Path) -> None:
    partition = filled(tmp_path)
    done = erase_in(partition, b"k3", b"k4", b"absent", tombstones=True)
    assert (done.tombstones, done.records, done.end_offset) == (2, 24, 60)
    assert [(r.offset, r.key, r.value) for r in partition.scan(60)] == [(60, b"k3", None), (61, b"k4", None)]
    assert erase_in(partition, b"k3", b"k4", tombstones=True)[3:6] == (0, 0, 0)
    partition.append([ProducerRecord(b"value-3-again", key=b"k3")])
    done = erase_in(partition, b"k3", b"k4", tombstones=True)
    assert (done.tombstones, done.records) == (1, 2)  # the value, and the older tombstone
    assert [(r.offset, r.key, r.value) for r in partition.scan(60)] == [(61, b"k4", None), (63, b"k3", None)]
    assert erase_in(partition, b"k3", b"k4").records == 2
    assert b"k3" not in bytes_in(tmp_path)


def test_a_key_that_comes_after_the_search_is_not_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, other = filled(tmp_path), open_partition(tmp_path)
    append = partition.log.append_records

    def append_later(*args: Any, **options: Any) -> AppendResult:
        other.append([ProducerRecord(b"value", key=b"late"), ProducerRecord(b"value-3-late", key=b"k3")])
        return append(*args, **options)

    monkeypatch.setattr(partition.log, "append_records", append_later)
    done = erase_in(partition, b"k3", b"late", tombstones=True)
    assert (done.records, done.end_offset) == (13, 60)
    assert [(record.offset, record.key) for record in partition.scan(60)] == [(60, b"late"), (62, b"k3")]


@pytest.mark.parametrize("operation", ["pwrite", "sync"])
def test_a_full_disk_leaves_whole_segments_and_no_copies(tmp_path: Path, operation: str) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    filled(directory).log.close()
    partition = open_partition(directory, filesystem, segment_bytes=1024)
    failures = []

    def fail(happens: str, path: str) -> None:
        if happens == operation and path.endswith(f"{partition.segments[2].base_offset:020d}.log.cleaned"):
            failures.append(path)
            raise full(path)

    filesystem.hook = fail
    with pytest.raises(StorageFull):
        erase_in(partition, b"k3")
    assert len(failures) == 1
    assert not list(directory.glob("*.cleaned"))
    assert {record.offset for record in partition.scan()} >= {offset for offset in range(60) if offset % 5 != 3}
    filesystem.hook = lambda *_: None
    assert erase_in(partition, b"k3").records == 12 - 2 * 2  # two segments were done
    assert b"value-3-" not in bytes_in(directory)


def test_a_child_that_a_signal_handler_forks_does_not_continue(tmp_path: Path) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    filled(directory).log.close()
    partition = open_partition(directory, filesystem, segment_bytes=1024)
    child = iter([filesystem.process_id() + 1])

    def fork(happens: str, path: str) -> None:
        if happens == "pwrite" and path.endswith(".log.cleaned"):
            filesystem.process_id = lambda: next(child, 1)

    filesystem.hook = fork
    with pytest.raises(ForkedHandle):
        erase_in(partition, b"k3")


def test_what_is_damaged_after_the_search_is_told_and_the_rest_is_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = filled(tmp_path)
    partition.log.roll()
    damaged = partition.segments[2]
    append = partition.log.append_records

    def then_damage(*args: Any, **options: Any) -> AppendResult:
        flip(Path(damaged.path), damaged.size_bytes - 10)  # after records that are to be erased
        return append(*args, **options)

    monkeypatch.setattr(partition.log, "append_records", then_damage)
    with pytest.raises(CorruptRecord) as raised:
        erase_in(partition, b"k3", tombstones=True)
    assert raised.value.facts["path"] == damaged.path
    kept = [segment.path for segment in partition.segments if b"value-3-" in Path(segment.path).read_bytes()]
    assert kept == [damaged.path]
    assert not list(tmp_path.glob("*.cleaned"))


def test_records_that_others_delete_meanwhile_need_not_be_erased(tmp_path: Path) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    filled(directory).log.close()
    partition = open_partition(directory, filesystem, segment_bytes=1024)
    segments = partition.segments

    def delete(happens: str, path: str) -> None:
        if happens == "open" and path.endswith(f"{segments[1].base_offset:020d}.log.cleaned"):
            filesystem.hook = lambda *_: None
            open_partition(directory).log.delete_before(segments[2].end_offset)

    filesystem.hook = delete
    done = erase_in(partition, b"k3")
    kept = [offset for offset in range(segments[2].end_offset, 60) if offset % 5 != 3]
    assert [record.offset for record in partition.scan()] == kept
    assert done.segments == done.segments_read - 2  # the second and the third were gone
    assert b"value-3-" not in bytes_in(directory)


class Marking(Faulty):
    """Another process marks a segment as one whose sync has failed, whenever a copy of it is being
    written."""

    def __init__(self, times: int) -> None:
        super().__init__(self.mark)
        self.times = times

    def mark(self, happens: str, path: str) -> None:
        if happens == "open" and path.endswith(".log.cleaned") and self.times:
            self.times -= 1
            Path(path.replace(".log.cleaned", ".unsynced")).touch()


def test_a_segment_whose_sync_has_failed_is_copied_before_it_is_erased(directory: Path) -> None:
    """Whether the process that saw that died before, or is about to copy it."""
    filesystem = Marking(2)
    partition = open_partition(directory, filesystem, segment_bytes=1024)
    filled(directory).log.sync(60)
    marked = file_of(directory, partition.segments[1].base_offset, ".unsynced")
    marked.touch()
    assert erase_in(partition, b"k3").records == 12
    assert filesystem.times == 0
    assert filesystem.count("sync", ".log.rewrite") == 3
    assert b"value-3-" not in bytes_in(directory)
    assert not list(directory.glob("*.unsynced"))
    assert problems(directory) == []


def test_a_segment_that_cannot_be_copied_keeps_its_records_and_no_other_does(directory: Path) -> None:
    """Its sync has failed, and its bytes are lost since they were searched."""
    partition = open_partition(directory, segment_bytes=1024)
    filled(directory).log.sync(60)
    lost = partition.segments[1].base_offset
    sync = partition.log.sync

    def then_lost(end_offset: int, timeout_ms: int | None = None) -> None:
        sync(end_offset, timeout_ms)
        file_of(directory, lost, ".unsynced").touch()
        flip(log_file(directory, lost), 66)

    partition.log.sync = then_lost
    with pytest.raises(StorageError, match="could not be copied after a failed sync"):
        erase_in(partition, b"k3")
    bases = [segment.base_offset for segment in partition.segments]
    assert [base for base in bases if b"value-3-" in log_file(directory, base).read_bytes()] == [lost]
    assert not list(directory.glob("*.rewrite"))


def test_a_disk_too_full_to_copy_a_segment_ends_the_erasure(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem, segment_bytes=1024)
    filled(directory).log.sync(60)
    marked = partition.segments[1].base_offset
    file_of(directory, marked, ".unsynced").touch()

    def refuse(operation: str, path: str) -> None:
        if operation == "pwrite" and path.endswith(".rewrite"):
            raise full(path)

    filesystem.hook = refuse
    with pytest.raises(StorageFull):
        erase_in(partition, b"k3")
    assert not list(directory.glob("*.rewrite"))
    assert b"value-3-" in log_file(directory, marked).read_bytes()
    filesystem.hook = nothing
    erase_in(partition, b"k3")
    assert b"value-3-" not in bytes_in(directory)


def test_segments_that_others_change_again_and_again_end_the_erasure_with_an_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_CHANGES_MAX", 3)
    partition = open_partition(directory, Marking(3), segment_bytes=1024)
    filled(directory).log.sync(60)
    with pytest.raises(StorageError, match="keep being changed by others; erase the keys again"):
        erase_in(partition, b"k3")
    assert not list(directory.glob("*.cleaned"))
    assert [record.offset for record in partition.scan()] == [*range(60)]
    erase_in(partition, b"k3")
    assert b"value-3-" not in bytes_in(directory)


def test_a_segment_that_has_only_a_name_ends_the_search_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments before it are read once, however often the names are listed."""
    monkeypatch.setattr(erasure, "_CHANGES_MAX", 3)
    partition, read = filled(tmp_path), list[int]()
    *before, lost = partition.segments[:3]
    Path(lost.path).unlink()
    Path(lost.path).symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="keep being changed by others; erase the keys again"):
        erase(partition.log, frozenset([b"k3"]), tombstones=False, timeout_ms=1000, progress=read.append)
    assert sum(read) == sum(segment.size_bytes for segment in before)


class OutOfPlace(StandIn):
    """Another process does something after the cleaner's lock was opened and before it is taken."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        lock = super().lock(path, readable=readable)
        if path.endswith(CLEANER_LOCK):
            self.meanwhile()
        return lock


REWRITES = [lambda partition: erase_in(partition, b"a"), lambda partition: compact(partition.log)]


@pytest.mark.parametrize("rewrite", REWRITES, ids=["erase", "compact"])
def test_nothing_is_rewritten_if_another_process_may_have_another_cleaner_lock(
    directory: Path, rewrite: Callable[[Partition], object]
) -> None:
    partition = open_partition(directory, OutOfPlace((directory / CLEANER_LOCK).unlink))
    for value in (b"1", b"2"):
        partition.append([ProducerRecord(value, key=b"a")], acks="all")
        partition.log.roll()
    before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    with pytest.raises(CorruptSegment):
        rewrite(partition)
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == before


@pytest.mark.parametrize("rewrite", REWRITES, ids=["erase", "compact"])
@pytest.mark.parametrize("is_created_again", [True, False])
def test_a_topic_deleted_before_the_lock_is_taken_is_gone_and_its_successor_stays(
    tmp_path: Path, rewrite: Callable[[Partition], object], is_created_again: bool
) -> None:
    def replace() -> None:
        other.delete_topic("t")
        if is_created_again:
            fill(other)

    def fill(log: Log) -> Partition:
        partition = topic_of(log, "t")
        for value in (b"1", b"2"):
            partition.append([ProducerRecord(value, key=b"a")], acks=1)
            partition.log.roll()
        partition.log.sync(2)
        return partition

    with Log(tmp_path, create=True, filesystem=OutOfPlace(replace)) as log, Log(tmp_path) as other:
        partition = fill(log)
        with pytest.raises(TopicNotFound):
            rewrite(partition)
        if is_created_again:
            assert [record.value for record in other.partition("t", 0).scan()] == [b"1", b"2"]


def test_a_partition_whose_directory_is_missing_is_said_to_be(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(CorruptSegment, match="is missing, but the topic was not deleted"):
        erase_in(partition, b"k3")
