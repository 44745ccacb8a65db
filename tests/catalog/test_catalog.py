"""Topics: names that are safe as paths, changes that every handle sees, and directories that must
not be written."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import re
import shutil
import string
import threading
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from pylog.catalog import Catalog, KafkaCatalog, Layout, TopicConfig, TopicDescription, check_topic_name
from pylog.catalog.layout import parse_partition
from pylog.consumer import Consumer
from pylog.errors import (
    ConfigError,
    CorruptSegment,
    FormatVersionError,
    InvalidPartition,
    InvalidTopicName,
    LogLocked,
    LogNotFound,
    NotAppended,
    PylogError,
    ReadOnlyLog,
    StorageError,
    TopicExists,
    TopicNotFound,
)
from pylog.log import Log
from pylog.model import TopicPartition
from pylog.producer import Producer
from pylog.storage import LOCK_KIND, OsFileSystem
from tests.catalog.hostile_names import hostile_names
from tests.partition.logs import ManualClock, one, snapshot_of, topic_of, values
from tests.processes.sharing import forked, result_of
from tests.storage.filesystems import Faulty, Network, StandIn, nothing
from tests.system import fail, names_of_open_files

LEGAL = set(string.ascii_letters + string.digits + "._-")


# Names


@pytest.mark.slow
def test_every_name_is_refused_or_is_one_path_inside_the_root(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "log"
    layout, refused = Layout(str(root)), 0
    owner: dict[str, str] = {}
    names = dict.fromkeys(itertools.islice(hostile_names(random.Random(seed)), 130_000))
    names = dict.fromkeys(itertools.islice(names, 100_000))
    assert len(names) == 100_000
    for name in names:
        try:
            check_topic_name(name)
        except InvalidTopicName:
            assert not name or len(name) > 249 or set(name) - LEGAL or name in (".", "..")
            refused += 1
            continue
        assert set(name) <= LEGAL
        for number in (0, 99_999):
            path = layout.partition(name, number)
            assert os.path.normpath(path) == path
            assert path.rpartition("/")[0] == str(root)
            assert len(os.path.basename(path)) <= 255
            assert owner.setdefault(path, name) == name
            assert parse_partition(os.path.basename(path)) == TopicPartition(name, number)
        path = layout.topic(name)
        assert os.path.normpath(path) == path
        assert path.rpartition("/")[0] == f"{root}/.pylog/topics"
        assert owner.setdefault(path, name) == name
    assert 10_000 < refused < 99_000


@pytest.mark.slow
def test_a_hostile_name_that_is_taken_makes_files_inside_the_root_only(tmpfs_dir: Path, seed: int) -> None:
    """What is made for them, where it really is; twins in case, or in ``.`` and ``_``, are
    refused."""
    outside = os.listdir(tmpfs_dir)
    taken: dict[str, str] = {}
    with Log(tmpfs_dir / "log") as log:
        for name in itertools.islice(hostile_names(random.Random(seed)), 4_000):
            twin = taken.get(name.replace(".", "_").lower())
            try:
                log.create_topic(name)
            except InvalidTopicName:
                assert twin is None or name != twin
                continue
            except TopicExists:
                assert twin is not None
                continue
            assert twin is None
            taken[name.replace(".", "_").lower()] = name
            made = [tmpfs_dir / "log" / f"{name}-0", tmpfs_dir / "log" / ".pylog" / "topics" / f"{name}.json"]
            assert [path.resolve() for path in made] == made
            assert all(path.exists() for path in made)
        assert sorted(log.topics()) == sorted(taken.values())
        assert len(taken) > 100
    assert set(os.listdir(tmpfs_dir)) == {*outside, "log"}
    assert {path.name.rpartition("-")[0] for path in (tmpfs_dir / "log").iterdir()} - {""} == set(taken.values())


@pytest.mark.parametrize(
    "name", ["-a", "--help", ".hidden", "...", "a.", "con", "NUL", "Com1.txt", "lpt9", "aux.", "-", "_."]
)
def test_a_name_that_would_be_an_option_or_hidden_or_a_device_is_not_given_but_read(
    tmp_log_dir: Path, name: str
) -> None:
    with Log(tmp_log_dir, auto_create_topics=True) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"))
        for create in (
            log.create_topic,
            lambda name: log.create_topic(name, if_not_exists=True),
            log.manager.topic_to_send_to,
        ):
            with pytest.raises(InvalidTopicName, match="no topic is created with the name") as caught:
                create(name)
            assert caught.value.name == name
    shutil.rmtree(tmp_log_dir / ".pylog")
    (tmp_log_dir / "t-0" / ".commit").unlink()
    (tmp_log_dir / "t-0").rename(tmp_log_dir / f"{name}-0")  # as Kafka's directories have it
    with Log(tmp_log_dir) as log:
        assert log.is_kafka_directory
        assert log.topics() == [name]
        assert values(log.partition(name, 0).read(0)) == ["v"]


@pytest.mark.parametrize("name", [None, 1, b"topic", ["t"], TopicPartition("a", 0)])
def test_a_name_that_is_no_str_is_refused(name: object) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["a", "a-0", "a.json", "x.json.tmp", "a-delete", "manifest", "9", "_", "a-", "console", "com10"]
)
def test_unusual_legal_names_work(tmp_log_dir: Path, name: str) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic(name)
        log.partition(name, 0).append(one("v"), acks=1)
        assert log.topics() == [name]
    with Log(tmp_log_dir) as log:
        assert values(log.partition(name, 0).read(0)) == ["v"]
        log.delete_topic(name)
        assert log.topics() == []


@pytest.mark.parametrize("length", [246, 247, 249])
def test_the_longest_names_work(tmp_log_dir: Path, length: int) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("a" * length)
        assert log.topics() == ["a" * length]
        log.delete_topic("a" * length)
        assert os.listdir(tmp_log_dir) == [".pylog"]


@pytest.mark.parametrize(("there", "new"), [("a.b", "a_b"), ("a_b", "a.b"), ("Orders", "orders")])
def test_names_that_collide_in_kafka_or_on_some_disk_cannot_both_exist(tmp_log_dir: Path, there: str, new: str) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic(there)
        with pytest.raises(TopicExists, match=f"'{re.escape(new)}' can't stand beside '{re.escape(there)}'") as caught:
            log.create_topic(new)
        assert (caught.value.topic, caught.value.existing) == (new, there)
        assert log.topics() == [there]


def test_a_topic_that_is_there_is_not_created_again(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        created = log.create_topic("a.b", partitions=2)
        with pytest.raises(TopicExists, match=r"there is a topic 'a\.b' in .* already") as caught:
            log.create_topic("a.b")
        assert (caught.value.topic, caught.value.existing) == ("a.b", "a.b")
        assert log.describe_topic("a.b") == created


def test_topics_are_sorted_by_name(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        for name in ("orders-eu", "orders.eu", "orders", "Orders-us"):
            log.create_topic(name)
        assert log.topics() == ["Orders-us", "orders", "orders-eu", "orders.eu"]


# Configuration


@pytest.mark.parametrize(
    "config",
    [
        {"segment_bytes": 0},
        {"segment_bytes": 2**31},
        {"segment_bytes": "1"},
        {"segment_bytes": True},
        {"segment_ms": 0},
        {"index_interval_bytes": -1},
        {"max_message_bytes": 1.5},
        {"message_timestamp_type": "Create"},
        {"compression_type": None},
        {"retention": 1},
        {"partitions": 0},
        {"partitions": "2"},
        {"partitions": 10**9},
    ],
)
def test_a_wrong_option_is_refused_by_name_and_nothing_is_created(tmp_log_dir: Path, config: dict[str, object]) -> None:
    with Log(tmp_log_dir) as log:
        before = snapshot_of(tmp_log_dir)
        with pytest.raises(ConfigError) as caught:
            log.create_topic("t", **config)
        assert caught.value.option == next(iter(config))
        assert snapshot_of(tmp_log_dir) == before


def test_defaults_of_the_log_hold_for_new_topics(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, segment_bytes=2048) as log:
        assert log.create_topic("t", segment_ms=5).config == TopicConfig(segment_bytes=2048, segment_ms=5)
    with Log(tmp_log_dir) as log:
        assert log.describe_topic("t").config.segment_bytes == 2048


def test_an_alteration_is_seen_by_another_handle_at_once(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as first, Log(tmp_log_dir) as second:
        first.create_topic("t")
        partition = second.partition("t", 0)
        partition.append(one("x" * 600), acks=1)
        first.alter_topic("t", segment_bytes=1024)
        partition.append(one("x" * 600), acks=1)
        assert [segment.base_offset for segment in partition.segments] == [0, 1]
        for size in range(2000, 2040):  # each is another version, however coarse the clock of the disk
            first.alter_topic("t", segment_bytes=size)
            assert second.describe_topic("t").config.segment_bytes == size


# Creating, growing, deleting


def test_topics_created_by_threads_of_two_handles_at_once_exist_once(tmp_log_dir: Path) -> None:
    logs = [Log(tmp_log_dir), Log(tmp_log_dir)]
    created: list[str] = []
    refused: list[str] = []

    def create(log: Log) -> None:
        for number in range(10):
            try:
                created.append(log.create_topic(f"t{number}", partitions=2).name)
            except TopicExists:
                refused.append(f"t{number}")

    threads = [threading.Thread(target=create, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created) == sorted(refused) == sorted(f"t{number}" for number in range(10))
    assert logs[0].topics() == logs[1].topics() == sorted(created)


@pytest.mark.processes
def test_logs_created_by_processes_at_once_are_one_log(tmp_log_dir: Path) -> None:
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Log(tmp_log_dir) as log:
                    log.create_topic(f"t{number}")
                    log.partition(f"t{number}", 0).append(one(f"{number}"), acks=1)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    with Log(tmp_log_dir) as log:
        assert log.topics() == ["t0", "t1", "t2", "t3"]
        ids = {log.describe_topic(name).id for name in log.topics()}
        assert len(ids) == 4
        for number in range(4):
            assert values(log.partition(f"t{number}", 0).read(0)) == [f"{number}"]


class LookedAtTooEarly(StandIn):
    """Once no manifest was found, another process creates the log and a topic before the directory
    is listed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_created = False

    def names(self, directory: str) -> list[str]:
        if directory == str(self.root) and not self.is_created:
            self.is_created = True
            with Log(self.root) as log:
                log.create_topic("t")
        return super().names(directory)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_log_that_another_process_creates_meanwhile_is_not_taken_for_kafkas(
    tmp_log_dir: Path, read_only: bool
) -> None:
    tmp_log_dir.mkdir()
    with Log(tmp_log_dir, read_only=read_only, filesystem=LookedAtTooEarly(tmp_log_dir)) as log:
        assert not log.is_kafka_directory
        assert log.read_only == read_only
        assert log.topics() == ["t"]
        if not read_only:
            log.partition("t", 0).append(one("v"))


