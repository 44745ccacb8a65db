"""A worker that consumes and produces in transactions is stopped, or killed in its commit. At any
time: test_transactions.py."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.errors import CommitFailed
from pylog.transaction.offsets import TransactionOffsets
from tests.processes.test_groups import in_child, member, poll_until

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]

PARTITIONS = 4


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=PARTITIONS)
        opened.create_topic("out", partitions=2)
        yield opened


def fill(log: Log, count: int) -> None:
    with Producer(log, acks=1) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)


def outputs(log: Log) -> Counter[int]:
    found: Counter[int] = Counter()
    with Consumer(log, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.subscribe("out")
        while records := consumer.poll():
            found.update(int(record.value) for record in records)
    return found


def test_a_worker_that_was_stopped_while_others_took_its_partitions_commits_nothing(log: Log) -> None:
    fill(log, PARTITIONS)

    def stop_before_the_commit() -> None:
        with Log(log.path) as own, member(own, max_poll_interval_ms=500) as consumer:
            producer = Producer(own, transactional_id="stopped")
            producer.init_transactions()
            while len(consumer.assignment()) != 2:
                consumer.poll(0.05)
            for partition in consumer.assignment():
                consumer.seek(partition, 0)
            records = []
            while len(records) < 2:
                records += consumer.poll(0.05)
            producer.begin_transaction()
            for record in records:
                producer.send("out", record.value)
            positions = {partition: consumer.position(partition) for partition in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            os.kill(os.getpid(), signal.SIGSTOP)
            with pytest.raises(CommitFailed):
                producer.commit_transaction()
            producer.abort_transaction()

    with member(log) as consumer, Producer(log, transactional_id="other") as producer:
        producer.init_transactions()
        pid = in_child(stop_before_the_commit)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS)
        for partition in consumer.assignment():
            consumer.seek(partition, consumer.committed(partition) or 0)
        records = []
        while len(records) < PARTITIONS:
            records += consumer.poll(0.05)
        with producer.transaction():
            for record in records:
                producer.send("out", record.value)
            positions = {partition: consumer.position(partition) for partition in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        os.kill(pid, signal.SIGCONT)
        assert os.waitpid(pid, 0)[1] == 0
    assert outputs(log) == Counter(range(PARTITIONS))


@pytest.mark.parametrize("step", ["before the check", "after the check", "before the markers"])
def test_a_worker_that_is_killed_in_the_midst_of_its_commit_is_followed_at_once(
    log: Log, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, PARTITIONS)

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    check = TransactionOffsets.while_owned

    def die_with_the_locks(offsets: TransactionOffsets, _: object) -> None:
        check(offsets, die)

    def commit() -> None:
        if step == "before the markers":
            monkeypatch.setattr("pylog.producer.transactions.ProducerTransactions._finish", die)
        else:
            monkeypatch.setattr(
                TransactionOffsets, "while_owned", die if step == "before the check" else die_with_the_locks
            )
        with Log(log.path) as own, member(own) as consumer:
            producer = Producer(own, transactional_id="killed")
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("out", b"7")
            producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, consumer.group_metadata())
            producer.commit_transaction()

    assert os.waitstatus_to_exitcode(os.waitpid(in_child(commit), 0)[1]) == -signal.SIGKILL
    with member(log) as consumer:
        poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS)
        is_committed = step == "before the markers"
        assert consumer.committed(TopicPartition("t", 0)) == (1 if is_committed else None)
        assert outputs(log) == ({7: 1} if is_committed else {})
