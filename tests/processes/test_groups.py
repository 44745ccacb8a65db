"""Members of a group in processes that are killed, stopped, or end without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.errors import CommitFailed
from pylog.group.admin import GroupAdmin
from pylog.group.lock import read_group

PATIENCE_S = 30.0

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=4)
        with Producer(opened) as producer:
            for number in range(4):
                producer.send("t", b"v", partition=number)
        yield opened


def member(log: Log, **options: int) -> Consumer:
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", **options)
    consumer.subscribe("t")
    return consumer


def in_child(work: Callable[[], None]) -> int:
    """Run it in a forked child, which ends with status 0 if it returns; its pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def poll_until(consumer: Consumer, is_over: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_over():
        assert time.monotonic() < deadline, "nothing has changed for very long"
        consumer.poll(0.05)


@pytest.mark.parametrize("round_", range(3))
def test_what_a_killed_member_had_is_read_by_another(log: Log, round_: int) -> None:
    def live() -> None:
        with Log(log.path) as own, member(own) as consumer:
            while True:
                consumer.poll(1.0)

    with member(log) as consumer:
        pid = in_child(live)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        mine, generation = consumer.assignment(), consumer.group_metadata().generation
        got: set[TopicPartition] = set()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        deadline = time.monotonic() + PATIENCE_S
        while not got - mine:
            assert time.monotonic() < deadline
            got |= {TopicPartition(r.topic, r.partition) for r in consumer.poll(0.05)}
        poll_until(consumer, lambda: len(consumer.assignment()) == 4)
        assert consumer.group_metadata().generation > generation
        assert len(log.describe_group("g").members) == 1


def test_a_member_that_was_stopped_for_too_long_is_expelled_and_its_commit_refused(log: Log) -> None:
    read, write = os.pipe()

    def live() -> None:
        with Log(log.path) as own, member(own, max_poll_interval_ms=500) as consumer:
            while len(consumer.assignment()) != 2:
                consumer.poll(0.05)
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                consumer.commit(dict.fromkeys(consumer.assignment(), 1))
                os.write(write, b"committed")
            except CommitFailed:
                os.write(write, b"refused")

    with member(log) as consumer:
        pid = in_child(live)
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        poll_until(consumer, lambda: len(consumer.assignment()) == 4)
        os.kill(pid, signal.SIGCONT)
        assert os.waitpid(pid, 0)[1] == 0
        assert os.read(read, 100) == b"refused"
        assert all(consumer.committed(partition) is None for partition in consumer.assignment())
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_a_process_that_ends_without_closing_has_left(log: Log, end: str) -> None:
    program = f"""
import sys
from pylog import Consumer, Log
log = Log({str(log.path)!r})
consumer = Consumer(log, group_id="g", auto_offset_reset="earliest")
consumer.subscribe("t")
assert len(consumer.assignment()) == 4
{end}
"""
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    group = read_group(log.manager.part(GroupAdmin).directory("g"))
    assert (group.generation, dict(group.members)) == (2, {})


def test_a_member_forgotten_by_its_program_is_found_gone(log: Log) -> None:
    other = member(log)
    del other
    with member(log) as consumer:
        assert len(consumer.assignment()) == 4


def test_a_child_that_outlives_its_parent_does_not_keep_the_parents_membership_alive(log: Log) -> None:
    read, write = os.pipe()

    def parent() -> None:
        with Log(log.path) as own:
            member(own)
            child = in_child(lambda: bool(os.read(read, 1)) and None)
            os.write(write, b"")
            assert child
            os.kill(os.getpid(), signal.SIGKILL)

    pid = in_child(parent)
    os.waitpid(pid, 0)
    with member(log) as consumer:
        poll_until(consumer, lambda: len(consumer.assignment()) == 4)
    os.write(write, b"x")
    os.close(read)
    os.close(write)
