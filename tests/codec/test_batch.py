"""Batch headers, CRC, and whole batches."""

from __future__ import annotations

import os
import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pylog.codec import RecordEncoder
from pylog.codec.batch import (
    BatchHeader,
    BatchView,
    build_batch,
    check_header,
    read_header,
    stamp,
)
from pylog.codec.format import CODEC_NAMES, GZIP, HEADER_BYTES, HEADER_STRUCT, LZ4, NONE, SNAPPY, ZSTD
from pylog.errors import ConfigError, CorruptRecord, PylogError
from pylog.model import ProducerRecord, Record
from tests.codec import strategies
from tests.codec.reference import HEADER_FIELDS, TS0, Raw, batch_of, payload_of, set_fields

GOLDEN = (  # docs/format.md, "A batch, worked through"
    "00000000000000000000004effffffff02db04478c0000000000020000018bcfe568000000018bcfe56807ffffffffffffffffffffffffffff"
    "0000000318000000026b027602026802780e000a02010277000e000e04026b0100"
)
GOLDEN_RECORDS = [
    Record("", 0, 0, TS0, b"k", b"v", (("h", b"x"),)),
    Record("", 0, 1, TS0 + 5, None, b"w", ()),
    Record("", 0, 2, TS0 + 7, b"k", None, ()),
]
CODECS = range(len(CODEC_NAMES))


def encoder_of(*records: ProducerRecord) -> RecordEncoder:
    encoder = RecordEncoder(1 << 20)
    for record in records:
        assert encoder.append(record.timestamp_ms or 0, record.key, record.value, record.headers)
    return encoder


def golden_encoder() -> RecordEncoder:
    return encoder_of(*(ProducerRecord(r.value, r.key, r.headers, r.timestamp_ms) for r in GOLDEN_RECORDS))


def view_of(batch: bytes | bytearray) -> BatchView:
    return BatchView(batch, read_header(batch))


# What is built


def test_the_golden_batch_is_built_byte_for_byte() -> None:
    encoder = golden_encoder()
    assert build_batch(encoder).hex() == GOLDEN
    assert (encoder.count, encoder.size_bytes) == (0, 0)


def test_the_golden_batch_is_read() -> None:
    view = view_of(bytes.fromhex(GOLDEN))
    assert check_header(view.header) is None
    assert view.header == BatchHeader(0, 78, -1, 2, 0xDB04478C, 0, 2, TS0, TS0 + 7, -1, -1, -1, 3)
    assert view.records() == GOLDEN_RECORDS
    assert (view.base_offset, view.last_offset, view.header.size_bytes) == (0, 2, 90)


