"""The bytes of a seal, against the example that docs/format.md works through."""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import pytest

from pylog.codec.batch import read_header
from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.segment import Seal, SealBuilder, check_seal
from pylog.segment.seal import HOME_LIMIT_BYTES, decode, encode
from pylog.storage import OsFileSystem

FORMAT = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
HOME = "q3n1dX7UQ2ugqcGZzAZDrA-0"
WITHOUT_HOME = """
    50594c475345414c 0001 0001 00000001 000000000000005a 0000000000000000 0000000000000002 ffffffff ffffffff
    07bef78e 00000000618f10fc 0000018bcfe56807
"""  # as they were before seals said it


def example(title: str) -> bytes:
    """The hexadecimal digits in front of the words, in the first block below a heading of docs/format.md."""
    block = FORMAT.partition(f"\n## {title}")[2].split("```")[1]
    return bytes.fromhex("".join(re.findall(r"^ *((?:[0-9a-f]{2,} ?)+?)(?:  |$)", block, re.MULTILINE)))


@pytest.fixture(scope="module")
def batch() -> bytes:
    """The batch of the same document."""
    block = FORMAT.partition("\n## A batch, worked through")[2].split("```")[1]
    digits = re.findall(r"^ *((?:[0-9a-f]{2} ?)+)(?:  |$)", block, re.MULTILINE)
    return bytes.fromhex("".join(digits))


def seal_of(batch: bytes, home: str) -> Seal:
    builder = SealBuilder(home)
    builder.add(0, read_header(batch), batch)
    return builder.build()


def test_the_seal_of_the_worked_example_is_written_byte_for_byte(batch: bytes) -> None:
    assert encode(seal_of(batch, HOME)) == example("Seals")
    assert example("Seals").endswith(HOME.encode())


def test_the_seal_of_the_worked_example_is_read() -> None:
    start, times = array("I", [0]), array("q", [1_700_000_000_007])
    assert decode(example("Seals"), "") == Seal(90, 0, 2, -1, -1, start, array("I", [0x618F10FC]), times, HOME)


def test_a_seal_without_a_home_is_read_and_written_as_ever(batch: bytes) -> None:
    data = bytes.fromhex(WITHOUT_HOME)
    assert decode(data, "").home == ""
    assert decode(data, "") == seal_of(batch, "")
    assert encode(seal_of(batch, "")) == data


def test_every_bit_of_a_seal_with_a_home_is_covered(batch: bytes) -> None:
    right = bytes(encode(seal_of(batch, HOME)))
    for bit in range(8 * len(right)):
        data = bytearray(right)
        data[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptSegment):
            decode(bytes(data), "")
    for size in range(len(right)):
        with pytest.raises(CorruptSegment):
            decode(right[:size], "")


def test_a_flag_that_is_not_known_is_a_newer_format(batch: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.segment.seal.KNOWN_FLAGS", 1)  # what wrote flags 1 alone says of a seal with a home
    with pytest.raises(FormatVersionError, match="flags 0x3; this pylog knows version 1, flags 0x1"):
        decode(encode(seal_of(batch, HOME)), "")


def test_the_longest_home_has_room() -> None:
    assert len("i" * 64 + "-99999") <= HOME_LIMIT_BYTES


def test_a_seal_without_a_home_or_of_a_newer_format_is_whole_and_names_none(
    batch: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(batch)
    path = tmp_path / "00000000000000000000.seal"

    def home_of_checked() -> str:
        steps = check_seal(OsFileSystem(), str(tmp_path), 0)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return str(end.value)

    path.write_bytes(encode(seal_of(batch, "")))
    assert home_of_checked() == ""
    path.write_bytes(encode(seal_of(batch, "id-3")))
    assert home_of_checked() == "id-3"
    path.write_bytes(encode(seal_of(batch, "id-3")._replace(least_ms=array("q", [5]))))
    assert home_of_checked() == "id-3"
    monkeypatch.setattr("pylog.segment.seal.KNOWN_FLAGS", 1)
    assert home_of_checked() == ""


def test_a_seal_says_the_least_time_of_every_64_kib(batch: bytes) -> None:
    builder, at = SealBuilder(HOME), 0
    for least_ms, size in ((7, 40_000), (5, 40_000), (9, 200_000), (INT64_MIN, 90), (8, 90)):
        builder.add(at, read_header(batch)._replace(length=size - 12), batch, least_ms)
        at += size
    seal = builder.build()
    assert [*seal.least_ms] == [5, 9, INT64_MAX, INT64_MAX, INT64_MIN]
    data = encode(seal)
    assert data[11] == 7
    assert decode(data, "") == seal
    for size in range(len(data)):
        with pytest.raises(CorruptSegment):
            decode(data[:size], "")


def test_a_seal_of_a_segment_with_gaps_records_where_the_next_one_begins(batch: bytes) -> None:
    builder = SealBuilder(HOME)
    builder.add(0, read_header(batch), batch, 5)
    dense, rising = builder.build(), builder.build(next_base=1 << 31)
    assert (dense.is_dense, rising.is_dense) == (True, False)
    assert [dense.gap_end(offset) for offset in (0, 2, 3, 9)] == [0, 2, 3, 9]
    assert [rising.gap_end(offset) for offset in (0, 2, 3, 9)] == [0, 2, 1 << 31, 1 << 31]
    data = encode(rising)
    assert (data[11], encode(dense)[11]) == (15, 7)
    assert data.endswith((1 << 31).to_bytes(8, "big") + HOME.encode())
    assert decode(data, "") == rising
    for size in range(len(data)):
        with pytest.raises(CorruptSegment):
            decode(data[:size], "")
    for impossible in (2, (1 << 31) + 1):  # inside of its own offsets; further than a segment reaches
        with pytest.raises(CorruptSegment, match="what no segment"):
            decode(encode(rising._replace(next_base=impossible)), "")
    for base in (7, 1 << 40):
        assert decode(encode(SealBuilder().build(next_base=base)), "").next_base == base  # compaction has emptied it


def test_a_seal_that_knows_no_least_time_is_written_as_ever(batch: bytes) -> None:
    builder = SealBuilder(HOME)
    builder.add(0, read_header(batch), batch, INT64_MIN)
    assert builder.build() == seal_of(batch, HOME)
    assert encode(builder.build())[11] == 3
