"""``poll_arrow`` gives what ``poll`` gives: the same records, from the same positions, in the same
turns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.arrow import schema
from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView
from pylog.consumer import Consumer
from pylog.errors import Closed, ConfigError, InvalidTimestamp, SerializationError, Wakeup
from pylog.log import Log
from pylog.model import ProducerRecord, TopicPartition
from tests.arrow.rows import CORNERS, expected, rows, view_of
from tests.codec import strategies
from tests.consumer.fakes import FakeLog, consumer_of, numbered, offsets, values
from tests.consumer.test_kafka_directory import ISOLATIONS, KAFKA, TOPICS, as_kafka_shows_it, expected_records

ORDERS = TopicPartition("orders", 0)
KINDS = {"CreateTime": 0, "LogAppendTime": 1}
LATEST_MS = (2**63 - 1) // 1000


def log_of(batches: list[tuple[int, list[ProducerRecord], str]], partitions: int = 3) -> FakeLog:
    log = FakeLog(orders=partitions)
    for number, records, codec in batches:
        fitting = [record._replace(timestamp_ms=min(record.timestamp_ms or 0, LATEST_MS)) for record in records]
        log.partition("orders", number % partitions).log.append_batch(bytearray(view_of(fitting, codec=codec).buffer))
    return log


batches = st.lists(
    st.tuples(st.integers(0, 2), strategies.records.filter(bool), st.sampled_from(["none", "gzip"])), max_size=12
)


ways = st.sampled_from(["poll", "iterate", "poll_arrow", "with headers"])


@pytest.mark.slow
@given(batches, st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_call_by_call_it_is_what_poll_returns(batches: Any, counts: list[int]) -> None:
    log = log_of(batches)
    plain, arrow = consumer_of(log, "orders"), consumer_of(log, "orders")
    for count in [*counts, 1_000, 1_000]:
        records, table = plain.poll(max_records=count), arrow.poll_arrow(max_records=count, headers=True)
        table.validate(full=True)
        assert table.schema.equals(schema(headers=True))
        assert rows(table) == expected(records, headers=True)
        for number in range(3):
            assert arrow.position(TopicPartition("orders", number)) == plain.position(TopicPartition("orders", number))
    assert arrow.metrics()["records_consumed"] == plain.metrics()["records_consumed"]
    assert arrow.metrics()["read_ahead_bytes"] == 0


@pytest.mark.slow
@given(batches, st.lists(st.tuples(ways, st.integers(1, 9)), max_size=40))
def test_polls_iterations_and_arrow_polls_in_any_order_give_every_record_once(batches: Any, calls: Any) -> None:
    log = log_of(batches)
    wanted = expected(consumer_of(log, "orders").poll(max_records=10_000))
    consumer = consumer_of(log, "orders", consumer_timeout_ms=0, max_poll_records=4)
    read: list[dict[str, Any]] = []
    for way, count in [*calls, ("poll_arrow", 10_000)]:
        if way == "poll":
            read += expected(consumer.poll(max_records=count))
        elif way == "iterate":
            for taken, record in enumerate(consumer, 1):
                read += expected([record])
                if taken == count:
                    break
        else:
            table = consumer.poll_arrow(max_records=count, headers=way == "with headers")
            read += rows(table.select(schema().names))
    for number in range(3):
        assert [row for row in read if row["partition"] == number] == [r for r in wanted if r["partition"] == number]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("max_records", [1, 500, 1_000_000])
def test_a_directory_of_kafkas_gives_what_its_own_consumer_read(topic: str, isolation: str, max_records: int) -> None:
    """Control batches, aborted transactions, compacted gaps, append time, every codec."""
    shown = expected_records(topic, isolation)
    found: list[dict[str, Any]] = []
    with (
        Log(KAFKA / "log") as log,
        Consumer(log, auto_offset_reset="earliest", isolation_level=isolation) as consumer,
        Consumer(log, auto_offset_reset="earliest", isolation_level=isolation) as plain,
    ):
        consumer.subscribe(topic)
        while (table := consumer.poll_arrow(0, max_records, headers=True)).num_rows:
            assert table.num_rows <= max_records
            found += rows(table)
        assert set(consumer.lag().values()) == {0}
        plain.subscribe(topic)
        records = sorted(plain.poll(max_records=1_000_000), key=lambda record: record[1:3])
    found.sort(key=lambda row: (row["partition"], row["offset"]))
    assert [as_kafka_shows_it(*pair) for pair in zip(records, shown, strict=True)] == shown
    kinds = [KINDS[record["timestamp_type"]] for record in shown]
    wanted = expected(records, headers=True)
    assert found == [{**row, "timestampType": kind} for row, kind in zip(wanted, kinds, strict=True)]


def test_nothing_in_time_is_a_table_of_no_rows_with_all_columns() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    for headers in (False, True):
        table = consumer.poll_arrow(timeout=2.5, headers=headers)
        assert (table.num_rows, table.schema) == (0, schema(headers=headers))
    assert log.clock.seconds == 5


def test_it_waits_for_records() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log.on_wait.append(lambda: log["orders"].append(*numbered(0, 3)))
    assert consumer.poll_arrow(timeout=60).column("value").to_pylist() == numbered(0, 3)
    assert log.clock.seconds == 0


def test_max_poll_records_is_the_default() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 1000))
    assert consumer_of(log, "orders").poll_arrow().num_rows == 500
    assert consumer_of(log, "orders", max_poll_records=7).poll_arrow().num_rows == 7


def test_a_wakeup_and_a_close_are_told_as_by_poll() -> None:
    consumer = consumer_of(FakeLog(orders=1), "orders")
    consumer.wakeup()
    with pytest.raises(Wakeup):
        consumer.poll_arrow()
    consumer.close()
    with pytest.raises(Closed):
        consumer.poll_arrow()


@pytest.mark.parametrize("wrong", [{"max_records": 0}, {"max_records": True}, {"timeout": -1}, {"timeout": None}])
def test_wrong_arguments_are_refused_as_by_poll(wrong: Any) -> None:
    consumer = consumer_of(FakeLog(orders=1), "orders")
    for poll in (consumer.poll, consumer.poll_arrow):
        with pytest.raises(ConfigError):
            poll(**wrong)


def test_no_record_objects_are_made_and_a_batch_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 100), codec="gzip")
    decoded = []
    real = BatchView.columns
    monkeypatch.setattr(BatchView, "decoder", None)
    monkeypatch.setattr(BatchView, "columns", lambda *how: decoded.append(how[2]) or real(*how))
    consumer = consumer_of(log, "orders")
    assert [consumer.poll_arrow(max_records=9).num_rows for _ in range(13)] == [9] * 11 + [1, 0]
    assert decoded == [False]  # without headers, since nobody asked for them


def test_deserializers_do_not_apply_and_what_they_refuse_is_no_error() -> None:
    def refuse(value: bytes) -> object:
        raise ValueError(value)

    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 5), key=b"k")
    for first in ("poll", "poll_arrow"):
        consumer = consumer_of(log, "orders", value_deserializer=refuse, key_deserializer=refuse)
        if first == "poll":
            with pytest.raises(SerializationError):
                consumer.poll()
        table = consumer.poll_arrow(max_records=3)
        assert table.column("value").to_pylist() == numbered(0, 3)
        assert table.column("key").to_pylist() == [b"k"] * 3
        with pytest.raises(SerializationError) as caught:
            consumer.poll()
        assert caught.value.offset == 3
        assert consumer.poll_arrow().column("offset").to_pylist() == [3, 4]


def test_what_an_iteration_did_not_give_out_comes_first() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    consumer = consumer_of(log, "orders")
    for record in consumer:
        if record.offset == 3:
            break
    assert consumer.poll_arrow(max_records=2).column("offset").to_pylist() == [4, 5]
    assert offsets(consumer.poll(max_records=2)) == [6, 7]
    assert consumer.poll_arrow().column("offset").to_pylist() == [8, 9]


@pytest.mark.parametrize("max_records", [1, 2, 500])
@pytest.mark.parametrize("wrong", [LATEST_MS + 1, 2**63 - 1])
def test_a_time_beyond_microseconds_is_raised_behind_the_records_before_it(max_records: int, wrong: int) -> None:
    log = FakeLog(orders=1)
    times = [5, LATEST_MS, wrong, 7]
    log["orders"].log.append_batch(
        bytearray(view_of([ProducerRecord(b"%d" % t, timestamp_ms=t) for t in times]).buffer)
    )
    log["orders"].append(*numbered(4, 6))
    consumer = consumer_of(log, "orders")
    read: list[int] = []

    def read_on() -> None:
        while (table := consumer.poll_arrow(max_records=max_records)).num_rows:
            read.extend(table.column("offset").to_pylist())

    for _ in range(2):
        with pytest.raises(InvalidTimestamp, match="seek to 3 to continue") as caught:
            read_on()
        facts = {"topic": "orders", "partition": 0, "offset": 2, "timestamp_ms": wrong}
        assert caught.value.facts == facts
        assert (read, consumer.position(ORDERS)) == ([0, 1], 2)
    assert values(consumer.poll(max_records=1)) == [b"%d" % wrong]
    assert consumer.poll_arrow().column("offset").to_pylist() == [3, 4, 5]
    consumer.seek(ORDERS, 2)
    with pytest.raises(InvalidTimestamp):
        consumer.poll_arrow()
    consumer.seek(ORDERS, 3)
    assert consumer.poll_arrow().column("offset").to_pylist() == [3, 4, 5]


def test_pause_seek_and_a_reset_count_as_for_poll() -> None:
    log = FakeLog(orders=2)
    for number in range(2):
        log.partition("orders", number).append(*numbered(0, 10))
    consumer = consumer_of(log, "orders")
    consumer.poll_arrow(max_records=3)
    consumer.pause(ORDERS)
    assert set(consumer.poll_arrow().column("partition").to_pylist()) == {1}
    consumer.resume(ORDERS)
    assert consumer.poll_arrow().column("offset").to_pylist() == list(range(3, 10))
    consumer.seek(ORDERS, 99)
    assert consumer.poll_arrow().column("offset").to_pylist() == list(range(10))
    assert consumer.metrics()["offset_resets"] == 1


def test_aborted_records_and_what_is_not_durable_stay_hidden() -> None:
    log = FakeLog(orders=1)
    partition = log["orders"]
    partition.append(b"0")
    partition.aborted.add(partition.append(b"1"))
    partition.append_marker()
    partition.append(b"3")
    partition.stable_end = 4
    partition.append(b"4")
    partition.durable_end = 1
    for options, found in [
        ({}, [0, 3]),
        ({"visibility": "durable"}, [0]),
        ({"isolation_level": "read_uncommitted"}, [0, 1, 3, 4]),
    ]:
        assert consumer_of(log, "orders", **options).poll_arrow().column("offset").to_pylist() == found


# Memory


def test_a_table_ends_once_it_holds_fetch_max_bytes() -> None:
    log = FakeLog(orders=2)
    for _ in range(40):
        for number in range(2):
            log.partition("orders", number).append(*[b"x" * 1000] * 10, codec="gzip")
    consumer = consumer_of(log, "orders", fetch_max_bytes=100_000)
    sizes = []
    while rows_now := consumer.poll_arrow(max_records=10**9).num_rows:
        sizes.append(rows_now)
    assert sum(sizes) == 800
    assert set(sizes[:-1]) == {100}


def test_a_decoded_batch_counts_until_its_last_row_is_taken() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*[b"x" * 1000] * 100, codec="gzip")
    consumer = consumer_of(log, "orders")
    consumer.poll_arrow(max_records=99)
    assert consumer.metrics()["read_ahead_bytes"] > 100_000
    consumer.poll_arrow(max_records=1)
    assert consumer.metrics()["read_ahead_bytes"] == 0


def test_no_partition_starves_while_there_is_no_room_to_decode() -> None:
    log = FakeLog(orders=4)
    for number in range(4):
        for _ in range(4):
            log.partition("orders", number).append(*[b"x" * 100] * 10, codec="gzip")
    consumer = consumer_of(log, "orders", fetch_max_bytes=600, max_partition_fetch_bytes=300)
    read = []
    while (table := consumer.poll_arrow(max_records=3)).num_rows:
        read += [*zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)]
    assert sorted(read) == [(number, offset) for number in range(4) for offset in range(40)]


def test_small_batches_become_few_pieces() -> None:
    log = FakeLog(orders=1)
    for number in range(300):
        log["orders"].append(b"%d" % number)
    table = consumer_of(log, "orders").poll_arrow()
    assert (table.num_rows, table.column("value").num_chunks) == (300, 1)


# A real log


@pytest.mark.parametrize("config", [{}, {"message_timestamp_type": "LogAppendTime"}], ids=["created", "appended"])
def test_a_real_log_gives_the_table_of_its_partition(tmp_log_dir: Path, config: dict[str, Any]) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders", segment_bytes=1024, **config)
        partition = log.partition("orders", 0)
        for _ in range(20):
            partition.append(CORNERS, acks=1)
        with Consumer(log, auto_offset_reset="earliest", max_partition_fetch_bytes=2000) as consumer:
            consumer.subscribe("orders")
            tables = []
            while (table := consumer.poll_arrow(max_records=11, headers=True)).num_rows:
                tables.append(table)
        assert {table.num_rows for table in tables[:-1]} == {11}
        assert rows(pa.concat_tables(tables)) == rows(partition.to_arrow(headers=True))


def test_gaps_of_a_compacted_batch_are_no_rows() -> None:
    encoder = RecordEncoder(1 << 20)
    for record in CORNERS:
        encoder.append(1, record.key, record.value, ())
    log = FakeLog(orders=1)
    log["orders"].log.append_batch(bytearray(view_of(CORNERS).buffer))
    (view,) = log["orders"]._batches
    log["orders"]._batches = [BatchView(view.buffer, view.header._replace(last_offset_delta=20))]
    consumer = consumer_of(log, "orders")
    assert consumer.poll_arrow().num_rows == len(CORNERS)
    assert consumer.position(ORDERS) == 21


def test_without_pyarrow_the_error_names_what_to_install(tmp_log_dir: Path) -> None:
    program = f"""
import sys
sys.modules["pyarrow"] = None
import pylog
log = pylog.Log({str(tmp_log_dir)!r})
log.create_topic("orders")
consumer = pylog.Consumer(log)
consumer.subscribe("orders")
try:
    consumer.poll_arrow()
except pylog.errors.ConfigError as error:
    print(error.extra, error, consumer.poll())
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.stdout.startswith("arrow Arrow tables need pyarrow"), shown.stderr
    assert "pip install 'pylog-embedded[arrow]'" in shown.stdout
    assert shown.stdout.endswith(" []\n")


def test_a_word_for_headers_that_is_neither_true_nor_false_is_refused() -> None:
    wrong: Any = []
    with pytest.raises(ConfigError, match="headers must be True or False"):
        consumer_of(FakeLog(orders=1), "orders").poll_arrow(headers=wrong)
