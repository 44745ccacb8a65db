"""``send_arrow`` sends what as many ``send``s would, row by row of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.arrow import rows as arrow_rows
from pylog.arrow.rows import rows_of
from pylog.consumer import Consumer
from pylog.errors import (
    BufferTimeout,
    Closed,
    ConfigError,
    DeliveryTimeout,
    InvalidPartition,
    InvalidTimestamp,
    PylogError,
    RecordTooLarge,
    SerializationError,
    TopicNotFound,
)
from pylog.log import Log
from pylog.producer import Producer
from pylog.producer.deliveries import Deliveries
from pylog.producer.send_arrow import TableSender
from tests.producer.fakes import START_MS, FakeLog

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = {
    "value": pa.binary(),
    "key": pa.binary(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": HEADERS,
}
TEXTS = [
    *(pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view()),
    *(pa.dictionary(pa.int8(), pa.binary()), pa.dictionary(pa.int64(), pa.large_string())),
]

texts = st.none() | st.text("abc", max_size=40)
row = st.fixed_dictionaries(
    {
        "value": texts,
        "key": st.none() | st.text("abc", max_size=2),
        "partition": st.none() | st.integers(0, 2),
        "timestamp": st.none() | st.sampled_from([0, 1_700_000_000_000]),
        "headers": st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    }
)
rows = st.lists(st.tuples(row, st.integers(1, 40)), max_size=8).map(
    lambda runs: [r for r, times in runs for _ in range(times)]
)
columns = st.sets(st.sampled_from([*SCHEMA][1:])).map(lambda chosen: ["value", *sorted(chosen)])


def table_of(rows: list[dict[str, Any]], names: list[str], kind: pa.DataType = SCHEMA["value"]) -> pa.Table:
    """Timestamps are given in milliseconds, headers as pairs."""
    arrays = {}
    for name in names:
        cells = [row.get(name) for row in rows]
        if name in ("key", "value"):
            cells = [cell.encode() if isinstance(cell, str) else cell for cell in cells]
            plain = pa.array(cells, pa.binary())
            if pa.types.is_dictionary(kind):
                plain = plain.cast(kind.value_type).dictionary_encode()
                arrays[name] = plain.cast(kind)
            else:
                arrays[name] = plain.cast(kind)
        elif name == "timestamp":
            arrays[name] = pa.array([c and c * 1000 for c in cells], pa.int64()).view(SCHEMA[name])
        elif name == "headers":
            listed = [c and [{"key": key, "value": value} for key, value in c] for c in cells]
            arrays[name] = pa.array(listed, HEADERS)
        else:
            arrays[name] = pa.array(cells, SCHEMA[name])
    return pa.table(arrays)


def wanted_of(row: dict[str, Any], names: list[str]) -> tuple[Any, ...]:
    """Time, key, value, headers as a record has them."""
    cells = {name: row[name] for name in names}
    value, key = (cell if cell is None else cell.encode() for cell in (cells["value"], cells.get("key")))
    time_ms = cells.get("timestamp")
    return START_MS if time_ms is None else time_ms, key, value, tuple(cells.get("headers") or ())


@pytest.mark.slow
@given(
    rows, columns, st.sampled_from(TEXTS), st.integers(1, 30), st.integers(150, 1000), st.integers(0, 3),
    st.sampled_from(["murmur3", "murmur2", "round_robin", "sticky", lambda key, count: 0]), st.sampled_from([0, 60_000]),
)  # fmt: skip
def test_it_sends_what_as_many_sends_would_in_the_same_order(
    rows: list[dict[str, Any]], names: list[str], kind: pa.DataType, chunk: int, batch_bytes: int, cut: int,
    partitioner: Any, linger_ms: int,
) -> None:  # fmt: skip
    log = FakeLog(partitions=3)
    whole = table_of(rows, names, kind)
    table = pa.concat_tables([whole.slice(at, chunk) for at in range(0, len(rows), chunk)] or [whole]).slice(cut)
    rows = rows[cut:]
    called: list[object] = []
    with log.producer(
        batch_bytes=batch_bytes,
        partitioner=partitioner,
        partitioner_override=True,
        linger_ms=linger_ms,
        on_delivery=called.append,
    ) as producer:
        deliveries = producer.send_arrow("t", table)
        assert linger_ms or deliveries.done()
        assert isinstance(deliveries, Deliveries)
        metadata = deliveries.result()
    assert len(deliveries) == len(metadata) == len(rows) == len(called)
    assert [delivery.result() for delivery in map(deliveries.__getitem__, range(len(rows)))] == metadata
    stored = {(number, r.offset): r for (_, number), p in log.partitions.items() for r in p.records}
    assert len(stored) == len(rows)
    for row, found in zip(rows, metadata, strict=True):
        record = stored[found.partition, found.offset]
        assert record[3:] == wanted_of(row, names)
        assert found.timestamp_ms == record.timestamp_ms
        if "partition" in names and row["partition"] is not None:
            assert found.partition == row["partition"]
        elif record.key is not None and partitioner == "murmur3":
            assert found.partition == (mmh3.hash(record.key) & 0x7FFFFFFF) % 3
    for number in range(3):
        offsets = [found.offset for found in metadata if found.partition == number]
        assert offsets == sorted(offsets)


def test_a_record_batch_and_an_empty_table_will_do() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send_arrow("t", pa.record_batch({"value": [b"a", b"b", b"c"]}).slice(1))
        assert len(producer.send_arrow("t", pa.table({"value": pa.array([], pa.binary())}))) == 0
        assert producer.send_arrow("t", pa.schema([("value", pa.binary())]).empty_table()).result() == []
    assert log.partition("t").values == [b"b", b"c"]


def test_columns_without_a_type_are_nulls() -> None:
    log = FakeLog()
    names = ["value", "key", "partition", "timestamp", "headers"]
    with log.producer() as producer:
        producer.send_arrow("t", pa.table({name: pa.nulls(2) for name in names}))
    assert [record[3:] for record in log.partition("t").records] == [(START_MS, None, None, ())] * 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Madrid"])
def test_timestamps_of_every_unit_are_milliseconds_since_1970_utc(unit: str, zone: str | None) -> None:
    a_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    log = FakeLog()
    times = pa.array([0, 1_700_000_000 * a_second, 1_700_000_000 * a_second + a_second - 1, None], pa.int64())
    with log.producer() as producer:
        producer.send_arrow("t", pa.table({"value": [b"v"] * 4, "timestamp": times.view(pa.timestamp(unit, zone))}))
        log.clock.seconds += 60
        producer.send_arrow("t", pa.table({"value": [b"v"] * 2, "timestamp": pa.array([7, None], pa.uint16())}))
    found = [record.timestamp_ms for record in log.partition("t").records]
    last_ms = 1_700_000_000_000 + (0 if unit == "s" else 999)
    assert found == [0, 1_700_000_000_000, last_ms, START_MS, 7, START_MS + 60_000]


def test_serializers_do_not_apply() -> None:
    def refuse(value: object) -> bytes:
        raise ValueError(value)

    log = FakeLog(partitions=3)
    with log.producer(key_serializer=refuse, value_serializer=refuse) as producer:
        producer.send_arrow("t", pa.table({"value": ["v"], "key": ["k"]})).result()
        producer.send_arrow("t", pa.table({"value": ["v"], "key": ["k"], "timestamp": [5]})).result()


def test_headers_may_come_in_any_of_their_forms() -> None:
    log = FakeLog()
    pair = pa.struct([("value", pa.large_binary()), ("key", pa.dictionary(pa.int8(), pa.string()))])
    cells = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [], [{"key": "鍵", "value": b""}]]
    with log.producer() as producer:
        for kind in (pa.large_list(pair), pa.list_(pair)):
            headers = pa.array([*cells, *cells], kind).slice(1, 5)
            producer.send_arrow("t", pa.table({"value": [b"v"] * 5, "headers": headers}))
    wanted = [(), (), (("鍵", b""),), (("a", b"1"), ("a", None)), ()]
    assert [record.headers for record in log.partition("t").records] == wanted * 2


# What is refused


def wrong_row(how: str, index: int, count: int) -> tuple[pa.Table, type[PylogError]]:
    """A table whose row ``index`` can't be sent."""
    cells: list[dict[str, Any]] = [{"value": b"%d" % n, "key": b"%d" % (n % 5)} for n in range(count)]
    if how == "large":
        cells[index]["value"] = bytes(3000)
        return table_of(cells, ["value"]), RecordTooLarge
    if how == "large, keys":
        cells[index]["value"] = bytes(3000)
        return table_of(cells, ["value", "key"]), RecordTooLarge
    if how == "large, partitions":
        for n, cell in enumerate(cells):
            cell["partition"] = n % 3
        cells[index]["value"] = bytes(3000)
        return table_of(cells, ["value", "partition"]), RecordTooLarge
    if how.startswith("partition"):
        for n, cell in enumerate(cells):
            cell["partition"] = n % 3 if how == "partition, mixed" else 1
        cells[index]["partition"] = -1 if how == "partition below" else 3
        return table_of(cells, ["value", "partition"]), InvalidPartition
    if how.startswith("time"):
        for n, cell in enumerate(cells):
            cell["timestamp"] = n if how == "times, all different" else 5
        cells[index]["timestamp"] = -1
        return table_of(cells, ["value", "timestamp"]), InvalidTimestamp
    cells[index]["headers"] = [(None, b"v")]
    return table_of(cells, ["value", "headers"]), SerializationError


