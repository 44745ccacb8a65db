"""Seals with a right checksum and any content: everything ends, nobody is led backwards, nothing
lies."""

from __future__ import annotations

import shutil
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pylog.codec.batch import header_crc
from pylog.codec.checksum import crc32c
from pylog.errors import CorruptRecord, CorruptSegment, PylogError
from pylog.model import TopicPartition
from pylog.partition import Cursor, Partition
from pylog.partition.verify import VerifyReport, verify_partition
from pylog.segment.seal import Seal, decode, encode
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, append_encoded, batch, file_of, flip, log_file, open_partition

FS = OsFileSystem()
COUNT = 6


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("seals") / "t-0"
    partition = open_partition(directory)
    for number in range(COUNT):
        append_encoded(partition, batch(b"v%d" % number, timestamp_ms=START_MS + number))
    partition.log.roll()
    append_encoded(partition, batch(b"v%d" % COUNT, timestamp_ms=START_MS + COUNT))
    partition.close()
    return directory


@contextmanager
def copied(directory: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as root:
        yield Path(shutil.copytree(directory, Path(root) / "t-0"))


def verified(directory: Path) -> int:
    """How many problems there are; it must not go on for ever."""
    found = 0
    for _ in verify_partition(FS, str(directory), TopicPartition("t", 0), report=VerifyReport(), topic_id="id"):
        found += 1
        assert found < 100
    return found


def read_past_damage(partition: Partition) -> list[tuple[int, bytes]]:
    """What a reader gets that goes on where the errors say. It only ever goes forward."""
    cursor, found = Cursor(0), []
    for _ in range(100):
        try:
            fetched = partition.log.fetch(
                cursor, max_bytes=70, isolation_level="read_uncommitted", visibility="written"
            )
        except CorruptRecord as damage:
            behind = damage.facts.get("next_offset")
            following = Cursor(cursor.offset + 1 if behind is None else behind)
        else:
            found += [(record.offset, record.value) for view in fetched.batches for record in view.records()]
            following = fetched.cursor
            if following.offset == cursor.offset:
                return found
        assert following.offset > cursor.offset
        cursor = following
        if cursor.offset > COUNT:
            return found
    raise AssertionError("reading does not end")


POSITIONS = st.lists(st.integers(0, 5) | st.sampled_from([0, 70, 140, 2**31, 2**32 - 1]), max_size=8)
HOMES = st.sampled_from(["", "id-0", "id-1", "other-0", "id-0 ", "\n"]) | st.text(
    st.characters(codec="ascii"), max_size=90
)
OFFSETS = st.integers(-1, 8) | st.sampled_from([2**31, 2**63 - 1, -(2**63)])


@given(
    positions=POSITIONS
    | st.sets(st.integers(0, COUNT - 1)).map(lambda numbers: [-1 - number for number in sorted(numbers)]),
    crcs=st.lists(st.integers(0, COUNT - 1), min_size=8, max_size=8) | st.just(list(range(8))),
    ends=st.tuples(st.integers(0, 10**4) | st.none(), OFFSETS, OFFSETS),
    times=st.lists(st.integers(START_MS - 1, START_MS + 9), max_size=2),
    home=st.just("id-0") | HOMES,
    flipped=st.integers(0, COUNT * 70 - 1) | st.none(),
)
@settings(max_examples=120, deadline=None)
# The seal is readable again from its own position.
@pytest.mark.slow
@example(positions=[-1, -2], crcs=[0] * 8, ends=(None, 0, 0), times=[], home="", flipped=None)
def test_seals_with_a_right_checksum_and_any_content(
    laid_out: Path,
    positions: list[int],
    crcs: list[int],
    ends: tuple[int | None, int, int],
    times: list[int],
    home: str,
    flipped: int | None,
) -> None:
    with copied(laid_out) as directory:
        path = file_of(directory, 0, ".seal")
        right = decode(path.read_bytes(), "")
        places = array("I", [right.positions[-1 - at] if at < 0 else at for at in positions])
        fronts = array("I", [right.header_crcs[number % COUNT] for number in crcs[: len(places)]])
        size = right.size_bytes if ends[0] is None else ends[0]
        path.write_bytes(encode(Seal(size, ends[1], ends[2], 0, 0, places, fronts, array("q", times), home)))
        if flipped is not None:
            flip(log_file(directory), flipped)
        verified(directory)
        partition = open_partition(directory)
        found = read_past_damage(partition)
        assert found == sorted({(offset, b"v%d" % offset) for offset, _ in found})
        backwards = 0
        for offset in range(COUNT + 1):
            try:
                fetched = partition.log.fetch(
                    Cursor(offset), max_bytes=1, isolation_level="read_uncommitted", visibility="written"
                )
            except CorruptSegment as damage:
                backwards += (damage.facts.get("next_offset") or offset + 1) <= offset
            else:
                assert all(
                    record.value == b"v%d" % record.offset for view in fetched.batches for record in view.records()
                )
        assert not backwards
        for at in range(COUNT + 2):
            try:
                answer = partition.offset_for_time(START_MS + at)
            except PylogError:
                continue
            assert answer is None or answer.timestamp_ms >= START_MS + at
        partition.close()


def test_a_seal_that_agrees_with_an_offset_gone_wrong_leads_nobody_backwards(laid_out: Path) -> None:
    """Behind a damaged batch stands one that says it begins at 0, and the seal has the checksum of
    just that."""
    with copied(laid_out) as directory:
        path, log = file_of(directory, 0, ".seal"), log_file(directory)
        right = decode(path.read_bytes(), "")
        data = bytearray(log.read_bytes())
        data[right.positions[2] + 62] ^= 1
        data[right.positions[3] : right.positions[3] + 8] = bytes(8)
        log.write_bytes(data)
        crcs = right.header_crcs[:]
        crcs[3] = header_crc(data[right.positions[3] :])
        path.write_bytes(encode(right._replace(header_crcs=crcs)))
        partition = open_partition(directory)
        cursor = partition.log.fetch(
            Cursor(1), max_bytes=1, isolation_level="read_uncommitted", visibility="written"
        ).cursor
        assert cursor.offset == 2
        with pytest.raises(CorruptSegment) as caught:
            partition.log.fetch(cursor, max_bytes=1, isolation_level="read_uncommitted", visibility="written")
        assert caught.value.next_offset == 4
        read_past_damage(partition)
        assert verified(directory)


@pytest.mark.parametrize("home", ["id-1", "other-0", "id-0 ", "ID-0", "i" * 80, "id-0\n", "\x1b[2J"])
def test_a_seal_that_names_another_home_in_any_words_is_one_error_in_one_printable_line(
    laid_out: Path, home: str
) -> None:
    with copied(laid_out) as directory:
        path = file_of(directory, 0, ".seal")
        path.write_bytes(encode(decode(path.read_bytes(), "")._replace(home=home)))
        assert verified(directory) == 1
        partition = open_partition(directory)
        with pytest.raises(CorruptSegment) as caught:
            partition.read(0)
        assert str(caught.value).isprintable()
        assert (caught.value.home, caught.value.expected, caught.value.next_offset) == (home, "id-0", COUNT)
        assert [record.value for record in partition.read(COUNT)] == [b"v%d" % COUNT]
        partition.close()


@pytest.mark.parametrize("home", [b"", b"i" * 81, b"\xff-0"])
def test_a_home_that_is_none_is_a_damaged_seal_and_counts_as_absent(laid_out: Path, home: bytes) -> None:
    with copied(laid_out) as directory:
        path = file_of(directory, 0, ".seal")
        data = path.read_bytes().removesuffix(b"id-0") + home
        path.write_bytes(data[:48] + crc32c(data[52:], crc32c(data[:48])).to_bytes(4, "big") + data[52:])
        assert verified(directory) == 1
        partition = open_partition(directory)
        assert [offset for offset, _ in read_past_damage(partition)] == [*range(COUNT + 1)]
        partition.close()
