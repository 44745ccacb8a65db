"""Which of two slots is published: files written by every version must give the same answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.codec.slot_pair import SEQUENCES, SlotPair, read_again_if_torn

_WRAP = 1 << 32
_SLOT_BYTES = 9


def name_of(body: bytes) -> str | None:
    """Any slot is possible here but one called ``?``."""
    name = body[4:]
    return None if name == b"?" else name.decode()


PAIR = SlotPair(0, _SLOT_BYTES, name_of)
LATER = SlotPair(5, _SLOT_BYTES, name_of)


def slot(sequence: int, name: str) -> bytes:
    return PAIR.slot(sequence.to_bytes(4, "big") + name.encode())[0]


def published(*slots: bytes) -> str | None:
    data = b"".join(slots)
    found = PAIR.latest(data)
    assert LATER.latest(b"front" + data) == found
    return found


@pytest.mark.parametrize("sequence", [0, 1, 7, _WRAP // 2 - 1, _WRAP // 2, _WRAP - 2, _WRAP - 1])
def test_the_later_of_two_valid_slots_is_published(sequence: int) -> None:
    after = (sequence + 1) % SEQUENCES
    assert after == (sequence + 1) % _WRAP
    assert published(slot(sequence, "a"), slot(after, "b")) == "b"
    assert published(slot(after, "a"), slot(sequence, "b")) == "a"


@pytest.mark.parametrize(("first", "second", "expected"), [(5, 5, "a"), (0, _WRAP // 2, "b"), (_WRAP // 2, 0, "b")])
def test_two_slots_that_no_writer_leaves_give_the_answer_they_always_gave(
    first: int, second: int, expected: str
) -> None:
    assert published(slot(first, "a"), slot(second, "b")) == expected


@pytest.mark.parametrize("sequence", [1, 9])
def test_an_impossible_slot_is_passed_by_whatever_its_sequence(sequence: int) -> None:
    assert published(slot(5, "a"), slot(sequence, "?")) == "a"
    assert published(slot(sequence, "?"), slot(5, "b")) == "b"
    assert published(slot(sequence, "?"), slot(5, "?")) is None


@given(st.sampled_from([1, 5, 6, 9]), st.integers(0, _SLOT_BYTES - 1), st.integers(1, 255), st.booleans())
def test_a_slot_with_a_changed_byte_is_passed_by(sequence: int, at: int, change: int, is_first: bool) -> None:
    changed = bytearray(slot(sequence, "b"))
    changed[at] ^= change
    pair = [slot(5, "a"), bytes(changed)]
    assert published(*(reversed(pair) if is_first else pair)) == "a"


def test_a_file_that_ends_within_a_slot_has_the_other_one_or_none() -> None:
    assert published(slot(5, "a"), slot(6, "b")[:-1]) == "a"
    assert published(slot(5, "a"), b"\0\0") == "a"
    assert published(slot(5, "a")[:-1]) is None
    assert published(bytes(2 * _SLOT_BYTES)) is None
    assert published() is None


def test_the_slot_with_the_even_sequence_is_first() -> None:
    assert [PAIR.slot(n.to_bytes(4, "big") + b"a")[1] for n in (0, 1, 2, 255, 256, _WRAP - 1)] == [0, 9, 0, 9, 0, 9]
    assert [LATER.slot(n.to_bytes(4, "big") + b"a")[1] for n in (0, 1)] == [5, 14]


def test_each_slot_is_found_without_the_other() -> None:
    torn = slot(6, "b")[:-1] + b"x"
    assert PAIR.each(slot(6, "a") + slot(5, "b")) == [(0, 9, "a"), (9, 18, "b")]
    assert LATER.each(b"front" + slot(6, "a") + torn) == [(5, 14, "a"), (14, 23, None)]
    assert LATER.each(b"front" + torn + slot(5, "a")) == [(5, 14, None), (14, 23, "a")]


def test_torn_slots_are_read_again_until_one_is_whole() -> None:
    torn, reads = bytes(2 * _SLOT_BYTES), iter([bytes(2 * _SLOT_BYTES), slot(4, "a")])
    assert read_again_if_torn(torn, 1, PAIR.latest, lambda: next(reads)) == (slot(4, "a"), "a")
    assert read_again_if_torn(slot(5, "b"), 1, PAIR.latest, lambda: next(reads)) == (slot(5, "b"), "b")


def test_slots_that_stay_torn_and_short_files_end_the_reading() -> None:
    reads = [0]

    def read() -> bytes:
        reads[0] += 1
        return bytes(9)

    assert read_again_if_torn(bytes(9), 9, PAIR.latest, read) == (bytes(9), None)
    assert reads == [100]
    assert read_again_if_torn(bytes(8), 9, PAIR.latest, read) == (bytes(8), None)
    assert reads == [100]
