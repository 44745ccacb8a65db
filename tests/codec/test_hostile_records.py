"""Payloads nobody wrote: every one is either decoded as the format says, or CorruptRecord, the same
in both codecs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pylog.codec.format import MAX_HEADERS
from pylog.errors import CorruptRecord
from pylog.model import Record
from tests.codec.reference import INT32, INT64, TS0, Corrupt, Raw, decode, encode, padded, payload_of, varint

# Numbers, and bytes that are no number of their type
NUMBERS = [0, 1, -1, -2, 2, 5, 6, 63, 64, -64, -65, 8191, 8192, 2**20, 2**27, *INT32, INT32[1] - 1, INT32[0] + 1]
BEYOND_32 = [INT32[1] + 1, INT32[0] - 1, 2**40, *INT64]
BEYOND_64 = [INT64[1] + 1, INT64[0] - 1, 2**69 - 1]
NO_VARINT = [
    b"\x80",
    b"\xff\xff",
    b"\x80" * 4,
    b"\xff" * 5,
    b"\x80" * 5 + b"\x00",
    b"\x80" * 9,
    b"\xff" * 10,
    b"\x80" * 1000,
]
PADDED = [padded(0, 2), padded(0, 5), padded(3, 3), padded(-1, 5), padded(0, 6), padded(0, 10), padded(0, 11)]
ANY = [*NUMBERS, *BEYOND_32, *BEYOND_64, *NO_VARINT, *PADDED]

FIELDS: dict[str, Callable[[Any], Raw]] = {
    "length": lambda v: Raw(length=v),
    "attributes": lambda v: Raw(attributes=varint(v)[:1]),
    "timestampDelta": lambda v: Raw(timestamp_delta=v),
    "offsetDelta": lambda v: Raw(offset_delta=v),
    "keyLength": lambda v: Raw(key_size=v),
    "keyLength of null": lambda v: Raw(key=None, key_size=v),
    "valueLength": lambda v: Raw(value_size=v),
    "headersCount": lambda v: Raw(headers_count=v),
    "headersCount of some": lambda v: Raw(headers=((b"h", b"x"), (b"", None)), headers_count=v),
    "headerKeyLength": lambda v: Raw(headers=((b"h", b"x"),), header_key_size=v),
    "headerValueLength": lambda v: Raw(headers=((b"h", b"x"),), header_value_size=v),
    "headerValueLength of null": lambda v: Raw(headers=((b"h", None),), header_value_size=v),
    "rest": lambda v: Raw(rest=varint(v)),
    "length before a wrong header": lambda v: Raw(headers=((b"h", b"x"),), header_key_size=9, length=v),
    "valueLength before a wrong header": lambda v: Raw(headers=((b"h", b"x"),), header_key_size=9, value_size=v),
}


def verdicts(codec: ModuleType, payload: bytes, count: int, *numbers: int) -> tuple[list[Record] | str, Any, Any]:
    """What each way of decoding says: a value, or the error's words."""
    base_offset, base_timestamp, append_time = numbers or (0, TS0, -1)

    def take() -> list[Record]:
        decoder = codec.RecordDecoder(payload, count, base_offset, base_timestamp, append_time, "topic", 7)
        records: list[Record] = []
        while True:
            taken = decoder.take(3)
            records += taken
            if not taken:
                return records

    def columns(with_headers: bool) -> Any:
        return codec.decode_columns(payload, count, base_offset, base_timestamp, append_time, with_headers)

    return words_of(take), words_of(lambda: columns(True)), words_of(lambda: columns(False))


def words_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except CorruptRecord as error:
        return str(error)


def expected(payload: bytes, count: int, *numbers: int) -> list[Record] | None:
    try:
        return decode(payload, count, *numbers)
    except Corrupt:
        return None


def assert_right(codec: ModuleType, payload: bytes, count: int, *numbers: int) -> None:
    right = expected(payload, count, *numbers)
    records, columns, without_headers = verdicts(codec, payload, count, *numbers)
    if right is None:
        assert records == columns == without_headers
        assert isinstance(records, str), "decoded what is corrupt"
    else:
        assert records == right
        assert columns.count == without_headers.count == len(right)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_with_every_boundary_value_is_right_or_corrupt(codec: ModuleType, field: str) -> None:
    for value in ANY:
        raw = FIELDS[field](value)
        for payload, count in (
            (encode(raw), 1),
            (encode(raw) + encode(Raw(offset_delta=9)), 2),
            (encode(Raw(offset_delta=0)) + encode(raw), 2),
        ):
            assert_right(codec, payload, count)


@pytest.mark.parametrize("field", FIELDS)
def test_both_codecs_say_the_same_of_every_boundary_value(both: tuple[ModuleType, ModuleType], field: str) -> None:
    for value in ANY:
        for payload, count in ((encode(FIELDS[field](value)), 1), (encode(FIELDS[field](value)) + encode(Raw()), 2)):
            assert verdicts(both[0], payload, count) == verdicts(both[1], payload, count)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, -1, 5, 2**31 - 1, 2**62, -(2**63)])
