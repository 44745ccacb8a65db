"""Commit slots of version 1 become those of version 2: nothing is lost, and no process of version 1
appends after that."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import crc32c
import pytest

from pylog import Consumer, Log, ProducerRecord, TopicPartition
from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import DeliveryTimeout, ForkedHandle, FormatVersionError, NotAppended, ReadOnlyLog
from pylog.partition import Partition, commit_slots
from pylog.partition.commit_slots import FILE_BYTES, HEAD, CommitSlots, CommitState, latest, whole_file
from pylog.storage import AppendableFile, OsFileSystem
from pylog.testing import Machine, ManualClock, for_every_kill, for_every_power_loss
from tests.partition import version_1
from tests.partition.version_1 import OldWriter, make_version_1, says_anything
from tests.storage.filesystems import Faulty, io_error

ROOT = "/log"
SMALL = {"segment_bytes": 1024}
FIRST = 3  # the log start


def filled(log: Log) -> None:
    """Two segments and a half, the first records deleted, the last ones not synced."""
    log.create_topic("t", **SMALL)
    for number in range(12):
        append(log.partition("t", 0), f"{number}", acks=1 if number > 9 else "all")
    log.delete_records(TopicPartition("t", 0), FIRST)


def append(partition: Partition, value: str, acks: str | int = 1) -> int:
    record = ProducerRecord(value.encode() + bytes(200), timestamp_ms=1_000)
    return partition.append([record], acks=acks).base_offset


def values(partition: Partition) -> dict[int, str]:
    found, offset = {}, partition.earliest_offset
    while records := partition.read(offset):
        found.update({record.offset: (record.value or b"").rstrip(b"\0").decode() for record in records})
        offset = records[-1].offset + 1
    return found


def old_log(root: Path) -> CommitState:
    with Log(root) as log:
        filled(log)
    return make_version_1(OsFileSystem(), str(root), "t")


def published(root: Path) -> CommitState | None:
    return latest((root / "t-0" / ".commit").read_bytes())


EXPECTED = {number: f"{number}" for number in range(FIRST, 12)}


def test_slots_of_version_1_are_read_and_left_as_they_are(tmp_path: Path) -> None:
    state = old_log(tmp_path)
    before = (tmp_path / "t-0" / ".commit").read_bytes()
    assert len(before) == 128
    assert published(tmp_path) == state._replace(least_timestamp_ms=INT64_MIN)
    with Log(tmp_path, read_only=True) as log:
        assert values(log.partition("t", 0)) == EXPECTED
        assert log.verify().problems == []
        with pytest.raises(ReadOnlyLog):
            append(log.partition("t", 0), "x")
    assert (tmp_path / "t-0" / ".commit").read_bytes() == before


def test_the_first_writer_keeps_all_that_they_said(tmp_path: Path) -> None:
    state = old_log(tmp_path)
    with Log(tmp_path) as log:
        partition = log.partition("t", 0)
        assert values(partition) == EXPECTED  # reading alone upgrades nothing
        assert len((tmp_path / "t-0" / ".commit").read_bytes()) == 128
        assert partition.append([ProducerRecord(b"12", timestamp_ms=2)], acks=1).base_offset == 12  # without a roll
        raw = (tmp_path / "t-0" / ".commit").read_bytes()
        assert (len(raw), raw[: len(HEAD)]) == (FILE_BYTES, HEAD)
        now = published(tmp_path)
        assert now is not None
        kept = ("boot", "leader_epoch", "active_base", "durable_offset", "log_start_offset", "segments_version")
        assert [getattr(now, name) for name in kept] == [getattr(state, name) for name in kept]
        assert (now.least_timestamp_ms, now.log_end_offset) == (INT64_MIN, 13)
        partition.log.roll()
        append(partition, "13")
        rolled = published(tmp_path)
        assert rolled is not None
        assert rolled.least_timestamp_ms == 1_000
    config = json.loads((tmp_path / ".pylog" / "topics" / "t.json").read_text())["config"]
    assert config["commit_slots"] == 2


def test_nothing_older_than_an_empty_active_segment_is_in_it(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.create_topic("t")
    make_version_1(OsFileSystem(), str(tmp_path), "t")
    state = published(tmp_path)
    assert state is not None
    assert state.least_timestamp_ms == INT64_MAX
    with Log(tmp_path) as log:
        append(log.partition("t", 0), "first")
    state = published(tmp_path)
    assert state is not None
    assert state.least_timestamp_ms == 1_000


def test_a_reader_that_has_the_old_slots_open_goes_on(tmp_path: Path) -> None:
    old_log(tmp_path)
    with Log(tmp_path, read_only=True) as reading, Log(tmp_path) as writing:
        partition = reading.partition("t", 0)
        assert values(partition) == EXPECTED
        for number in range(12, 30):
            append(writing.partition("t", 0), f"{number}")
            assert partition.latest_offset == number + 1
        assert values(partition) == {number: f"{number}" for number in range(FIRST, 30)}


# A writer of version 1 beside it


def test_a_writer_of_version_1_appends_at_no_moment_of_it_to_what_is_upgraded(tmp_path: Path) -> None:
    old_log(tmp_path)
    filesystem = OsFileSystem()
    old = OldWriter(filesystem, str(tmp_path), "t")
    assert old.may_append()
    before = version_1.read(filesystem, f"{tmp_path}/t-0/.commit")
    moments = []

    def look(_operation: str, _path: str) -> None:
        raw = version_1.read(filesystem, f"{tmp_path}/t-0/.commit")
        moments.append((old.may_append(), old.refuses_topic(), raw[:128] == before))
        if old.may_append():
            assert raw[:128] == before  # what it reads is what is published
        if raw[:128] != before:
            assert not old.lock.is_in_place()
            assert old.refuses_topic()

    with Log(tmp_path, filesystem=Faulty(look)) as log:
        append(log.partition("t", 0), "12")
    assert moments[0] == (True, False, True)
    assert (False, True, True) in moments  # the lock goes before the old slots do
    assert moments[-1] == (False, True, False)
    assert not says_anything((tmp_path / "t-0" / ".commit").read_bytes())
    assert not old.may_append()
    old.close()


class Recorded:
    """A file in memory that remembers what was written to it."""

    path = ".commit"

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.writes: list[tuple[int, bytes]] = []

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self.data[position : position + size])

    def pwrite(self, data: bytes, position: int) -> None:
        self.writes.append((position, bytes(data)))
        self.data[position : position + len(data)] = data

    def sync(self) -> None:
        pass


@pytest.mark.parametrize("sequence", [8, 9])
def test_an_upgrade_killed_after_any_byte_it_writes_leaves_the_published_state(sequence: int) -> None:
    state = CommitState(
        sequence=sequence, boot=1, leader_epoch=0, active_base=0, written_end=200, log_end_offset=20, durable_offset=20,
        last_stable_offset=20, log_start_offset=15, high_watermark=20, segments_version=0, least_timestamp_ms=INT64_MIN,
    )  # fmt: skip
    before = state._replace(sequence=sequence - 1, log_start_offset=0, durable_offset=0)
    old = version_1.slots_of_two(before, state)
    file = Recorded(old)
    assert CommitSlots(cast(AppendableFile, file)).upgrade(lambda: None)
    data = bytearray(old.ljust(len(file.data), b"\0"))
    for position, written in file.writes:
        for at, byte in enumerate(written, position):
            assert latest(bytes(data)) == state
            data[at] = byte
    assert latest(bytes(data)) == state


@pytest.mark.processes
def test_a_child_forked_during_an_upgrade_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would put the state of that moment over what its parent has published since."""
    old_log(tmp_path)
    real, child = commit_slots._both, []
    go, done = os.pipe()

    def forking(state: CommitState) -> bytes:  # as a signal handler that forks when this function begins
        if not child:
            child.append(os.fork())
            if child[0] == 0:
                os.read(go, 1)
        return real(state)

    monkeypatch.setattr(commit_slots, "_both", forking)
    with Log(tmp_path, create=False) as log:
        try:
            append(log.partition("t", 0), "12")
        except ForkedHandle:
            if child[0] == 0:
                os._exit(7)
            raise
        finally:
            if child[0] == 0:
                os._exit(1)
        for number in range(13, 20):
            append(log.partition("t", 0), f"{number}")
        os.write(done, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child[0], 0)[1]) == 7
        with Log(tmp_path, create=False) as other:
            assert append(other.partition("t", 0), "20") == 20
            assert values(other.partition("t", 0)) == {number: f"{number}" for number in range(FIRST, 21)}
    os.close(go)
    os.close(done)


