"""Log: many handles on one directory, a fork, a close, and a directory that Kafka wrote."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import crc32c
import pytest

from pylog.catalog import Catalog, TopicDescription
from pylog.clock import SystemClock
from pylog.consumer import Consumer
from pylog.errors import (
    Closed,
    ConfigError,
    CorruptSegment,
    InvalidPartition,
    LogNotFound,
    OffsetOutOfRange,
    PylogError,
    ReadOnlyLog,
    SerializationError,
    StorageError,
    TopicNotFound,
)
from pylog.log import Log
from pylog.manager.manager import LogManager
from pylog.manager.verification import segment_bytes
from pylog.model import ProducerRecord, TopicPartition
from pylog.producer import Producer
from pylog.storage import OsFileSystem
from tests.partition.logs import ManualClock, batch, many, one, snapshot_of, topic_of, values
from tests.producer.fakes import call_in_thread
from tests.storage.filesystems import OtherBoot
from tests.system import fail

KAFKA = Path(__file__).parent / "data" / "kafka-4.3.1"
TOPICS = sorted({path.name.rsplit(".", 2)[0] for path in (KAFKA / "expected").glob("*.read_uncommitted.jsonl")})


def test_two_handles_append_in_turn_and_read_each_other(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as first, Log(tmp_log_dir) as second:
        first.create_topic("t")
        partitions = [first.partition("t", 0), second.partition("t", 0)]
        for number in range(20):
            assert partitions[number % 2].append(one(f"{number}"), acks=1).base_offset == number
        for partition in partitions:
            assert values(partition.read(0)) == [f"{number}" for number in range(20)]


def test_members_of_enums_name_topics_and_partitions_by_their_values(tmp_log_dir: Path) -> None:
    """Formatted, such a member is ``Topic.ORDERS``."""

    class Topic(str, Enum):
        ORDERS = "orders"

    class Number(int, Enum):
        SECOND = 1

    for attempt in range(2):
        with Log(tmp_log_dir) as log, Producer(log, acks=1) as producer:
            if attempt == 0:
                log.create_topic(Topic.ORDERS, partitions=2)
            partition = log.partition(Topic.ORDERS, Number.SECOND)
            producer.send(Topic.ORDERS, b"v", partition=Number.SECOND).result()
            assert log.topics() == ["orders"]
            assert [f"{record.topic}-{record.partition}" for record in partition.read(0)] == ["orders-1"] * (
                attempt + 1
            )
            with Consumer(log, auto_offset_reset="earliest") as consumer:
                consumer.subscribe(Topic.ORDERS)
                assert len(consumer.poll()) == attempt + 1
    with Log(tmp_log_dir) as log:
        log.delete_topic(Topic.ORDERS)
        assert log.topics() == []
    assert not list(tmp_log_dir.glob("Topic*"))


def test_threads_share_a_partition_and_lose_nothing(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        partition = topic_of(log, "t", segment_bytes=4096)

        def work(name: int) -> None:
            for number in range(50):
                partition.append(one(f"{name}.{number}"), acks="all" if number % 10 == 0 else 1)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [record.value.decode() for record in partition.scan()]
        assert sorted(found) == sorted(f"{name}.{number}" for name in range(4) for number in range(50))
        for name in range(4):
            mine = [int(value.split(".")[1]) for value in found if value.startswith(f"{name}.")]
            assert mine == list(range(50))


@pytest.mark.processes
def test_processes_append_to_one_partition_and_offsets_are_dense(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=2048)
    children = []
    for name in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Log(tmp_log_dir) as log:
                    partition = log.partition("t", 0)
                    for number in range(60):
                        partition.append(one(f"{name}.{number}"), acks=1)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 3
    with Log(tmp_log_dir) as log:
        records = list(log.partition("t", 0).scan())
    assert [record.offset for record in records] == list(range(180))
    assert sorted(values(records)) == sorted(f"{name}.{number}" for name in range(3) for number in range(60))


@pytest.mark.processes
def test_a_forked_child_and_its_parent_both_go_on(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        partition = topic_of(log, "t")
        partition.append(one("before"), acks="all")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                partition.append(one("child"), acks="all")
                code = 0 if len(partition.read(0)) == 2 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        partition.append(one("parent"), acks="all")
        assert values(partition.read(0)) == ["before", "child", "parent"]


def test_producer_ids_never_repeat(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as first, Log(tmp_log_dir) as second:
        ids = [log.manager.next_producer_id() for _ in range(5) for log in (first, second)]
    with Log(tmp_log_dir, filesystem=OtherBoot(5)) as third:
        ids += [third.manager.next_producer_id() for _ in range(1500)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "content", [b"9" * 30, b"9" * 100, b"%d" % (2**63 - 999), b"0" * 64, b"999", b"-5", b"", b"1e9"]
)
def test_producer_ids_that_cannot_be_are_a_typed_error(tmp_log_dir: Path, content: bytes) -> None:
    Log(tmp_log_dir).close()
    path = tmp_log_dir / ".pylog" / "producer-ids"
    with Log(tmp_log_dir) as log:
        for _ in range(2):
            path.write_bytes(content)
            with pytest.raises(
                CorruptSegment, match="expected a number from 1000 to 9223372036854774808; remove"
            ) as caught:
                log.manager.next_producer_id()
            assert (caught.value.path, caught.value.found) == (str(path), content[:64])
            assert path.read_bytes() == content
        path.write_bytes(b"5000\n")
        assert log.manager.next_producer_id() == 5000


def test_the_last_producer_ids_are_int64_and_then_there_are_none(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    (tmp_log_dir / ".pylog" / "producer-ids").write_text(f"{2**63 - 1000}")
    with Log(tmp_log_dir) as log:
        assert [log.manager.next_producer_id() for _ in range(1000)][-1] == 2**63 - 1
        with pytest.raises(CorruptSegment):
            log.manager.next_producer_id()


def test_a_closed_log_says_so_everywhere(tmp_log_dir: Path) -> None:
    log = Log(tmp_log_dir)
    partition = topic_of(log, "t")
    log.close()
    log.close()
    assert log.closed
    for use in (
        log.topics,
        lambda: log.partition("t", 0),
        lambda: log.create_topic("u"),
        lambda: log.describe_topic("t"),
        log.manager.next_producer_id,
        lambda: partition.append(one("v")),
        lambda: partition.read(0),
        lambda: partition.latest_offset,
        partition.log.roll,
    ):
        with pytest.raises(Closed):
            use()


def test_a_log_opened_for_reading_changes_nothing_and_refuses_every_change(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"), acks=1)
    before = snapshot_of(tmp_log_dir)
    with Log(tmp_log_dir, read_only=True) as log:
        partition = log.partition("t", 0)
        assert values(partition.read(0)) == ["v"]
        for change in (
            lambda: log.create_topic("u"),
            lambda: log.delete_topic("t"),
            lambda: log.alter_topic("t", segment_bytes=2048),
            lambda: log.add_partitions("t", 2),
            log.manager.next_producer_id,
            lambda: partition.append(one("w")),
            partition.log.roll,
            lambda: partition.log.sync(1),
            lambda: log.delete_records(TopicPartition("t", 0), 1),
        ):
            with pytest.raises(ReadOnlyLog):
                change()
        with pytest.raises(TopicNotFound):
            log.partition("u", 0)
    assert snapshot_of(tmp_log_dir) == before


def test_a_reader_follows_a_writer_through_rolls_and_deletions(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, segment_bytes=1024) as log, Log(tmp_log_dir, read_only=True) as other:
        log.create_topic("t")
        writer, reader = log.partition("t", 0), other.partition("t", 0)
        for number in range(40):
            writer.append(one(f"{number}" + "x" * 100), acks=1)
            assert reader.read(number)[0].offset == number
        assert log.delete_records(TopicPartition("t", 0), 30) == 30
        assert (reader.earliest_offset, reader.latest_offset) == (30, 40)
        assert [record.offset for record in reader.scan()] == list(range(30, 40))
        for offset in (0, 29, 41, -1):
            with pytest.raises(OffsetOutOfRange):
                reader.read(offset)
        assert reader.read(40) == []


def test_the_log_start_is_durable_even_if_the_records_were_not(tmp_log_dir: Path) -> None:
    """Deleted up to an end that the power then took back: the log goes on at the start that was
    promised."""
    with Log(tmp_log_dir, filesystem=OtherBoot(0)) as log:
        partition = topic_of(log, "t")
        for number in range(10):
            partition.append(one(f"{number}"), acks=1)
        partition.log.delete_before(10)
    os.truncate(tmp_log_dir / "t-0" / f"{0:020d}.log", 200)
    with Log(tmp_log_dir, filesystem=OtherBoot(1)) as log:
        partition = log.partition("t", 0)
        appended = partition.append(one("new"), acks=1).base_offset
        assert appended >= 10, "offsets 0 to 9 were deleted for good and may not be given again"
        assert values(partition.read(appended)) == ["new"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_log_has_no_file_open(tmp_log_dir: Path, read_only: bool) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("a"), acks="all")
    with Log(tmp_log_dir, read_only=read_only) as log:
        partition = log.partition("t", 0)
        assert values(partition.read(0)) == ["a"]
        assert files_open_in(tmp_log_dir)
    assert files_open_in(tmp_log_dir) == []
    with pytest.raises(Closed):
        partition.log.change_token()
    assert files_open_in(tmp_log_dir) == []


def files_open_in(directory: Path) -> list[str]:
    """Of this process."""
    links = Path("/proc/self/fd").iterdir()
    return [
        target for link in links if os.path.islink(link) and (target := os.readlink(link)).startswith(f"{directory}/")
    ]


def test_waiting_ends_with_an_append_or_with_the_time(tmp_log_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmp_log_dir, clock=clock) as log:
        assert log.manager.wait_for_change(lambda: True, 0)
        assert not log.manager.wait_for_change(lambda: False, 5.0)
        assert clock.seconds == pytest.approx(5.0)
        asked = iter([False, False, True])
        assert log.manager.wait_for_change(lambda: next(asked), 5.0)


def test_an_append_of_this_process_ends_a_wait_without_a_watch(tmp_log_dir: Path) -> None:
    class Patient(SystemClock):
        def wait(self, condition: threading.Condition, seconds: float) -> None:
            condition.wait(60)

    with Log(tmp_log_dir, clock=Patient()) as log:
        partition = topic_of(log, "t")
        assert log.manager.watch([partition.log]) is None
        asked = threading.Event()

        def ready() -> bool:
            asked.set()
            return partition.latest_offset == 1

        def append() -> None:
            asked.wait()
            partition.append(one("a"), acks=1)

        thread = call_in_thread(append)
        assert log.manager.wait_for_change(ready, 60)
        thread.join()


def test_an_interrupt_while_a_wait_has_given_its_lock_back_is_the_interrupt(tmp_log_dir: Path) -> None:
    class Interrupted(SystemClock):
        def wait(self, condition: threading.Condition, seconds: float) -> None:
            # what Condition.wait calls first, and a signal handler's exception comes behind it
            condition._release_save()  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with Log(tmp_log_dir, clock=Interrupted()) as log:
        with pytest.raises(KeyboardInterrupt):
            log.manager.wait_for_change(lambda: False, 60)
        assert log.manager.wait_for_change(lambda: True, 60)


@pytest.mark.skipif(sys.platform != "linux", reason="watches are inotify's")
def test_a_watch_ends_the_wait_when_something_is_published_or_a_topic_comes(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        partition = topic_of(log, "t")
        watch = log.manager.watch([partition.log])
        if watch is None:
            pytest.skip("this filesystem is watched by nobody")
        thread = call_in_thread(lambda: other.partition("t", 0).append(one("a"), acks=1))
        assert log.manager.wait_for_change(lambda: partition.latest_offset == 1, 60, watch)
        thread.join()
        thread = call_in_thread(lambda: other.create_topic("u"))
        assert log.manager.wait_for_change(lambda: log.topics() == ["t", "u"], 60, watch)
        thread.join()
        assert not log.manager.wait_for_change(lambda: False, 0.01, watch)
        woken: list[bool] = []
        thread = call_in_thread(lambda: (woken.append(True), log.manager.wake()))
        assert log.manager.wait_for_change(lambda: bool(woken), 60, watch)
        thread.join()
        watch.close()
        assert log.manager.wait_for_change(lambda: True, 60, watch)  # it looks again and again


def test_a_watch_that_is_lost_meanwhile_is_replaced_by_looking(tmp_log_dir: Path) -> None:
    class Lost:
        is_open = True

        def wait(self, seconds: float) -> None:
            self.is_open = False

        def wake(self) -> None: ...
        def close(self) -> None: ...

    with Log(tmp_log_dir) as log:
        asked = iter([False, False, True])
        assert log.manager.wait_for_change(lambda: next(asked), 60, Lost())


def test_a_child_forked_in_a_wait_ends_it_and_is_woken_in_the_next(tmp_log_dir: Path) -> None:
    """By a signal handler, while the wait goes by looking; as where nobody can watch."""
    pids: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: pids.append(os.fork()))
    try:
        with Log(tmp_log_dir) as log:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            is_right = log.manager.wait_for_change(lambda: bool(pids), 60)
            if pids == [0]:
                woken: list[bool] = []
                thread = threading.Thread(target=lambda: (woken.append(True), log.manager.wake()))
                thread.start()
                os._exit(0 if is_right and log.manager.wait_for_change(lambda: bool(woken), 60) else 1)
            assert is_right
            assert os.waitpid(pids[0], 0)[1] == 0
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_partition_is_not_opened_while_another_thread_closes_the_log(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        describe = log.manager.describe_topic

        def and_close(name: str) -> object:
            described = describe(name)
            log.close()
            return described

        monkeypatch.setattr(log.manager, "describe_topic", and_close)
        with pytest.raises(Closed):
            log.partition("t", 0)


def test_there_is_no_watch_where_something_else_decides(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        log.create_topic("t")
        assert log.manager.watch([log.partition("t", 0).log]) is None
    with Log(KAFKA / "log") as log:
        assert log.is_kafka_directory
        assert log.manager.watch([]) is None


@pytest.mark.parametrize("acks", ["ALL", 2, None, 0])
def test_acks_are_all_or_one(tmp_log_dir: Path, acks: object) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with pytest.raises(ConfigError):
            log.partition("t", 0).append(many("a"), acks=acks)


def test_a_batch_that_claims_the_greatest_number_of_offsets_does_not_break_the_log(tmp_log_dir: Path) -> None:
    data = batch(b"v")
    data[23:27] = (2**31 - 1).to_bytes(4, "big")  # last offset delta
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    with Log(tmp_log_dir) as log:
        partition = topic_of(log, "t")
        with contextlib.suppress(PylogError):
            partition.append(bytes(data), acks=1)
        end = partition.latest_offset
        assert partition.append(one("after"), acks=1).base_offset == end
        assert values(partition.read(end)) == ["after"]


@pytest.mark.parametrize("timeout_ms", [-1, 10**15])
def test_a_timeout_out_of_range_is_a_typed_error_or_works(tmp_log_dir: Path, timeout_ms: int) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with contextlib.suppress(PylogError):
            log.partition("t", 0).append(one("v"), acks=1, timeout_ms=timeout_ms)


def test_an_append_of_nothing_is_refused(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with pytest.raises(ConfigError):
            log.partition("t", 0).append([])


@pytest.mark.parametrize("data", [b"", b"x", bytes(61), b"\xff" * 200])
def test_bytes_that_are_no_batch_are_refused(tmp_log_dir: Path, data: bytes) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with pytest.raises(PylogError):
            log.partition("t", 0).append(data)
        assert log.partition("t", 0).latest_offset == 0


# A directory that Kafka wrote


def expected(topic: str, isolation: str) -> list[dict[str, object]]:
    lines = (KAFKA / "expected" / f"{topic}.{isolation}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def in_hex(data: bytes | None) -> str | None:
    """As the expected files have it: the digest of what is over 1,024 bytes."""
    if data is None:
        return None
    return data.hex() if len(data) <= 1024 else hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_kafka_directory_reads_as_kafka_read_it(topic: str, isolation: str) -> None:
    pytest.importorskip("cramjam")
    wanted = [
        (line["partition"], line["offset"], line["timestamp"], line["key"], line.get("value", line.get("value_sha256")))
        for line in expected(topic, isolation)
    ]
    with Log(KAFKA / "log", read_only=True) as log:
        assert log.is_kafka_directory
        found = []
        for number in range(log.describe_topic(topic).partitions):
            partition = log.partition(topic, number)
            offset = partition.earliest_offset
            while True:
                records = partition.read(offset, isolation_level=isolation)
                if not records:
                    break
                found += [(number, r.offset, r.timestamp_ms, in_hex(r.key), in_hex(r.value)) for r in records]
                offset = records[-1].offset + 1
    assert found == wanted


def test_opening_a_kafka_directory_writes_nothing_and_can_only_read(tmp_path: Path) -> None:
    root = tmp_path / "kafka"
    shutil.copytree(KAFKA / "log", root)
    before = snapshot_of(root)
    with Log(root) as log:
        assert log.read_only
        assert log.partition("rolled", 0).latest_offset == 300
        with pytest.raises(ReadOnlyLog):
            log.create_topic("mine")
        with pytest.raises(ReadOnlyLog):
            log.partition("rolled", 0).append(one("v"))
    assert snapshot_of(root) == before


def test_a_kafka_directory_with_a_torn_tail_is_visible_to_its_last_whole_batch(tmp_path: Path) -> None:
    root = tmp_path / "kafka"
    shutil.copytree(KAFKA / "log", root)
    path = max((root / "rolled-0").glob("*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with Log(root) as log:
        partition = log.partition("rolled", 0)
        assert 250 <= partition.latest_offset < 300
        assert len(list(partition.scan())) == partition.latest_offset


@pytest.mark.parametrize("missing", [1])
def test_a_partition_that_a_kafka_directory_lacks_is_a_typed_error(tmp_path: Path, missing: int) -> None:
    root = tmp_path / "kafka"
    shutil.copytree(KAFKA / "log", root)
    shutil.rmtree(root / f"keyed-{missing}")
    with Log(root) as log, pytest.raises(PylogError):
        log.partition("keyed", missing).read(0)


def test_an_empty_directory_is_no_log_to_read(tmp_path: Path) -> None:
    with pytest.raises(LogNotFound):
        Log(tmp_path, read_only=True)


def test_a_path_is_a_str_or_like_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("events", "events/", "events//", f"{tmp_path}/events///", Path("events"), tmp_path / "events"):
        with Log(path) as log:
            assert log.path == Path(path)
            assert repr(log) == f"<Log {str(Path(path))!r}>"
    assert [found.name for found in tmp_path.iterdir()] == ["events"]
    monkeypatch.chdir("events")
    with Log(".", create=False) as log:
        assert log.path == Path()


def test_a_log_stays_where_it_is_when_the_process_goes_to_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Log("events") as log:
        partition = topic_of(log, "t", segment_bytes=1024)
        partition.append(one("x" * 500), acks=1)
        shutil.copytree("events", tmp_path / "there" / "events")  # which a mistaken path would lead into
        monkeypatch.chdir(tmp_path / "there")
        for _ in range(9):
            partition.append(one("x" * 500), acks=1)
        log.create_topic("new")
    with Log(tmp_path / "here" / "events") as log:
        assert (log.partition("t", 0).latest_offset, log.topics(), log.verify().problems) == (10, ["new", "t"], [])
    with Log("events") as copy:
        assert (copy.partition("t", 0).latest_offset, copy.topics(), copy.verify().problems) == (1, ["t"], [])


def test_a_log_in_a_directory_that_was_removed_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for path in (".", "events"):
        with pytest.raises(LogNotFound):
            Log(path, create=False)


def test_verify_finds_nothing_in_a_good_log_and_names_a_flipped_bit(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=2)
        for number in (0, 1):
            log.partition("t", number).append(one("a"), acks=1)
            log.partition("t", number).append(one("b"), acks=1)
        passed: list[int] = []
        report = log.verify(progress=passed.append)
        assert (report.ok, report.partitions, report.batches, report.records) == (True, 2, 4, 4)
        assert sum(passed) == report.size_bytes == sum(log.partition("t", number).size_bytes for number in (0, 1))
        segment = tmp_log_dir / "t-1" / f"{0:020d}.log"
        data = bytearray(segment.read_bytes())
        data[-3] ^= 4
        segment.write_bytes(data)
        found = log.verify("t")
        assert not found.ok
        assert {problem.partition for problem in found.problems} == {1}
        assert found.problems[0].first_offset == 1


def test_verify_goes_past_a_damaged_topic_file_and_names_directories_of_no_topic(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        for name in ("damaged", "empty", "good", "lost"):
            log.create_topic(name)
        for name in ("damaged", "good", "lost"):
            log.partition(name, 0).append(one("a"), acks=1)
    topics = tmp_log_dir / ".pylog" / "topics"
    (topics / "damaged.json").write_text("{")
    (topics / "lost.json").unlink()
    (topics / "empty.json").unlink()  # nothing is lost with it
    segment = tmp_log_dir / "good-0" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")
    with Log(tmp_log_dir) as log:
        report = log.verify()
        assert [(problem.topic, problem.partition, problem.kind) for problem in report.problems] == [
            ("damaged", None, "topic"),
            ("lost", 0, "topic"),
            ("good", 0, "batch"),
        ]
        damaged, lost, _ = report.problems
        assert (damaged.path, lost.path) == (str(topics / "damaged.json"), str(tmp_log_dir / "lost-0"))
        assert str(lost) == "lost-0: belongs to no topic: its topic file is lost, or a deletion was cut off"
        assert str(damaged).startswith("damaged: ")
        assert report.partitions == 1
        assert [problem.topic for problem in log.verify("damaged").problems] == ["damaged"]
        assert [problem.topic for problem in log.find_problems(["good", "damaged", "good"])] == ["damaged", "good"]
        with pytest.raises(TopicNotFound):
            log.verify("lost")
    with pytest.raises(Closed):
        log.find_problems()


class _MeddledWith(OsFileSystem):
    """Something happens when a directory is listed for the nth time."""

    def __init__(self, path: str, nth: int, meddle: Callable[[], object]) -> None:
        self.path, self.meddle, self.left = path, meddle, [nth]

    def names(self, directory: str) -> list[str]:
        if directory == self.path:
            self.left[0] -= 1
            if not self.left[0]:
                self.meddle()
        return super().names(directory)


@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("where", ["", "/t-0"])
def test_verify_takes_no_topic_that_comes_or_goes_meanwhile_for_damage(tmp_log_dir: Path, where: str, nth: int) -> None:
    def fill(name: str) -> None:
        other.create_topic(name, partitions=2)
        for number in (0, 1):
            other.partition(name, number).append(one(name), acks=1)
            other.partition(name, number).log.roll()

    def delete_and_create() -> None:
        other.delete_topic("t")
        fill("new")
        if nth % 2:
            fill("t")

    with Log(tmp_log_dir) as other:
        fill("t")
        with Log(tmp_log_dir, filesystem=_MeddledWith(f"{tmp_log_dir}{where}", nth, delete_and_create)) as log:
            assert log.verify().problems == []
            assert log.verify().problems == []


def test_verify_names_a_directory_that_goes_while_it_is_checked(tmp_log_dir: Path) -> None:
    directory = tmp_log_dir / "t-0"
    meddled = _MeddledWith(str(directory), 2, lambda: shutil.rmtree(directory))
    with Log(tmp_log_dir, filesystem=meddled) as log:
        log.create_topic("t")
        assert [(problem.topic, problem.kind) for problem in log.verify().problems] == [("t", "directory")]


def test_verify_names_a_directory_that_goes_with_its_topics_file_damaged(tmp_log_dir: Path) -> None:
    directory, file = tmp_log_dir / "t-0", tmp_log_dir / ".pylog/topics/t.json"
    meddled = _MeddledWith(str(directory), 2, lambda: (shutil.rmtree(directory), file.write_text("{")))
    with Log(tmp_log_dir, filesystem=meddled) as log:
        log.create_topic("t")
        assert [(problem.topic, problem.kind) for problem in log.verify().problems] == [("t", "directory")]


def test_verify_takes_no_topic_that_goes_after_the_topics_were_listed_for_damage(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        monkeypatch.setattr(Catalog, "names", lambda _: ["gone", "t"])
        report = log.verify()
        assert (report.problems, report.partitions) == ([], 1)


def test_the_bytes_of_a_directory_that_is_gone_are_none(tmp_path: Path) -> None:
    assert segment_bytes(OsFileSystem(), str(tmp_path / "gone")) == 0


def test_closing_a_log_writes_what_its_producers_hold(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=3)
        forgotten = [Producer(log, linger_ms=60_000, acks=acks) for acks in ("all", 1, 0)]
        deliveries = [
            producer.send("t", b"%d" % number, partition=number % 3) for number in range(30) for producer in forgotten
        ]
    assert all(delivery.done() for delivery in deliveries)
    assert all(delivery.exception() is None for delivery in deliveries)
    log.close()
    with Log(tmp_log_dir) as log:
        found = [value for number in range(3) for value in values(log.partition("t", number).read(0))]
    assert sorted(found) == sorted(f"{number}" for number in range(30) for _ in range(3))


def test_a_log_that_is_closed_does_not_keep_its_producers(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        producer = Producer(log, linger_ms=0)  # else the linger thread holds it a little longer
        producer.send("t", b"v").result()
        dropped = weakref.ref(producer._sender)
        del producer
        gc.collect()
        assert dropped() is None


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("file", [".pylog/manifest.json", ".pylog/topics/t.json", "t-0/.commit", f"t-0/{0:020d}.log"])
def test_a_pipe_in_a_files_place_is_a_typed_error_and_nobody_waits_for_it(
    tmp_log_dir: Path, file: str, read_only: bool
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"), acks=1)
    (tmp_log_dir / file).unlink()
    os.mkfifo(tmp_log_dir / file)
    with (
        pytest.raises(StorageError, match="a FIFO, expected a regular file"),
        Log(tmp_log_dir, read_only=read_only) as log,
    ):
        list(log.partition("t", 0).scan())


def test_closing_a_log_seals_what_is_closed_of_it(tmp_log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log(tmp_log_dir) as log:
        partition = topic_of(log, "t", segment_bytes=20_000)
        while len(partition.segments) == 1:
            partition.append(one("x"), acks=1)
        first = tmp_log_dir / "t-0" / "00000000000000000000.seal"
        assert not first.exists()  # it is made in pieces, with the appends that follow
    assert first.exists()
    assert caplog.messages == []


@pytest.mark.parametrize("closed", [True, False])
def test_a_copy_of_a_log_that_nobody_writes_is_a_log_of_its_own(tmp_log_dir: Path, closed: bool) -> None:
    copy = tmp_log_dir.with_name("copy")
    written = [f"{number}" for number in range(100)]
    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=1024)
        for value in written:
            log.partition("t", 0).append(one(value), acks=1)
        if closed:
            log.close()
        shutil.copytree(tmp_log_dir, copy)
    with Log(copy) as log:
        assert log.verify().problems == []
        log.partition("t", 0).append(one("new"))
        assert values([*log.partition("t", 0).scan()]) == [*written, "new"]
    with Log(tmp_log_dir) as log:
        assert values([*log.partition("t", 0).scan()]) == written


GONE: dict[str, Callable[[Log], object]] = {
    "topics": lambda log: log.topics(),
    "describe": lambda log: log.describe_topic("t"),
    "version": lambda log: log.manager.catalog_version(),
    "partition": lambda log: log.partition("t", 0),
    "verify": lambda log: log.verify(),
    "verify a topic": lambda log: log.verify("t"),
}
GONE_TO_WRITERS: dict[str, Callable[[Log], object]] = {
    "being_deleted": lambda log: log.manager._catalog.being_deleted(),  # type: ignore[union-attr]
    "append": lambda log: log.partition("t", 0).append(one("w")),
    "create": lambda log: log.create_topic("new"),
    "delete": lambda log: log.delete_topic("t"),
    "alter": lambda log: log.alter_topic("t", segment_ms=1),
    "grow": lambda log: log.add_partitions("t", 2),
}


@pytest.mark.parametrize("lost", [".", ".pylog", ".pylog/topics"])
@pytest.mark.parametrize("call", [*GONE, *GONE_TO_WRITERS])
def test_a_log_that_is_moved_while_it_is_open_says_so(tmp_log_dir: Path, call: str, lost: str) -> None:
    with Log(tmp_log_dir) as log:
        partition = topic_of(log, "t")
        partition.append(one("v"), acks=1)
        log.manager.next_producer_id()
        Path(f"{tmp_log_dir}/{lost}").resolve().rename(f"{tmp_log_dir}.moved")
        with pytest.raises(LogNotFound, match="no longer exists") as caught:
            {**GONE, **GONE_TO_WRITERS}[call](log)
        assert caught.value.path.startswith(str(tmp_log_dir))
    if lost == ".":
        with Log(f"{tmp_log_dir}.moved") as log:
            assert values(log.partition("t", 0).read(0)) == ["v"]


@pytest.mark.parametrize("lost", [".", ".pylog"])
def test_producer_ids_of_a_log_that_is_moved_say_so(tmp_log_dir: Path, lost: str) -> None:
    Log(tmp_log_dir).close()
    with Log(tmp_log_dir) as log:
        Path(f"{tmp_log_dir}/{lost}").resolve().rename(f"{tmp_log_dir}.moved")
        with pytest.raises(LogNotFound, match="no longer exists") as caught:
            log.manager.next_producer_id()
        assert caught.value.path == f"{tmp_log_dir}/.pylog"


@pytest.mark.parametrize("call", [*GONE])
def test_a_log_without_its_topics_cannot_be_read(tmp_log_dir: Path, call: str) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    shutil.rmtree(tmp_log_dir / ".pylog" / "topics")
    with Log(tmp_log_dir, read_only=True) as log, pytest.raises(LogNotFound, match="restore the missing files"):
        GONE[call](log)


@pytest.mark.parametrize("call", ["topics", "describe", "version", "partition"])
def test_a_kafka_directory_that_is_moved_while_it_is_open_says_so(tmp_path: Path, call: str) -> None:
    (tmp_path / "k" / "t-0").mkdir(parents=True)
    (tmp_path / "k" / "t-0" / f"{0:020d}.log").touch()
    with Log(tmp_path / "k") as log:
        assert log.topics() == ["t"]
        (tmp_path / "k").rename(tmp_path / "moved")
        with pytest.raises(LogNotFound, match="no longer exists"):
            GONE[call](log)


@pytest.mark.parametrize(
    "headers", [{"a": b"1", "b": None}, [("a", b"1"), ("b", None)], (("a", b"1"), ("b", None))], ids=str
)
def test_headers_of_an_appended_record_are_pairs_or_a_dict(tmp_log_dir: Path, headers: Any) -> None:
    """As those of ``send``."""
    with Log(tmp_log_dir) as log:
        partition = topic_of(log, "t")
        partition.append([ProducerRecord(b"v", headers=headers), ProducerRecord(b"w", headers={})], acks=1)
        assert [record.headers for record in partition.read(0)] == [(("a", b"1"), ("b", None)), ()]
        with pytest.raises(SerializationError):
            partition.append([ProducerRecord(b"v", headers={"a": "text"})])  # type: ignore[dict-item]


@pytest.mark.parametrize("error", [StorageError("no answer"), FileNotFoundError("gone")], ids=["fails", "is gone"])
def test_a_log_that_can_only_be_read_opens_if_its_mount_cannot_be_asked(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    Log(tmp_log_dir).close()
    monkeypatch.setattr(OsFileSystem, "writable", lambda *_: False)
    monkeypatch.setattr(OsFileSystem, "is_mounted_read_only", lambda *_: fail(error))
    with Log(tmp_log_dir) as log, pytest.raises(ReadOnlyLog, match="there is no permission"):
        log.create_topic("t")


@pytest.mark.parametrize("call", ["repartition", "erase", "verify", "find_problems", "backup"])
def test_a_progress_that_cannot_be_called_is_refused_before_any_work(tmp_log_dir: Path, call: str) -> None:
    wrong: Any = 5
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        calls: dict[str, Callable[[], object]] = {
            "repartition": lambda: log.repartition("t", 2, progress=wrong),
            "erase": lambda: log.erase("t", b"k", progress=wrong),
            "verify": lambda: log.verify(progress=wrong),
            "find_problems": lambda: log.find_problems(progress=wrong),
            "backup": lambda: log.backup(tmp_log_dir.parent / "copy", progress=wrong),
        }
        with pytest.raises(ConfigError, match="progress must be a callable"):
            calls[call]()


def test_a_partition_that_the_topic_has_no_more_is_not_looked_for(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        older = log.create_topic("t", partitions=2)
        log.partition("t", 1)
        other.delete_topic("t")
        other.create_topic("t", partitions=1)
        log.partition("t", 0)
        describe = LogManager.describe_topic

        def just_before(manager: LogManager, name: str) -> TopicDescription:
            monkeypatch.setattr(LogManager, "describe_topic", describe)
            return older

        monkeypatch.setattr(log.manager, "_partitions", {("t", 1): log.manager.partition("t", 0)})
        monkeypatch.setattr(LogManager, "describe_topic", just_before)
        with pytest.raises(InvalidPartition):
            log.partition("t", 1)
