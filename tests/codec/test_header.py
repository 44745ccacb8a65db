"""A batch's header: the compiled functions read and write what the readable ones do."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pylog import codec
from pylog.codec import header as readable
from pylog.codec.format import HEADER_BYTES
from pylog.codec.taken import TakenRecords
from pylog.errors import ConfigError, CorruptRecord
from tests.codec.reference import set_fields

pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="there is nothing to compare with")


def whole(bits: int) -> st.SearchStrategy[int]:
    """Numbers of so many bits, often small or at an end."""
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.integers(-2, 2)


BATCHES = st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES + 50)
COUNTS = st.integers(0, 2**31 - 1) | st.integers(0, 3)
FIELDS = st.tuples(st.integers(0, 127), COUNTS, whole(64), whole(64), whole(64), whole(16), whole(32))


def outcome(work: Callable[[], object]) -> object:
    """What it returns, or the error that it raises."""
    try:
        return work()
    except (ConfigError, CorruptRecord) as error:
        return type(error), str(error), error.facts


@given(st.binary(max_size=200), st.integers(-1, 150))
@example(b"\xff" * HEADER_BYTES, 0)
def test_both_read_the_same_header(data: bytes, position: int) -> None:
    for kind in (bytes, bytearray, memoryview):
        expected = outcome(lambda kind=kind: readable.read_header(kind(data), position))
        found = outcome(lambda kind=kind: codec.read_header(kind(data), position))
        assert found == expected
        assert type(found) is type(expected)


@given(BATCHES, FIELDS)
@example(b"\xff" * HEADER_BYTES, (16, 1, 0, 0, -1, -1, -1))
@example(b"\xff" * HEADER_BYTES, (48, 2, 0, 0, 5, 0, -1))
def test_both_write_the_same_header(data: bytes, fields: tuple[int, int, int, int, int, int, int]) -> None:
    expected, found = bytearray(data), bytearray(data)
    assert outcome(lambda: codec.write_header(found, *fields)) == outcome(
        lambda: readable.write_header(expected, *fields)
    )
    assert found == expected


@given(BATCHES, whole(64), whole(32), st.none() | whole(64))
def test_both_stamp_alike(data: bytes, base_offset: int, epoch: int, append_time_ms: int | None) -> None:
    expected, found = bytearray(data), bytearray(data)
    header = codec.stamp(found, base_offset, epoch, append_time_ms)
    assert header == readable.stamp(expected, base_offset, epoch, append_time_ms)
    assert found == expected
    assert header == readable.read_header(found)


@given(BATCHES, whole(64), whole(16), whole(32))
def test_a_batch_gets_the_numbers_of_a_producer_and_the_crc_for_them(
    data: bytes, producer_id: int, epoch: int, base_sequence: int
) -> None:
    found = bytearray(data)
    readable.number(found, producer_id, epoch, base_sequence)
    assert found == set_fields(
        bytearray(data), producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence
    )


@pytest.mark.parametrize("wrong", [1.0, 1.5, float("nan"), "1", b"1", 2**64])
def test_a_field_that_is_no_whole_number_is_refused(wrong: object) -> None:
    fields = [0, 1, 0, 0, 7, 1, 1]
    stamped = [5, 1, 9]
    for functions in (readable, codec):
        for at in range(len(fields)):
            with pytest.raises((TypeError, OverflowError, struct.error)):
                functions.write_header(bytearray(100), *fields[:at], wrong, *fields[at + 1 :])
        for at in range(len(stamped)):
            with pytest.raises((TypeError, OverflowError, struct.error)):
                functions.stamp(bytearray(100), *stamped[:at], wrong, *stamped[at + 1 :])


def test_what_is_too_short_for_a_header_is_refused_unchanged() -> None:
    short = bytearray(b"\x07" * (HEADER_BYTES - 1))
    for functions in (readable, codec):
        for work in (lambda of: of.stamp(short, 1, 1), lambda of: of.write_header(short, 0, 1, 0, 0, -1, -1, -1)):
            with pytest.raises(CorruptRecord, match=r"61 bytes of batch header expected at position 0.* ends at 60"):
                work(functions)
    assert short == b"\x07" * (HEADER_BYTES - 1)


def test_the_records_are_taken_once(both: tuple[ModuleType, ModuleType]) -> None:
    for records, taken_by in zip(both, (TakenRecords, codec.TakenRecords), strict=True):
        encoder = records.RecordEncoder(1000)
        encoder.append(5, None, b"one", ())
        encoder.append(3, None, b"two", ())
        taken = taken_by(encoder)
        assert (taken.count, taken.first_timestamp_ms, taken.max_timestamp_ms) == (2, 5, 5)
        batch = taken.take_batch()
        assert encoder.count == 0
        encoder.append(9, None, b"later", ())
        assert taken.take_batch() is batch
        assert b"one" in batch
        assert b"later" not in batch
