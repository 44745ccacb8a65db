"""A partition against a list: whatever is done in whatever order, its records are those of the
list.

The model holds one entry a record, how many are durable, and where the log starts. Two handles
write, as two processes do; handles die with half an append behind the published end; the power
fails and takes any suffix of what was not durable.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pylog.catalog import TopicConfig
from pylog.codec.batch import stamp
from pylog.errors import OffsetConflict, OffsetOutOfRange
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.directory import PartitionDirectory
from pylog.storage import OsFileSystem
from tests.partition.logs import (
    START_MS,
    TP,
    ManualClock,
    assert_indexes_follow_from_the_log,
    bases,
    batch,
    boot_of,
    headers,
    log_file,
    partition_in,
    prepare,
)
from tests.storage.filesystems import OtherBoot

INTERVAL_BYTES = 150
VALUES = st.lists(st.binary(max_size=60), min_size=1, max_size=5)
WHICH = st.integers(0, 1)


class Kept(NamedTuple):
    value: bytes
    timestamp_ms: int


class PartitionAgainstAList(RuleBasedStateMachine):
    @initialize()
    def lay_out(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pylog-model-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.directory = self.root / "t-0"
        self.clock = ManualClock()
        self.config = TopicConfig(segment_bytes=1024, index_interval_bytes=INTERVAL_BYTES)
        self.boot = 0
        self.records: list[Kept] = []
        self.start = 0
        self.durable = 0
        prepare(self.directory, OtherBoot(0))
        self.handles = [self.open(), self.open()]

    def open(self, *, read_only: bool = False) -> Partition:
        filesystem = OtherBoot(self.boot)
        return partition_in(
            PartitionDirectory(
                filesystem, self.clock, str(self.directory), TP, lambda: self.config, boot_of(filesystem), "id"
            ),
            read_only=read_only,
        )

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root, ignore_errors=True)

    # What is done

    @rule(which=WHICH, values=VALUES, back_ms=st.integers(0, 500), durable=st.booleans())
    def append(self, which: int, values: list[bytes], back_ms: int, durable: bool) -> None:
        self.clock.seconds += 0.1
        at = self.clock.now_ms() - back_ms
        made = [ProducerRecord(value, timestamp_ms=at) for value in values]
        result = self.handles[which].append(made, acks="all" if durable else 1)
        assert (result.base_offset, result.last_offset) == (len(self.records), len(self.records) + len(values) - 1)
        stored = result.timestamp_ms if self.config.message_timestamp_type == "LogAppendTime" else at
        self.records += [Kept(value, stored) for value in values]
        if durable:
            self.durable = len(self.records)

    @rule(which=WHICH, off_by=st.integers(-2, 2))
    def append_only_where_the_log_ends(self, which: int, off_by: int) -> None:
        end = len(self.records)
        now = self.clock.now_ms()
        if off_by == 0:
            assert (
                self.handles[which].append(batch(b"cas", timestamp_ms=now), acks=1, expected_offset=end).base_offset
                == end
            )
            self.records.append(Kept(b"cas", now))
            return
        if end + off_by < 0:
            return  # no offset at all
        with pytest.raises(OffsetConflict) as caught:
            self.handles[which].append(batch(b"cas"), acks=1, expected_offset=end + off_by)
        assert (caught.value.log_end_offset, caught.value.expected_offset) == (end, end + off_by)

    @rule(which=WHICH)
    def roll(self, which: int) -> None:
        self.handles[which].log.roll()

    @rule(which=WHICH)
    def sync(self, which: int) -> None:
        if self.records:
            self.handles[which].log.sync(len(self.records))
            self.durable = len(self.records)

    @rule(which=WHICH, close=st.booleans())
    def reopen(self, which: int, close: bool) -> None:
        if close:
            self.handles[which].log.close()
        self.handles[which] = self.open()

    @rule(which=WHICH, values=VALUES, keep=st.integers(0, 300), whole=st.booleans())
    def die_in_an_append(self, which: int, values: list[bytes], keep: int, whole: bool) -> None:
        """A writer dies with part of a batch behind the published end; the other handle goes on."""
        state = self.handles[1 - which].log.current()
        path = log_file(self.directory, state.active_base)
        left = batch(*values, timestamp_ms=START_MS)
        stamp(left, len(self.records), 0)
        with path.open("r+b") as file:  # where a writer writes: it repairs what another left behind first
            file.truncate(state.written_end)
            file.seek(state.written_end)
            file.write(left if whole else left[: min(keep, len(left) - 1)])
        self.handles[which] = self.open()
        if whole:  # nobody was told of it; whoever appends next adopts it
            result = self.handles[1 - which].append(batch(b"after", timestamp_ms=START_MS), acks=1)
            at = result.timestamp_ms if self.config.message_timestamp_type == "LogAppendTime" else START_MS
            self.records += [*(Kept(value, START_MS) for value in values), Kept(b"after", at)]

    @rule(lost=st.integers(0, 6), torn=st.integers(0, 40), without_slots=st.booleans(), without_indexes=st.booleans())
    def lose_power(self, lost: int, torn: int, without_slots: bool, without_indexes: bool) -> None:
        """Batches behind the durable end go, one of them perhaps in part; so may indexes, and slots
        if nothing tells more."""
        self.boot += 1
        active = bases(self.directory)[-1]
        path = log_file(self.directory, active)
        behind = [
            (position, header) for position, header in headers(path) if header.base_offset >= max(self.durable, active)
        ]
        if lost and behind:
            position, header = behind[max(len(behind) - lost, 0)]
            data = path.read_bytes()
            path.write_bytes(data[: position + min(torn, header.size_bytes - 1)])
            del self.records[header.base_offset :]
        if without_indexes:
            for kind in (".index", ".timeindex"):
                log_file(self.directory, active).with_suffix(kind).unlink(missing_ok=True)
        if without_slots and self.start == 0:
            (self.directory / ".commit").unlink()
        self.start = min(self.start, len(self.records))
        self.handles = [self.open(), self.open()]
        self.durable = len(self.records)
        assert self.handles[0].latest_offset == len(self.records)

    @rule(which=WHICH, share=st.floats(0, 1))
    def delete_records(self, which: int, share: float) -> None:
        before = int(share * self.durable)  # beyond the durable end: see test_partition.py
        self.start = max(self.start, before)
        assert self.handles[which].log.delete_before(before) == self.start

    @rule(beyond=st.integers(1, 5))
    def delete_beyond_the_end(self, beyond: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.handles[0].log.delete_before(len(self.records) + beyond)

    @rule(segment_bytes=st.integers(1024, 4096), append_time=st.booleans())
    def alter(self, segment_bytes: int, append_time: bool) -> None:
        kind = "LogAppendTime" if append_time else "CreateTime"
        self.config = TopicConfig(
            segment_bytes=segment_bytes, index_interval_bytes=INTERVAL_BYTES, message_timestamp_type=kind
        )
        PartitionDirectory.announce_settings(OsFileSystem(), str(self.directory))

    @rule(seconds=st.integers(1, 3600))
    def wait(self, seconds: int) -> None:
        self.clock.seconds += seconds

    # What is seen

    @rule(which=WHICH, share=st.floats(0, 1), most=st.integers(1, 20))
    def read(self, which: int, share: float, most: int) -> None:
        offset = self.start + int(share * (len(self.records) - self.start))
        found = self.handles[which].read(offset, max_records=most)
        expected = self.records[offset : offset + len(found)]
        assert [(r.offset, r.value, r.timestamp_ms) for r in found] == [
            (offset + number, kept.value, kept.timestamp_ms) for number, kept in enumerate(expected)
        ]
        assert bool(found) == (offset < len(self.records))

    @rule(which=WHICH)
    def read_outside(self, which: int) -> None:
        for offset in {self.start - 1, len(self.records) + 1} - {-1}:
            with pytest.raises(OffsetOutOfRange):
                self.handles[which].read(offset)

    @rule(which=WHICH, step=st.integers(-1, 1), share=st.floats(0, 1))
    def look_a_time_up(self, which: int, step: int, share: float) -> None:
        if self.records:
            at = self.records[int(share * (len(self.records) - 1))].timestamp_ms + step
            expected = next(
                (
                    (n, kept.timestamp_ms)
                    for n, kept in enumerate(self.records)
                    if n >= self.start and kept.timestamp_ms >= at
                ),
                None,
            )
            found = self.handles[which].offset_for_time(at)
            assert (tuple(found) if found else None) == expected

    @precondition(lambda self: len(self.records) > 0)
    @rule()
    def read_only_from_the_start(self) -> None:
        partition = self.open(read_only=True)
        assert [record.value for record in partition.scan()] == [kept.value for kept in self.records[self.start :]]
        partition.log.close()

    @invariant()
    def the_ends_are_those_of_the_list(self) -> None:
        if hasattr(self, "handles"):
            for handle in self.handles:
                seen = (handle.earliest_offset, handle.latest_offset, handle.last_stable_offset, handle.durable_offset)
                assert seen == (self.start, len(self.records), len(self.records), self.durable)

    @invariant()
    def the_indexes_follow_from_the_log(self) -> None:
        if hasattr(self, "handles"):
            state = self.handles[0].log.current()
            if log_file(self.directory, state.active_base).stat().st_size == state.written_end:
                assert_indexes_follow_from_the_log(self.directory, INTERVAL_BYTES)


TestPartitionAgainstAList = pytest.mark.slow(PartitionAgainstAList.TestCase)
TestPartitionAgainstAList.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
