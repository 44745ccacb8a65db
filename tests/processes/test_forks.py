"""A process forks with logs, producers and consumers open: nothing is written twice, and both go
on."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord
from pylog.errors import ForkedHandle
from tests.partition.logs import topic_of, values_of_topic
from tests.processes.sharing import forked, result_of

pytestmark = pytest.mark.processes


def test_a_fork_in_the_middle_of_a_batch_writes_nothing_twice_and_both_go_on(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("events")
        producer = Producer(log, acks=1, linger_ms=60_000)
        waiting = [producer.send("events", b"parent %d" % i) for i in range(10)]

        def child() -> tuple[str, int]:
            try:
                waiting[0].result(timeout=5)
                fate = "acknowledged"
            except ForkedHandle:
                fate = "belongs to the parent"
            sent = [producer.send("events", b"child %d" % i) for i in range(10)]
            producer.flush()
            return fate, len({delivery.result().offset for delivery in sent})

        fate, offsets = result_of(forked(child))
        assert (fate, offsets) == ("belongs to the parent", 10)
        waiting += [producer.send("events", b"parent %d" % i) for i in range(10, 20)]
        producer.close()
        counted = Counter(values_of_topic(log, "events"))
        assert counted == Counter([b"parent %d" % i for i in range(20)] + [b"child %d" % i for i in range(10)])
        assert [value for value in values_of_topic(log, "events") if value and value.startswith(b"parent")] == [
            b"parent %d" % i for i in range(20)
        ]


def test_a_child_does_not_keep_the_lock_of_a_parent_that_died(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("events")

        def parent() -> int:
            mine = Log(tmp_path / "log")
            partition = mine.partition("events", 0)
            partition.append([ProducerRecord(b"parent")], acks=1)
            lock = partition.log.writable()._lock._lock
            assert lock is not None
            assert lock.try_acquire()  # as a parent that dies in mid-append would
            grandchild = os.fork()
            if grandchild == 0:
                signal.alarm(60)  # whatever becomes of the test
                signal.pause()
            return grandchild

        grandchild = result_of(forked(parent))
        try:
            log.partition("events", 0).append([ProducerRecord(b"after")], acks=1, timeout_ms=5000)
        finally:
            os.kill(grandchild, signal.SIGKILL)
        assert values_of_topic(log, "events") == [b"parent", b"after"]


def test_a_child_that_exits_does_not_free_the_lock_of_its_parent(tmp_path: Path) -> None:
    from pylog.errors import DeliveryTimeout

    with Log(tmp_path / "log") as log, Log(tmp_path / "log") as other:
        partition = topic_of(log, "events")
        partition.append([ProducerRecord(b"first")], acks=1)
        lock = partition.log.writable()._lock._lock
        assert lock is not None
        assert lock.try_acquire()
        assert result_of(forked(lambda: partition.latest_offset)) == 1
        with pytest.raises(DeliveryTimeout):
            other.partition("events", 0).append([ProducerRecord(b"too early")], acks=1, timeout_ms=50)
        lock.release()
        other.partition("events", 0).append([ProducerRecord(b"second")], acks=1)
        assert values_of_topic(log, "events") == [b"first", b"second"]


def test_parent_and_child_append_at_once_while_threads_of_the_parent_were_appending(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        partition = topic_of(log, "events")
        stop = threading.Event()
        counts = [0, 0]

        def append(number: int) -> None:
            while not stop.is_set():
                partition.append([ProducerRecord(b"thread %d" % number)], acks=1)
                counts[number] += 1

        threads = [threading.Thread(target=append, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()

        def append_twenty(number: int) -> None:
            for _ in range(20):
                partition.append([ProducerRecord(b"child %d" % number)], acks=1)

        children = [forked(lambda number=number: append_twenty(number)) for number in range(10)]
        for child in children:
            result_of(child)
        stop.set()
        for thread in threads:
            thread.join()
        counted = Counter(values_of_topic(log, "events"))
        assert counted == Counter(
            {b"thread 0": counts[0], b"thread 1": counts[1], **{b"child %d" % i: 20 for i in range(10)}}
        )


def test_a_consumer_goes_on_in_a_child_from_where_it_stood(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        partition = topic_of(log, "events")
        partition.append([ProducerRecord(b"%d" % i) for i in range(10)], acks=1)
        consumer.subscribe(["events"])
        assert [record.value for record in consumer.poll(1.0, max_records=4)] == [b"0", b"1", b"2", b"3"]
        rest = [b"%d" % i for i in range(4, 10)]
        assert result_of(forked(lambda: [record.value for record in consumer.poll(1.0)])) == rest
        assert [record.value for record in consumer.poll(1.0)] == rest
