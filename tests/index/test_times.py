"""Looking up a time gives the right answer whatever the time index holds."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.codec.format import LENGTH_POSITION
from pylog.errors import CorruptSegment
from pylog.index.time_index import ENTRY
from pylog.partition import Partition
from pylog.segment import read_seal
from pylog.segment.seal import decode, encode
from pylog.storage import OsFileSystem
from tests.partition.logs import (
    START_MS,
    append_encoded,
    batch,
    copy_of,
    file_of,
    flip,
    headers,
    log_file,
    open_partition,
)

TIMES = [START_MS + at for at in (0, 20, 40, 40, 100, 30, 60, 110, 110, 5, 130, 120, 150, 170, 160, 180)]
WANTED = sorted({at + step for at in TIMES for step in (0, 1)})
SOME = WANTED[3::6]


def lay_out(directory: Path, *, closed: bool) -> Path:
    """A segment of one record a batch, each indexed; and behind it, if it is closed, one that is
    later than all."""
    partition = open_partition(directory, index_interval_bytes=0)
    for at in TIMES:
        append_encoded(partition, batch(b"x", timestamp_ms=at))
    if closed:
        partition.log.roll()
        append_encoded(partition, batch(b"x", timestamp_ms=START_MS + 1000))
    partition.close()
    return directory


@pytest.fixture(scope="module", params=["active", "sealed", "sealed without times", "not sealed"])
def laid_out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = lay_out(tmp_path_factory.mktemp("times") / "t-0", closed=request.param != "active")
    seal = file_of(directory, 0, ".seal")
    if request.param == "sealed without times":
        seal.write_bytes(encode(decode(seal.read_bytes(), "")._replace(greatest_ms=array("q"))))
    elif request.param == "not sealed":
        seal.unlink()
    return directory


def answers(partition: Partition, wanted: list[int] = WANTED) -> list[int | None]:
    found = [partition.offset_for_time(at) for at in wanted]
    partition.log.close()
    return [None if one is None else one.offset for one in found]


def expected(directory: Path, wanted: list[int] = WANTED) -> list[int | None]:
    behind = None if len(list(directory.glob("*.log"))) == 1 else len(TIMES)
    return [next((offset for offset, at in enumerate(TIMES) if at >= least), behind) for least in wanted]


@pytest.mark.slow
@pytest.mark.one_in(8)
def test_a_time_index_with_any_bit_flipped(laid_out: Path) -> None:
    index, right = file_of(laid_out, 0, ".timeindex"), expected(laid_out, SOME)
    good = index.read_bytes()
    assert len(good) >= 8 * ENTRY.size
    try:
        assert answers(open_partition(laid_out), SOME) == right
        for bit in range(len(good) * 8):
            index.write_bytes(good)
            flip(index, bit // 8, 1 << bit % 8)
            assert answers(open_partition(laid_out), SOME) == right, f"bit {bit}"
    finally:
        index.write_bytes(good)


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(TIMES) | st.integers(-(2**63), 2**63 - 1), st.integers(0, 16) | st.integers(-(2**31), 2**31 - 1)
    ),
    max_size=8,
)


@pytest.mark.slow
@given(ENTRIES | st.just(list(zip(TIMES, range(16), strict=True))))
@settings(max_examples=60)
def test_a_time_index_of_any_entries(laid_out: Path, entries: list[tuple[int, int]]) -> None:
    """Also of entries that name a batch and its timestamp, but not the greatest one up to there."""
    index, right = file_of(laid_out, 0, ".timeindex"), expected(laid_out)
    good = index.read_bytes()
    try:
        index.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))
        assert answers(open_partition(laid_out)) == right
    finally:
        index.write_bytes(good)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.one_in(4)
def test_a_time_index_of_kafkas_with_any_bit_flipped(tmp_path: Path, closed: bool) -> None:
    """There the index is relied on, if its batch agrees."""
    directory = lay_out(tmp_path / "t-0", closed=closed)
    for name in (".commit", f"{0:020d}.seal"):
        (directory / name).unlink(missing_ok=True)
    index, right = file_of(directory, 0, ".timeindex"), expected(directory, SOME)
    good = index.read_bytes()
    for bit in range(len(good) * 8):
        index.write_bytes(good)
        flip(index, bit // 8, 1 << bit % 8)
        assert answers(open_partition(directory, is_kafka=True, read_only=True), SOME) == right, f"bit {bit}"


@pytest.mark.slow
def test_a_seal_knows_the_greatest_timestamp_of_every_64_batches(tmp_path: Path) -> None:
    chance = random.Random(1)
    partition = open_partition(tmp_path / "t-0")
    times = [START_MS + number + chance.choice([0, 0, 500, -500]) for number in range(200)]
    for at in times:
        append_encoded(partition, batch(b"x", timestamp_ms=at))
    partition.log.roll()
    for wanted in range(min(times) - 1, max(times) + 2):
        found = partition.offset_for_time(wanted)
        assert (found and found.offset) == next((offset for offset, at in enumerate(times) if at >= wanted), None)
    seal = read_seal(OsFileSystem(), str(tmp_path / "t-0"), 0, log_file(tmp_path / "t-0").stat().st_size)
    assert seal is not None
    assert list(seal.greatest_ms) == [max(times[:end]) for end in (64, 128, 192, 200)]


def test_what_is_known_of_a_segment_grows_with_it_and_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")
    for at in range(1000):
        append_encoded(partition, batch(b"x", timestamp_ms=START_MS + at))
        if at % 90 == 0:
            assert partition.offset_for_time(START_MS + at) == (at, START_MS + at)
            assert partition.offset_for_time(START_MS + at + 1) is None
            assert partition.offset_for_time(START_MS + at // 2) == (at // 2, START_MS + at // 2)
    reads: list[int] = []
    segment = next(iter(partition.log.reader._open.values()))
    pread: Callable[[int, int], bytes] = segment.file.pread
    monkeypatch.setattr(
        segment, "file", type("Counted", (), {"pread": lambda _, size, at: reads.append(size) or pread(size, at)})()
    )
    assert partition.offset_for_time(START_MS + 2000) is None
    assert partition.offset_for_time(START_MS + 2000) is None
    assert sum(reads) < 80_000


def test_damage_in_a_segment_without_seal_is_passed_where_the_index_leads_past_it(tmp_path: Path) -> None:
    directory = lay_out(tmp_path / "t-0", closed=True)
    file_of(directory, 0, ".seal").unlink()
    positions = [position for position, _ in headers(log_file(directory))]
    flip(log_file(directory), positions[6] + LENGTH_POSITION)
    partition = open_partition(directory)
    assert partition.offset_for_time(START_MS + 41) == (4, START_MS + 100)
    assert partition.offset_for_time(START_MS + 175) == (15, START_MS + 180)
    assert partition.offset_for_time(START_MS + 200) == (16, START_MS + 1000)
    file_of(copy_of(directory), 0, ".timeindex").unlink()
    without = open_partition(directory.with_name("copy"))
    assert without.offset_for_time(START_MS + 41) == (4, START_MS + 100)
    with pytest.raises(CorruptSegment):
        without.offset_for_time(START_MS + 175)
