"""Which of two slots is published: files written by every version must give the same answer."""

from __future__ import annotations

import pytest

from pylog.storage import SEQUENCES, latest_slot

_WRAP = 1 << 32


def slot(sequence: int, name: str) -> bytes:
    return b"crc_" + sequence.to_bytes(4, "big") + name.encode()


def name_of(data: bytes) -> str | None:
    """Any slot is valid here but an incomplete one, and one called ``?``."""
    return data[8:].decode() if len(data) == 9 and data[8:] != b"?" else None


def published(*slots: bytes) -> str | None:
    return latest_slot(b"".join(slots), 9, name_of)


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
def test_an_invalid_slot_is_passed_by_whatever_its_sequence(sequence: int) -> None:
    assert published(slot(5, "a"), slot(sequence, "?")) == "a"
    assert published(slot(sequence, "?"), slot(5, "b")) == "b"
    assert published(slot(sequence, "?"), slot(5, "?")) is None


def test_a_file_that_ends_within_a_slot_has_the_other_one_or_none() -> None:
    assert published(slot(5, "a"), slot(6, "b")[:-1]) == "a"
    assert published(slot(5, "a")[:-1]) is None
    assert published() is None
