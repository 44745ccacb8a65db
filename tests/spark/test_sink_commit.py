"""A sink's commits: each batch in the log once, whatever comes again, fails or dies in between."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pylog import Log, Producer
from pylog.codec.format import POSITIVE
from pylog.errors import (
    Closed,
    ConfigError,
    CorruptSegment,
    OutcomeUnknown,
    ProducerFenced,
    PylogError,
    StorageError,
    StorageFull,
    TopicNotFound,
    TransactionAborted,
)
from pylog.group.position import POSITION
from pylog.model import OffsetAndMetadata, ProducerRecord
from pylog.partition.read.undecided import Outcome
from pylog.producer import encoded
from pylog.producer.encoded import EncodedProducer
from pylog.producer.partitioner import KEY_HASHES
from pylog.spark.sink import commit as sink_commit
from pylog.spark.sink import directory as sink_directory
from pylog.spark.sink import sink
from pylog.spark.sink.commit import SinkCommit
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.staging import StagedFile, StagedLog
from pylog.storage import OsFileSystem
from pylog.testing import Machine, for_every_kill, for_every_power_loss
from tests.spark.writing import QUERY, SAVE, Driver, names, values
from tests.storage.filesystems import Faulty, full, io_error, nothing

NAME = f"spark:{QUERY}"


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("orders")
    return log


def place(log: Log, sink_id: str = QUERY) -> SinkDirectory:
    return SinkDirectory.of(OsFileSystem(), str(log.path), sink_id)


def refuses(operation: str, part: str, error: StorageError, times: int = 1) -> Faulty:
    """The machine's filesystem, but the first such operations on such paths fail."""
    left = times

    def hook(done: str, path: str) -> None:
        nonlocal left
        if done == operation and part in path and left:
            left -= 1
            raise error

    return Faulty(hook)


def killed_at(operation: str, part: str, work: Callable[[Faulty], object]) -> None:
    """Another process does the work with the filesystem it is given, and is killed at the first
    such operation."""

    def hook(done: str, path: str) -> None:
        if done == operation and part in path:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            work(Faulty(hook))
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert status == signal.SIGKILL


# Staging


def test_a_producer_may_ask_a_staged_log_for_durability(log: Log) -> None:
    file = StagedFile(place(log), 0, 0)
    with Producer(StagedLog(log.manager, file), acks="all", enable_idempotence=False) as producer:
        producer.send("orders", b"v").result()
    assert log.partition("orders", 0).latest_offset == 0
    file.discard()
    assert names(log.path / ".pylog/spark") == []


def test_a_staged_log_ends_with_its_log(log: Log) -> None:
    staged = StagedLog(log.manager, StagedFile(place(log), 0, 0))
    producer = Producer(staged)
    assert staged.path == str(log.path)
    log.close()
    assert staged.closed
    with pytest.raises(Closed):
        producer.send("orders", b"v")
    with pytest.raises(Closed):
        Producer(staged)


# Once


def test_a_batch_is_in_the_log_when_its_commit_returns_and_only_then(log: Log) -> None:
    driver = Driver(log.path)
    messages = [driver.stage([b"a", b"b"]), driver.stage([b"c"])]
    assert values(log) == [[]]
    driver.commit(messages)
    assert values(log) == [[b"a", b"b", b"c"]]
    assert log.partition("orders", 0).durable_offset >= 3
    assert not driver.directory.exists()


def test_a_task_places_keys_by_the_topics_hash(log: Log) -> None:
    keys = [b"key %d" % n for n in range(60)]
    rows = [{"key": key, "value": key} for key in keys]
    for hashed in KEY_HASHES:
        log.create_topic(hashed, partitions=7, partitioner=hashed)
        Driver(log.path, topic=hashed).write([rows], len(log.topics()))
        places = [(KEY_HASHES[hashed](key) & POSITIVE) % 7 for key in keys]
        assert values(log, hashed) == [
            [key for key, place in zip(keys, places, strict=True) if place == n] for n in range(7)
        ]
    for named in ("murmur3", "sticky", "round_robin"):
        driver = Driver(log.path, topic="murmur2", partitioner=named)
        with pytest.raises(ConfigError, match="keys of topic 'murmur2' are placed by murmur2") as caught:
            driver.stage(rows)
        assert caught.value.partitioner == named
        driver = Driver(log.path, topic="murmur2", partitioner=named, partitionerOverride=True)
        assert driver.stage(rows).staged is not None


