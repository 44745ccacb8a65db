"""A topic gets another number of partitions: each key keeps its order, and no group misses a
record."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

import pytest

from pylog import Consumer, Delivery, Log, Producer, ProducerRecord, Record, TopicPartition
from pylog.catalog.finishing import TopicChanges
from pylog.errors import (
    CommitFailed,
    ConfigError,
    InvalidTopicName,
    LogLocked,
    NotAppended,
    TopicChanged,
    TopicNotFound,
)
from pylog.group.admin import GroupAdmin
from pylog.manager.manager import LogManager
from pylog.partition.write.batch_input import encoded_batch
from pylog.testing import ManualClock
from pylog.testing.machine import Machine
from pylog.testing.machine.every_step import for_every_kill, for_every_power_loss
from pylog.topic_changes import switch
from pylog.topic_changes.copying import TopicCopy

KEYS = 10


def fill(log: Log, start: int, stop: int, topic: str = "t") -> None:
    with Producer(log) as producer:
        for n in range(start, stop):
            producer.send(topic, b"%d" % n, key=b"%d" % (n % KEYS), timestamp_ms=1000 + n, headers=[("n", b"%d" % n)])


def batch(value: bytes) -> bytearray:
    """As a producer has it: its append reads no settings before it has the lock."""
    return encoded_batch([ProducerRecord(value, key=b"x" + value)], 10_000, 1)[0]


def send(producer: Producer, value: bytes, key: bytes) -> Delivery:
    """Again if the topic has changed since the last one."""
    try:
        return producer.send("t", value, key=key)
    except TopicChanged:
        return producer.send("t", value, key=key)


def records(log: Log, topic: str = "t") -> list[Record]:
    """All records. Those of each key are in one partition, and rise."""
    found: list[Record] = []
    places: dict[bytes, tuple[int, int]] = {}
    for number in log.describe_topic(topic).numbers:
        for record in log.partition(topic, number).scan():
            place, last = places.get(record.key, (number, -1))
            assert place == number
            assert last < int(record.value)
            places[record.key] = number, int(record.value)
            found.append(record)
    return found


def numbers(found: list[Record]) -> list[int]:
    return sorted(int(record.value) for record in found)


def read(consumer: Consumer, at_least: int = 10**9) -> list[Record]:
    found: list[Record] = []
    while len(found) < at_least and (polled := consumer.poll(0.3)):
        found += polled
    return found


@pytest.mark.parametrize("partitioner", ["murmur3", "murmur2"])
def test_more_and_fewer_partitions_have_the_same_records_where_producers_send_their_keys(
    tmp_log_dir: Path, partitioner: str
) -> None:
    with Log(tmp_log_dir) as log:
        before = log.create_topic("t", partitions=3, partitioner=partitioner, compression_type="zstd", segment_ms=5)
        ids = [before.id]
        for count, partitions in enumerate([7, 2, 1, 5]):
            fill(log, count * 100, count * 100 + 100)
            records(log)  # producers have sent each key to where the repartition has put it
            after = log.repartition("t", partitions)
            assert after == before._replace(partitions=partitions, id=after.id, earlier_ids=tuple(ids))
            ids.append(after.id)
            assert numbers(records(log)) == list(range(count * 100 + 100))
            assert all(r.timestamp_ms == 1000 + int(r.value) for r in records(log))
            assert all(r.headers == (("n", r.value),) for r in records(log))
            assert not log.verify().problems
        assert log.repartition("t", 5).id == ids[-1]
        assert {path.name for path in tmp_log_dir.iterdir()} == {".pylog", *(f"t-{n}" for n in range(5))}
        assert {path.name for path in (tmp_log_dir / ".pylog/topics").iterdir()} == {"t.json"}


def test_records_without_a_key_tombstones_and_large_records(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=3, max_message_bytes=10_000, message_timestamp_type="LogAppendTime")
        for number in range(3):
            log.partition("t", number).append([ProducerRecord(b"%d %d" % (number, n)) for n in range(5)])
        with Producer(log, compression="zstd") as producer:
            producer.send("t", bytes(9_000), key=b"large").result()
            producer.send("t", None, key=b"large").result()
        times = sorted(r.timestamp_ms for n in range(3) for r in log.partition("t", n).scan())
        log.repartition("t", 2)
        found = [list(log.partition("t", number).scan()) for number in range(2)]
        assert sorted(r.timestamp_ms for each in found for r in each) == times
        large = [r.value for each in found for r in each if r.key == b"large"]
        assert large == [bytes(9_000), None]
        for source in range(3):
            mine = [r.value for r in found[source % 2] if r.key is None and r.value.startswith(b"%d " % source)]
            assert mine == [b"%d %d" % (source, n) for n in range(5)]


@pytest.mark.slow
def test_a_group_continues_where_it_has_committed(tmp_log_dir: Path) -> None:
    """The member notices by itself. What comes again is at most what was behind the slowest
    partition."""
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t", partitions=3)
        fill(log, 0, 500)
        with Consumer(other, group_id="g", auto_offset_reset="latest", max_poll_records=100) as consumer:
            consumer.subscribe(["t"])
            consumer.seek_to_beginning()
            seen = read(consumer, 200)
            consumer.commit()
            for start, partitions in ((500, 7), (600, 2)):
                log.repartition("t", partitions)
                seen += read(consumer)
                assert consumer.assignment() == {TopicPartition("t", number) for number in range(partitions)}
                fill(log, start, start + 100)
            seen += read(consumer)
            firsts: dict[bytes, list[int]] = {}
            for record in seen:
                if int(record.value) not in firsts.setdefault(record.key, []):
                    firsts[record.key].append(int(record.value))
            assert all(each == sorted(each) for each in firsts.values())
            assert {int(record.value) for record in seen} == set(numbers(records(log)))
            consumer.commit()
        before = log.lag("g")
        assert set(before.values()) == {0}
        log.repartition("t", 4)
        assert log.lag("g") == {TopicPartition("t", number): 0 for number in range(4)}


def test_each_new_position_is_the_first_record_that_was_not_committed(tmp_log_dir: Path, seed: int) -> None:
    random = Random(seed)
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=3)
        for start in range(0, 600, 60):
            fill(log, start, start + 60)
        where = {n: list(log.partition("t", n).scan()) for n in range(3)}
        groups: dict[str, dict[int, int]] = {}
        for group in map("g{}".format, range(20)):
            committed = {TopicPartition("t", n): random.randrange(len(where[n]) + 1) for n in range(3)}
            log.reset_offsets(group, offsets=committed)
            groups[group] = {name.partition: offset for name, offset in committed.items()}
        log.repartition("t", 5)
        for group, before in groups.items():
            left = {int(r.value) for n in range(3) for r in where[n] if r.offset >= before[n]}
            for name, progress in log.describe_group(group).partitions.items():
                assert progress.committed is not None
                there = list(log.partition(*name).scan())
                first = min((r.offset for r in there if int(r.value) in left), default=len(there))
                assert progress.committed.offset == first


def test_producers_get_an_error_that_says_to_send_again(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Producer(other, linger_ms=60_000) as producer:
        log.create_topic("t", partitions=3)
        producer.send("t", b"0", key=b"k").result()
        kept = producer.send("t", b"1", key=b"k")
        direct = other.partition("t", 0)
        direct.append([ProducerRecord(b"9", key=b"direct")])
        log.repartition("t", 7)
        error = kept.exception()
        assert isinstance(error, TopicChanged)
        assert isinstance(error, NotAppended)
        assert error.retriable
        with pytest.raises(TopicChanged):
            direct.append([ProducerRecord(b"9", key=b"direct")])
        other.clock.sleep(0.02)
        for value in (b"1", b"2"):
            send(producer, value, b"k").result()
        assert [r.value for r in records(log) if r.key == b"k"] == [b"0", b"1", b"2"]


def test_no_writer_appends_after_the_decision(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the old partitions open, with settings that they have read before."""
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t", partitions=3)
        fill(log, 0, 30)
        partitions = [other.manager.partition("t", number) for number in range(3)]
        for number, partition in enumerate(partitions):
            partition.append_batch(batch(b"%d" % (90 + number)))
        finish, refused = TopicChanges.finish, []

        def late(changes: TopicChanges) -> None:
            if not log.manager.writable_catalog().being_changed():
                return
            for partition in partitions:
                with pytest.raises(TopicChanged) as caught:
                    partition.append_batch(batch(b"99"))
                refused.append(caught.value)
            with pytest.raises(CommitFailed):
                consumer.commit()
            finish(changes)

        with Consumer(other, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"])
            consumer.poll(1)
            monkeypatch.setattr(TopicChanges, "finish", late)
            log.repartition("t", 2)
            assert len(refused) == 3
            found = [r for number in range(2) for r in log.partition("t", number).scan()]
            assert numbers(found) == [*range(30), 90, 91, 92]
            assert numbers(read(consumer)) == [*range(30), 90, 91, 92]


def test_aborted_records_are_left_out_and_an_open_transaction_delays_it(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.topic_changes.switch._TIMEOUT_S", 0.05)
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Producer(other, transactional_id="x") as producer:
        log.create_topic("t", partitions=3)
        producer.init_transactions()
        for n in range(20):
            producer.begin_transaction()
            producer.send("t", b"%d" % n, key=b"%d" % (n % KEYS))
            producer.flush()
            if n == 19:
                with pytest.raises(LogLocked, match="a transaction is open in t-"):
                    log.repartition("t", 7)
                assert not list(tmp_log_dir.glob("*-future"))
            (producer.commit_transaction if n % 3 else producer.abort_transaction)()
        log.repartition("t", 7)
        assert numbers(records(log)) == [n for n in range(20) if n % 3]
        producer.begin_transaction()
        send(producer, b"20", b"0")
        producer.commit_transaction()
        assert numbers(records(log))[-1] == 20


def test_a_transaction_with_old_positions_is_refused(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Producer(other, transactional_id="x") as producer:
        log.create_topic("t", partitions=3)
        log.create_topic("out")
        fill(log, 0, 50)
        producer.init_transactions()
        with Consumer(other, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"])
            found = consumer.poll(1)
            producer.begin_transaction()
            producer.send("out", b"result")
            producer.send_offsets_to_transaction(
                {TopicPartition("t", found[0].partition): 5}, consumer.group_metadata()
            )
            log.repartition("t", 2)
            with pytest.raises(CommitFailed):
                producer.commit_transaction()
            producer.abort_transaction()
            assert numbers(read(consumer)) == list(range(50))


def test_records_deleted_meanwhile_do_not_come_back(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t", partitions=3)
        fill(log, 0, 100)
        copy, copies = TopicCopy.copy, []

        def copy_and_delete(self: TopicCopy, *most_bytes: int) -> int:
            copied_bytes = copy(self, *most_bytes)
            if not copies:
                other.delete_records(TopicPartition("t", 0), 10)
            copies.append(self)
            return copied_bytes

        monkeypatch.setattr(TopicCopy, "copy", copy_and_delete)
        left = {r.value for r in records(log)} - {r.value for r in log.partition("t", 0).read(0) if r.offset < 10}
        log.repartition("t", 7)
        assert {r.value for r in records(log)} == left
        assert len(set(map(id, copies))) == 2


def test_no_group_appears_in_the_last_moment(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commits would not be translated: it waits until the topic has changed."""
    with Log(tmp_log_dir) as log, Log(tmp_log_dir, clock=ManualClock()) as other:
        log.create_topic("t", partitions=2)
        log.create_topic("u")
        fill(log, 0, 20)
        sync, calls = TopicCopy.sync, []

        def appearing(copy: TopicCopy) -> None:
            calls.append(copy)
            with Consumer(other, group_id="g") as consumer, pytest.raises(LogLocked, match=re.escape("groups.lock")):
                consumer.subscribe(["u"])
            sync(copy)

        monkeypatch.setattr(TopicCopy, "sync", appearing)
        assert log.repartition("t", 3).partitions == 3
        assert len(calls) == 1
        with Consumer(other, group_id="g") as consumer:
            consumer.subscribe(["u"])
            assert len(consumer.assignment()) == 1
        assert numbers(records(log)) == list(range(20))


@pytest.mark.parametrize("in_use", [False, True])
def test_a_group_that_appears_as_the_others_are_locked(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch, in_use: bool
) -> None:
    """Its holder may be waiting for the lock without which no group appears: the change tries
    again."""
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=2)
        fill(log, 0, 20)
        with Consumer(log, group_id="older") as older:
            older.commit({TopicPartition("t", 0): 1})
        hold, directory = switch._hold, log.manager.part(GroupAdmin).directory("new")
        attempts, busy = [], []

        def appearing(locks: ExitStack, manager: LogManager, path: str) -> None:
            if path == manager.layout.groups_lock:
                if not attempts:
                    directory.make(1.0)
                    if in_use:
                        busy.append(manager.filesystem.lock(directory.lock))
                        assert busy[0].try_acquire()
                attempts.append(path)
            elif path == directory.lock:
                busy.pop().close()
            hold(locks, manager, path)

        monkeypatch.setattr(switch, "_hold", appearing)
        assert log.repartition("t", 3).partitions == 3
        assert len(attempts) == 1 + in_use
        assert numbers(records(log)) == list(range(20))


def test_a_partitioner_that_is_altered_meanwhile(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t", partitioner="murmur2")
        fill(log, 0, 50)
        with pytest.raises(TopicChanged):
            log.repartition("t", 4, lambda _: other.alter_topic("t", partitioner="murmur3"))
        assert log.repartition("t", 4).partitions == 4
        fill(log, 50, 100)
        assert numbers(records(log)) == list(range(100))


def test_records_that_are_larger_than_the_topic_allows_now(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(bytes(50_000), key=b"k"), ProducerRecord(b"v", key=b"k")])
        log.alter_topic("t", max_message_bytes=1000)
        log.repartition("t", 2)
        found = [record for number in range(2) for record in log.partition("t", number).scan()]
        assert [record.value for record in found] == [bytes(50_000), b"v"]
        assert not log.verify().problems


def test_what_is_refused_changes_nothing(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=3)
        with Producer(log, name="import-7") as producer:
            producer.send("t", b"1", key=b"1", partition=0, sequence=1).result()
        with pytest.raises(ConfigError, match="named producer"):
            log.repartition("t", 2)
        for partitions in (0, -1, True, 100_001):
            with pytest.raises(ConfigError):
                log.repartition("t", partitions)
        with pytest.raises(InvalidTopicName):
            log.repartition("__consumer_offsets", 2)
        with pytest.raises(TopicNotFound):
            log.repartition("missing", 2)
        assert len(records(log)) == 1
        assert not list(tmp_log_dir.glob("*-future"))


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "for_every",
    [
        pytest.param(for_every_kill, id="kill"),
        pytest.param(partial(for_every_power_loss, at_most=3), id="power", marks=pytest.mark.slow),
    ],
)
def test_a_kill_or_a_power_loss_at_any_step_leaves_the_old_or_the_new_partitions(
    for_every: Callable[..., int], seed: int
) -> None:
    machine = Machine(seed)
    log = machine.process().open_log("/log")
    log.create_topic("t", partitions=2)
    for n in range(6):
        log.partition("t", n % 2).append([ProducerRecord(b"%d" % n, key=b"%d" % (n % 2))], acks="all")
    offsets = {TopicPartition("t", 0): 2, TopicPartition("t", 1): 1}
    log.reset_offsets("g", offsets=offsets)
    left = {3, 4, 5}
    has_returned: list[bool] = []

    def change() -> None:
        log.repartition("t", 3)
        has_returned.append(True)

    def parts(count: int) -> set[str]:
        return {f"t-{number}" for number in range(count)}

    found = set()

    def check(machine: Machine) -> None:
        with machine.process().open_log("/log") as after:
            partitions = after.describe_topic("t").partitions
            found.add(partitions)
            assert partitions == 3 or (partitions == 2 and not has_returned)
            assert not any(name.endswith("-delete") for name in after.manager.filesystem.names("/log"))
            after.maintain()
            assert set(after.manager.filesystem.names("/log")) == {".pylog", "__consumer_offsets-0", *parts(partitions)}
            for _ in range(2):
                assert numbers(records(after)) == list(range(6))
                assert not after.verify().problems
                missed = set(left)
                for name, progress in after.describe_group("g").partitions.items():
                    assert progress.committed is not None
                    there = after.partition(*name).scan()
                    missed -= {int(r.value) for r in there if r.offset >= progress.committed.offset}
                assert not missed
                assert after.repartition("t", 3).partitions == 3

    assert for_every(machine, change, check) > 20
    assert found == {2, 3}