def test_a_count_that_is_not_the_number_of_records_is_corrupt(codec: ModuleType, count: int) -> None:
    payload = payload_of(Raw(offset_delta=i, key=None, value=None) for i in range(3))
    if count == 3:
        assert_right(codec, payload, count)
        return
    for verdict in verdicts(codec, payload, count):
        assert isinstance(verdict, str)


@pytest.mark.parametrize("base_offset", [0, 1, INT64[1] - 9, INT64[1] - 8, INT64[1]])
def test_an_offset_beyond_64_bits_is_corrupt(codec: ModuleType, base_offset: int) -> None:
    assert_right(codec, payload_of([Raw(offset_delta=0), Raw(offset_delta=9)]), 2, base_offset, TS0, -1)


@pytest.mark.parametrize("base_timestamp", [0, -1, *INT64, INT64[1] - 5, INT64[0] + 5, 2**62, -(2**62)])
@pytest.mark.parametrize("delta", [0, 5, 6, -5, -6, *INT64, 2**62, -(2**62), 2**62 - 1])
@pytest.mark.parametrize("append_time", [-1, 0, INT64[1]])
def test_a_timestamp_beyond_64_bits_is_corrupt(
    codec: ModuleType, base_timestamp: int, delta: int, append_time: int
) -> None:
    assert_right(codec, encode(Raw(timestamp_delta=delta)), 1, 0, base_timestamp, append_time)


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (5, 4), (-1,), (0, -1), (0, INT32[1], 0), (3, 5, 5)])
def test_offsets_that_do_not_rise_are_corrupt(codec: ModuleType, deltas: tuple[int, ...]) -> None:
    payload = payload_of(Raw(offset_delta=delta) for delta in deltas)
    assert_right(codec, payload, len(deltas))
    decoder = codec.RecordDecoder(payload, len(deltas), 0, TS0, -1, "topic", 7)
    with pytest.raises(CorruptRecord, match="offsetDelta"):
        decoder.skip_to(2**40)


def test_an_offset_beyond_the_batch_is_corrupt(codec: ModuleType) -> None:
    payload = payload_of([Raw(offset_delta=0), Raw(offset_delta=9)])
    assert len(codec.RecordDecoder(payload, 2, 0, TS0, -1, "topic", 7, 9).take(5)) == 2
    with pytest.raises(CorruptRecord, match="record 1: offsetDelta 9 at payload position 18, expected 1 to 8"):
        codec.RecordDecoder(payload, 2, 0, TS0, -1, "topic", 7, 8).take(5)
    with pytest.raises(CorruptRecord, match="expected 1 to 8"):
        codec.decode_columns(payload, 2, 0, TS0, -1, False, 8)


def test_every_truncation_is_corrupt(codec: ModuleType) -> None:
    payload = payload_of(Raw(i, i, b"k" * 70, b"v" * 200, (("ß".encode(), b"x"), (b"n", None))) for i in range(3))
    for size in range(len(payload)):
        for verdict in verdicts(codec, payload[:size], 3):
            assert isinstance(verdict, str)


def test_trailing_bytes_are_corrupt(codec: ModuleType) -> None:
    payload = payload_of([Raw()])
    for rest in (b"\x00", b"\x0c", payload, bytes(1000)):
        assert_right(codec, payload + rest, 1)
    assert_right(codec, b"\x00", 0)