@pytest.mark.parametrize("bad", [0, 1, 25, 99])
@pytest.mark.parametrize("batch_bytes", [150, 1 << 20])
@pytest.mark.parametrize("chunk", [1000, 17])
@pytest.mark.parametrize(
    "how",
    [
        *("large", "large, keys", "large, partitions", "partition above", "partition below", "partition, mixed"),
        *("times, all different", "time", "headers"),
    ],
)
def test_all_rows_before_a_refused_one_are_accepted_and_none_behind_it(
    how: str, bad: int, batch_bytes: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_rows, "PIECE_ROWS", chunk)
    log = FakeLog(partitions=3, max_message_bytes=2000)
    table, error = wrong_row(how, bad, 100)
    called: list[object] = []
    with log.producer(batch_bytes=batch_bytes, on_delivery=called.append) as producer:
        with pytest.raises(error) as caught:
            producer.send_arrow("t", table)
        assert caught.value.index == bad
    stored = [record.value for partition in log.partitions.values() for record in partition.records]
    assert sorted(stored, key=lambda value: int(value or b"")) == [b"%d" % n for n in range(bad)]
    assert len(called) == bad


@pytest.mark.parametrize("times", [False, True])
def test_a_call_that_times_out_says_what_was_accepted(times: bool) -> None:
    log = FakeLog()

    def locked() -> None:
        raise DeliveryTimeout("locked")

    log.partition("t").script.extend([lambda: None, locked])
    columns: dict[str, Any] = {"value": [b"%d" % n for n in range(300)]}
    if times:
        columns["timestamp"] = range(300)
    producer = log.producer(batch_bytes=200, max_block_ms=0)
    with pytest.raises(BufferTimeout) as caught:
        producer.send_arrow("t", pa.table(columns))
    producer.close()
    assert 0 < caught.value.index < 300
    assert log.partition("t").values == columns["value"][: caught.value.index]