def test_a_batch_that_comes_again_adds_nothing_and_leaves_nothing(log: Log) -> None:
    for batch_id in (0, 1, 1, 0, 2):
        Driver(log.path).write([[b"%d" % batch_id], []], batch_id)
    assert values(log) == [[b"0", b"1", b"2"]]
    assert names(log.path / ".pylog/spark") == []
    assert log.describe_group(NAME).partitions[POSITION].committed == OffsetAndMetadata(3)


def test_a_batch_that_only_an_older_checkpoint_can_bring_is_told_of(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(log.path)
    for batch_id in (0, 1, 1):
        driver.write([[b"%d" % batch_id]], batch_id)
    assert not caplog.records
    driver.write([[b"other"]], 0)
    assert f"batch 0 of query {driver.sink_id} is skipped, the log has its batches up to 1" in caplog.text
    assert values(log) == [[b"0", b"1"]]


def test_an_attempt_that_nobody_commits_adds_nothing_and_goes_with_the_next_commit(log: Log) -> None:
    driver = Driver(log.path)
    loser, winner = driver.stage([b"a"]), driver.stage([b"a"])
    early = driver.stage([b"x"], batch_id=1)  # of a driver that has gone on already
    driver.commit([winner])
    assert values(log) == [[b"a"]]
    assert loser.staged is not None
    assert early.staged is not None
    assert names(driver.directory) == [early.staged.name]


def test_a_task_that_fails_leaves_nothing(log: Log) -> None:
    driver = Driver(log.path)
    with pytest.raises(PylogError, match="has partitions 0 to 0, got 7"):
        driver.stage([{"value": b"a", "partition": None}, {"value": b"b", "partition": 7}])
    assert names(driver.directory) == []
    with pytest.raises(StorageFull, match="No space left"):
        Driver(log.path, around=refuses("pwrite", ".staged", full("x"))).stage([b"a"])
    assert names(driver.directory) == []


def test_queries_and_saves_do_not_meet(log: Log) -> None:
    other = QUERY.replace("b", "c")
    for sink_id in (QUERY, other, SAVE):
        Driver(log.path, sink_id).write([[sink_id.encode()]])
    assert values(log) == [[QUERY.encode(), other.encode(), SAVE.encode()]]
    assert names(log.path / ".pylog/spark") == ["save-0.lock"]
    assert log.groups() == sorted(f"spark:{query}" for query in (QUERY, other))


def test_tasks_without_rows_commit_nothing(log: Log) -> None:
    Driver(log.path).write([[], []])
    Driver(log.path, SAVE).write([])
    assert names(log.path / ".pylog/spark") == []


def test_an_abort_removes_what_was_staged_and_undoes_no_commit(log: Log) -> None:
    driver, save = Driver(log.path), Driver(log.path, SAVE)
    for one in (driver, save):
        one.abort([one.stage([b"a"]), None])
    assert names(log.path / ".pylog/spark") == []
    messages = [driver.stage([b"a"])]
    driver.commit(messages)
    driver.abort(messages)
    driver.write([[b"b"]], 1)
    assert values(log) == [[b"a", b"b"]]


# Crashes


class Model:
    """What a query writes, how far it was told that it came, and what must be in the log then."""

    PATH = "/log"

    def __init__(self, sink_id: str = QUERY, batches: int = 3) -> None:
        self.sink_id = sink_id
        self.tasks = [[[b"%d-%d-%d" % (b, t, n) for n in range(3)] for t in range(2)] for b in range(batches)]
        self.told = 0

    def drive(self, process: Any, first: int) -> None:
        driver = Driver(self.PATH, self.sink_id, process, partitioner="round_robin", batchBytes=100)
        for batch_id, tasks in [*enumerate(self.tasks)][first:]:
            driver.write([[], *tasks], batch_id)
            self.told = max(self.told, batch_id + 1)

    def found(self, process: Any, expected_batches: int) -> None:
        """Every record of so many batches once; those of a task in a partition in their order."""
        with process.open_log(self.PATH) as log:
            partitions = values(log)
        wanted = [value for tasks in self.tasks[:expected_batches] for rows in tasks for value in rows]
        assert sorted(value for found in partitions for value in found) == wanted
        assert all(found == sorted(found) for found in partitions)


@pytest.mark.one_in(8)
@pytest.mark.slow
@pytest.mark.parametrize("for_every", [for_every_kill, for_every_power_loss], ids=["kill", "power"])
def test_a_query_that_starts_again_after_any_crash_writes_each_record_once(for_every: Callable[..., int]) -> None:
    machine, model = Machine(tear_writes=for_every is for_every_kill), Model(batches=2)
    with machine.process().open_log(model.PATH) as log:
        log.create_topic("orders", partitions=2, segment_bytes=1024)

    def check(left: Machine) -> None:
        again = Model(batches=2)
        again.drive(left.process(), max(model.told - 1, 0))  # Spark may not have noted down the last one either
        again.found(left.process(), 2)

    options: dict[str, Any] = {} if for_every is for_every_kill else {"at_most": 2, "sector_bytes": 4096}
    assert for_every(machine, lambda: model.drive(machine.process(), 0), check, **options) > 100


@pytest.mark.slow
@pytest.mark.parametrize("for_every", [for_every_kill, for_every_power_loss], ids=["kill", "power"])
@pytest.mark.parametrize("large_bytes", [1, encoded.LARGE_BYTES])
@pytest.mark.one_in(8)
def test_a_save_is_in_the_log_wholly_or_not_at_all_after_any_crash(
    for_every: Callable[..., int], large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded, "LARGE_BYTES", large_bytes)
    monkeypatch.setattr(encoded, "APPENDS_AT_ONCE", 1)  # a machine has one thread
    machine, model = Machine(), Model(SAVE, 1)
    options: dict[str, Any] = {} if for_every is for_every_kill else {"at_most": 12, "sector_bytes": 4096}
    with machine.process().open_log(model.PATH) as log:
        log.create_topic("orders", partitions=2)
    seen = set()

    def check(left: Machine) -> None:
        with left.process().open_log(model.PATH, read_only=True) as log:
            found = sorted(value for partition in values(log) for value in partition)
        assert found in ([], sorted(value for rows in model.tasks[0] for value in rows))
        assert found or not model.told
        seen.add(len(found))

    for_every(machine, lambda: model.drive(machine.process(), 0), check, **options)
    assert seen == {0, 6}


@pytest.mark.parametrize("sink_id", [QUERY, SAVE])
def test_a_reader_sees_all_of_a_commit_or_nothing_at_every_step(log: Log, sink_id: str) -> None:
    log.create_topic("bills", partitions=2)
    seen = []

    def look(_operation: str, _path: str) -> None:
        seen.append(sum(map(len, values(log, "bills"))))

    driver = Driver(log.path, sink_id, topic="bills", partitioner="round_robin", batchBytes=100)
    messages = [driver.stage([b"%d" % n for n in range(task, task + 9)]) for task in (0, 9)]
    watched = Driver(log.path, sink_id, Faulty(look))
    watched.commit(messages)
    look("", "")
    assert set(seen) == {0, 18}
    assert seen == sorted(seen)
    assert seen.count(18) > 5  # between the decision and the last marker, too


@pytest.mark.parametrize(
    ("operation", "part", "is_decided"),
    [
        ("pwrite", "orders-0/0", False),
        ("wrote", "orders-0/0", False),
        ("pwrite", "__consumer_offsets-0/0", False),
        ("sync", "orders-0/0", False),
        ("pwrite", "__transaction_state-0/0", False),  # of the owner
        ("sync", "__transaction_state-0/0", True),
        ("remove", ".staged", True),
        ("remove_directory", QUERY, True),
    ],
)
def test_a_killed_driver_leaves_a_commit_that_the_next_one_knows(
    log: Log, operation: str, part: str, is_decided: bool
) -> None:
    killed_at(operation, part, lambda around: Driver(log.path, around=around).write([[b"a"], [b"b"]]))
    assert values(log) == [[b"a", b"b"] if is_decided else []]
    Driver(log.path).write([[b"a"], [b"b"]])
    assert values(log) == [[b"a", b"b"]]
    assert names(log.path / ".pylog/spark") == []


# Several drivers


@pytest.mark.parametrize("step", ["append", "commit"])
@pytest.mark.parametrize("sooner", [0, 1], ids=["same batch", "next batch"])
def test_a_driver_that_was_stopped_in_a_commit_is_fenced(
    log: Log, step: str, sooner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other driver has gone on meanwhile: with the same batch, or with the one after it,
    too."""
    original = getattr(EncodedProducer, step)

    def stopped(*given: Any) -> None:
        monkeypatch.setattr(EncodedProducer, step, original)
        for batch_id in range(sooner + 1):
            Driver(log.path).write([[b"a%d" % batch_id], [b"b%d" % batch_id]], batch_id)
        original(*given)

    monkeypatch.setattr(EncodedProducer, step, stopped)
    zombie = Driver(log.path)
    messages = [zombie.stage([b"a0"]), zombie.stage([b"b0"])]
    with pytest.raises(ProducerFenced):
        zombie.commit(messages)
    zombie.abort(messages)
    expected = [b"%c%d" % (letter, n) for n in range(sooner + 1) for letter in b"ab"]
    assert values(log) == [expected]
    zombie.write([[b"a0"], [b"b0"]])
    Driver(log.path).write([[b"c"]], 2)
    assert values(log) == [[*expected, b"c"]]


@pytest.fixture
def kept() -> Iterator[dict[Any, SinkCommit]]:
    """What this process keeps between two micro-batches."""
    _close_kept()  # of tests before
    yield sink._KEPT
    _close_kept()


def _close_kept() -> None:
    while sink._KEPT:
        sink._KEPT.popitem()[1].close()


def test_a_process_that_commits_batch_after_batch_takes_the_query_over_once(
    log: Log, kept: dict[Any, SinkCommit]
) -> None:
    for batch_id in (0, 1, 1, 2):
        Driver(log.path).write_next([[b"%d" % batch_id], [b"x"]], batch_id)
    assert values(log) == [[b"0", b"x", b"1", b"x", b"2", b"x"]]
    assert log.describe_transaction(NAME).epoch == 3
    assert log.describe_transaction(NAME).has_owner
    assert len(kept) == 1


def test_a_process_whose_query_another_one_has_continued_takes_it_over_again(
    log: Log, kept: dict[Any, SinkCommit]
) -> None:
    Driver(log.path).write_next([[b"0"]], 0)
    Driver(log.path).write([[b"1"]], 1)
    for batch_id in (1, 2):  # a stopped driver that goes on: only what is new is written
        Driver(log.path).write_next([[b"%d" % batch_id]], batch_id)
    Driver(log.path).write([[b"3"]], 3)
    assert values(log) == [[b"0", b"1", b"2", b"3"]]
    assert len(kept) == 1


def test_a_process_that_had_an_error_keeps_nothing(log: Log, kept: dict[Any, SinkCommit]) -> None:
    Driver(log.path).write_next([[b"0"]], 0)
    driver = Driver(log.path)
    messages = [driver.stage([b"1"], 1)]
    driver.abort(messages)
    with pytest.raises(CorruptSegment, match="is gone"):
        driver.sink.commit_batch(QUERY, 1, messages)
    assert not kept
    driver.write_next([[b"1"]], 1)
    assert values(log) == [[b"0", b"1"]]


def test_a_process_keeps_few_queries_and_finds_a_log_in_the_place_of_another(
    log: Log, tmp_path: Path, kept: dict[Any, SinkCommit]
) -> None:
    for number in range(sink._KEPT_MAX + 2):
        query = QUERY.replace("b", f"{number:x}")
        driver = Driver(log.path, query)
        driver.sink.commit_batch(query, 0, [driver.stage([b"%d" % number])])
    assert len(kept) == sink._KEPT_MAX
    Driver(log.path).write_next([[b"0"]], 0)
    log.close()
    shutil.rmtree(log.path)
    with Log(log.path) as other:
        other.create_topic("orders")
        Driver(log.path).write_next([[b"new"]], 0)
        assert values(other) == [[b"new"]]


def test_a_stopped_save_leaves_its_id_to_itself(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    original = EncodedProducer.commit
    second, third = (SAVE.replace("7", digit) for digit in "89")

    def stopped(given: EncodedProducer) -> None:
        monkeypatch.setattr(EncodedProducer, "commit", original)
        Driver(log.path, second).write([[b"second"]])
        original(given)

    monkeypatch.setattr(EncodedProducer, "commit", stopped)
    Driver(log.path, SAVE).write([[b"first"]])
    Driver(log.path, third).write([[b"third"]])
    assert sorted(values(log)[0]) == [b"first", b"second", b"third"]
    assert log.transactions() == ["spark:save-0", "spark:save-1"]


def test_a_live_driver_has_time_for_what_it_writes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    original, found = EncodedProducer.commit, []

    def looked_at(given: EncodedProducer) -> None:
        found.append(log.describe_transaction(NAME).transaction_timeout_ms)
        original(given)

    monkeypatch.setattr(EncodedProducer, "commit", looked_at)
    monkeypatch.setattr(sink_commit, "SLOW_DISK_BYTES_PER_MS", 1)
    Driver(log.path, deliveryTimeoutMs=5).write([[bytes(100_000)]])
    Driver(log.path, deliveryTimeoutMs=200_000).write([[b"a"]], 1)
    assert 160_000 < found[0] < 161_000
    assert 400_000 < found[1] < 401_000


# What else may have happened


@pytest.mark.parametrize("sink_id", [QUERY, SAVE])
@pytest.mark.parametrize(
    ("operation", "part", "error"),
    [
        ("pwrite", "orders-0/0", full("x")),
        ("pwrite", "__transaction_state-0/0", full("x")),
        ("sync", "orders-0/0", io_error("x")),
    ],
)
@pytest.mark.parametrize("large_bytes", [1, encoded.LARGE_BYTES])
def test_what_a_disk_refuses_before_the_decision_was_never_there(
    log: Log,
    sink_id: str,
    operation: str,
    part: str,
    error: StorageError,
    large_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoded, "LARGE_BYTES", large_bytes)
    driver = Driver(log.path, sink_id, refuses(operation, part, error, times=100))
    messages = [driver.stage([b"a"])]
    with pytest.raises((StorageFull, TransactionAborted)) as caught:
        driver.commit(messages)
    assert "nothing was written" in str(caught.value) or "No space left" in str(caught.value)
    driver.abort(messages)
    assert values(log) == [[]]
    Driver(log.path, sink_id).write([[b"a"]])
    assert values(log) == [[b"a"]]


def test_a_large_commit_is_appended_by_several_threads_and_each_partition_in_order(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded, "LARGE_BYTES", 1)
    log.create_topic("bills", partitions=6)
    original, seen, are_two = EncodedProducer._append_all, set(), threading.Event()

    def met(*given: Any) -> None:
        seen.add(threading.get_ident())
        if len(seen) > 1:
            are_two.set()
        assert are_two.wait(60)
        original(*given)

    monkeypatch.setattr(EncodedProducer, "_append_all", met)
    driver = Driver(log.path, topic="bills", partitioner="round_robin", batchBytes=100)
    tasks = [[b"%d-%03d" % (task, row) for row in range(90)] for task in range(3)]
    driver.write(tasks)
    found = values(log, "bills")
    assert sorted(value for partition in found for value in partition) == sorted(row for rows in tasks for row in rows)
    assert all(partition == sorted(partition) and len(partition) > 30 for partition in found)


@pytest.mark.parametrize("failing", range(3))
def test_a_large_commit_ends_with_the_error_of_one_partition(
    log: Log, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded, "LARGE_BYTES", 1)
    log.create_topic("bills", partitions=3)
    driver = Driver(log.path, SAVE, refuses("pwrite", f"bills-{failing}/0", full("x")), topic="bills")
    rows = [{"value": b"%d" % number, "partition": number % 3} for number in range(9)]
    with pytest.raises(StorageFull):
        driver.write([rows])
    assert values(log, "bills") == [[], [], []]
    driver.write([rows])
    assert values(log, "bills") == [[b"%d" % number for number in (at, at + 3, at + 6)] for at in range(3)]


def test_a_commit_that_a_disk_takes_late_stands(
    log: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, original = refuses("sync", "__transaction_state-0/0", io_error("x"), times=100), EncodedProducer.outcome

    def repaired(given: EncodedProducer) -> Outcome:
        disk.hook = nothing
        return original(given)

    monkeypatch.setattr(EncodedProducer, "outcome", repaired)
    Driver(log.path, SAVE, disk).write([[b"a"]])
    assert "committed, but with an error that stopped the driver from seeing it" in caplog.text
    assert values(log) == [[b"a"]]


@pytest.mark.parametrize("sink_id", [QUERY, SAVE])
def test_a_commit_whose_decision_is_refused_for_longer_is_undecided(log: Log, sink_id: str) -> None:
    broken = refuses("sync", "__transaction_state-0/0", io_error("x"), times=10_000)
    for attempt in range(2):
        if attempt == 0 or sink_id == QUERY:
            with pytest.raises(OutcomeUnknown, match=r"refuses it|is not decided yet|could not be synced"):
                Driver(log.path, sink_id, broken).write([[b"a"]])
    assert values(log) == [[b"a"]]  # this disk takes the decision
    if sink_id == QUERY:
        Driver(log.path).write([[b"a"]])
        assert values(log) == [[b"a"]]


@pytest.mark.parametrize("step", ["append", "commit"])
def test_an_error_of_python_undoes_a_commit(log: Log, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    driver = Driver(log.path, SAVE)
    messages = [driver.stage([b"a"])]
    with monkeypatch.context() as patched:
        patched.setattr(EncodedProducer, step, no_memory)
        with pytest.raises(MemoryError):
            driver.commit(messages)
    driver.abort(messages)
    Driver(log.path, SAVE).write([[b"b"]])
    assert values(log) == [[b"b"]]


def test_a_commit_stands_even_if_its_files_cannot_be_removed(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    Driver(log.path, SAVE, refuses("remove", ".staged", io_error("x"))).write([[b"a"]])
    assert "staged files are left for a later commit" in caplog.text
    assert values(log) == [[b"a"]]


def test_a_topic_deleted_before_the_commit_fails_it_and_the_next_go_is_for_the_new_one(log: Log) -> None:
    driver = Driver(log.path)
    messages = [driver.stage([b"a"])]
    log.delete_topic("orders")
    log.create_topic("orders")
    with pytest.raises(
        TopicNotFound, match=r"'orders' was deleted, or deleted and created again, since .*: write again"
    ):
        driver.commit(messages)
    driver.write([[b"a"]])
    assert values(log) == [[b"a"]]


def test_a_topic_deleted_for_good_is_the_same_to_a_commit(log: Log) -> None:
    driver = Driver(log.path)
    messages = [driver.stage([b"a"])]
    log.delete_topic("orders")
    with pytest.raises(TopicNotFound, match="'orders' was deleted, or deleted and created again, since"):
        driver.commit(messages)


def test_a_task_whose_disk_is_full_reads_no_further(log: Log) -> None:
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in range(9):
            read.append(piece)
            yield pa.RecordBatch.from_pylist([{"value": b"%d" % n} for n in range(9)])

    driver = Driver(log.path, around=refuses("pwrite", ".staged", full("x")), batchBytes=82)
    with pytest.raises(StorageFull):
        driver.sink.stage(batches(), QUERY, 0, 1)
    assert read == [0]
    assert names(driver.directory) == []


def test_a_topic_deleted_during_a_commit_fails_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.create_topic("bills")
    original = EncodedProducer.commit

    def deleted_before(given: EncodedProducer) -> None:
        log.delete_topic("orders")
        original(given)

    driver = Driver(log.path)
    object.__setattr__(driver.sink.options, "topic", None)
    rows = [{"value": b"a", "topic": "orders"}, {"value": b"b", "topic": "bills"}]
    with monkeypatch.context() as patched:
        patched.setattr(EncodedProducer, "commit", deleted_before)
        with pytest.raises(PylogError):
            driver.write([rows])
    assert values(log, "bills") == [[]]
    log.create_topic("orders")
    driver.write([rows])
    assert (values(log), values(log, "bills")) == ([[b"a"]], [[b"b"]])


def test_what_was_staged_long_ago_goes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = [Driver(log.path, sink_id).stage([b"a"]).staged for sink_id in (QUERY, SAVE)]
    other = SAVE.replace("7", "8")
    Driver(log.path, other).write([[b"b"]])
    assert [names(Driver(log.path, sink_id).directory) for sink_id in (QUERY, SAVE)] == [[s.name] for s in staged if s]
    monkeypatch.setattr(sink_directory, "LEFTOVER_NS", -(10**10))
    Driver(log.path, other).write([[b"c"]])
    assert names(log.path / ".pylog/spark") == ["save-0.lock"]
    assert values(log) == [[b"b", b"c"]]


def test_records_of_others_are_no_part_of_a_sinks(log: Log) -> None:
    log.partition("orders", 0).append([ProducerRecord(b"other")])
    Driver(log.path).write([[b"a"]])
    assert values(log) == [[b"other", b"a"]]