@pytest.mark.parametrize("name", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\x80", b"\xc0\x80"])
def test_a_header_key_that_is_not_utf8_is_corrupt(codec: ModuleType, name: bytes) -> None:
    assert_right(codec, encode(Raw(headers=((b"ok", b""), (name, b"")))), 1)


def test_more_headers_than_the_limit_are_corrupt_however_small_they_are(codec: ModuleType) -> None:
    for count in (MAX_HEADERS + 1, 2**20):
        payload = encode(Raw(headers_count=count, rest=bytes(2 * count)))
        for verdict in verdicts(codec, payload, 1):
            assert "headersCount" in verdict


@pytest.mark.parametrize(
    ("payload", "count", "words"),
    [
        (b"\x50" + bytes(12), 1, "record 0: length 40, but 12 bytes remain at payload position 1"),
        (encode(Raw(key_size=20)), 1, "record 0: keyLength 20, but 10 bytes remain at payload position 5"),
        (
            encode(Raw(value=b"", value_size=-2)),
            1,
            "record 0: valueLength -2, but 1 bytes remain at payload position 9",
        ),
        (encode(Raw()) + encode(Raw()), 2, "record 1: offsetDelta 0 at payload position 18, expected 1 to 2147483647"),
        (
            encode(Raw(rest=b"ab")),
            1,
            "record 0: length 16, but its fields take 14 bytes and end at payload position 15",
        ),
        (encode(Raw(timestamp_delta=b"\x80" * 10)), 1, "timestampDelta at payload position 2 does not fit 64 bits"),
        (encode(Raw(offset_delta=2**31)), 1, "offsetDelta at payload position 3 does not fit 32 bits"),
        (encode(Raw()) + b"\0\0", 1, "2 bytes remain at payload position 15 after the last of 1 records"),
        (bytes(20), 3, "records count 3, but a payload of 20 bytes holds 0 to 2"),
    ],
)
def test_an_error_says_both_sides(codec: ModuleType, payload: bytes, count: int, words: str) -> None:
    for verdict in verdicts(codec, payload, count):
        assert words in verdict


def test_a_decoder_that_met_corruption_says_so_again(codec: ModuleType) -> None:
    payload = encode(Raw()) + encode(Raw(offset_delta=1, length=3))
    decoder = codec.RecordDecoder(payload, 2, 0, TS0, -1, "topic", 7)
    assert len(decoder.take(1)) == 1
    for _ in range(3):
        with pytest.raises(CorruptRecord, match="record 1"):
            decoder.take(1)
        assert decoder.remaining == 1
    with pytest.raises(CorruptRecord, match="record 1"):
        codec.RecordDecoder(encode(Raw()) + encode(Raw(length=100)), 2, 0, TS0, -1, "topic", 7).skip_to(5)


# Mutations of what is right

ANY_VARINT = st.one_of(st.sampled_from(ANY), st.integers(*INT64), st.binary(max_size=12))
RAWS = st.builds(
    Raw,
    timestamp_delta=st.one_of(st.integers(-70, 70), ANY_VARINT),
    offset_delta=st.one_of(st.integers(0, 70), ANY_VARINT),
    key=st.one_of(st.none(), st.binary(max_size=80)),
    value=st.one_of(st.none(), st.binary(max_size=80)),
    headers=st.lists(
        st.tuples(
            st.one_of(st.text(max_size=4).map(str.encode), st.binary(max_size=4)), st.none() | st.binary(max_size=4)
        ),
        max_size=3,
    ).map(tuple),
    length=st.none() | ANY_VARINT,
    key_size=st.none() | ANY_VARINT,
    value_size=st.none() | ANY_VARINT,
    headers_count=st.none() | st.integers(-1, 5) | ANY_VARINT,
    header_key_size=st.none() | ANY_VARINT,
    header_value_size=st.none() | ANY_VARINT,
    rest=st.sampled_from([b"", b"", b"", b"\x00", b"\x80"]),
)
EDITS = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 7), st.sampled_from(["flip", "cut", "double"])), max_size=3
)


def edited(payload: bytes, edits: list[tuple[int, int, str]]) -> bytes:
    data = bytearray(payload)
    for place, bit, kind in edits:
        at = place % (len(data) + 1)
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << bit
        elif kind == "cut":
            del data[at : at + bit]
        elif kind == "double":
            data[at:at] = data[at : at + bit]
    return bytes(data)


@pytest.mark.slow
@settings(max_examples=600)
@given(
    raws=st.lists(RAWS | st.integers(0, 3).map(lambda n: Raw(offset_delta=n)), max_size=4),
    edits=EDITS,
    extra=st.sampled_from([0, 0, 0, 1, -1]),
)
@example(raws=[Raw(key_size=b"\x81\x80\x80\x80\x10")], edits=[], extra=0)
def test_mutated_payloads_get_the_same_verdict_everywhere(
    both: tuple[ModuleType, ModuleType], raws: list[Raw], edits: list[tuple[int, int, str]], extra: int
) -> None:
    payload, count = edited(payload_of(raws), edits), len(raws) + extra
    readable, compiled = (verdicts(codec, payload, count) for codec in both)
    assert readable == compiled
    right = expected(payload, count) if 0 <= count <= len(payload) // 7 else None
    assert (right is None) == isinstance(readable[0], str)
    if right is not None:
        assert readable[0] == right


@settings(max_examples=200)
@given(payload=st.binary(max_size=60), count=st.integers(0, 5))
def test_noise_gets_the_same_verdict_everywhere(
    both: tuple[ModuleType, ModuleType], payload: bytes, count: int
) -> None:
    assert verdicts(both[0], payload, count) == verdicts(both[1], payload, count)


def test_the_compiled_codec_never_reads_beyond_the_payload(both: tuple[ModuleType, ModuleType], seed: int) -> None:
    """In a process of its own, with payloads that end where the next page may not be read."""
    command = [sys.executable, "-m", "tests.codec.guarded_page", str(seed), "4000"]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    corrupt, right = map(int, done.stdout.split())
    assert corrupt > 1000
    assert right > 100