@pytest.mark.slow
@given(
    records=strategies.records.filter(bool),
    codec=st.sampled_from(CODECS),
    base_offset=st.sampled_from([0, 1, 2**40]),
)
def test_what_is_built_is_valid_and_read_back(records: list[ProducerRecord], codec: int, base_offset: int) -> None:
    batch = build_batch(encoder_of(*records), codec=codec)
    stamp(batch, base_offset, 3)
    view = view_of(batch)
    assert check_header(view.header) is None
    assert view.header.codec in {codec, NONE}
    assert (view.header.base_offset, view.header.leader_epoch, view.header.count) == (base_offset, 3, len(records))
    assert (view.header.base_timestamp_ms, view.header.max_timestamp_ms) == (
        records[0].timestamp_ms,
        max(r.timestamp_ms or 0 for r in records),
    )
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in view.records("t", 1)] == [
        (base_offset + i, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for i, r in enumerate(records)
    ]
    assert view.columns().count == len(records)


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_records_make_the_same_bytes(codec: int) -> None:
    made = {
        bytes(build_batch(encoder_of(*[ProducerRecord(b"v" * 500, timestamp_ms=TS0)] * 50), codec=codec))
        for _ in range(20)
    }
    assert len(made) == 1
    assert view_of(made.pop()).header.codec == codec


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_compression_would_make_larger_stays_as_it_is(codec: int) -> None:
    noise = ProducerRecord(os.urandom(3000), timestamp_ms=TS0)
    plain = build_batch(encoder_of(noise))
    assert build_batch(encoder_of(noise), codec=codec) == plain


@pytest.mark.parametrize("codec", [GZIP, LZ4, SNAPPY, ZSTD])
def test_what_readers_would_not_decompress_is_not_compressed(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value = bytes(10_000)
    payload_bytes = len(build_batch(encoder_of(ProducerRecord(value, timestamp_ms=TS0)))) - HEADER_BYTES
    for limit_bytes, used in ((payload_bytes, codec), (payload_bytes - 1, NONE)):
        monkeypatch.setattr("pylog.codec.batch.DEFAULT_DECOMPRESSED_LIMIT", limit_bytes)
        batch = build_batch(encoder_of(ProducerRecord(value, timestamp_ms=TS0)), codec=codec)
        view = BatchView(batch, read_header(batch))
        assert view.header.codec == used
        assert [record.value for record in view.records()] == [value]


def test_a_batch_of_100_mib_may_come_out_of_a_compressed_one() -> None:
    encoder = RecordEncoder(110 << 20)
    encoder.append(TS0, None, bytes(100 << 20), ())
    batch = build_batch(encoder, codec=ZSTD)
    view = BatchView(batch, read_header(batch))
    assert view.header.codec == ZSTD
    (record,) = view.decoder("", 0).take(1)
    assert len(record.value) == 100 << 20
    with pytest.raises(CorruptRecord, match=r"limit of 33554432 bytes for the records of one batch.*fetch_max_bytes"):
        view.decoder("", 0, 32 << 20)


def test_producer_fields_and_the_transactional_bit_are_written() -> None:
    header = read_header(
        build_batch(golden_encoder(), producer_id=4000, producer_epoch=2, base_sequence=9, transactional=True)
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 2, 9)
    assert (header.attributes, header.is_transactional, header.is_control) == (0x10, True, False)
    assert header.last_sequence == 11
    assert check_header(header) is None


@pytest.mark.parametrize(
    "options",
    [
        {"transactional": True},
        {"producer_id": 5},
        {"producer_id": -2, "producer_epoch": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -2},
        {"codec": 5},
        {"codec": -1},
        {"codec": ZSTD, "level": 23},
        {"codec": ZSTD, "level": "3"},
        {"codec": GZIP, "level": 10},
        {"codec": SNAPPY, "level": 1},
    ],
    ids=repr,
)
def test_options_that_make_no_valid_batch_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build_batch(golden_encoder(), **options)


def test_a_batch_has_a_record() -> None:
    with pytest.raises(ConfigError):
        build_batch(RecordEncoder(1000))


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 7, 12), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-1, 9, -1)],
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    header = read_header(bytes.fromhex(GOLDEN))
    assert header._replace(base_sequence=base, last_offset_delta=delta).last_sequence == last


# Stamping


@pytest.mark.parametrize("codec", CODECS)
def test_stamping_changes_nothing_the_crc_covers(codec: int) -> None:
    batch = build_batch(encoder_of(*[ProducerRecord(b"v" * 100, timestamp_ms=TS0)] * 20), codec=codec)
    before = bytes(batch)
    stamp(batch, 2**40, 7)
    assert batch[12:] == struct.pack(">i", 7) + before[16:]
    assert batch[:12] == struct.pack(">q", 2**40) + before[8:12]
    assert [r.offset for r in view_of(batch).records()] == list(range(2**40, 2**40 + 20))


@pytest.mark.parametrize("codec", CODECS)
def test_stamping_an_append_time_gives_it_to_every_record(codec: int) -> None:
    batch = build_batch(encoder_of(*[ProducerRecord(b"v" * 100, timestamp_ms=TS0 + i) for i in range(20)]), codec=codec)
    stamp(batch, 10, 7, TS0 + 99)
    header = read_header(batch)
    assert check_header(header) is None
    assert header.is_log_append_time
    assert (header.codec, header.max_timestamp_ms, header.base_timestamp_ms) == (codec, TS0 + 99, TS0)
    assert {r.timestamp_ms for r in view_of(batch).records()} == {TS0 + 99}
    assert set(struct.unpack("20q", view_of(batch).columns().timestamps_ms)) == {TS0 + 99}


# Judging headers


