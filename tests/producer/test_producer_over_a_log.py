"""The producer and a real log, on disk."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylog.errors import BufferTimeout, Closed, NotAppended, ReadOnlyLog, RecordTooLarge
from pylog.log import Log
from pylog.model import Record
from pylog.producer import Producer
from pylog.storage import OsFileSystem
from pylog.storage.os_filesystem import OsAppendableFile
from pylog.testing import ManualClock
from tests.producer.fakes import call_in_thread, wait_until


def records_of(log: Log, topic: str = "t") -> list[Record]:
    return [
        record
        for number in range(log.describe_topic(topic).partitions)
        for record in log.partition(topic, number).scan()
    ]


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("linger_ms", [0, 5])
@pytest.mark.parametrize("partitioner", ["murmur3", "murmur2", "round_robin", "sticky"])
def test_everything_is_there_once_and_in_the_order_sent(
    tmp_log_dir: Path, acks: Any, linger_ms: float, partitioner: str, seed: int
) -> None:
    random = Random(seed)
    keys = [None, *(b"%d" % n for n in range(5))]
    sent = [(random.choice(keys), b"%d" % n) for n in range(300)]
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=3)
        with Producer(
            log, acks=acks, linger_ms=linger_ms, partitioner=partitioner, partitioner_override=True, batch_bytes=1000
        ) as producer:
            deliveries = [producer.send("t", value, key=key) for key, value in sent]
        found = records_of(log)
        assert sorted(int(record.value) for record in found) == list(range(300))
        for number in range(3):
            values = [int(record.value) for record in found if record.partition == number]
            assert values == sorted(values)
        by_key = defaultdict(set)
        for record in found:
            by_key[record.key].add(record.partition)
        if partitioner in ("murmur2", "murmur3"):
            assert all(len(partitions) == 1 for key, partitions in by_key.items() if key is not None)
        if acks != 0:
            place = {record.value: (record.partition, record.offset, record.timestamp_ms) for record in found}
            assert [place[value] for _, value in sent] == [delivery.result()[1:] for delivery in deliveries]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=200), st.integers(0, 2**62),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        max_size=30,
    ),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
)  # fmt: skip
def test_any_record_comes_back_as_it_was_sent(tmpfs_dir: Path, sent: list[Any], codec: str) -> None:
    with Log(tmpfs_dir / "log") as log:
        topic = f"t{log.manager.catalog_version()}.{len(log.topics())}"
        log.create_topic(topic)
        with Producer(log, acks=1, compression=codec, batch_bytes=500) as producer:
            for key, value, timestamp_ms, headers in sent:
                producer.send(topic, value, key=key, timestamp_ms=timestamp_ms, headers=headers)
        assert [record[3:] for record in records_of(log, topic)] == [
            (timestamp_ms, key, value, tuple(headers)) for key, value, timestamp_ms, headers in sent
        ]


def test_acks_all_is_durable_when_the_result_is_there(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with Producer(log) as producer:
            for n in range(3):
                assert producer.send("t", b"v").result().offset == n
                assert log.partition("t", 0).durable_offset == n + 1


def test_acks_1_is_visible_when_the_result_is_there(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t")
        with Producer(log, acks=1) as producer:
            offset = producer.send("t", b"v").result().offset
            assert [record.value for record in other.partition("t", 0).read(offset)] == [b"v"]


def test_a_record_that_nobody_asks_for_is_written_after_the_linger_time(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with Producer(log, linger_ms=1) as producer:
            producer.send("t", b"v")
            wait_until(lambda: producer.metrics()["records_sent"] == 1)
            assert log.partition("t", 0).latest_offset == 1


def test_log_append_time_is_the_timestamp_of_delivery_and_record(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", message_timestamp_type="LogAppendTime")
        with Producer(log) as producer:
            timestamp_ms = producer.send("t", b"v", timestamp_ms=5).result().timestamp_ms
        assert timestamp_ms > 1_600_000_000_000
        assert records_of(log)[0].timestamp_ms == timestamp_ms


def test_batches_of_the_largest_size_a_topic_takes_are_taken_compressed_or_not(tmp_log_dir: Path, seed: int) -> None:
    noise = Random(seed).randbytes(3000)
    with Log(tmp_log_dir) as log:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            log.create_topic(codec, compression_type=codec, max_message_bytes=4000)
            with Producer(log, acks=1) as producer:
                deliveries = [producer.send(codec, noise[: n * 60]) for n in range(50)]
                with pytest.raises(RecordTooLarge):
                    producer.send(codec, noise * 2)
                assert [delivery.result().offset for delivery in deliveries] == list(range(50))


def test_a_log_for_reading_only_appends_nothing(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    with Log(tmp_log_dir, read_only=True) as log, pytest.raises(ReadOnlyLog, match="opened with read_only=True"):
        Producer(log)


def test_a_producer_whose_log_was_closed_first_has_written_what_it_held_and_takes_no_more(tmp_log_dir: Path) -> None:
    log = Log(tmp_log_dir)
    log.create_topic("t")
    producer = Producer(log, linger_ms=60_000)
    delivery = producer.send("t", b"v")
    log.close()
    assert delivery.result(timeout=0).offset == 0
    with pytest.raises(Closed):
        producer.send("new", b"v")
    producer.close()


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_producer_that_has_sent_refuses_every_record_from_the_close_of_its_log_on(
    tmp_log_dir: Path, acks: Any, partitions: int
) -> None:
    clock = ManualClock()
    log = Log(tmp_log_dir, clock=clock)
    log.create_topic("t", partitions=partitions)
    producer = Producer(log, acks=acks)
    producer.send("t", b"v").result()
    log.close()
    clock.advance(1.0)  # a producer of an open log would look at the topics again
    for send in (producer.send, producer.send_many) * 2:
        with pytest.raises(Closed, match=rf"^the log '{log.path}' has been closed; open a new one, and a new producer"):
            send("t", b"late" if send == producer.send else [b"late"])
    producer.close()
    with pytest.raises(Closed, match="the log"):
        producer.send("t", b"later still")


def test_a_topic_deleted_under_a_producer_fails_what_was_on_its_way(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with Producer(log, linger_ms=60_000) as producer:
            producer.send("t", b"1").result()
            delivery = producer.send("t", b"2")
            log.delete_topic("t")
            assert isinstance(delivery.exception(), NotAppended)
            log.create_topic("t")
            assert producer.send("t", b"3").result().offset == 0


def test_records_buffered_for_a_deleted_topic_neither_join_the_next_one_of_its_name_nor_hide_its_records(
    tmp_log_dir: Path,
) -> None:
    clock = ManualClock()
    with Log(tmp_log_dir, clock=clock) as log, Log(tmp_log_dir) as other:
        log.create_topic("t", partitions=2)
        with Producer(log, linger_ms=60_000) as producer:
            late = producer.send("t", b"of the first topic", partition=0)  # which opens no partition yet
            other.delete_topic("t")
            other.create_topic("t", partitions=2)
            clock.advance(1.0)  # the next batch, which is for another partition, looks at the topics again
            sent = [producer.send("t", b"of the second", partition=number) for number in (1, 0)]
            producer.flush()
            assert isinstance(late.exception(), NotAppended)
            assert [delivery.result().offset for delivery in sent] == [0, 0]
        assert [record.value for record in records_of(log)] == [b"of the second"] * 2


def test_topics_are_created_with_the_first_record_where_the_log_allows_it(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, auto_create_topics=True) as log, Producer(log) as producer:
        assert producer.send("new", b"v").result().offset == 0
        assert log.topics() == ["new"]


def test_two_producers_on_one_partition_keep_each_ones_order(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("t")

        def produce(where: Log, name: int) -> None:
            with Producer(where, acks=1, batch_bytes=300) as producer:
                for n in range(1000):
                    producer.send("t", b"%d %d" % (name, n))

        threads = [call_in_thread(lambda args=args: produce(*args)) for args in ((log, 0), (other, 1), (other, 2))]
        for thread in threads:
            thread.join()
        found: list[list[int]] = [[], [], []]
        for record in records_of(log):
            name, n = map(int, record.value.split())
            found[name].append(n)
        assert found == [list(range(1000))] * 3


def test_a_partition_locked_by_another_writer_is_waited_for(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        lock = OsFileSystem().lock(f"{tmp_log_dir}/t-0/.lock")
        with Producer(log, acks=1, linger_ms=60_000) as producer:
            delivery = producer.send("t", b"v")
            assert lock.try_acquire()
            with pytest.raises(TimeoutError):
                delivery.result(timeout=0.01)
            waiting = threading.Event()
            results: list[int] = []
            waiter = call_in_thread(lambda: (waiting.set(), results.append(delivery.result().offset)))
            waiting.wait()
            lock.release()
            waiter.join()
            assert results == [0]
            lock.close()


class SendsWhenRead(bytearray):
    """A value whose conversion to bytes sends another record: what a signal handler can do in pure
    Python at any moment."""

    def __init__(self, producer: Producer, data: bytes) -> None:
        super().__init__(data)
        self.producer = producer

    def __bytes__(self) -> bytes:
        with contextlib.suppress(BufferTimeout):
            self.producer.send("t", b"nested")
        self.producer._sender.drain(self.producer._topics.known["t"].buffers[0], 1.0)
        return b"outer"


def test_a_send_from_inside_a_bulk_send_tears_nothing_apart(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producer = Producer(log, acks=1, linger_ms=60_000)
        producer.send("t", b"first")
        deliveries = producer.send_many("t", [b"a", b"b", SendsWhenRead(producer, b"x"), b"c", b"d"])
        offsets = [delivery.result().offset for delivery in deliveries]
        producer.close()
        values = [record.value for record in log.partition("t", 0).scan()]
        middle = values[offsets[2]]  # the readable codec takes the bytes themselves, and asks nobody
        assert middle in (b"outer", b"x")
        assert [values[offset] for offset in offsets] == [b"a", b"b", middle, b"c", b"d"]
        assert [value for value in values if value != b"nested"] == [b"first", b"a", b"b", middle, b"c", b"d"]


def test_a_flush_within_a_sync_of_the_same_thread_leaves_its_record_to_a_later_one(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler does that interrupts a sync: it cannot sync itself, and no record has
    failed."""
    with Log(tmp_log_dir) as log, Producer(log, acks="all", linger_ms=60_000) as producer:
        log.create_topic("t")
        producer.send("t", b"0").result()
        inner, sync = [], OsAppendableFile.sync

        def interrupted(file: OsAppendableFile) -> None:
            if not inner:
                inner.append(producer.send("t", b"2"))
                with pytest.raises(TimeoutError):
                    producer.flush(0)
            sync(file)

        monkeypatch.setattr(OsAppendableFile, "sync", interrupted)
        outer = producer.send("t", b"1")
        producer.flush()
        assert (outer.result().offset, inner[0].result().offset) == (1, 2)
        assert log.partition("t", 0).durable_offset == 3


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGVTALRM"), reason="this system has no timer for processor time")
@pytest.mark.parametrize(
    "options", [{"acks": 1, "linger_ms": 0}, {"linger_ms": 0}, {"acks": 1, "batch_bytes": 1000}], ids=str
)
@pytest.mark.parametrize("topic", ["same", "other"])
def test_a_signal_handler_that_sends_and_returns_loses_nothing_and_hangs_nobody(
    tmpfs_dir: Path, options: dict[str, Any], topic: str, seed: int
) -> None:
    random = Random(seed)
    sent: list[bytes] = []
    refused = number = 0
    with Log(tmpfs_dir / "log") as log:
        for name in ("same", "other"):
            log.create_topic(name, partitions=2, segment_bytes=20_000)
        producer = Producer(log, **options)
        producer.send("same", b"0", partition=0).result()  # else the handler may interrupt the reservation of its id
        number = 1

        def handler(*_: object) -> None:
            nonlocal refused
            signal.setitimer(signal.ITIMER_VIRTUAL, random.uniform(1e-5, 1e-3))
            value = b"handler %d" % len(sent)
            try:
                producer.send(topic, value, key=value)
            except NotAppended:  # at some places it has to try again later
                refused += 1
            else:
                sent.append(value)

        before = signal.signal(signal.SIGVTALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 1e-4)
            while len(sent) < 30 and number < 1_000_000:
                producer.send("same", b"%d" % number, partition=0)
                number += 1
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        producer.close()
        main = [record.value for record in records_of(log, "same") if not (record.value or b"").startswith(b"handler")]
        assert main == [b"%d" % n for n in range(number)]
        stored = [
            r.value for name in ("same", "other") for r in records_of(log, name) if r.value.startswith(b"handler")
        ]
        assert sorted(stored) == sorted(sent)
        assert len(sent) == 30
        print(f"{len(sent)} sent by the handler, {refused} refused")