def test_a_partition_that_goes_while_a_directory_is_looked_at_is_no_error(tmp_path: Path) -> None:
    class Vanishing(StandIn):
        def names(self, directory: str) -> list[str]:
            if directory.endswith("gone-0"):
                fail(FileNotFoundError(directory))
            return super().names(directory)

    for name in ("gone-0", "there-0"):
        (tmp_path / name).mkdir()
    (tmp_path / "there-0" / f"{0:020d}.log").touch()
    with Log(tmp_path, filesystem=Vanishing()) as log:
        assert log.is_kafka_directory


def test_partitions_are_added_and_never_taken_away(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t", partitions=2)
        with pytest.raises(InvalidPartition):
            other.partition("t", 2)
        log.add_partitions("t", 4)
        assert other.partition("t", 3).latest_offset == 0
        for total in (4, 1, 0, -1):
            with pytest.raises(ConfigError):
                log.add_partitions("t", total)
        with pytest.raises(TopicNotFound):
            log.add_partitions("unknown", 4)


def test_a_deleted_topic_is_gone_for_every_handle(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Log(tmp_log_dir, read_only=True) as reader:
        log.create_topic("t")
        held = [handle.partition("t", 0) for handle in (log, other, reader)]
        held[1].append(one("v"), acks=1)
        assert values(held[2].read(0)) == ["v"]
        log.delete_topic("t")
        for handle in (log, other, reader):
            with pytest.raises(TopicNotFound):
                handle.partition("t", 0)
        assert os.listdir(tmp_log_dir) == [".pylog"]
        for partition in held[1:]:
            with pytest.raises(TopicNotFound):
                partition.read(0)


def test_a_topic_one_of_whose_writers_hangs_is_deleted_whole_or_not_at_all(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        log.create_topic("t", partitions=3)
        for number in range(3):
            log.partition("t", number).append(one(f"{number}"), acks=1)
        hanging = OsFileSystem().lock(f"{tmp_log_dir}/t-1/.lock")
        assert hanging.try_acquire()
        with pytest.raises(LogLocked):
            log.delete_topic("t")
        assert log.topics() == ["t"]
        hanging.close()
        assert [values(log.partition("t", number).read(0)) for number in range(3)] == [["0"], ["1"], ["2"]]
        log.delete_topic("t")
        assert not list(tmp_log_dir.glob("t-*"))


@pytest.fixture
def half_deleted(tmp_log_dir: Path) -> Path:
    """A log in which the deletion of topic ``t`` was cut off when its file had gone."""
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.create_topic("u")
    topics = tmp_log_dir / ".pylog/topics"
    (topics / "t.json").rename(Layout(str(tmp_log_dir)).deleted_topic("t"))
    return tmp_log_dir


def test_no_topic_gets_the_name_of_one_whose_deletion_is_not_finished(half_deleted: Path) -> None:
    lock = OsFileSystem().lock(str(half_deleted / ".pylog" / "catalog.lock"))
    assert lock.try_acquire()
    with Log(half_deleted) as log:  # the deletion waits for the lock
        lock.close()
        with pytest.raises(TopicExists, match="'t' was deleted, and not all of it is gone yet"):
            log.rename_topic("u", "t")
    with Log(half_deleted) as log:
        log.rename_topic("u", "t")
        assert log.topics() == ["t"]


def test_a_log_that_is_removed_while_it_finishes_a_deletion_is_not_there(half_deleted: Path) -> None:
    filesystem = Faulty()

    def remove(operation: str, path: str) -> None:
        if operation == "sync_directory":
            filesystem.hook = nothing
            shutil.rmtree(half_deleted / ".pylog" / "topics")

    filesystem.hook = remove
    with pytest.raises(LogNotFound, match="no longer exists"):
        Log(half_deleted, filesystem=filesystem)


def test_the_partitioner_of_a_topic_with_several_partitions_stays(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        for name, partitions in (("one", 1), ("two", 2)):
            log.create_topic(name, partitions=partitions)
        log.alter_topic("one", partitioner="murmur2")
        with pytest.raises(ConfigError, match="copy the records there") as caught:
            log.alter_topic("two", partitioner="murmur2")
        assert (caught.value.value, caught.value.topic_partitioner) == ("murmur2", "murmur3")


def test_an_option_that_no_topic_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="no topic option 'color'; there are segment_bytes, "):
        TopicConfig().with_changes({"color": "red"})


def test_appending_to_a_deleted_topic_says_that_it_is_gone(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t")
        held = other.partition("t", 0)
        held.append(one("v"), acks=1)
        log.delete_topic("t")
        with pytest.raises(TopicNotFound):
            held.log.append_batch(bytearray(_encoded()))


def _encoded() -> bytes:
    from tests.partition.logs import batch

    return bytes(batch(b"v"))


@pytest.mark.parametrize("records", [0, 1, 3, 5])
def test_a_topic_created_anew_is_another_one_for_handles_of_the_old(tmp_log_dir: Path, records: int) -> None:
    """Made by another handle, with the same name, the same offsets and batches of the same size."""
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t")
        old = other.partition("t", 0)
        for number in range(3):
            old.append(one(f"old {number}"))
        assert len(old.read(0)) == 3
        log.delete_topic("t")
        fresh_id = log.create_topic("t").id
        fresh = log.partition("t", 0)
        for number in range(records):
            fresh.append(one(f"new {number}"))
        for _ in range(2):  # it does not become another's by trying again
            with pytest.raises(TopicNotFound):
                old.append(one("late"))
            with pytest.raises(TopicNotFound):
                old.read(0)
            with pytest.raises(TopicNotFound):
                old.log.sync(4)
        again = other.partition("t", 0)
        assert again.topic_id == fresh_id
        again.append(one("newer"))
        assert again.durable_offset == records + 1
        expected = [*(f"new {number}" for number in range(records)), "newer"]
        assert values(again.read(0)) == values(fresh.read(0)) == expected


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_producer_goes_on_in_a_topic_created_anew_and_fails_what_was_for_the_old_one(
    tmp_log_dir: Path, linger_ms: int
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t")
        producer = Producer(other, linger_ms=linger_ms)
        assert [producer.send("t", b"old").result().offset for _ in range(3)] == [0, 1, 2]
        waiting = producer.send("t", b"for the old one") if linger_ms else None
        log.delete_topic("t")
        fresh = topic_of(log, "t")
        for number in range(3):
            fresh.append(one(f"new {number}"))
        if waiting is not None:
            assert isinstance(waiting.exception(), NotAppended)
        sent = 0
        for _ in range(3):
            try:
                producer.send("t", b"later").result()
                sent += 1
            except NotAppended as refused:
                assert "gone" in str(refused)  # noqa: PT017
        assert sent >= 2
        producer.close()
        assert values(fresh.read(0)) == ["new 0", "new 1", "new 2", *["later"] * sent]


def test_leftovers_of_a_crashed_creation_are_cleared_away(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        (tmp_log_dir / "t-0").mkdir()
        for name in (f"{0:020d}.log", "partition.metadata.tmp", "leader-epoch-checkpoint"):
            (tmp_log_dir / "t-0" / name).write_bytes(b"" if name.endswith(".log") else b"leftover")
        assert log.topics() == []
        log.create_topic("t")
        assert log.partition("t", 0).latest_offset == 0
        assert sorted(os.listdir(tmp_log_dir)) == [".pylog", "t-0"]


@pytest.mark.parametrize("number", [-1, 1, True, "0", None, 1.0])
def test_a_partition_number_that_is_not_there_is_refused(tmp_log_dir: Path, number: object) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with pytest.raises(InvalidPartition):
            log.partition("t", number)


# Damage, newer formats, other systems


def manifest(root: Path) -> Path:
    return root / ".pylog" / "manifest.json"


@pytest.mark.parametrize("drawn", [bytes(16), b"\xff" * 16, bytes(range(16)), bytes(range(240, 256))])
def test_the_id_of_a_log_is_a_random_uuid(tmp_log_dir: Path, drawn: bytes) -> None:
    class Drawn(StandIn):
        def random_bytes(self, size: int) -> bytes:
            return drawn[:size]

    with Log(tmp_log_dir, filesystem=Drawn()) as log:
        assert log.manifest.log_id == str(uuid.UUID(bytes=drawn, version=4))


def test_every_prefix_of_the_manifest_is_a_typed_error(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    whole = manifest(tmp_log_dir).read_bytes()
    for length in range(len(whole) - 1):  # without the last line break it is whole
        manifest(tmp_log_dir).write_bytes(whole[:length])
        for read_only in (False, True):
            with pytest.raises((CorruptSegment, FormatVersionError)):
                Log(tmp_log_dir, read_only=read_only)
        assert manifest(tmp_log_dir).read_bytes() == whole[:length]


def test_every_prefix_of_a_topics_file_is_a_typed_error(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    path = tmp_log_dir / ".pylog" / "topics" / "t.json"
    whole = path.read_bytes()
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with Log(tmp_log_dir) as log:
            with pytest.raises(CorruptSegment) as caught:
                log.partition("t", 0)
            assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "content",
    [{}, {"id": "x"}, {"id": "x", "partitions": 0, "config": {}}, {"id": "x", "partitions": 1, "config": []},
     {"id": "x", "partitions": 1, "config": {"segment_bytes": -1}}, {"id": "x", "partitions": 1, "config": None}, [], 7],
)  # fmt: skip
def test_a_topics_file_of_another_shape_is_a_typed_error(tmp_log_dir: Path, content: object) -> None:
    with Log(tmp_log_dir) as log:
        (tmp_log_dir / ".pylog" / "topics" / "t.json").write_text(json.dumps(content))
        with pytest.raises(CorruptSegment):
            log.describe_topic("t")


def deleted_files(directory: Path) -> list[str]:
    """The files of this directory that this process has open, and that have no name any more."""
    gc.collect()
    return [path for path in names_of_open_files() if path.startswith(str(directory)) and path.endswith(" (deleted)")]


@pytest.mark.parametrize("user", ["producer", "consumer", "member", "assigned"])
def test_files_of_topics_that_another_process_deletes_are_closed(tmp_log_dir: Path, user: str) -> None:
    with Log(tmp_log_dir, clock=ManualClock()) as log, Log(tmp_log_dir) as other, Producer(other, acks=1) as sending:
        other.create_topic("stays")
        producer = Producer(log, acks=1)
        consumer = Consumer(log, group_id="g" if user == "member" else None, auto_offset_reset="earliest")
        for number in range(6):
            name = f"t{number}"
            places = [TopicPartition(name, partition) for partition in range(3)]
            other.create_topic(name, partitions=3)
            log.clock.sleep(1)
            for place in places:
                (producer if user == "producer" else sending).send(*place[:1], b"v", partition=place.partition).result()
            if user == "assigned":
                consumer.assign(places)
            elif user != "producer":
                consumer.subscribe(["stays", name])
            for _ in range(5 if user != "producer" else 0):
                consumer.poll(0)
            assert any(f"{name}-0/" in path for path in names_of_open_files())
            other.delete_topic(name)
            if number % 2:
                other.create_topic(name, partitions=3)
            log.clock.sleep(1)
            with suppress(TopicNotFound):
                producer.send("stays", b"v").result() if user == "producer" else consumer.poll(0)
            assert deleted_files(tmp_log_dir) == []
        producer.close()
        consumer.close()


def test_a_partition_of_the_new_topic_that_is_opened_meanwhile_stays_open(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        other.create_topic("t")
        before = log.partition("t", 0)
        other.delete_topic("t")
        names, opened = Catalog.names, []

        def created_after(catalog: Catalog) -> list[str]:
            monkeypatch.setattr(Catalog, "names", names)
            found = names(catalog)
            other.create_topic("t")
            opened.append(log.partition("t", 0))
            return found

        monkeypatch.setattr(Catalog, "names", created_after)
        log.manager.close_gone("t")
        opened[0].append(one("a"))
        assert values(opened[0].read(0)) == ["a"]
        assert log.partition("t", 0).log is opened[0].log
        with pytest.raises(TopicNotFound):
            before.append(one("b"))


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [("partitioner", "xxhash", FormatVersionError), ("partitioner", 3, CorruptSegment),
     ("message_timestamp_type", "ReadTime", FormatVersionError), ("cleanup.cleanup_policy", "archive", FormatVersionError),
     ("cleanup.retention", "archived", FormatVersionError), ("segment_bytes", "1024", CorruptSegment)],
)  # fmt: skip
def test_a_choice_that_a_later_version_may_have_is_no_damage(
    tmp_log_dir: Path, option: str, value: object, error: type[PylogError]
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        path = tmp_log_dir / ".pylog" / "topics" / "t.json"
        content = json.loads(path.read_text())
        outer, _, name = option.rpartition(".")
        (content["config"].setdefault(outer, {}) if outer else content["config"])[name] = value
        path.write_text(json.dumps(content))
    with Log(tmp_log_dir, read_only=True) as log, pytest.raises(error, match=name) as caught:
        log.describe_topic("t")
    assert type(caught.value) is error
    assert ("upgrade pylog" in str(caught.value)) == (error is FormatVersionError)
    assert caught.value.field == f"config.{option}"


@pytest.mark.parametrize("change", [{"format": 2}, {"format": None}, {"features": ["sharding"]}])
def test_a_manifest_of_a_newer_format_is_refused(tmp_log_dir: Path, change: dict[str, object]) -> None:
    Log(tmp_log_dir).close()
    content = json.loads(manifest(tmp_log_dir).read_text())
    manifest(tmp_log_dir).write_text(json.dumps({**content, **change}))
    for read_only in (False, True):
        with pytest.raises(FormatVersionError):
            Log(tmp_log_dir, read_only=read_only)


@pytest.mark.parametrize("missing", ["log_id", "locks", "created_ms"])
def test_a_manifest_without_a_field_is_damaged(tmp_log_dir: Path, missing: str) -> None:
    Log(tmp_log_dir).close()
    content = json.loads(manifest(tmp_log_dir).read_text())
    del content[missing]
    manifest(tmp_log_dir).write_text(json.dumps(content))
    with pytest.raises(CorruptSegment):
        Log(tmp_log_dir)


def test_a_log_written_under_other_locks_can_only_be_read(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"), acks=1)
    content = json.loads(manifest(tmp_log_dir).read_text())
    assert content["locks"] == LOCK_KIND
    other = {"ofd": "flock", "flock": "ofd"}[LOCK_KIND]
    manifest(tmp_log_dir).write_text(json.dumps({**content, "locks": other}))
    with pytest.raises(LogLocked) as caught:
        Log(tmp_log_dir)
    assert (caught.value.locks, caught.value.available) == (other, LOCK_KIND)
    with Log(tmp_log_dir, read_only=True) as log:
        assert values(log.partition("t", 0).read(0)) == ["v"]


@pytest.mark.parametrize("kind", ["nfs4", "nfs", "cifs", "9p", "fuse.sshfs"])
def test_a_network_filesystem_can_only_be_read(tmp_log_dir: Path, kind: str) -> None:
    with pytest.raises(LogLocked) as caught:
        Log(tmp_log_dir, filesystem=Network(kind))
    assert caught.value.filesystem == kind
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"), acks=1)
    before = snapshot_of(tmp_log_dir)
    with pytest.raises(LogLocked):
        Log(tmp_log_dir, filesystem=Network(kind))
    with Log(tmp_log_dir, filesystem=Network(kind), read_only=True) as log:
        assert values(log.partition("t", 0).read(0)) == ["v"]
    assert snapshot_of(tmp_log_dir) == before


def test_a_filesystem_that_grants_a_lock_twice_can_only_be_read(tmp_log_dir: Path) -> None:
    with pytest.raises(LogLocked):
        Log(tmp_log_dir, filesystem=Network("ext4", locks=False))


# Without permission to write


def as_nobody(root: Path) -> int:
    """In a child that may not write: open, read, try to write; its exit code, 0 if all was as it
    should be."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        with Log(root) as log:
            assert log.read_only
            assert values(log.partition("t", 0).read(0)) == ["v"]
            for change in (lambda: log.create_topic("u"), lambda: log.partition("t", 0).append(one("w"))):
                try:
                    change()
                except ReadOnlyLog:
                    continue
                os._exit(3)
        code = 0
    finally:
        os._exit(code)


@pytest.mark.processes
@pytest.mark.parametrize("writable", [[], ["log"]], ids=["nothing is writable", "the root alone is writable"])
def test_a_directory_without_permission_to_write_opens_for_reading(writable: list[str]) -> None:
    import shutil
    import tempfile

    root = Path(tempfile.mkdtemp(prefix="pylog-readable-"))  # pytest's own directories are closed to others
    try:
        with Log(root / "log") as log:
            log.create_topic("t")
            log.partition("t", 0).append(one("v"), acks=1)
        for path in [root, *root.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        for name in writable:
            (root / name).chmod(0o777)
        before = snapshot_of(root)
        assert as_nobody(root / "log") == 0
        assert snapshot_of(root) == before
    finally:
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        shutil.rmtree(root)


def test_a_log_that_is_not_there_is_not_created_for_reading(tmp_log_dir: Path) -> None:
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(LogNotFound):
            Log(tmp_log_dir, **options)
        assert not tmp_log_dir.exists()
    tmp_log_dir.mkdir()
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(LogNotFound):
            Log(tmp_log_dir, **options)
    assert os.listdir(tmp_log_dir) == []


def test_a_catalog_that_stays_locked_is_an_error(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        lock = OsFileSystem().lock(str(tmp_log_dir / ".pylog" / "catalog.lock"))
        assert lock.try_acquire()
        with pytest.raises(LogLocked):
            log.create_topic("t")
        lock.close()
        log.create_topic("t")


def test_a_forked_child_does_not_hold_the_catalog_of_its_parent(tmp_log_dir: Path) -> None:
    """Its first thread has the identity of the thread that holds the lock."""
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        catalog = log.manager.writable_catalog()

        def child() -> bool:
            with pytest.raises(LogLocked):
                catalog.locked(bool, nested=True)
            return True

        assert catalog.locked(lambda: result_of(forked(child)))
        assert catalog.locked(lambda: catalog.locked(lambda: True, nested=True))


# Kafka's directories


def test_a_partition_of_kafkas_that_cannot_be_looked_at_is_listed(tmp_path: Path) -> None:
    """Its reader says what denies access."""

    class Denied(StandIn):
        def is_directory(self, path: str) -> bool:
            return fail(StorageError("denied", path=path))

    (tmp_path / "a-0").mkdir()
    assert KafkaCatalog(Denied(), Layout(str(tmp_path))).names() == ["a"]


def test_the_directories_of_a_kafka_log_are_its_topics(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b.c-0", "a-0.0123abcd-delete", "x-01", "-0", "c-"):
        (tmp_path / name).mkdir()
    (tmp_path / "f-0").write_text("a file")
    (tmp_path / "a-0" / "partition.metadata").write_text("version: 0\ntopic_id: AbC\n")
    catalog = KafkaCatalog(OsFileSystem(), Layout(str(tmp_path)))
    assert catalog.names() == ["a", "b.c"]
    assert (catalog.describe("a").partitions, catalog.describe("a").id) == (2, "AbC")
    with pytest.raises(TopicNotFound):
        catalog.describe("d")


def test_a_description_of_before_closes_no_partition_of_the_topic_created_since(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0)
        describe, newer = log.manager.describe_topic, []

        def overtaken(name: str) -> TopicDescription:
            found = describe(name)
            monkeypatch.undo()
            log.delete_topic(name)
            log.create_topic(name)
            newer.append(log.partition(name, 0))
            return found

        monkeypatch.setattr(log.manager, "describe_topic", overtaken)
        assert log.partition("t", 0).log is newer[0].log
        assert newer[0].append(one("a"), acks=1).base_offset == 0