def good(**fields: int) -> BatchHeader:
    return read_header(set_fields(batch_of(payload_of([Raw(0, 0), Raw(0, 1)]), 2), **fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"magic": 0}, "magic 0, expected 2"),
        ({"magic": 1}, "magic 1"),
        ({"magic": 3}, "magic 3"),
        ({"length": 48}, "length 48, expected 49"),
        ({"length": 0}, "length 0"),
        ({"length": -(2**31)}, "length"),
        ({"base_offset": -1}, "base offset -1"),
        ({"base_offset": 2**63 - 1}, "base offset"),
        ({"last_offset_delta": -1}, "delta -1"),
        ({"attributes": 0x80}, "attributes 0x80"),
        ({"attributes": 0x100}, "attributes 0x100"),
        ({"attributes": -(2**15)}, "attributes"),
        ({"attributes": 5}, "codec 5"),
        ({"attributes": 7}, "codec 7"),
        ({"count": -1}, "count -1"),
        ({"count": 3}, "count 3, but the batch has 2 offsets"),
        ({"count": 0}, "count 0, but 30 bytes"),
        ({"count": 5, "last_offset_delta": 9}, "count 5, but 30 bytes hold at most 4"),
        ({"count": 2**31 - 1, "last_offset_delta": 2**31 - 1}, "count 2147483647"),
        ({"attributes": 1, "length": 49}, "2 compressed records in no bytes"),
        ({"leader_epoch": -2}, "leader epoch -2"),
        ({"producer_id": -2}, "producer id -2"),
        ({"producer_epoch": -2}, "epoch -2"),
        ({"base_sequence": -2}, "sequence -2"),
        ({"producer_id": 5}, "without an epoch"),
        ({"attributes": 0x10}, "without a producer id"),
        ({"attributes": 0x30, "producer_id": 1, "producer_epoch": 0}, "with 2 records"),
    ],
    ids=repr,
)
def test_a_header_that_no_producer_wrote_is_told_apart(fields: dict[str, int], reason: str) -> None:
    assert reason in str(check_header(good(**fields)))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"base_offset": 2**63 - 2},
        {"leader_epoch": 2**31 - 1},
        {"last_offset_delta": 2**31 - 1},
        {"count": 1, "last_offset_delta": 0},
        {"attributes": 0x40},
        {"attributes": 0x08, "max_timestamp_ms": -1},
        {"base_timestamp_ms": -(2**63), "max_timestamp_ms": 2**63 - 1},
        {"producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "base_sequence": 2**31 - 1},
        {"base_sequence": 0},
        {"attributes": 1, "count": 1000, "last_offset_delta": 1000},
        {"attributes": 0x20},
        {"attributes": 0x20, "count": 2},
        {"length": 49, "count": 0},
    ],
    ids=repr,
)
def test_a_header_that_some_producer_may_have_written_passes(fields: dict[str, int]) -> None:
    assert check_header(good(**fields)) is None


def test_zeros_are_never_a_header() -> None:
    assert check_header(read_header(bytes(61))) is not None


BOUNDARIES = [
    0,
    1,
    -1,
    2,
    -2,
    48,
    49,
    77,
    127,
    128,
    -128,
    2**15 - 1,
    -(2**15),
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
]


@pytest.mark.parametrize("field", HEADER_FIELDS)
@pytest.mark.parametrize("codec", CODECS)
def test_every_field_with_every_boundary_value_is_read_or_corrupt(field: str, codec: int) -> None:
    records = [ProducerRecord(b"v" * 90, b"k", (("h", None),), TS0 + i) for i in range(10)]
    built = build_batch(encoder_of(*records), codec=codec)
    position, code = HEADER_FIELDS[field]
    outcomes = set()
    for value in BOUNDARIES:
        batch = bytearray(built)
        batch[position : position + struct.calcsize(code)] = struct.pack(">q", value)[-struct.calcsize(code) :]
        if field != "crc":
            set_fields(batch)
        header = read_header(batch)
        for with_check in (True, False):  # decoding holds without the judgement too
            if with_check and check_header(header) is not None:
                outcomes.add("judged")
                continue
            try:
                view = BatchView(batch, header)
                view.check_crc()
                view.columns(1 << 20, True)
                assert view.decoder("t", 0, 1 << 20).take(100) == view.records("t", 0)
                outcomes.add("read")
            except CorruptRecord:
                outcomes.add("corrupt")
    assert outcomes & {"judged", "corrupt"} or field in {"leader_epoch", "base_timestamp_ms", "max_timestamp_ms"}


# Corruption


