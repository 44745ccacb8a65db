"""A sink's commits: each batch in the log once, whatever comes again, fails or dies in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pylog import Log, Producer
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch, number
from pylog.codec.format import MAX_SEQUENCE, POSITIVE
from pylog.errors import (
    Closed,
    ConfigError,
    CorruptSegment,
    LogLocked,
    OutcomeUnknown,
    PylogError,
    StorageFull,
    TopicNotFound,
)
from pylog.model import ProducerRecord
from pylog.partition.producers import state as producer_state
from pylog.producer.partitioner import KEY_HASHES
from pylog.spark import finish_commits
from pylog.spark.sink import commit as sink_commit
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.intents import SinkState, read_intent, read_state, write_intent, write_state
from pylog.spark.sink.publishing import Publication
from pylog.spark.sink.staging import StagedFile, StagedLog
from pylog.storage import OsFileSystem
from pylog.testing import Machine, ManualClock, for_every_kill, for_every_power_loss
from tests.spark.writing import QUERY, SAVE, Driver, names, values
from tests.storage.filesystems import Faulty, Killed, full


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("orders")
    return log


def place(log: Log, sink_id: str = QUERY) -> SinkDirectory:
    return SinkDirectory.of(OsFileSystem(), ManualClock(), str(log.path), sink_id)


def dies_at(operation: str, part: str, error: BaseException | None = None, then: str = "") -> Faulty:
    """The machine's filesystem, but the first such operation on such a path kills the process, or fails; and a later one."""
    pending = [operation, then] if then else [operation]

    def hook(done: str, path: str) -> None:
        if pending and done == pending[0] and (part in path or pending == [then]):
            pending.pop(0)
            raise error or Killed()

    return Faulty(hook)


# Staging


def test_a_producer_that_is_durable_everywhere_is_so_in_a_staged_log(log: Log) -> None:
    filesystem = Faulty()
    file = StagedFile(SinkDirectory.of(filesystem, ManualClock(), str(log.path), QUERY), 0, 0)
    staged = StagedLog(log.manager, file)
    with Producer(staged, acks="all", enable_idempotence=False) as producer:
        producer.send("orders", b"v").result()
        assert [Path(path).name for path, _ in filesystem.synced_inodes] == [file.name]
    assert log.partition("orders", 0).latest_offset == 0
    file.discard()


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
    assert log.partition("orders", 0).durable_offset == 3
    assert names(driver.directory) == ["lock", "state"]


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
    assert names(Driver(log.path).directory) == ["lock", "state"]


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
    assert names(driver.directory) == sorted([early.staged.name, "lock", "state"])


def test_a_task_that_fails_leaves_nothing(log: Log) -> None:
    driver = Driver(log.path)
    with pytest.raises(PylogError, match="has partitions 0 to 0, got 7"):
        driver.stage([{"value": b"a", "partition": None}, {"value": b"b", "partition": 7}])
    assert names(driver.directory) == []
    with pytest.raises(StorageFull, match="No space left"):
        Driver(log.path, around=dies_at("pwrite", ".staged", full("x"))).stage([b"a"])
    assert names(driver.directory) == []


def test_queries_and_saves_do_not_meet(log: Log) -> None:
    other = QUERY.replace("b", "c")
    for sink_id in (QUERY, other, SAVE):
        Driver(log.path, sink_id).write([[sink_id.encode()]])
    assert values(log) == [[QUERY.encode(), other.encode(), SAVE.encode()]]
    assert names(log.path / ".pylog/spark") == sorted([QUERY, other])  # nothing is left of a save


def test_tasks_without_rows_commit_nothing(log: Log) -> None:
    Driver(log.path).write([[], []])
    Driver(log.path, SAVE).write([])
    assert names(log.path / ".pylog/spark") == []


def test_an_abort_removes_what_was_staged_and_undoes_no_commit(log: Log) -> None:
    driver, save = Driver(log.path), Driver(log.path, SAVE)
    for one in (driver, save):
        one.abort([one.stage([b"a"]), None])
    assert names(driver.directory) == ["lock"]
    assert names(save.directory) == []
    messages = [driver.stage([b"a"])]
    driver.commit(messages)
    driver.abort(messages)
    driver.write([[b"b"]], 1)
    assert values(log) == [[b"a", b"b"]]


