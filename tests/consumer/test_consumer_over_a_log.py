"""The consumer over real files: written by a producer, by another process, damaged, trimmed,
deleted."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.compression import codec_id
from pylog.codec.control import ControlType, build_marker
from pylog.errors import Closed, CorruptRecord, Wakeup
from tests.consumer.fakes import numbered, offsets, values

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log", segment_bytes=4_096, index_interval_bytes=256) as opened:
        opened.create_topic("orders")
        yield opened


def append(log: Log, *values: bytes, number: int = 0) -> None:
    log.partition("orders", number).append([ProducerRecord(value) for value in values], acks=1)


def reading(log: Log, **options: object) -> Consumer:
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 0, **options}
    consumer = Consumer(log, **options)
    consumer.subscribe("orders")
    return consumer


def test_what_a_producer_sends_a_consumer_reads(log: Log) -> None:
    log.create_topic("payments", partitions=3)
    with Producer(log) as producer:
        for number in range(1_000):
            producer.send("payments", b"%d" % number, key=b"%d" % (number % 7), headers=[("trace", b"7f")])
    with reading(log) as consumer:
        consumer.subscribe("payments")
        records = list(consumer)
    assert sorted(values(records), key=int) == numbered(0, 1_000)
    assert {record.headers for record in records} == {(("trace", b"7f"),)}
    for key in range(7):
        assert [int(record.value) for record in records if int(record.key) == key] == list(range(key, 1_000, 7))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_across_segments(log: Log, codec: str) -> None:
    for start in range(0, 2_000, 100):
        encoder = RecordEncoder(1 << 20)
        for value in numbered(start, start + 100):
            encoder.append(1, None, value * 10, ())
        log.partition("orders", 0).log.append_batch(build_batch(encoder, codec=codec_id(codec)))
    assert len(log.partition("orders", 0).segments) > 2
    assert values(list(reading(log))) == [value * 10 for value in numbered(0, 2_000)]


def test_a_seek_to_every_offset_finds_it(log: Log) -> None:
    for start in range(0, 500, 25):
        append(log, *[value * 20 for value in numbered(start, start + 25)])
    consumer = reading(log)
    for offset in [*range(0, 500, 7), 499, 0]:
        consumer.seek(ORDERS, offset)
        assert offsets(consumer.poll(max_records=3)) == list(range(offset, min(offset + 3, 500)))


def test_transactions_show_what_their_isolation_says(log: Log) -> None:
    partition = log.partition("orders", 0)

    def write(producer_id: int, *values: bytes) -> None:
        encoder = RecordEncoder(1 << 20)
        for value in values:
            encoder.append(1, None, value, ())
        partition.log.append_batch(
            build_batch(encoder, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        )

    def end(producer_id: int, how: ControlType) -> None:
        partition.log.append_batch(build_marker(how, producer_id, 0, 0, 1))

    append(log, b"plain")
    write(1, b"committed")
    write(2, b"aborted")
    committed, uncommitted = reading(log), reading(log, isolation_level="read_uncommitted")
    assert values(committed.poll()) == [b"plain"]
    assert values(uncommitted.poll()) == [b"plain", b"committed", b"aborted"]
    end(1, ControlType.COMMIT)
    assert values(committed.poll()) == [b"committed"]
    end(2, ControlType.ABORT)
    append(log, b"after")
    assert values(committed.poll()) == [b"after"]
    assert values(uncommitted.poll()) == [b"after"]
    assert committed.lag() == uncommitted.lag() == {ORDERS: 0}


def test_durable_visibility_waits_for_the_sync(log: Log) -> None:
    append(log, b"written")
    consumer = reading(log, visibility="durable")
    assert consumer.poll() == []
    log.partition("orders", 0).log.sync(1)
    assert values(consumer.poll()) == [b"written"]


def test_a_flipped_bit_is_raised_behind_the_good_records_and_the_rest_is_still_there(log: Log) -> None:
    for start in range(0, 1_000, 10):
        append(log, *[value * 10 for value in numbered(start, start + 10)])
    damaged = log.partition("orders", 0).segments[1]
    data = bytearray(Path(damaged.path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(damaged.path).write_bytes(data)
    consumer = reading(log)
    read: list[int] = []
    with pytest.raises(CorruptRecord) as caught:
        read.extend(record.offset for record in consumer)
    error = caught.value
    assert read == list(range(error.offset))
    assert (error.topic, error.partition) == ORDERS
    assert consumer.position(ORDERS) == error.offset
    consumer.seek(ORDERS, error.next_offset)
    rest = offsets(list(consumer))
    assert rest == list(range(error.next_offset, 1_000))
    assert error.next_offset - error.offset == 10


def test_records_deleted_under_a_consumer_make_it_start_where_the_log_now_starts(log: Log) -> None:
    for start in range(0, 1_000, 10):
        append(log, *[value * 10 for value in numbered(start, start + 10)])
    consumer = reading(log, max_poll_records=10)
    assert offsets(consumer.poll()) == list(range(10))
    log.delete_records(ORDERS, 905)
    consumer.seek(ORDERS, 10)
    assert offsets(list(consumer)) == list(range(905, 1_000))


def test_a_topic_deleted_and_made_anew_is_read_from_its_beginning(log: Log) -> None:
    append(log, *numbered(0, 50))
    consumer = reading(log)
    assert len(consumer.poll()) == 50
    log.delete_topic("orders")
    assert consumer.poll() == []
    assert consumer.assignment() == set()
    log.create_topic("orders", partitions=2)
    append(log, b"new", number=1)
    assert values(consumer.poll()) == [b"new"]


def test_a_wait_ends_with_an_append_of_another_thread_and_with_a_wakeup(log: Log) -> None:
    consumer = reading(log)
    threading.Timer(0.01, append, [log, b"a"]).start()
    assert values(consumer.poll(30)) == [b"a"]
    threading.Timer(0.01, consumer.wakeup).start()
    with pytest.raises(Wakeup):
        consumer.poll(30)


def test_closing_the_log_ends_a_wait(log: Log) -> None:
    consumer = reading(log)
    threading.Timer(0.01, log.close).start()
    with pytest.raises(Closed):
        consumer.poll(30)


def test_many_consumers_in_many_threads_each_read_everything(log: Log) -> None:
    append(log, *numbered(0, 10))
    read: list[list[int]] = []

    def read_1000() -> None:
        with Consumer(log, auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            mine: list[int] = []
            while len(mine) < 1_000:
                mine += offsets(consumer.poll(30))
            read.append(mine)

    threads = [threading.Thread(target=read_1000) for _ in range(4)]
    for thread in threads:
        thread.start()
    for start in range(10, 1_000, 10):
        append(log, *[value * 10 for value in numbered(start, start + 10)])
    for thread in threads:
        thread.join(60)
    assert read == [list(range(1_000))] * 4


@pytest.mark.processes
def test_what_another_process_appends_ends_a_wait(log: Log) -> None:
    consumer = reading(log)
    child = os.fork()
    if child == 0:
        append(log, b"from the child")
        os._exit(0)
    assert values(consumer.poll(30)) == [b"from the child"]
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.processes
def test_a_forked_child_reads_on_by_itself(log: Log) -> None:
    append(log, *numbered(0, 100))
    consumer = reading(log, max_poll_records=10)
    consumer.poll()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, bytes(offsets(list(consumer))))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 1_000) == bytes(range(10, 100))
    assert offsets(list(consumer)) == list(range(10, 100))
    os.close(reader)
    os.close(writer)


def watched_by(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The directories of the partitions that the consumer asks to watch, a list for each time."""
    manager, asked = consumer._log, []
    real = manager.watch

    def watch(partitions: Any, more: Any) -> Any:
        asked.append([partition.published_path for partition in partitions])
        return real(partitions, more)

    monkeypatch.setattr(manager, "watch", watch)
    return asked


