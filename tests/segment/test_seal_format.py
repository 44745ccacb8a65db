"""The bytes of a seal, against the example that docs/format.md works through."""

from __future__ import annotations

import re
from array import array
from pathlib import Path
from typing import Any

import pytest

from pylog.codec.batch import read_header
from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.index import AbortedTransaction
from pylog.segment import AbortedDigest, Seal, SealBuilder, SegmentReader, check_seal, read_aborted
from pylog.segment.seal import HOME_LIMIT_BYTES, decode, encode
from pylog.storage import OsFileSystem

FORMAT = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
HOME = "q3n1dX7UQ2ugqcGZzAZDrA-0"
WITHOUT_HOME = """
    50594c475345414c 0001 0001 00000001 000000000000005a 0000000000000000 0000000000000002 ffffffff ffffffff
    07bef78e 00000000618f10fc 0000018bcfe56807
"""  # as they were before seals said it
WITHOUT_ABORTED = """
    50594c475345414c 0001 0003 00000001 000000000000005a 0000000000000000 0000000000000002 ffffffff ffffffff
    4908e974 00000000618f10fc 0000018bcfe56807 71336e3164583755513275677163475a7a415a4472412d30
"""  # as they were before seals recorded the transaction index


def example(title: str) -> bytes:
    """The hexadecimal digits in front of the words, in the first block below a heading of
    docs/format.md."""
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
    assert encode(seal_of(batch, HOME)._replace(aborted=AbortedDigest.of([]))) == example("Seals")
    assert example("Seals").endswith(HOME.encode())


def test_the_seal_of_the_worked_example_is_read() -> None:
    start, times = array("I", [0]), array("q", [1_700_000_000_007])
    known = Seal(90, 0, 2, -1, -1, start, array("I", [0x618F10FC]), times, HOME)
    assert decode(example("Seals"), "") == known._replace(aborted=AbortedDigest(0, 0))
    assert decode(bytes.fromhex(WITHOUT_ABORTED), "") == known
    assert encode(known) == bytes.fromhex(WITHOUT_ABORTED)


def test_a_seal_without_a_home_is_read_and_written_as_ever(batch: bytes) -> None:
    data = bytes.fromhex(WITHOUT_HOME)
    assert decode(data, "").home == ""
    assert decode(data, "") == seal_of(batch, "")
    assert encode(seal_of(batch, "")) == data


@pytest.mark.parametrize("aborted", [None, AbortedDigest(1, 0x12345678)])
def test_every_bit_of_a_seal_with_a_home_is_covered(batch: bytes, aborted: AbortedDigest | None) -> None:
    right = bytes(encode(seal_of(batch, HOME)._replace(aborted=aborted)))
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


ABORTED = AbortedDigest.of([AbortedTransaction(7, 0, 2, 3)])


def read_again(directory: Path, data: bytes, home: str = HOME) -> AbortedDigest | None:
    (directory / "00000000000000000000.seal").write_bytes(data)
    return read_aborted(OsFileSystem(), str(directory), 0, home)


def outcome_of(directory: Path, data: bytes) -> Any:
    try:
        return read_again(directory, data)
    except CorruptSegment as damage:
        return "of another partition" if "home" in damage.facts else "damaged"


def test_what_is_recorded_of_aborted_transactions_is_read_without_the_rest(batch: bytes, tmp_path: Path) -> None:
    builder, at = SealBuilder(HOME), 0
    for _ in range(200):
        builder.add(at, read_header(batch), batch, 5)
        at += len(batch)
    for seal in (builder.build(aborted=ABORTED), builder.build(next_base=1 << 30, aborted=ABORTED)):
        data = bytearray(encode(seal))
        assert decode(bytes(data), "") == seal
        assert read_again(tmp_path, data) == ABORTED
        home_start = len(data) - len(HOME)
        for position in (*range(8, 48), *range(52, 64), *range(home_start, len(data))):
            data[position] ^= 1
            assert outcome_of(tmp_path, data) in ("damaged", None), position  # None: other flags, another version
            data[position] ^= 1
        data[70] ^= 1  # of the rest, which was not read
        assert read_again(tmp_path, data) == ABORTED
    assert read_again(tmp_path, encode(builder.build())) is None
    with pytest.raises(CorruptSegment, match="belongs to"):
        read_again(tmp_path, data, "other-0")
    assert read_again(tmp_path, data, "") == ABORTED
    (tmp_path / "00000000000000000000.seal").unlink()
    assert read_aborted(OsFileSystem(), str(tmp_path), 0, HOME) is None


def test_an_earlier_version_refuses_a_seal_that_records_them_and_reads_on_without(
    batch: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(seal_of(batch, HOME)._replace(aborted=ABORTED))
    (tmp_path / "00000000000000000000.log").write_bytes(batch)
    (tmp_path / "00000000000000000000.seal").write_bytes(data)
    monkeypatch.setattr("pylog.segment.seal.KNOWN_FLAGS", 15)
    with pytest.raises(FormatVersionError, match="flags 0x13; this pylog knows version 1, flags 0xf"):
        decode(data, "")
    reader = SegmentReader(OsFileSystem(), str(tmp_path), 0, closed=True, home=HOME)
    assert reader.seal is None
    assert [bytes(view.buffer) for view in reader.read(0, len(batch), max_bytes=1)] == [batch]
    reader.close()


def test_more_aborted_transactions_than_batches_are_impossible(batch: bytes) -> None:
    with pytest.raises(CorruptSegment, match="what no segment"):
        decode(encode(seal_of(batch, HOME)._replace(aborted=AbortedDigest(2, 0))), "")
