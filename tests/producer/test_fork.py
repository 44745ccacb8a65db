"""A forked child has the producer, but neither its records nor its thread: the parent sends those,
the child its own."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import ForkedHandle
from pylog.log import Log
from pylog.producer import Producer
from tests.producer.fakes import FakeLog, call_in_thread

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # threads are what these tests are about
]


def in_child(function: Callable[[], None]) -> None:
    """Run it in a forked child; fail here with what failed there."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:  # noqa: BLE001 - told to the parent
            os.write(write, traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        report = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, report


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_records_sent_before_a_fork_are_written_once_by_the_parent(tmpfs_dir: Path, acks: Any) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t")
        with Producer(log, acks=acks, linger_ms=60_000) as producer:
            seen: list[object] = []
            before = producer.send("t", b"before")
            before.add_done_callback(seen.append)

            def child() -> None:
                called = len(seen)
                error = before.exception()
                assert isinstance(error, ForkedHandle)
                mine = producer.send("t", b"child")
                assert mine.result().partition == 0
                producer.close()
                assert len(seen) == called

            in_child(child)
            producer.flush()
            assert before.exception() is None
        values = [record.value for record in log.partition("t", 0).scan()]
        assert sorted(values) == [b"before", b"child"]


def test_parent_and_child_have_ids_and_sequences_of_their_own(tmpfs_dir: Path) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t")
        with Producer(log, linger_ms=0) as producer:
            for _ in range(3):
                producer.send("t", b"parent")

            def child() -> None:
                for _ in range(3):
                    assert producer.send("t", b"child").exception() is None
                assert producer.metrics()["records_sent"] == 3

            in_child(child)
            assert producer.send("t", b"parent").result().offset == 6
        assert [record.value for record in log.partition("t", 0).scan()] == [b"parent"] * 3 + [b"child"] * 3 + [
            b"parent"
        ]


def test_a_child_draws_no_id_that_its_parent_draws(tmpfs_dir: Path) -> None:
    with Log(tmpfs_dir / "log") as log:
        mine = [log.manager.next_producer_id() for _ in range(3)]
        read, write = os.pipe()
        in_child(lambda: os.write(write, b" ".join(b"%d" % log.manager.next_producer_id() for _ in range(3))) and None)
        childs = [int(word) for word in os.read(read, 1000).split()]
        mine += [log.manager.next_producer_id() for _ in range(3)]
        assert len({*mine, *childs}) == 9
        os.close(read)
        os.close(write)


def test_a_child_has_a_linger_thread_when_it_needs_one(tmpfs_dir: Path) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t")
        with Producer(log, linger_ms=60_000) as producer:
            producer.send("t", b"before")  # the parent's thread runs

            def child() -> None:
                written = threading.Event()
                with Producer(log, linger_ms=0.1, on_delivery=lambda delivery: written.set()) as own:
                    own.send("t", b"child")
                    assert written.wait(10)

            in_child(child)


@pytest.mark.slow
def test_a_fork_while_other_threads_send_leaves_the_child_usable(tmpfs_dir: Path) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=2)
        with Producer(log, batch_bytes=500, acks=1) as producer:
            stop = threading.Event()
            sent = [0, 0]

            def send(number: int) -> None:
                while not stop.is_set():
                    producer.send("t", b"parent", partition=number)
                    sent[number] += 1

            threads = [call_in_thread(lambda number=number: send(number)) for number in (0, 1)]

            def child() -> None:
                for number in (0, 1):
                    for _ in range(20):
                        producer.send("t", b"child", partition=number)
                producer.flush()
                producer.close()

            for _ in range(10):
                in_child(child)
            stop.set()
            for thread in threads:
                thread.join()
        for number in (0, 1):
            values = [record.value for record in log.partition("t", number).scan()]
            assert (values.count(b"parent"), values.count(b"child")) == (sent[number], 200)


def test_memory_that_the_parents_batches_held_is_free_in_the_child() -> None:
    log = FakeLog(partitions=2)
    producer = log.producer(batch_bytes=1000, buffer_bytes=1000, max_block_ms=0)
    producer.send("t", bytes(500), partition=0)

    def child() -> None:
        assert producer.metrics()["reserved_bytes"] == 0
        producer.send("t", bytes(500), partition=1)
        assert log.partitions == {}

    in_child(child)
    producer.close()


def test_a_child_forked_by_a_signal_handler_in_the_midst_of_a_send_does_not_send_the_parents_record() -> None:
    """It entered the record into a buffer of its parent's, wrote it under an id of its own, and the
    next one out of order."""
    log = FakeLog()
    producer = log.producer(batch_bytes=200, linger_ms=60_000)
    read, write = os.pipe()
    child = [-1]
    log.partition("t").script.append(lambda: child.__setitem__(0, os.fork()))
    producer.send("t", b"v" * 100)
    report = b"sent"
    try:
        producer.send("t", b"parent" * 20)  # writes the full batch, and forks in it
    except ForkedHandle:
        report = b"belongs to the parent"
    if child[0] == 0:
        status = 1
        try:
            assert report == b"belongs to the parent"
            before = len(log.partition("t").values)
            for number in range(3):
                assert producer.send("t", b"child %d" % number).result() is not None
            assert log.partition("t").values[before:] == [b"child 0", b"child 1", b"child 2"]
            status = 0
        except BaseException:  # noqa: BLE001 - told to the parent
            os.write(write, traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read().decode() == ""
    assert os.waitpid(child[0], 0)[1] == 0
    assert report == b"sent"
    producer.close()
    assert log.partition("t").values == [b"v" * 100, b"parent" * 20]


def test_a_child_that_a_callback_forked_does_not_write_what_its_parents_thread_was_about_to(tmpfs_dir: Path) -> None:
    """It went on with the round over the partitions, and wrote the parent's batches under an id of
    its own."""
    children: list[int] = []
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=3)
        producer = Producer(log, acks=1, linger_ms=20)
        sent = [producer.send("t", b"%d" % number, partition=number) for number in range(3)]
        # It forks in the linger thread, which writes the other two.
        sent[0].add_done_callback(lambda _: children.append(os.fork()))
        while not all(delivery.done() for delivery in sent) or not children:
            threading.Event().wait(0.01)
        assert os.waitpid(children[0], 0)[1] == 0  # it has ended: nothing was left for it to do
        assert [log.partition("t", number).latest_offset for number in range(3)] == [1, 1, 1]
        producer.close()


def test_a_child_that_a_callback_forked_in_a_flush_returns_from_it_without_writing(tmpfs_dir: Path) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=2)
        producer = Producer(log, acks=1, linger_ms=60_000)
        child = [-1]
        producer.send("t", b"0", partition=0).add_done_callback(lambda _: child.__setitem__(0, os.fork()))
        producer.flush()
        second = producer.send("t", b"1", partition=1) if child[0] else None
        if second is None:
            status = 1
            try:
                producer.flush()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child[0], 0)[1] == 0
        assert second.result().offset == 0
        assert [log.partition("t", number).latest_offset for number in range(2)] == [1, 1]
        producer.close()