def test_a_header_name_that_is_not_utf_8_is_refused_with_its_row() -> None:
    names = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    pairs = pa.StructArray.from_arrays([names, pa.array([b"v"])], names=["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 0, 1], pa.int32()), pairs)
    log = FakeLog()
    with log.producer() as producer, pytest.raises(SerializationError, match="UTF-8") as caught:
        producer.send_arrow("t", pa.table({"value": [b"a", b"b"], "headers": headers}))
    assert caught.value.index == 1
    assert log.partition("t").values == [b"a"]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (
            {"value": [b"v"], "topics": ["t"], "at": [1]},
            r"columns at, topics: .*value \(binary .* offset, timestampType are ig",
        ),
        ({"key": [b"k"]}, r"no column value among \['key'\]"),
        ({"value": [1]}, "column value is int64, expected binary or string"),
        ({"value": [["v"]]}, "column value is list"),
        ({"value": [b"v"], "key": [1.5]}, "column key is double"),
        ({"value": [b"v"], "partition": [1.0]}, "column partition is double, expected an integer"),
        ({"value": [b"v"], "partition": [True]}, "column partition is bool"),
        (
            {"value": [b"v"], "timestamp": ["2026"]},
            "column timestamp is string, expected a timestamp, or an integer of m",
        ),
        ({"value": [b"v"], "headers": [[b"h"]]}, "column headers is list"),
        ({"value": [b"v"], "headers": [[{"key": "h"}]]}, "expected list<struct<key: string, value: binary>>"),
        (
            {"value": [b"v"], "headers": [[{"key": 1, "value": b""}]]},
            "expected list<struct<key: string, value: binary>>",
        ),
    ],
    ids=str,
)
def test_a_table_of_other_columns_is_refused_whole_and_the_error_says_what_may_be(table: Any, complaint: str) -> None:
    log = FakeLog()
    with log.producer() as producer, pytest.raises(ConfigError, match=complaint):
        producer.send_arrow("t", pa.table(table))
    assert log.partitions == {}


