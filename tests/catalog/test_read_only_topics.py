"""``writable=False``: after the call no process appends records, what is there can be read, and the
call can be undone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.errors import ConfigError, DeliveryTimeout, InvalidTopicName, NotAppended, ReadOnlyTopic, TransactionAborted
from pylog.testing.machine import Machine
from pylog.testing.machine.every_step import for_every_kill, for_every_power_loss
from tests.partition.logs import values_of_topic

RECORD = ProducerRecord(b"v", key=b"k")


def test_after_the_call_no_writer_appends_whatever_it_has_open(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Producer(other, linger_ms=60_000) as producer:
        log.create_topic("t", partitions=2)
        other.partition("t", 0).append([RECORD])
        kept = producer.send("t", b"buffered", partition=0)
        log.alter_topic("t", writable=False)
        with pytest.raises(ReadOnlyTopic) as caught:
            other.partition("t", 0).append([RECORD])
        assert (caught.value.topic, caught.value.writable, caught.value.retriable) == ("t", False, False)
        assert isinstance(caught.value, NotAppended)
        assert isinstance(kept.exception(), ReadOnlyTopic)
        other.clock.sleep(0.02)  # the producer looks at the catalog again after 10 ms
        for _ in range(2):
            with pytest.raises(ReadOnlyTopic, match=r"is read-only .*alter_topic"):
                producer.send("t", b"late", partition=1)
        with Producer(log) as new, pytest.raises(ReadOnlyTopic):
            new.send("t", b"late")
        assert values_of_topic(log, "t") == values_of_topic(other, "t") == [b"v"]
        with Consumer(other, auto_offset_reset="earliest", group_id="g") as consumer:
            consumer.subscribe(["t"])
            assert [record.value for record in consumer.poll(5)] == [b"v"]
            consumer.commit()
        log.alter_topic("t", writable=True)
        producer.send("t", b"again", partition=1).result()
        assert values_of_topic(log, "t") == [b"v", b"again"]


def test_a_producer_continues_when_the_topic_is_writable_again(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Producer(log) as producer:
        log.create_topic("t")
        for value in (b"one", b"two"):
            producer.send("t", value).result()
            log.alter_topic("t", writable=False)
            log.clock.sleep(0.02)  # the producer looks at the catalog again after 10 ms
            with pytest.raises(ReadOnlyTopic):
                producer.send("t", b"late")
            log.alter_topic("t", writable=True)
        producer.send("t", b"three").result()
        assert values_of_topic(log, "t") == [b"one", b"two", b"three"]


def test_a_repeated_batch_that_is_in_a_read_only_topic_is_acknowledged(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        sent: list[bytearray] = []
        partition = log.manager.partition("t", 0)
        append, partition.append_batch = partition.append_batch, lambda batch, **_: sent.append(batch) or append(batch)
        with Producer(log) as producer:
            producer.send("t", b"v").result()
        log.alter_topic("t", writable=False)
        result = append(sent[0])
        assert (result.base_offset, result.duplicate) == (0, True)


def test_a_transaction_that_is_open_ends_in_a_read_only_topic(tmp_log_dir: Path) -> None:
    with (
        Log(tmp_log_dir) as log,
        Producer(log, transactional_id="a") as one,
        Producer(log, transactional_id="b") as two,
    ):
        log.create_topic("t")
        for producer in (one, two):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", producer._config.transactional_id.encode())  # type: ignore[union-attr]
            producer.flush()
        log.alter_topic("t", writable=False)
        one.commit_transaction()
        two.abort_transaction()
        assert log.open_transactions(["t"]) == []
        with Consumer(log, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert [record.value for record in consumer.poll(1)] == [b"a"]


def test_a_transaction_with_a_refused_record_can_only_be_aborted(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t")
        with Producer(other, transactional_id="a", linger_ms=60_000) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"first")
            producer.flush()
            producer.send("t", b"second")
            log.alter_topic("t", writable=False)
            with pytest.raises(TransactionAborted, match="is read-only"):
                producer.commit_transaction()
            producer.abort_transaction()
        assert log.open_transactions(["t"]) == []


def test_the_call_waits_for_an_append_under_way(tmp_log_dir: Path) -> None:
    """A writer that has read the settings before may still append: the call returns after it, and
    knows its record."""
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t")
        partition = other.partition("t", 0)
        partition.append([RECORD], acks="all")
        log.manager.partition("t", 0).sync(1)  # so the sync in the call has nothing to do, and takes no lock
        writer = partition.log.writable()
        check, has_checked, may_go_on = writer._check, threading.Event(), threading.Event()

        def checked(*arguments: Any, **more: Any) -> None:
            check(*arguments, **more)
            has_checked.set()
            assert may_go_on.wait(30)

        writer._check = checked
        append = threading.Thread(target=partition.append, args=[[RECORD]])
        alter = threading.Thread(target=log.alter_topic, args=["t"], kwargs={"writable": False})
        append.start()
        assert has_checked.wait(30)
        alter.start()
        while log.describe_topic("t").config.writable:
            log.clock.sleep(0.001)
        alter.join(0.05)
        assert alter.is_alive()
        may_go_on.set()
        append.join()
        alter.join()
        assert len(values_of_topic(log, "t")) == 2
        writer._check = check
        with pytest.raises(ReadOnlyTopic):
            partition.append([RECORD])


def test_a_stopped_writer_makes_the_call_fail_and_a_repeat_finishes_it(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.manager.manager.LOCK_TIMEOUT_S", 0.01)
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append([RECORD])
        lock = log.manager.filesystem.lock(f"{tmp_log_dir}/t-0/.lock")
        assert lock.try_acquire()
        with pytest.raises(DeliveryTimeout, match="t-0 stayed locked"):
            log.alter_topic("t", writable=False)
        lock.release()
        lock.close()
        log.alter_topic("t", writable=False)
        with pytest.raises(ReadOnlyTopic):
            log.partition("t", 0).append([RECORD])


def test_only_the_topic_that_is_read_only_records_it_where_earlier_versions_refuse_it(tmp_log_dir: Path) -> None:
    path = tmp_log_dir / ".pylog/topics/t.json"
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        assert "writable" not in json.loads(path.read_text())["config"]
        assert not log.alter_topic("t", writable=False).config.writable
        assert json.loads(path.read_text())["config"]["writable"] is False
        log.alter_topic("t", writable=True)
        assert "writable" not in json.loads(path.read_text())["config"]


def test_what_cannot_be_read_only(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        with pytest.raises(ConfigError, match="stay empty"):
            log.create_topic("t", writable=False)
        log.create_topic("t")
        with pytest.raises(ConfigError, match="writable=0, expected True or False"):
            log.alter_topic("t", writable=0)
        with Consumer(log, group_id="g") as consumer:
            consumer.subscribe(["t"])
            consumer.commit({TopicPartition("t", 0): 0})
        with pytest.raises(InvalidTopicName, match="can't be read-only"):
            log.alter_topic("__consumer_offsets", writable=False)


@pytest.mark.slow
def test_after_a_power_loss_at_any_step_a_call_that_returned_holds_with_all_records(seed: int) -> None:
    """Nobody has synced the second record before."""
    _check_every_step(for_every_power_loss, Machine(seed), least=1)


def test_after_a_kill_at_any_step_the_topic_is_writable_or_not_with_all_records() -> None:
    _check_every_step(for_every_kill, Machine(0), least=2)


def _check_every_step(for_every: Callable[..., int], machine: Machine, least: int) -> None:
    log = machine.process().open_log("/log")
    log.create_topic("t")
    log.partition("t", 0).append([RECORD], acks="all")
    log.partition("t", 0).append([RECORD], acks=1)
    has_returned: list[bool] = []

    def change() -> None:
        log.alter_topic("t", writable=False)
        has_returned.append(True)

    def check(machine: Machine) -> None:
        with machine.process().open_log("/log") as after:
            is_writable = after.describe_topic("t").config.writable
            assert len(values_of_topic(after, "t")) >= (2 if has_returned else least)
            assert not (has_returned and is_writable)
            before = len(values_of_topic(after, "t"))
            with nullcontext() if is_writable else pytest.raises(ReadOnlyTopic):
                after.partition("t", 0).append([RECORD])
            assert len(values_of_topic(after, "t")) == before + is_writable

    assert for_every(machine, change, check) > 5
