"""The least timestamp of a batch, by both codecs: as the decoder has it, and nothing where the
bytes don't come out even."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, build_batch, read_header
from pylog.codec.compression import codec_id
from pylog.codec.format import HEADER_BYTES, INT64_MAX, INT64_MIN
from pylog.errors import CorruptRecord

TIMES = st.lists(st.integers(0, 2**62) | st.integers(1_700_000_000_000, 1_700_000_000_300), min_size=1, max_size=20)


def view_of(times: list[int], codec: int = 0, value: bytes = b"x") -> BatchView:
    encoder = RecordEncoder(1 << 20)
    for number, at in enumerate(times):
        encoder.append(at, None, value * (number * 37), ())
    data = bytes(build_batch(encoder, codec=codec))
    return BatchView(data, read_header(data))


@given(TIMES)
def test_it_is_the_least_of_all(both: tuple[ModuleType, ModuleType], times: list[int]) -> None:
    view = view_of(times)
    payload = memoryview(view.buffer)[HEADER_BYTES:]
    for codec in both:
        assert codec.least_timestamp_ms(payload, len(times), view.header.base_timestamp_ms) == min(times)


@pytest.mark.parametrize("delta", [b"\x80" * 5, b"\xff" * 10 + b"\x01", b"\x80" * 11], ids=bytes.hex)
def test_a_timestamp_that_does_not_end_says_nothing(both: tuple[ModuleType, ModuleType], delta: bytes) -> None:
    """Within its record, or within the bytes that a number may have."""
    record = bytes([2 * (len(delta) + 1), 0]) + delta
    for codec in both:
        assert codec.least_timestamp_ms(record, 1, 0) == INT64_MIN


@pytest.mark.parametrize("times", [[5], [5, 9, 7]])
def test_a_decoder_tells_how_many_bytes_it_holds(both: tuple[ModuleType, ModuleType], times: list[int]) -> None:
    view = view_of(times)
    payload = bytes(memoryview(view.buffer)[HEADER_BYTES:])
    for codec in both:
        decoder = codec.RecordDecoder(payload, len(times), 0, 5, -1, "t", 0)
        assert (decoder.size_bytes, decoder.remaining) == (len(payload), len(times))
        decoder.take(1)
        assert (decoder.size_bytes, decoder.remaining) == (len(payload), len(times) - 1)


@pytest.mark.slow
@settings(max_examples=300)
@given(TIMES, st.data())
def test_bytes_that_are_no_records_say_the_same_to_both(
    both: tuple[ModuleType, ModuleType], times: list[int], data: st.DataObject
) -> None:
    view = view_of(times)
    payload = bytearray(memoryview(view.buffer)[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    count = data.draw(st.sampled_from([-1, 0, len(times), len(times) + 1, 1 << 40]))
    base = data.draw(st.sampled_from([0, -1, INT64_MAX, INT64_MIN, view.header.base_timestamp_ms]))
    readable, compiled = (codec.least_timestamp_ms(cut, count, base) for codec in both)
    assert readable == compiled
    try:
        decoder = both[0].RecordDecoder(cut, count, 0, base, -1, "", 0)
        records = [record for taken in iter(lambda: decoder.take(100), []) for record in taken]
    except CorruptRecord:
        return
    if records:
        assert readable == min(record.timestamp_ms for record in records)


def test_a_batch_says_what_none_of_its_records_is_before() -> None:
    times = [1_700_000_000_050, 1_700_000_000_007, 1_700_000_000_099]
    plain, compressed = view_of(times), view_of(times * 9, codec_id("gzip"), b"y" * 20)
    assert plain.least_timestamp_ms() == min(times)
    assert compressed.header.codec
    assert compressed.least_timestamp_ms() == INT64_MIN
    header = plain.header
    stamped = BatchView(plain.buffer, header._replace(attributes=8, max_timestamp_ms=5))
    assert stamped.least_timestamp_ms() == 5
    assert BatchView(plain.buffer, header._replace(attributes=8, max_timestamp_ms=-1)).least_timestamp_ms() == min(
        times
    )
    assert BatchView(plain.buffer, header._replace(attributes=0x20)).least_timestamp_ms() == INT64_MAX
    assert BatchView(plain.buffer, header._replace(count=2)).least_timestamp_ms() == INT64_MIN


@pytest.mark.parametrize("size", [0, 1, 5])
def test_no_records_take_no_bytes(codec: ModuleType, size: int) -> None:
    assert codec.least_timestamp_ms(b"\0" * size, 0, 5) == INT64_MIN