def test_what_is_paused_wakes_nobody(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = reading(log)
    asked = watched_by(consumer, monkeypatch)
    consumer.poll(0.05)
    consumer.poll(0.05)
    assert [len(paths) for paths in asked] == [1]
    consumer.pause(*consumer.assignment())
    consumer.poll(0.05)
    consumer.resume(*consumer.assignment())
    consumer.poll(0.05)
    assert [len(paths) for paths in asked] == [1, 0, 1]


def test_a_watch_that_could_not_be_had_is_asked_for_again_some_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = reading(log)
    asked: list[object] = []
    monkeypatch.setattr(log.manager, "watch", lambda partitions, _more: asked.append(partitions))
    for _ in range(3):
        consumer.poll(0.001)
    assert len(asked) == 1
    monkeypatch.setattr(consumer._poll_loop, "_ask_again_s", 0.0)
    consumer.poll(0.001)
    consumer.poll(0.001)
    assert len(asked) == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
def test_what_is_no_longer_read_takes_no_space_after_it_is_deleted(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=2048)
        for number in range(30):
            log.partition("t", 0).append([ProducerRecord(b"%d" % number + bytes(500))], acks=1)
    with Log(tmp_log_dir, read_only=True) as reading, Log(tmp_log_dir) as log, Consumer(reading) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        assert len(consumer.poll(0, max_records=20)) == 20
        log.delete_records(TopicPartition("t", 0), 25)
        assert held(tmp_log_dir) != []
        consumer.unsubscribe()
        assert held(tmp_log_dir) == []


def held(directory: Path) -> list[str]:
    """Segments that this process has open though they are deleted."""
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return [link for link in links if link.startswith(f"{directory}/") and link.endswith(" (deleted)")]
