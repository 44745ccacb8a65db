"""Histories as files, and values that tell whether they were altered."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.testing.history import Operation, decode_value, encode_value, read_history, write_history
from tests.testing.histories import Player


def test_a_history_is_read_as_it_was_written(tmp_path: Path, seed: int) -> None:
    operations = Player(seed, steps=200).operations
    write_history(tmp_path / "history", operations)
    assert list(read_history(tmp_path / "history")) == operations


def test_a_line_says_only_what_there_is_to_say() -> None:
    operation = Operation(3, "invoke", "send", 1.5, sent={"t-0": [[None, 7]]}, atomic=True)
    assert operation.to_json() == (
        '{"process":3,"type":"invoke","f":"send","time":1.5,"sent":{"t-0":[[null,7]]},"atomic":true}'
    )
    assert Operation.from_json(operation.to_json()) == operation
    assert Operation(0, "ok", "poll").to_json() == '{"process":0,"type":"ok","f":"poll","time":0.0}'


def test_a_last_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    write_history(tmp_path / "history", [Operation(0, "ok", "poll"), Operation(1, "ok", "poll")])
    whole = (tmp_path / "history").read_bytes()
    (tmp_path / "history").write_bytes(whole[:-1])
    assert [operation.process for operation in read_history(tmp_path / "history")] == [0]


@pytest.mark.parametrize(
    "line",
    ["x", "[]", "3", '{"process": 1}', '{"process":1,"type":"done","f":"send"}', '{"process":1,"type":"ok","f":"x"}'],
)
def test_a_line_that_is_no_operation_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "history").write_text(f"{Operation(0, 'ok', 'poll').to_json()}\n{line}\n")
    with pytest.raises(ValueError, match="history, line 2: "):
        list(read_history(tmp_path / "history"))


@pytest.mark.parametrize("number", [0, 1, -1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("size", [0, 15, 16, 17, 1000, 100_000])
def test_a_value_tells_its_number_and_has_the_size_asked_for(number: int, size: int) -> None:
    assert decode_value(encode_value(number, size)) == number
    assert len(encode_value(number, size)) == max(size, 16)


def test_a_value_with_any_bit_flipped_cut_short_or_lengthened_is_altered() -> None:
    value = encode_value(7, 64)
    for bit in range(len(value) * 8):
        wrong = bytearray(value)
        wrong[bit >> 3] ^= 1 << (bit & 7)
        assert decode_value(bytes(wrong)) is None
    assert all(decode_value(value[:size]) is None for size in range(len(value)))
    assert decode_value(value + b"\0") is None
    assert decode_value(None) is None