def test_a_column_may_stand_there_once_and_what_is_no_table_is_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with FakeLog().producer() as producer:
        with pytest.raises(ConfigError, match=r"columns value: .* each once") as caught:
            producer.send_arrow("t", twice)
        assert caught.value.allowed == ["value", "key", "partition", "timestamp", "headers"]
        for wrong in ([b"v"], {"value": [b"v"]}, None, twice.column(0)):
            with pytest.raises(ConfigError, match="RecordBatch, not"):
                producer.send_arrow("t", wrong)
        with pytest.raises(TopicNotFound):
            producer.send_arrow("u", pa.table({"value": [b"v"]}))
    with pytest.raises(Closed):
        producer.send_arrow("t", pa.table({"value": [b"v"]}))


def test_a_topic_deleted_in_the_midst_ends_the_call_at_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog()
    monkeypatch.setattr(arrow_rows, "PIECE_ROWS", 10)
    with log.producer(batch_bytes=200, linger_ms=0) as producer:
        producer.send_arrow("t", pa.table({"value": [b"v"] * 10})).result()
        log.delete_topic("t")
        with pytest.raises(TopicNotFound) as caught:
            producer.send_arrow("t", pa.table({"value": [b"v"] * 100}))
        assert caught.value.index == 0


# How it goes about it


def test_rows_without_headers_and_long_runs_of_them_go_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(partitions=3)
    one_by_one: list[tuple[int, int]] = []
    send_rows = TableSender._send_rows

    def spy(self: TableSender, topic: Any, rows: Any, run: Any, now_ms: int) -> Deliveries:
        one_by_one.append((run.start, run.stop))
        return send_rows(self, topic, rows, run, now_ms)

    monkeypatch.setattr(TableSender, "_send_rows", spy)
    plain = {"value": [b"%d" % n for n in range(100)], "key": [b"%d" % n for n in range(100)]}
    with log.producer() as producer:
        producer.send_arrow("t", pa.table({**plain, "partition": [n % 3 for n in range(100)]}))
        producer.send_arrow(
            "t", pa.table({**plain, "timestamp": [5] * 50 + [6] * 50, "headers": pa.nulls(100, HEADERS)})
        )
        producer.send_arrow("t", pa.table({**plain, "timestamp": range(100)}))
        producer.send_arrow("t", pa.table({**plain, "timestamp": [None if n % 3 else n for n in range(100)]}))
        assert one_by_one == []
        headers = [[{"key": "h", "value": b""}] if n in (1, 30, 40) else None for n in range(100)]
        producer.send_arrow("t", pa.table({**plain, "headers": pa.array(headers, HEADERS)}))
    assert one_by_one == [(0, 2), (30, 41)]


