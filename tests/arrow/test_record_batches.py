"""Batches become record batches: every record, every column, in pieces, without copies where that
is possible."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import arrow
from pylog.codec import Columns
from pylog.codec.batch import BatchView
from pylog.errors import CorruptRecord, InvalidTimestamp
from pylog.model import LOG_APPEND_TIME, ProducerRecord
from tests.arrow.rows import CORNERS, T0, TP, expected, rows, view_of
from tests.codec import strategies

ALL = (0, 2**63 - 1)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LATEST_MS = (2**63 - 1) // 1000


def records_of(views: list[BatchView]) -> list[object]:
    return [record for view in views for record in view.records(*TP)]


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_every_corner_of_a_record_comes_through(codec: str, headers: bool) -> None:
    view = view_of(CORNERS, 40, codec=codec)
    table = arrow.table([view], TP, *ALL, headers=headers)
    table.validate(full=True)
    assert rows(table) == expected(view.records(*TP), headers=headers)


def small_enough(records: list[ProducerRecord]) -> list[ProducerRecord]:
    return [record._replace(timestamp_ms=min(record.timestamp_ms or 0, LATEST_MS)) for record in records]


@pytest.mark.slow
@given(
    st.lists(strategies.records.filter(bool).map(small_enough), min_size=1, max_size=5),
    st.integers(0, 60),
    st.integers(0, 60),
    st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
def test_any_batches_and_any_range_are_what_the_decoder_reads(
    batches: list[list[ProducerRecord]], start: int, end: int, gaps: list[int]
) -> None:
    views, offset = [], 0
    for records, gap in zip(batches, gaps, strict=False):
        views.append(view_of(records, offset + gap))
        offset = views[-1].last_offset + 1
    wanted = [record for view in views for record in view.records(*TP) if start <= record.offset < end]
    table = arrow.table(views, TP, start, end, headers=True)
    table.validate(full=True)
    assert rows(table) == expected(wanted, headers=True)


def test_compaction_leaves_gaps_inside_a_batch() -> None:
    encoded = view_of([ProducerRecord(bytes([n])) for n in range(4)])
    columns = encoded.columns(with_headers=False)

    class Compacted(BatchView):
        def columns(self, *args: object, **kwargs: object) -> Columns:
            offsets = memoryview(columns.offsets).cast("q").tolist()
            apart = b"".join((10 * offset).to_bytes(8, "little") for offset in offsets)
            return columns._replace(offsets=apart)

    header = encoded.header._replace(last_offset_delta=30)
    view = Compacted(encoded.buffer, header)
    for start, end, found in [
        (0, 31, [0, 10, 20, 30]),
        (1, 30, [10, 20]),
        (10, 11, [10]),
        (11, 20, []),
        (30, 99, [30]),
    ]:
        assert arrow.table([view], TP, start, end).column("offset").to_pylist() == found


def test_append_time_and_create_time_stand_side_by_side() -> None:
    views = [view_of(CORNERS, 0), view_of(CORNERS, 7, append_time_ms=T0 + 99), view_of(CORNERS, 14)]
    first, second, third = ([*view.records(*TP)] for view in views)
    assert {record.timestamp_ms for record in second} == {T0 + 99}
    assert rows(arrow.table(views, TP, *ALL)) == expected(first) + expected(second, LOG_APPEND_TIME) + expected(third)


def test_columns_come_in_the_order_asked_for() -> None:
    wanted = pa.schema([arrow.schema().field(name) for name in ("offset", "value")])
    (batch,) = arrow.record_batches([view_of(CORNERS)], TP, *ALL, wanted)
    assert batch.schema.equals(wanted)
    assert rows(batch) == [
        {"offset": row["offset"], "value": row["value"]} for row in expected(records_of([view_of(CORNERS)]))
    ]


def test_headers_are_not_decoded_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = BatchView.columns
    monkeypatch.setattr(
        BatchView, "columns", lambda self, **how: asked.append(how["with_headers"]) or real(self, **how)
    )
    arrow.table([view_of(CORNERS)], TP, *ALL)
    arrow.table([view_of(CORNERS)], TP, *ALL, headers=True)
    assert asked == [False, True]


def test_nothing_is_a_table_of_no_rows_with_all_columns() -> None:
    for headers in (False, True):
        table = arrow.table([], TP, *ALL, headers=headers)
        assert table.num_rows == 0
        assert table.schema.equals(arrow.schema(headers=headers))


# Pieces


def many(count: int, value_bytes: int = 100) -> list[ProducerRecord]:
    return [ProducerRecord(bytes(value_bytes))] * count


def small_batches(count: int, records: int) -> Iterator[BatchView]:
    for number in range(count):
        yield view_of(many(records), number * records)


def test_small_batches_are_put_together_to_pieces() -> None:
    pieces = list(arrow.record_batches(small_batches(600, 50), TP, *ALL, arrow.schema()))
    assert [offset for piece in pieces for offset in piece.column("offset").to_pylist()] == list(range(600 * 50))
    assert len(pieces) == 4
    assert all(0.8 * arrow.PIECE_BYTES < piece.nbytes < 1.5 * arrow.PIECE_BYTES for piece in pieces[:-1])


def test_a_large_batch_is_cut_into_pieces() -> None:
    view = view_of(many(100_000), codec="zstd")
    pieces = list(arrow.record_batches([view], TP, *ALL, arrow.schema()))
    assert [offset for piece in pieces for offset in piece.column("offset").to_pylist()] == list(range(100_000))
    assert len(pieces) == 12
    assert all(piece.nbytes < 1.5 * arrow.PIECE_BYTES for piece in pieces)


def test_a_piece_is_ready_before_the_next_batch_is_asked_for() -> None:
    taken = []

    def views() -> Iterator[BatchView]:
        for view in small_batches(1000, 50):
            taken.append(view.base_offset)
            yield view

    pieces = arrow.record_batches(views(), TP, *ALL, arrow.schema())
    assert taken == []
    first = next(pieces)
    assert taken[-1] + 50 == first.num_rows < 10_000


def test_the_bytes_of_a_batch_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Columns] = []
    real = BatchView.columns

    def columns(self: BatchView, **how: bool) -> Columns:
        decoded.append(real(self, **how))
        return decoded[-1]

    monkeypatch.setattr(BatchView, "columns", columns)
    (piece,) = arrow.record_batches([view_of(CORNERS)], TP, 2, 5, arrow.schema(headers=True))
    assert piece.num_rows == 3
    (it,) = decoded
    for name, buffers in {
        "key": (it.key_validity, it.key_offsets, it.key_data),
        "value": (it.value_validity, it.value_offsets, it.value_data),
    }.items():
        found = [buffer.address for buffer in piece.column(name).buffers()]
        assert found == [pa.py_buffer(data).address for data in buffers]
    headers = piece.column("headers").buffers()
    assert pa.py_buffer(it.header_value_data).address in [buffer.address for buffer in headers if buffer is not None]


def test_the_columns_are_in_arrows_memory_and_those_of_one_value_are_shared() -> None:
    before = pa.total_allocated_bytes()
    table = arrow.table(small_batches(4, 20_000), TP, *ALL)
    assert pa.total_allocated_bytes() - before >= table.get_total_buffer_size() > 0.9 * table.nbytes - 10 * 80_000
    for name in ("topic", "partition", "timestampType"):
        chunks = table.column(name).chunks
        assert len(chunks) > 3
        assert len({chunk.buffers()[-1].address for chunk in chunks[1:]}) == 1
    assert set(table.column("topic").to_pylist()) == {TP.topic}


# What cannot be converted


def test_damage_inside_a_batch_says_where_it_is() -> None:
    good = view_of(CORNERS, 500)
    bytes_of = bytearray(good.buffer)
    bytes_of[61] ^= 1  # the length of the first record
    with pytest.raises(CorruptRecord, match="batch at offset 500 of orders-7: ") as caught:
        arrow.table([view_of(CORNERS, 493), BatchView(bytes_of, good.header)], TP, *ALL)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 7, 500)


def test_a_time_beyond_microseconds_is_an_error_that_names_the_record() -> None:
    records = [ProducerRecord(b"", timestamp_ms=time) for time in (0, LATEST_MS, LATEST_MS + 1, 5)]
    with pytest.raises(InvalidTimestamp, match=f"offset 12 of orders-7 has timestamp {LATEST_MS + 1} ms") as caught:
        arrow.table([view_of(records, 10)], TP, *ALL)
    assert (caught.value.offset, caught.value.timestamp_ms) == (12, LATEST_MS + 1)
    table = arrow.table([view_of(records, 10)], TP, 0, 12)  # it does not stand in the range
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [0, LATEST_MS * 1000]


def test_many_batches_of_any_size_in_any_pieces(seed: int) -> None:
    dice = random.Random(seed)
    views, offset = [], 0
    for _ in range(200):
        records = [
            ProducerRecord(
                dice.randbytes(dice.choice([0, 1, 100, 30_000])) if dice.random() < 0.9 else None,
                dice.randbytes(3) if dice.random() < 0.5 else None,
                [("h", dice.randbytes(2))] * dice.choice([0, 0, 0, 1, 5]),
                T0 + dice.randrange(-(10**6), 10**6),
            )
            for _ in range(dice.choice([1, 2, 7, 8, 9, 65]))
        ]
        views.append(view_of(records, offset, append_time_ms=dice.choice([None, None, T0])))
        offset = views[-1].last_offset + 1
    start, end = dice.randrange(offset // 2), dice.randrange(offset // 2, offset)
    found = []
    for piece in arrow.record_batches(views, TP, start, end, arrow.schema(headers=True)):
        piece.validate(full=True)
        found += rows(piece)
    wanted = []
    for view in views:
        wanted += expected(view.records(*TP), int(view.header.is_log_append_time), headers=True)
    assert found == [row for row in wanted if start <= row["offset"] < end]


@pytest.mark.slow
def test_pandas_is_not_loaded_for_it(tmp_log_dir: Path) -> None:
    """It takes longer to load than many a query to run, in every new worker of Spark's."""
    program = f"""
import sys
import pylog
log = pylog.Log({str(tmp_log_dir)!r})
log.create_topic("orders")
log.partition("orders", 0).append([pylog.ProducerRecord(b"value", b"key", [("h", b"v")])])
assert log.partition("orders", 0).to_arrow(headers=True).num_rows == 1
print("pandas" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.stdout == "False\n", shown.stderr