def test_an_abort_spares_what_is_decided(log: Log) -> None:
    messages = [Driver(log.path).stage([b"a"])]
    with pytest.raises(Killed):
        Driver(log.path, around=dies_at("pwrite", "orders-0")).commit(messages)
    Driver(log.path).abort(messages)
    assert finish_commits(str(log.path)) == 0
    assert values(log) == [[b"a"]]


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
def test_a_save_is_in_the_log_wholly_or_not_at_all_once_others_have_committed(for_every: Callable[..., int]) -> None:
    machine, model = Machine(), Model(SAVE, 1)
    options: dict[str, Any] = {} if for_every is for_every_kill else {"at_most": 12, "sector_bytes": 4096}
    with machine.process().open_log(model.PATH) as log:
        log.create_topic("orders", partitions=2)
    seen = set()

    def check(left: Machine) -> None:
        process = left.process()
        Driver(model.PATH, QUERY, process).write([[b"9"]])
        assert not process.filesystem.exists(f"{model.PATH}/.pylog/spark/{SAVE}/intent")
        with left.process().open_log(model.PATH) as log:
            found = sorted(value for partition in values(log) for value in partition if value != b"9")
        assert found in ([], sorted(value for rows in model.tasks[0] for value in rows))
        assert found or not model.told
        seen.add(len(found))

    for_every(machine, lambda: model.drive(machine.process(), 0), check, **options)
    assert seen == {0, 6}