def test_every_bit_the_crc_covers_and_every_bit_of_the_crc_is_guarded() -> None:
    batch = bytearray.fromhex(GOLDEN)
    for bit in range(17 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord) as raised:
            view_of(batch).check_crc()
        assert f"{read_header(batch).crc:08x}" in str(raised.value)
        batch[bit // 8] ^= 1 << bit % 8
    view_of(batch).check_crc()


def test_the_bytes_before_the_attributes_lie_outside_the_crc() -> None:
    batch = bytearray.fromhex(GOLDEN)
    batch[0:8] = b"\x11" * 8
    batch[12:16] = b"\x22" * 4
    view_of(batch).check_crc()
    assert crc32c(bytes(batch[21:])) == read_header(batch).crc


def test_a_view_is_of_exactly_one_batch() -> None:
    batch = bytes.fromhex(GOLDEN)
    header = read_header(batch)
    for buffer in (batch[:-1], batch + b"\0", b""):
        with pytest.raises(CorruptRecord, match="90"):
            BatchView(buffer, header)
    with pytest.raises(CorruptRecord):
        BatchView(batch[:40], header._replace(length=28))


@pytest.mark.parametrize("position", [-1, 1, 30, 10_000])
def test_a_header_needs_61_bytes(position: int) -> None:
    with pytest.raises(CorruptRecord, match=f"position {position}"):
        read_header(bytes(61), position)


def test_records_checks_the_crc_first() -> None:
    batch = bytearray.fromhex(GOLDEN)
    batch[-1] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        view_of(batch).records()


def test_an_offset_beyond_the_batch_is_corrupt_even_with_a_good_crc() -> None:
    batch = batch_of(payload_of([Raw(0, 0), Raw(0, 5)]), 2, last_offset_delta=4)
    assert check_header(read_header(batch)) is None
    for read in (view_of(batch).records, view_of(batch).columns):
        with pytest.raises(CorruptRecord, match="offsetDelta 5"):
            read()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_payload_beyond_the_limit_is_corrupt(codec: int) -> None:
    batch = build_batch(encoder_of(*[ProducerRecord(b"v" * 1000, timestamp_ms=TS0)] * 100), codec=codec)
    view = view_of(batch)
    for read in (lambda: view.decoder("t", 0, 100_000), lambda: view.columns(100_000, True)):
        with pytest.raises(CorruptRecord, match=f"{CODEC_NAMES[codec]} payload holds more than the limit of 100000"):
            read()
    assert view.columns(110_000, True).count == 100


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("count", [99, 101, 2**31 - 1])
def test_a_compressed_batch_with_a_wrong_count_is_corrupt(codec: int, count: int) -> None:
    batch = build_batch(encoder_of(*[ProducerRecord(b"v" * 100, timestamp_ms=TS0)] * 100), codec=codec)
    set_fields(batch, count=count, last_offset_delta=2**31 - 1)
    for read in (view_of(batch).records, view_of(batch).columns):
        with pytest.raises(CorruptRecord):
            read()


# Emptied and compacted batches


def test_an_emptied_batch_holds_nothing() -> None:
    batch = batch_of(b"", 0, last_offset_delta=9, base_timestamp_ms=-1, base_offset=90)
    view = view_of(batch)
    assert check_header(view.header) is None
    assert (view.records(), view.columns().count, view.last_offset) == ([], 0, 99)


def test_a_delete_horizon_stands_in_the_base_timestamp() -> None:
    batch = batch_of(payload_of([Raw(-500, 3)]), 1, attributes=0x40, base_timestamp_ms=TS0 + 500, last_offset_delta=9)
    assert read_header(batch).delete_horizon_ms == TS0 + 500
    assert good().delete_horizon_ms is None
    assert [(r.offset, r.timestamp_ms) for r in view_of(batch).records()] == [(3, TS0)]


@given(noise=st.binary(max_size=200))
def test_noise_is_never_more_than_corrupt(noise: bytes) -> None:
    try:
        header = read_header(noise)
        if check_header(header) is None:
            BatchView(noise[: header.size_bytes], header).records()
    except PylogError as error:
        assert type(error) is CorruptRecord  # noqa: PT017 - both ways are right


def test_the_header_struct_has_the_fields_in_their_places() -> None:
    assert HEADER_STRUCT.size == 61
    assert tuple(HEADER_FIELDS) == BatchHeader._fields
    assert HEADER_STRUCT.format == ">" + "".join(code for _, code in HEADER_FIELDS.values())
