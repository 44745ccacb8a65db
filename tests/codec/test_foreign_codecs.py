"""Batches exchanged with two other implementations: kafka-python and aiokafka, its compiled and its
readable one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, build_batch, check_header, read_header, stamp
from pylog.codec.control import ControlType, build_marker
from pylog.codec.format import GZIP, LZ4, NONE, SNAPPY, ZSTD
from pylog.model import ProducerRecord
from tests.codec import strategies
from tests.codec.reference import TS0

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def use_cramjam_for_snappy(module: Any) -> None:
    """kafka-python asks for python-snappy, which does the same raw blocks as cramjam."""
    cramjam = pytest.importorskip("cramjam").snappy
    module.snappy = SimpleNamespace(
        compress=lambda data: bytes(cramjam.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.decompress_raw(data)),
    )


def kafka_python() -> tuple[Any, Any]:
    pytest.importorskip("kafka")
    import kafka.codec
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    use_cramjam_for_snappy(kafka.codec)
    return DefaultRecordBatchBuilder, DefaultRecordBatch


def aiokafka_compiled() -> tuple[Any, Any]:
    pytest.importorskip("aiokafka")
    from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder, DefaultRecordBatch


def aiokafka_readable() -> tuple[Any, Any]:
    pytest.importorskip("aiokafka")
    from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy

    return _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy


@pytest.fixture(
    params=[kafka_python, aiokafka_compiled, aiokafka_readable], ids=lambda make: make.__name__, scope="module"
)
def foreign(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Their builder and their reader."""
    make: Callable[[], tuple[Any, Any]] = request.param
    return make()


def rows(records: list[ProducerRecord], base_offset: int) -> list[Row]:
    return [(base_offset + i, r.timestamp_ms or 0, r.key, r.value, tuple(r.headers)) for i, r in enumerate(records)]


def ours(records: list[ProducerRecord], codec: int, **options: Any) -> bytearray:
    encoder = RecordEncoder(1 << 22)
    for record in records:
        assert encoder.append(record.timestamp_ms or 0, record.key, record.value, record.headers)
    return build_batch(encoder, codec=codec, **options)


def theirs(
    builder_type: Any, records: list[ProducerRecord], codec: int, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytearray:
    producer_id, epoch, sequence = producer
    builder = builder_type(
        magic=2,
        compression_type=codec,
        is_transactional=producer_id != -1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 22,
    )
    for index, record in enumerate(records):
        assert builder.append(
            index, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers)
        )
    return bytearray(builder.build())


many = strategies.records.filter(bool).map(lambda records: records * 3)
# Their varints are of 64 bits throughout and overflow at the far ends of time, which is not what is
# compared here
many = many.filter(lambda records: max(r.timestamp_ms or 0 for r in records) < 2**61)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=many, base_offset=st.sampled_from([0, 5, 2**40]))
def test_what_we_write_they_read(
    foreign: tuple[Any, Any], codec: int, records: list[ProducerRecord], base_offset: int
) -> None:
    batch = ours(records, codec)
    stamp(batch, base_offset, 3)
    reader = foreign[1](bytes(batch))
    assert reader.validate_crc()
    assert reader.next_offset == base_offset + len(records)
    assert reader.compression_type == read_header(batch).codec
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader] == rows(records, base_offset)


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=many)
def test_what_they_write_we_read(foreign: tuple[Any, Any], codec: int, records: list[ProducerRecord]) -> None:
    batch = theirs(foreign[0], records, codec)
    header = read_header(batch)
    assert check_header(header) is None
    taken = BatchView(batch, header).records("t", 0)
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in taken] == rows(records, 0)


@pytest.mark.slow
@settings(max_examples=50)
@given(records=many)
def test_uncompressed_batches_are_the_same_to_the_byte_but_for_the_leader_epoch(
    foreign: tuple[Any, Any], records: list[ProducerRecord]
) -> None:
    their_batch = theirs(foreign[0], records, NONE, (4000, 2, 9))
    our_batch = ours(records, NONE, producer_id=4000, producer_epoch=2, base_sequence=9, transactional=True)
    stamp(their_batch, 0, -1)
    assert our_batch == their_batch


def test_an_append_time_is_read_by_them(foreign: tuple[Any, Any]) -> None:
    batch = ours([ProducerRecord(b"v", timestamp_ms=TS0)], NONE)
    stamp(batch, 5, 1, TS0 + 99)
    reader = foreign[1](bytes(batch))
    assert reader.validate_crc()
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in reader] == [(5, TS0 + 99, 1)]


def test_our_markers_are_control_batches_to_them(foreign: tuple[Any, Any]) -> None:
    reader = foreign[1](bytes(build_marker(ControlType.ABORT, 4000, 2, 7, TS0)))
    assert reader.validate_crc()
    assert (reader.is_control_batch, reader.is_transactional, reader.producer_id) == (True, True, 4000)
    assert [r.key for r in reader] == [b"\0\0\0\0"]