def test_a_commit_of_which_some_is_in_goes_on_where_it_was_even_if_others_wrote_meanwhile(log: Log) -> None:
    tasks = [[b"%02d" % n for n in range(40)]]
    appends = 0

    def dies_in_the_middle(done: str, path: str) -> None:
        nonlocal appends
        appends += done == "pwrite" and path.endswith("orders-0/00000000000000000000.log")
        if appends == 15:  # more are in than the log knows again by themselves
            raise Killed

    driver = Driver(log.path, around=Faulty(dies_in_the_middle), batchBytes=82)
    with pytest.raises(Killed):
        driver.write(tasks)
    with Producer(log) as producer:
        producer.send("orders", b"other")
    Driver(log.path).write(tasks)
    (found,) = values(log)
    found.remove(b"other")
    assert found == tasks[0]


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_producer_that_was_forgotten_is_found_again_in_the_log(
    log: Log, forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a day and two segments, or after very many others."""
    Driver(log.path).write([[b"before"]])
    with pytest.raises(Killed):
        Driver(log.path, around=dies_at("pwrite", "/state")).write([[b"a"], [b"b"]], 1)
    if forgotten:
        monkeypatch.setattr(producer_state.ProducerStates, "next_sequence", lambda *_: None)
        monkeypatch.setattr(producer_state.ProducerStates, "duplicate_of", lambda *_: None)
    Driver(log.path).write([[b"a"], [b"b"]], 1)
    assert values(log) == [[b"before", b"a", b"b"]]


def test_sequences_go_on_from_the_beginning_behind_the_last_there_is(log: Log) -> None:
    Driver(log.path).write([[b"a"]])
    (producer_id,) = (state.producer_id for state in [read_state(place(log))] if state)
    write_state(place(log), SinkState(0, producer_id + 1))
    near = bytearray(one_record())
    number(near, producer_id + 1, 0, MAX_SEQUENCE - 2)
    log.partition("orders", 0).log.append_batch(near)
    with pytest.raises(Killed):
        Driver(log.path, around=dies_at("pwrite", "/state"), batchBytes=82).write([[b"b", b"c", b"d", b"e"]], 1)
    Driver(log.path).write([[b"b", b"c", b"d", b"e"]], 1)
    assert values(log) == [[b"a", b"x", b"b", b"c", b"d", b"e"]]
    assert log.partition("orders", 0).log.next_sequence(producer_id + 1) == 2


def one_record() -> bytes:
    encoder = RecordEncoder(1000)
    encoder.append(0, None, b"x", ())
    return bytes(build_batch(encoder))


# What else may have happened


def test_what_a_disk_refuses_before_anything_is_in_the_log_is_as_if_it_had_never_been(log: Log) -> None:
    for operation, part in (("pwrite", "intent"), ("sync_directory", SAVE), ("pwrite", "orders-0/0")):
        save = Driver(log.path, SAVE, dies_at(operation, part, full("x")))
        messages = [save.stage([b"a"])]
        with pytest.raises(StorageFull):
            save.commit(messages)
        save.abort(messages)
        assert names(save.directory) == []
    assert values(log) == [[]]


@pytest.mark.parametrize(("operation", "part"), [("remove", "intent"), ("pwrite", "state")])
def test_what_a_disk_refuses_later_is_decided_all_the_same(log: Log, operation: str, part: str) -> None:
    driver = Driver(log.path, QUERY, dies_at(operation, part, full("x")))
    messages = [driver.stage([b"a"])]
    with pytest.raises(
        OutcomeUnknown, match=r"this batch is decided, but .* start the query again from its checkpoint"
    ):
        driver.commit(messages)
    driver.abort(messages)
    Driver(log.path, SAVE).write([[b"b"]])
    assert values(log) == [[b"a", b"b"]]
    assert read_state(place(log)) is not None


@pytest.mark.parametrize("has_begun", [False, True])
def test_an_error_of_python_is_told_as_one_of_the_disk_is(
    log: Log, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """Who is told of another error than ``OutcomeUnknown`` saves again, and that must not double anything."""
    driver = Driver(log.path, SAVE)
    messages = [driver.stage([b"a"])]
    with monkeypatch.context() as patched:
        patched.setattr(Publication, "_sync" if has_begun else "_part", _no_memory)
        with pytest.raises(OutcomeUnknown if has_begun else MemoryError):
            driver.commit(messages)
    driver.abort(messages)
    assert finish_commits(str(log.path)) == 0
    assert values(log) == [[b"a"] if has_begun else []]
    assert names(driver.directory) == []


def _no_memory(*_: Any) -> None:
    raise MemoryError


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


def test_a_topic_deleted_after_the_commit_takes_its_records_with_it(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.create_topic("bills")
    rows = [{"value": b"a", "topic": "orders"}, {"value": b"b", "topic": "bills"}]
    driver = Driver(log.path, around=dies_at("pwrite", "-0/0"))
    object.__setattr__(driver.sink.options, "topic", None)
    with pytest.raises(Killed):
        driver.write([rows])
    log.delete_topic("orders")
    log.create_topic("orders")
    with caplog.at_level(logging.WARNING):
        assert finish_commits(str(log.path)) == 0
    assert (values(log), values(log, "bills")) == ([[]], [[b"b"]])
    assert "orders was deleted since a commit to it was decided; its 1 records go with it" in caplog.text


def test_a_topic_deleted_for_good_is_the_same_to_a_commit(log: Log) -> None:
    driver = Driver(log.path)
    messages = [driver.stage([b"a"])]
    log.delete_topic("orders")
    with pytest.raises(TopicNotFound, match="'orders' was deleted, or deleted and created again, since"):
        driver.commit(messages)
    assert finish_commits(str(log.path)) == 0


@pytest.mark.parametrize("step", ["_append", "_sync"])
def test_a_topic_deleted_in_the_midst_of_a_commit_takes_its_records_with_it(
    log: Log, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("bills")
    original = getattr(Publication, step)

    def deleted_before(*given: Any) -> None:
        if "orders" in log.topics():
            log.delete_topic("orders")
        original(*given)

    monkeypatch.setattr(Publication, step, deleted_before)
    driver = Driver(log.path)
    object.__setattr__(driver.sink.options, "topic", None)
    driver.write([[{"value": b"a", "topic": "orders"}, {"value": b"b", "topic": "bills"}]])
    assert values(log, "bills") == [[b"b"]]
    assert names(driver.directory) == ["lock", "state"]


def test_a_commit_and_its_files_that_differ_are_told(log: Log) -> None:
    log.create_topic("bills")
    with pytest.raises(Killed):
        Driver(log.path, around=dies_at("pwrite", "orders-0")).write([[b"a"]])
    intent = read_intent(place(log))
    assert intent is not None
    (share,) = intent.shares
    bills = share.target._replace(topic="bills", topic_id=log.describe_topic("bills").id)
    write_intent(place(log), intent._replace(shares=(share._replace(target=bills),)))
    with pytest.raises(CorruptSegment, match="orders-0 is in a file and not in the commit"):
        Driver(log.path).write([[b"a"]])


@pytest.mark.parametrize(
    ("then", "said", "found"),
    [
        ("remove", r"this save is decided, but .* don't run it again", [b"a"]),
        ("sync_directory", r"nothing was written: .*; but the disk may still hold what was decided", []),
    ],
)
def test_a_commit_that_cannot_be_withdrawn_is_no_failure_like_others(
    log: Log, then: str, said: str, found: list[bytes]
) -> None:
    save = Driver(log.path, SAVE, dies_at("pwrite", "orders-0/0", full("x"), then=then))
    messages = [save.stage([b"a"])]
    with pytest.raises(OutcomeUnknown, match=said):
        save.commit(messages)
    save.abort(messages)
    assert finish_commits(str(log.path)) == 0
    assert values(log) == [found]
    assert names(save.directory) == []


def test_a_task_whose_disk_is_full_reads_no_further(log: Log) -> None:
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in range(9):
            read.append(piece)
            yield pa.RecordBatch.from_pylist([{"value": b"%d" % n} for n in range(9)])

    driver = Driver(log.path, around=dies_at("pwrite", ".staged", full("x")), batchBytes=82)
    with pytest.raises(StorageFull):
        driver.sink.stage(batches(), QUERY, 0, 1)
    assert read == [0]
    assert names(driver.directory) == []


def test_a_second_driver_waits_for_the_first_and_then_adds_nothing(log: Log) -> None:
    zombie, driver = Driver(log.path, deliveryTimeoutMs=50), Driver(log.path)
    late = [zombie.stage([b"a"])]
    lock = OsFileSystem().lock(str(driver.directory / "lock"))
    assert lock.try_acquire()
    with pytest.raises(LogLocked, match=r"stayed locked for 0.05 s: another driver commits for this sink"):
        zombie.commit(late)
    lock.close()
    driver.write([[b"a"]])
    zombie.commit(late)
    assert values(log) == [[b"a"]]


def test_other_sinks_leave_alone_what_a_driver_is_about(log: Log) -> None:
    with pytest.raises(Killed):
        Driver(log.path, around=dies_at("pwrite", "orders-0")).write([[b"a"]])
    lock = OsFileSystem().lock(str(Driver(log.path).directory / "lock"))
    assert lock.try_acquire()
    Driver(log.path, SAVE).write([[b"b"]])
    lock.close()
    assert values(log) == [[b"b"]]
    Driver(log.path, SAVE).write([[b"c"]])
    assert values(log) == [[b"b", b"c", b"a"]]


def test_what_cannot_be_finished_holds_no_other_sink_up(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Killed):
        Driver(log.path, around=dies_at("pwrite", "orders-0")).write([[b"a"]])
    intent = Driver(log.path).directory / "intent"
    intent.write_bytes(intent.read_bytes()[:-1])
    Driver(log.path, SAVE).write([[b"b"]])
    assert values(log) == [[b"b"]]
    assert "could not be finished" in caplog.text
    assert finish_commits(str(log.path)) == 1
    with pytest.raises(CorruptSegment, match=r"is damaged: .* that don't fit their checksum; restore it from a copy"):
        Driver(log.path).write([[b"a"]])


def test_a_commit_stands_even_if_others_cannot_be_looked_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise StorageFull("cannot list")

    monkeypatch.setattr(sink_commit, "finish_others", refused)
    Driver(log.path, SAVE).write([[b"a"]])
    assert values(log) == [[b"a"]]


def test_a_log_restored_without_its_sinks_is_told_from_one_that_goes_on(log: Log) -> None:
    Driver(log.path).write([[b"a"]])
    with pytest.raises(Killed):
        Driver(log.path, around=dies_at("pwrite", "orders-0")).write([[b"b"]], 1)
    (producer_id,) = (state.producer_id for state in [read_state(place(log))] if state)
    batch = bytearray(one_record())
    number(batch, producer_id, 0, 1)
    log.partition("orders", 0).log.append_batch(batch)
    number(batch, producer_id, 0, 2)
    log.partition("orders", 0).log.append_batch(batch)
    with pytest.raises(CorruptSegment, match=r"orders-0 expects sequence 3 of producer .*, the commit has 1 from 1 on"):
        Driver(log.path).write([[b"b"]], 1)


def test_what_was_staged_long_ago_goes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = [Driver(log.path, sink_id).stage([b"a"]).staged for sink_id in (QUERY, SAVE)]
    other = SAVE.replace("7", "8")
    Driver(log.path, other).write([[b"b"]])
    assert [names(Driver(log.path, sink_id).directory) for sink_id in (QUERY, SAVE)] == [[s.name] for s in staged if s]
    monkeypatch.setattr(sink_commit, "LEFTOVER_NS", -(10**9))
    Driver(log.path, other).write([[b"c"]])
    assert names(Driver(log.path).directory) == ["lock"]
    assert names(log.path / ".pylog/spark") == [QUERY]
    assert values(log) == [[b"b", b"c"]]


def test_records_of_others_are_no_part_of_a_sinks(log: Log) -> None:
    log.partition("orders", 0).append([ProducerRecord(b"other")])
    Driver(log.path).write([[b"a"]])
    assert values(log) == [[b"other", b"a"]]