@pytest.mark.parametrize("names", [("value",), ("value", "key"), ("value", "headers")], ids=str)
def test_each_delivery_has_its_rows_own_time(names: tuple[str, ...]) -> None:
    log = FakeLog(partitions=3)
    columns = {name: [b"%d" % n for n in range(-3, 100)] for name in ("value", "key")}
    columns["headers"] = pa.array([[{"key": "h", "value": b""}] if n % 40 == 20 else None for n in range(103)], HEADERS)
    plain = {name: columns[name] for name in names}
    times = [None if n % 7 == 0 else 10_000 - n for n in range(-3, 100)]
    with log.producer(batch_bytes=400) as producer:
        for some in ([time or 5 for time in times], times):
            sliced = pa.table({**plain, "timestamp": pa.array(some, pa.timestamp("ms"))}).slice(3)
            some = some[3:]  # noqa: PLW2901 - what is left
            deliveries = producer.send_arrow("t", sliced)
            producer.flush()
            for number, delivery in enumerate(deliveries):
                found = delivery.result()
                record = log.partition("t", found.partition).records[found.offset]
                assert record.value == b"%d" % number
                assert record.timestamp_ms == found.timestamp_ms
                assert found.timestamp_ms == some[number] or some[number] is None


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (pa.int64(), -1), (pa.uint64(), 2**63), (pa.timestamp("s"), 2**63 // 1000 + 1), (pa.timestamp("us"), -1),
        (pa.timestamp("ns"), -1), (pa.int8(), -128),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("with_null", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_time_that_no_record_can_have_is_refused_with_its_row(
    kind: pa.DataType, wrong: int, with_null: bool, keyed: bool
) -> None:
    log = FakeLog(partitions=3)
    times = [*range(50), wrong, 1, None if with_null else 2, wrong]
    storage = pa.int64() if pa.types.is_timestamp(kind) else kind
    columns: dict[str, Any] = {
        "value": [b"%d" % n for n in range(54)],
        "timestamp": pa.array(times, storage).view(kind),
    }
    if keyed:
        columns["key"] = columns["value"]
    with log.producer() as producer:
        with pytest.raises(InvalidTimestamp, match=r"timestamp -?\d+, expected whole milliseconds") as caught:
            producer.send_arrow("t", pa.table(columns))
        assert caught.value.index == 50
    found = [record.value for number in range(3) for record in log.partition("t", number).records]
    assert sorted(found, key=int) == columns["value"][:50]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_pieces_are_bounded_in_rows_and_bytes_however_the_table_shares_them(kind: pa.DataType) -> None:
    same = pa.array([b"x" * 100_000], pa.binary())
    if pa.types.is_dictionary(kind):
        values = pa.DictionaryArray.from_arrays(pa.array([0] * 500, kind.index_type), same.cast(kind.value_type))
    else:
        values = pa.array([b"x" * 100_000] * 500, pa.binary()).cast(kind)
    sizes = [len(piece.values) for piece in rows_of(pa.table({"value": values}))]
    assert sum(sizes) == 500
    assert max(sizes) * 100_000 <= arrow_rows.PIECE_BYTES
    assert len(sizes) < 30
    sizes = [
        len(piece.values) for piece in rows_of(pa.table({"value": pa.array([b""] * 25_000, pa.binary()).cast(kind)}))
    ]
    assert sizes == [10_000, 10_000, 5_000]


def test_headers_and_keys_count_too() -> None:
    cells: Any = [[{"key": "h", "value": bytes(100_000)}]] * 100
    table = pa.table({"value": [b""] * 100, "key": [bytes(100_000)] * 100, "headers": pa.array(cells, HEADERS)})
    assert max(len(piece.values) for piece in rows_of(table)) * 200_000 <= arrow_rows.PIECE_BYTES


def test_more_than_the_buffer_holds_is_sent_in_one_call() -> None:
    log = FakeLog()
    values = [b"%d" % n for n in range(30_000)]
    with log.producer(batch_bytes=1000, buffer_bytes=1000) as producer:
        producer.send_arrow("t", pa.table({"value": values}))
    assert log.partition("t").values == values


# A real log


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_table_read_is_a_table_to_be_sent(tmp_log_dir: Path, partitions: int) -> None:
    with Log(tmp_log_dir) as log:
        for name in ("one", "two"):
            log.create_topic(name, partitions=partitions)
        with Producer(log, acks=1) as producer:
            for n in range(300):
                headers = [("n", b"%d" % n), ("none", None)] if n % 3 else []
                key = None if n % 5 == 0 else b"%d" % n
                producer.send(
                    "one", None if n % 7 == 0 else b"%d" % n, key=key, headers=headers, timestamp_ms=10 * (n // 30)
                )
            producer.flush()
            columns = ["key", "value", "partition", "timestamp", "headers"]
            for number in range(partitions):
                table = log.partition("one", number).to_arrow(headers=True).select(columns)
                producer.send_arrow("two", table).result()
        for number in range(partitions):
            one, two = (log.partition(name, number).to_arrow(headers=True) for name in ("one", "two"))
            assert one.num_rows > 50
            assert one.drop(["topic"]).equals(two.drop(["topic"]))


@pytest.mark.parametrize("headers", [False, True])
def test_what_was_read_is_sent_again_as_it_is(tmp_log_dir: Path, headers: bool) -> None:
    """Each column of ``to_arrow`` and ``poll_arrow`` is taken, or ignored."""
    with Log(tmp_log_dir) as log, Producer(log, acks=1) as producer:
        for name in ("one", "two", "three"):
            log.create_topic(name, partitions=2)
        for number in range(20):
            producer.send(
                "one", b"%d" % number, key=b"k%d" % number, timestamp_ms=number, headers=[("n", b"%d" % number)]
            )
        producer.flush()
        with Consumer(log, auto_offset_reset="earliest") as consumer:
            consumer.subscribe("one")
            polled = consumer.poll_arrow(max_records=100, headers=headers)
        producer.send_arrow("two", polled).result()
        for number in range(2):
            read = log.partition("one", number).to_arrow(headers=headers)
            assert read.num_rows > 3
            producer.send_arrow("three", read).result()
            for name in ("two", "three"):
                again = log.partition(name, number).to_arrow(headers=headers)
                assert again.drop_columns("topic").equals(read.drop_columns("topic"))


def test_what_is_acknowledged_is_durable(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with Producer(log) as producer:
            producer.send_arrow("t", pa.table({"value": ["a", "b"]})).result()
            assert log.partition("t", 0).durable_offset == 2
            assert [record.value for record in log.partition("t", 0).scan()] == [b"a", b"b"]


def test_without_pyarrow_the_error_names_what_to_install(tmp_log_dir: Path) -> None:
    program = f"""
import sys
sys.modules["pyarrow"] = None
import pylog
log = pylog.Log({str(tmp_log_dir)!r})
log.create_topic("orders")
with pylog.Producer(log) as producer:
    try:
        producer.send_arrow("orders", None)
    except pylog.errors.ConfigError as error:
        print(error.extra, error)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.stdout.startswith("arrow Arrow tables need pyarrow"), shown.stderr
    assert "pip install 'pylog-embedded[arrow]'" in shown.stdout


def test_a_table_that_contradicts_itself_is_refused_before_anything_is_sent() -> None:
    log = FakeLog()
    good = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([b"v"]))
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int8()), pa.array([b"v"]), safe=False)
    with log.producer() as producer, pytest.raises(ConfigError, match="is not valid"):
        producer.send_arrow("t", pa.table({"value": pa.chunked_array([good, wrong])}))
    assert log.partition("t").values == []
