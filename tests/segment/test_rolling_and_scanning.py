"""The parts of a segment by themselves: when it is rolled, what a scan says of a file that shrinks,
what a seal counts."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import crc32c
import pytest

from pylog.codec.batch import BatchHeader, read_header, stamp
from pylog.codec.format import (
    BATCH_OVERHEAD,
    CRC_POSITION,
    CRC_START,
    CRC_STRUCT,
    HEADER_BYTES,
    HEADER_STRUCT,
)
from pylog.errors import CorruptSegment, MissingCodec
from pylog.index import AbortedTransaction, TransactionIndexReader
from pylog.index.offset_index import ENTRY as OFFSET_ENTRY
from pylog.segment import Seal, SealBuilder, SegmentScan, outline, read_seal, write_seal
from pylog.segment.seal import decode, encode
from pylog.segment.writer import MAX_RELATIVE_OFFSET, SegmentWriter
from pylog.storage import OsFileSystem
from tests.partition.logs import (
    START_MS,
    append_encoded,
    batch,
    cut,
    everything,
    file_of,
    headers,
    log_file,
    marker,
    open_partition,
)

FS = OsFileSystem()
LIMITS = {"segment_bytes": 10_000, "segment_ms": 1000, "now_ms": lambda: START_MS}


def placed(offset: int, size: int = 100, timestamp_ms: int = START_MS, epoch: int = 0) -> bytearray:
    made = batch(b"x" * size, timestamp_ms=timestamp_ms)
    stamp(made, offset, epoch)
    return made


def writer(directory: Path, *, base: int = 0, index_max_bytes: int = 1 << 20, interval: int = 0) -> SegmentWriter:
    segment = SegmentWriter(FS, str(directory), base, index_interval_bytes=interval, index_max_bytes=index_max_bytes)
    segment.attach(0, base)
    return segment


def put(segment: SegmentWriter, made: bytearray) -> None:
    segment.append(made, read_header(made))


def is_due(segment: SegmentWriter, header: BatchHeader, **changes: Any) -> bool:
    return segment.is_due_to_roll(header, **{**LIMITS, **changes})


def test_an_empty_segment_takes_any_batch(tmp_path: Path) -> None:
    header = read_header(placed(0, 5000, START_MS + 10**9))
    assert not is_due(writer(tmp_path), header, segment_bytes=1)


def test_a_segment_is_rolled_before_it_would_exceed_its_size(tmp_path: Path) -> None:
    segment = writer(tmp_path)
    put(segment, placed(0))
    following = read_header(placed(1))
    whole = segment.size_bytes + following.size_bytes
    assert not is_due(segment, following, segment_bytes=whole)
    assert is_due(segment, following, segment_bytes=whole - 1)


def test_a_segment_is_rolled_when_its_first_batch_is_too_old(tmp_path: Path) -> None:
    segment = writer(tmp_path)
    put(segment, placed(0, timestamp_ms=START_MS))
    put(segment, placed(1, timestamp_ms=START_MS + 500))
    assert not is_due(segment, read_header(placed(2, timestamp_ms=START_MS + 1000)))
    assert is_due(segment, read_header(placed(2, timestamp_ms=START_MS + 1001)))


def test_batches_without_a_time_age_by_the_clock_and_never_where_the_first_has_none(tmp_path: Path) -> None:
    segment = writer(tmp_path)
    put(segment, placed(0))
    timeless = read_header(placed(1))._replace(max_timestamp_ms=-1)
    assert not is_due(segment, timeless, now_ms=lambda: START_MS + 1000)
    assert is_due(segment, timeless, now_ms=lambda: START_MS + 1001)
    first = writer(tmp_path / "..", base=7)
    made = placed(7)
    first.append(made, read_header(made)._replace(max_timestamp_ms=-1))
    assert not is_due(first, read_header(placed(8, timestamp_ms=START_MS + 10**9)))


def test_a_segment_is_rolled_before_an_offset_is_too_far_from_its_base(tmp_path: Path) -> None:
    segment = writer(tmp_path)
    put(segment, placed(0))
    last = read_header(placed(MAX_RELATIVE_OFFSET - 1))
    assert not is_due(segment, last)
    assert is_due(segment, last._replace(last_offset_delta=1))


@pytest.mark.parametrize(("room", "most"), [(24, 1), (36, 2), (48, 3)])
def test_a_segment_is_rolled_when_an_index_is_full(tmp_path: Path, room: int, most: int) -> None:
    """Of the time index one entry is kept for closing it."""
    segment = writer(tmp_path, index_max_bytes=room)
    number = 0
    while not is_due(segment, read_header(placed(number, timestamp_ms=START_MS + number))):
        put(segment, placed(number, timestamp_ms=START_MS + number))
        number += 1
        assert number < 20
    segment.finish()
    assert file_of(tmp_path, 0, ".timeindex").stat().st_size <= room
    assert number == most + 1  # the first batch has no entry


def test_an_offset_index_is_full_where_times_do_not_grow(tmp_path: Path) -> None:
    segment = writer(tmp_path, index_max_bytes=48)
    for number in range(7):
        assert not is_due(segment, read_header(placed(number))), number
        put(segment, placed(number))
    assert is_due(segment, read_header(placed(7)))
    assert file_of(tmp_path, 0, ".index").stat().st_size == 48


def test_a_time_index_that_was_lost_is_made_again_with_the_offset_index(directory: Path) -> None:
    partition = open_partition(directory, index_interval_bytes=0)
    for number in range(5):
        append_encoded(partition, batch(b"x", timestamp_ms=START_MS + number))
    partition.close()
    indexes = [file_of(directory, 0, kind) for kind in (".index", ".timeindex")]
    before = [path.read_bytes() for path in indexes]
    indexes[1].write_bytes(b"")
    append_encoded(open_partition(directory, index_interval_bytes=0), batch(b"x", timestamp_ms=START_MS + 5))
    assert [path.read_bytes()[: len(old)] for path, old in zip(indexes, before, strict=True)] == before


def test_a_cut_takes_the_file_the_indexes_and_what_is_known_back_to_the_end(tmp_path: Path) -> None:
    segment = writer(tmp_path)
    ends = [0]
    for number in range(5):
        put(segment, placed(number, timestamp_ms=START_MS + number))
        ends.append(segment.size_bytes)
    for left in (3, 2, 0):
        segment.cut(ends[left], left)
        assert (segment.size_bytes, segment.next_offset, log_file(tmp_path).stat().st_size) == (
            ends[left],
            left,
            ends[left],
        )
        assert file_of(tmp_path, 0, ".index").stat().st_size == 8 * max(left - 1, 0)
        assert file_of(tmp_path, 0, ".timeindex").stat().st_size == 12 * max(left - 1, 0)


def test_an_entry_that_another_writer_left_in_one_index_is_taken_out(tmp_path: Path) -> None:
    """Its times did not grow, so only the offset index has one: ``append`` finds it where it is
    about to write its own."""
    segment, other = writer(tmp_path), writer(tmp_path)
    put(segment, placed(0))
    put(segment, placed(1))
    other.attach(segment.size_bytes, 2)
    put(other, placed(2, 50))  # and its log could not be cut back with the index
    segment.file.truncate(segment.size_bytes)
    put(segment, placed(2, 70))
    put(segment, placed(3))
    expected = headers(log_file(tmp_path))[1:]
    entries = list(OFFSET_ENTRY.iter_unpack(file_of(tmp_path, 0, ".index").read_bytes()))
    assert entries == [(header.last_offset, position) for position, header in expected]


def test_an_abort_is_indexed_once(tmp_path: Path) -> None:
    segment = writer(tmp_path)
    for aborted in (AbortedTransaction(7, 0, 4, 5), AbortedTransaction(7, 0, 4, 5), AbortedTransaction(8, 1, 6, 7)):
        segment.add_aborted(aborted)
    reader = TransactionIndexReader(FS.open_readable(str(file_of(tmp_path, 0, ".txnindex"))))
    assert [entry.last_offset for entry in reader.entries()] == [4, 6]


def test_batches_without_a_time_have_no_entries_of_time(tmp_path: Path) -> None:
    segment = writer(tmp_path)
    for number in range(3):
        made = placed(number)
        segment.append(made, read_header(made)._replace(max_timestamp_ms=-1))
    segment.finish()
    assert file_of(tmp_path, 0, ".timeindex").read_bytes() == b""


def test_the_age_of_a_segment_is_known_to_whoever_opens_it(tmp_path: Path) -> None:
    segment = writer(tmp_path, interval=100)
    for number in range(9):
        put(segment, placed(number, timestamp_ms=START_MS + number))
    assert not segment.written_alone or segment.first_timestamp_ms == START_MS
    again = SegmentWriter(FS, str(tmp_path), 0, index_interval_bytes=100, index_max_bytes=1 << 20)
    again.attach(segment.size_bytes, segment.next_offset)
    assert again.first_timestamp_ms == START_MS
    assert (again.size_bytes, again.next_offset) == (segment.size_bytes, 9)
    assert (segment.written_alone, again.written_alone) == (True, False)
    again.attach(0, 0)
    assert again.written_alone


def emptied(offset: int) -> bytes:
    """A batch whose records compaction has removed: a header alone."""
    made = placed(offset)[:HEADER_BYTES]
    header = read_header(made)._replace(length=HEADER_BYTES - BATCH_OVERHEAD, count=0)
    HEADER_STRUCT.pack_into(made, 0, *header)
    CRC_STRUCT.pack_into(made, CRC_POSITION, crc32c.crc32c(bytes(made[CRC_START:])))
    return bytes(made)


def test_a_batch_that_is_a_header_alone_is_whole_at_the_end_of_a_file_too() -> None:
    data = bytes(placed(0)) + emptied(1)
    scan = SegmentScan(Shrunk(data, len(data)), 0, len(data), next_offset=0)
    assert [header.base_offset for _, header in scan] == [0, 1]
    assert scan.problem is None


class Shrunk:
    """A file that is shorter than it says."""

    path = "00000000000000000000.log"

    def __init__(self, data: bytes, claimed: int) -> None:
        self.data, self.claimed = data, claimed

    def pread(self, size: int, position: int) -> bytes:
        return self.data[position : position + size]

    def size(self) -> int:
        return self.claimed

    def close(self) -> None:
        return None


@pytest.mark.parametrize("check_crc", [True, False])
def test_a_batch_that_reaches_beyond_the_end_of_a_scan_is_not_of_it(check_crc: bool) -> None:
    data = bytes(placed(0) + placed(1) + placed(2))
    size = len(data) // 3
    for end in range(len(data) + 1):
        scan = SegmentScan(Shrunk(data, len(data)), 0, end, next_offset=0, check_crc=check_crc)
        assert [position for position, _ in scan] == [number * size for number in range(end // size)]
        assert (scan.position, scan.next_offset) == (end // size * size, end // size)
        assert (scan.problem is None) == (end % size == 0)


def test_a_file_that_is_cut_while_it_is_scanned_ends_the_scan_with_the_reason() -> None:
    data = bytes(placed(0) + placed(1))
    scan = SegmentScan(Shrunk(data, 1000), 0, 1000, next_offset=0)
    assert [position for position, _ in scan] == [0, len(data) // 2]
    assert scan.problem == f"the file ends at {len(data)}, before 1000"


def test_a_file_that_is_cut_inside_a_large_batch_ends_the_scan_with_the_reason() -> None:
    data = bytes(placed(0, 3 << 20))
    scan = SegmentScan(Shrunk(data[: 2 << 20], len(data)), 0, len(data), next_offset=0)
    assert list(scan) == []
    assert scan.problem == f"the file ends at {2 << 20}, inside the batch"


def test_an_outline_of_a_file_that_is_cut_stops_where_the_file_does() -> None:
    data = bytes(placed(0) + placed(1))
    found = outline.extended(outline.nothing_known(0), Shrunk(data, 10_000), 10_000, START_MS + 10, dense=True)
    assert (list(found.positions), found.end) == ([], 0)


def test_a_seal_knows_the_least_and_the_greatest_leader_epoch() -> None:
    builder, position = SealBuilder(), 0
    for offset, epoch in enumerate((3, 5, 1, 4)):
        made = placed(offset, epoch=epoch)
        builder.add(position, read_header(made), made)
        position += len(made)
    seal = builder.build()
    assert (seal.least_epoch, seal.greatest_epoch, seal.size_bytes) == (1, 5, position)
    assert decode(encode(seal), "x") == seal
    assert [seal.end_of(number) for number in range(4)] == [*seal.positions[1:], position]


@pytest.mark.parametrize("positions", [(0, 70, 70), (0, 70, 60), (0, 0, 70), (1, 70, 140)])
def test_a_seal_whose_positions_do_not_rise_is_refused(positions: tuple[int, ...]) -> None:
    seal = an_empty_seal()._replace(
        size_bytes=400, first_offset=0, last_offset=2, positions=array("I", positions),
        header_crcs=array("I", [0, 0, 0]), greatest_ms=array("q", [START_MS]),
    )  # fmt: skip
    with pytest.raises(CorruptSegment, match="what no segment of 400 bytes can be"):
        decode(encode(seal), "x")
    good = seal._replace(positions=array("I", (0, 70, 140)))
    assert decode(encode(good), "x") == good


def an_empty_seal() -> Seal:
    return SealBuilder().build()


def test_what_is_too_short_to_be_a_seal_says_so() -> None:
    with pytest.raises(CorruptSegment, match="is not a seal: 3 bytes"):
        decode(b"PYL", "x.seal")


@pytest.mark.parametrize("applies", [True, False])
def test_a_seal_that_applies_no_more_is_not_left_behind(tmp_path: Path, applies: bool) -> None:
    write_seal(FS, str(tmp_path), 0, an_empty_seal(), put=lambda rename: applies and rename())
    found = read_seal(FS, str(tmp_path), 0, 0)
    assert (found is not None) == applies
    assert [path.name for path in tmp_path.glob("*.tmp")] == []


def test_a_sealed_segment_that_was_cut_misses_records_by_name(directory: Path) -> None:
    partition = open_partition(directory)
    for number in range(6):
        append_encoded(partition, batch(b"%d" % number * 300, timestamp_ms=START_MS + number))
    partition.log.roll()
    append_encoded(partition, batch(b"6", timestamp_ms=START_MS + 6))
    partition.close()
    cut(log_file(directory), headers(log_file(directory))[4][0])
    reader = open_partition(directory, read_only=True)
    assert [record.value for record in reader.read(0, max_bytes=10_000)] == [
        b"%d" % number * 300 for number in range(4)
    ]
    with pytest.raises(CorruptSegment, match="offsets 4 to 5 are missing"):
        reader.read(4)
    found = reader.offset_for_time(START_MS + 6)
    assert found is not None
    assert found.offset == 6


def test_a_marker_whose_codec_is_missing_hides_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = open_partition(tmp_path / "t-0")
    append_encoded(partition, marker(7, 0, commit=True))
    append_encoded(partition, batch(b"x"))

    def without_codec(_: object) -> None:
        raise MissingCodec("no lz4 here", codec="lz4")

    monkeypatch.setattr("pylog.segment.reader.read_marker", without_codec)
    assert everything(partition) == [(1, b"x")]