def test_new_topics_are_none_for_version_1(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.create_topic("t")
        old = OldWriter(OsFileSystem(), str(tmp_path), "t")
        assert not old.may_append()
        assert not says_anything((tmp_path / "t-0" / ".commit").read_bytes())
        old.close()


def test_slots_that_were_lost_are_made_again_for_this_version_alone(tmp_path: Path) -> None:
    old_log(tmp_path)
    (tmp_path / "t-0" / ".commit").unlink()
    old = OldWriter(OsFileSystem(), str(tmp_path), "t")
    with Log(tmp_path) as log:
        append(log.partition("t", 0), "12")
    assert old.refuses_topic()
    assert not old.may_append()
    old.close()


def test_deleting_a_topic_upgrades_the_topic_of_commits_under_the_same_lock(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        filled(log)
        commits(log)
    make_version_1(OsFileSystem(), str(tmp_path), "__consumer_offsets")
    with Log(tmp_path) as log:
        log.delete_topic("t")
        assert "t" not in log.topics()


def commits(log: Log) -> None:
    with Consumer(log, group_id="group") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(0)
        consumer.commit({TopicPartition("t", 0): 5})


# Two of this version at once


@pytest.mark.parametrize(
    "moment", [("open", ".commit"), ("sync", ".commit"), ("replace", ".lock"), ("replaced", ".lock")]
)
def test_another_writer_of_this_version_that_comes_in_between_loses_nothing(
    tmp_path: Path, moment: tuple[str, str]
) -> None:
    old_log(tmp_path)
    appended: list[int] = []
    with Log(tmp_path) as other:

        def interfere(operation: str, path: str) -> None:
            if (operation, Path(path).name) == moment and not appended:
                try:
                    appended.append(
                        other.partition("t", 0).append([ProducerRecord(b"b")], acks=1, timeout_ms=20).base_offset
                    )
                except NotAppended:
                    appended.append(-1)  # the lock is held

        with Log(tmp_path, filesystem=Faulty(interfere)) as log:
            offset = append(log.partition("t", 0), "a")
        assert appended
        again = other.partition("t", 0).append([ProducerRecord(b"c")], acks=1).base_offset
    expected = {**EXPECTED, offset: "a", again: "c"}
    if appended[0] >= 0:
        expected[appended[0]] = "b"
    assert (appended[0] >= 0) == (moment not in (("sync", ".commit"), ("replace", ".lock")))
    with Log(tmp_path) as log:
        assert values(log.partition("t", 0)) == expected
        assert len(expected) == len(EXPECTED) + 2 + (appended[0] >= 0)
        assert log.verify().problems == []


# Failures


def test_an_upgrade_waits_for_a_change_of_the_catalog_as_long_as_its_append_may_wait(tmp_path: Path) -> None:
    """The catalog says that earlier versions must refuse the topic, before the first new slot is
    written."""
    old_log(tmp_path)
    before = (tmp_path / "t-0" / ".commit").read_bytes()
    changing = OsFileSystem().lock(f"{tmp_path}/.pylog/catalog.lock")
    assert changing.try_acquire()
    with Log(tmp_path, clock=ManualClock()) as log:
        with pytest.raises(DeliveryTimeout, match=r"the commit slots of .*t-0 are to be upgraded: .*catalog\.lock"):
            append(log.partition("t", 0), "x")
        assert (tmp_path / "t-0" / ".commit").read_bytes() == before
        changing.close()
        assert append(log.partition("t", 0), "12") == 12


def test_a_refusal_by_the_disk_leaves_the_old_slots(tmp_path: Path) -> None:
    old_log(tmp_path)
    before = (tmp_path / "t-0" / ".commit").read_bytes()
    filesystem = Faulty()

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".commit"):
            raise io_error(path)

    filesystem.hook = fail
    with Log(tmp_path, filesystem=filesystem) as log:
        for _ in range(3):
            with pytest.raises(NotAppended, match="nothing was appended"):
                append(log.partition("t", 0), "x")
            assert (tmp_path / "t-0" / ".commit").read_bytes()[:128] == before
        filesystem.hook = lambda operation, path: None
        assert append(log.partition("t", 0), "12") == 12
    with Log(tmp_path, read_only=True) as log:
        assert values(log.partition("t", 0)) == {**EXPECTED, 12: "12"}


def test_slots_of_a_later_version_are_refused_and_left(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        filled(log)
    path = tmp_path / "t-0" / ".commit"
    front = HEAD[:8] + b"\0\3" + HEAD[10:12]
    path.write_bytes(front + crc32c.crc32c(front).to_bytes(4, "big") + path.read_bytes()[16:])
    before = path.read_bytes()
    with Log(tmp_path) as log:
        with pytest.raises(
            FormatVersionError, match="commit slots have version 3, flags 0x0; this pylog knows version 2"
        ):
            append(log.partition("t", 0), "x")
        with pytest.raises(FormatVersionError, match="version 3"):
            values(log.partition("t", 0))
        [problem] = [p for p in log.verify().problems if p.kind == "slots"]
        assert "version 3" in str(problem)
    assert path.read_bytes() == before


def test_a_topic_of_a_later_version_of_slots_is_refused(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        filled(log)
    path = tmp_path / ".pylog" / "topics" / "t.json"
    path.write_text(path.read_text().replace('"commit_slots": 2', '"commit_slots": 3'))
    with Log(tmp_path) as log, pytest.raises(FormatVersionError, match="commit slots of version 3, this pylog knows 2"):
        log.partition("t", 0)


@pytest.mark.parametrize("at", range(0, 16, 3))
def test_a_head_with_a_flipped_bit_hides_nothing(tmp_path: Path, at: int) -> None:
    with Log(tmp_path) as log:
        filled(log)
    path = tmp_path / "t-0" / ".commit"
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    with Log(tmp_path) as log:
        assert values(log.partition("t", 0)) == EXPECTED
        assert append(log.partition("t", 0), "12") == 12
    assert path.read_bytes().startswith(HEAD)


# Crashes


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("for_every", [for_every_kill, for_every_power_loss], ids=["kill", "power"])
def test_a_crash_at_any_step_loses_nothing(for_every: Callable[..., int], seed: int) -> None:
    machine = Machine(seed, tear_writes=for_every is for_every_kill)
    process = machine.process()
    with process.open_log(ROOT) as log:
        filled(log)
        log.partition("t", 0).log.sync(12)
    old_state = make_version_1(process.filesystem, ROOT, "t")
    process.filesystem.sync_directory(f"{ROOT}/t-0")
    acknowledged, maybe = dict(EXPECTED), {}

    def program() -> None:
        with process.open_log(ROOT) as log:
            for number in range(12, 15):
                maybe[number] = f"{number}"
                assert append(log.partition("t", 0), f"{number}", acks="all") == number
                acknowledged[number] = f"{number}"

    def check(crashed: Machine) -> None:
        for read_only in (True, False):
            after = crashed.process()
            with after.open_log(ROOT, read_only=read_only) as log:
                partition = log.partition("t", 0)
                found = values(partition)
                assert {**found, **acknowledged} == found
                assert found.items() <= {**acknowledged, **maybe}.items()
                assert partition.earliest_offset == FIRST
                assert partition.durable_offset >= old_state.durable_offset
                assert log.verify().problems == []
                if not read_only:
                    offset = append(partition, "after", acks="all")  # after a batch that it has adopted, perhaps
                    assert offset > max(found)
                    found = values(partition)
                    assert found[offset] == "after"
                    assert sorted(found) == list(range(FIRST, offset + 1))
                    assert {**found, **acknowledged} == found
        old = latest(version_1.read(crashed.process().filesystem, f"{ROOT}/t-0/.commit"))
        assert old is not None

    assert for_every(machine, program, check) > 20


def test_the_golden_log_of_version_1_is_upgraded_by_its_first_writer(tmp_path: Path) -> None:
    golden = Path(__file__).parent.parent / "data" / "pylog-0.1.0-2" / "log"
    shutil.copytree(golden, tmp_path / "log")
    for path in sorted((tmp_path / "log").glob("*-*/.commit")):
        assert path.stat().st_size == 128
    with Log(tmp_path / "log") as log:
        end = log.partition("rolled", 0).latest_offset
        append(log.partition("rolled", 0), "after")
        assert log.partition("rolled", 0).latest_offset == end + 1
        assert log.verify().problems == []
    assert (tmp_path / "log" / "rolled-0" / ".commit").read_bytes().startswith(HEAD)
    assert (tmp_path / "log" / "trimmed-0" / ".commit").stat().st_size == 128


def test_a_whole_file_says_nothing_to_version_1() -> None:
    state = CommitState(
        sequence=7, boot=1, leader_epoch=0, active_base=0, written_end=100, log_end_offset=3, durable_offset=2,
        last_stable_offset=3, log_start_offset=1, high_watermark=3, segments_version=0, least_timestamp_ms=5,
    )  # fmt: skip
    assert not says_anything(whole_file(state))
    assert latest(whole_file(state)) == state
