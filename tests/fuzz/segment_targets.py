"""A segment and what stands beside it: the scan, the reader, the indexes, the seal.

Batches may be lost to damage, never altered by it: where the segment itself is right, whatever an
index or a seal says, what is read is what was written; where it is damaged and sealed, so is every
batch that is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from pylog.codec.checksum import crc32c
from pylog.codec.format import CRC_START, HEADER_BYTES, INT32_MAX
from pylog.errors import CorruptSegment
from pylog.index import TransactionIndexReader
from pylog.segment import AbortedDigest, SealBuilder, SegmentReader, SegmentScan, find_next_batch, first_batch_since
from pylog.segment.aborted_digest import DIGEST_BYTES
from pylog.segment.naming import LOG, OFFSET_INDEX, SEAL, TIME_INDEX, file_path
from pylog.segment.seal import (
    HAS_ABORTED,
    HAS_HOME,
    HAS_LEAST,
    HAS_TIMES,
    KNOWN_FLAGS,
    LEAST_EVERY_BYTES,
    MAGIC,
    RISING,
    TIMES_EVERY,
    check_seal,
    decode,
    encode,
    read_aborted,
    read_seal,
)
from tests.codec.reference import TS0, Raw, batch_of, payload_of
from tests.fuzz.files import BytesFile, Files
from tests.fuzz.mutate import put_number
from tests.fuzz.record_targets import batch_places, batches_fields, repair_batches
from tests.fuzz.target import Target, require

BASE = 1000
BATCHES = 70  # more than 64: a seal then has two times
HOME = "Zm9v-12"
_LOG, _INDEX, _TIMES, _SEAL = (file_path("d", BASE, kind) for kind in (LOG, OFFSET_INDEX, TIME_INDEX, SEAL))


@cache
def right_log(batches: int = BATCHES) -> bytes:
    """Batches of two records each; their times rise by fits and starts."""
    made = bytearray()
    for number in range(batches):
        time = TS0 + number * 10 - 35 * (number % 7 == 3)
        payload = payload_of([Raw(0, 0, None, b"a%d" % number), Raw(5, 1, b"k", b"b%d" % number)])
        made += batch_of(
            payload,
            2,
            base_offset=BASE + 2 * number,
            leader_epoch=number // 30,
            base_timestamp_ms=time,
            max_timestamp_ms=time + 5,
        )
    return bytes(made)


@cache
def right_seal(batches: int = BATCHES) -> bytes:
    builder, data = SealBuilder(HOME), right_log(batches)
    for position, header in SegmentScan(BytesFile(_LOG, data), 0, len(data), next_offset=BASE):
        builder.add(position, header, data[position : position + HEADER_BYTES])
    return encode(builder.build(aborted=AbortedDigest(0, 0)))


# The scan


def run_scan(data: bytes) -> str:
    end, said = len(data), []
    for dense in (True, False):
        scan = SegmentScan(BytesFile(_LOG, data), 0, end, next_offset=BASE, dense=dense)
        at, offset = 0, BASE
        for position, header in scan:
            require(position == at, "a batch that does not continue the one before")
            require(header.base_offset == offset or (not dense and header.base_offset > offset), "an offset that jumps")
            require(_crc_is_right(data[position : position + header.size_bytes]), "a batch whose checksum is wrong")
            at, offset = position + header.size_bytes, header.last_offset + 1
        require((scan.problem is None) == (at == end), "an end without a reason")
        said.append(str(scan.problem))
        behind = find_next_batch(BytesFile(_LOG, data), at + 1, end, offset) if at < end else None
        if behind is not None:
            position, header = behind
            require(position > at and header.base_offset >= offset, "a batch found where none was looked for")
            require(_crc_is_right(data[position : position + header.size_bytes]), "damage was found to be a batch")
            said.append("more behind")
    return "; ".join(said)


def _crc_is_right(batch: bytes) -> bool:
    return int.from_bytes(batch[17:21], "big") == crc32c(batch[CRC_START:])


# The reader


def batches_read(reader: SegmentReader, limit: int = 400) -> Iterator[tuple[int, bytes]]:
    """Position and bytes of all that is readable, going on where the errors say. The last error is
    raised, if it ends so."""
    position, end, next_offset = 0, reader.size(), None
    for _ in range(limit):
        try:
            views = reader.read(position, end, max_bytes=1000, next_offset=next_offset)
        except CorruptSegment as damage:
            following = damage.facts.get("next_position")
            if following is None:
                raise
            require(following > position, "going on where it stands")
            position, next_offset = following, None
            continue
        if not views:
            return
        for view in views:
            yield position, bytes(view.buffer)
            position += view.header.size_bytes
            next_offset = view.last_offset + 1
    require(False, "reading does not end")


def run_reader(data: bytes) -> str:
    """The same bytes without a seal, and with the seal of what they were."""
    seed = _seed_of(data)
    sealed = _reader({_LOG: data, _SEAL: right_seal(seed)})
    right, places = right_log(seed), set(batch_places(right_log(seed)))
    covered = sealed.seal is not None  # else the file is so short that no seal of its could be as long: it says nothing
    try:
        for position, batch in batches_read(sealed):
            require(not covered or (position, position + len(batch)) in places, "a sealed batch where none was")
            require(not covered or batch == right[position : position + len(batch)], "a sealed batch that was altered")
    except CorruptSegment as damage:
        sealed_says = str(damage)
    else:
        sealed_says = "to the end"
    for offset in (BASE, BASE + 5, BASE + 2 * seed - 1, BASE + 2 * seed):
        _locate(sealed, offset)
    reader = _reader({_LOG: data}, closed=False)
    for offset in (BASE, BASE + 5, BASE + 40):
        _locate(reader, offset)
    for time in (0, TS0 + 20, 2**62):
        try:
            first_batch_since(reader, time, BASE, len(data))
        except CorruptSegment:
            continue
    for _, batch in batches_read(reader):
        require(_crc_is_right(batch), "a batch whose checksum is wrong")
    return f"read to the end; sealed: {sealed_says}"


def _reader(contents: dict[str, bytes], *, closed: bool = True) -> SegmentReader:
    return SegmentReader(Files(contents), "d", BASE, closed=closed, dense=True, home=HOME)


def _locate(reader: SegmentReader, offset: int) -> None:
    try:
        require(0 <= reader.locate(offset, reader.size()) <= reader.size(), "a position outside the file")
    except CorruptSegment:
        return


def _seed_of(data: bytes) -> int:
    """Which of the right logs a mutant may have been: the seeds differ in length."""
    return 3 if len(data) < 500 else BATCHES


def segment_seeds() -> list[bytes]:
    return [right_log(3), right_log(BATCHES)]


# Indexes and seals beside a segment that is right: they may cost time, never a record


def _require_everything_found(contents: dict[str, bytes], *, closed: bool) -> None:
    data, places = right_log(), batch_places(right_log())
    reader = _reader({_LOG: data, **contents}, closed=closed)
    for offset in range(BASE, BASE + 2 * BATCHES, 27):
        position = reader.locate(offset, len(data))
        require(position == places[(offset - BASE) // 2][0], f"offset {offset} was looked for at position {position}")
    require(reader.locate(BASE + 2 * BATCHES, len(data)) == len(data), "something behind the end")
    for time in range(TS0 - 10, TS0 + 10 * BATCHES, 231):
        found = first_batch_since(reader, time, BASE, len(data))
        expected = next((number for number in range(BATCHES) if _greatest_time(number) >= time), None)
        require(
            (found is None and expected is None)
            or (found is not None and found.base_offset == BASE + 2 * (expected or 0)),
            f"time {time} was found at {found}, not in batch {expected}",
        )


def _greatest_time(number: int) -> int:
    return TS0 + number * 10 - 35 * (number % 7 == 3) + 5


def run_offset_index(data: bytes) -> str:
    _require_everything_found({_INDEX: data}, closed=False)
    return "found"


def run_time_index(data: bytes) -> str:
    _require_everything_found({_TIMES: data}, closed=False)
    reader = SegmentReader(Files({_LOG: right_log(), _TIMES: data}), "d", BASE, closed=False, dense=False)
    said = []
    # In Kafka's directories the index may lead to a batch after the first one.
    for time in range(TS0 - 10, TS0 + 10 * BATCHES, 231):
        found = first_batch_since(reader, time, BASE, len(right_log()))
        require(found is None or found.max_timestamp_ms >= time, "an older batch")
        said.append("nothing" if found is None else "a batch")
    return ", ".join(said)


def run_transaction_index(data: bytes) -> str:
    reader = TransactionIndexReader(BytesFile("d/x.txnindex", data))
    reader.refuse_more_than(200)
    newest = reader.last()
    entries = list(reader.entries())
    require(all(0 <= entry.first_offset < entry.last_offset for entry in entries), "an impossible transaction")
    require(not entries or entries[-1] == newest, "the last one is another")
    for offset in (0, 15, 2**40):
        list(reader.entries(offset))
    return f"{min(len(entries), 2)} transactions"


def run_seal(data: bytes) -> str:
    """By itself, and in front of a segment that is right: with a forged seal batches may be
    missing, none altered.

    Nothing is read where it is another partition's.
    """
    files = Files({_LOG: right_log(), _SEAL: data})
    for _ in check_seal(files, "d", BASE):
        pass
    seal = decode(data, _SEAL)
    require(not seal.positions or encode(seal) == data, "a seal that says other bytes")  # without batches, no times
    require(not seal.positions or 0 <= seal.first_offset <= seal.last_offset, "offsets that are none")
    read_seal(files, "d", BASE, len(right_log()))
    if 0 <= seal.size_bytes <= INT32_MAX:
        require(read_aborted(files, "d", BASE, seal.home) == seal.aborted, "another index than the whole seal says")
    is_other = seal.home not in ("", HOME)
    reader, right, places = _reader(files.contents), right_log(), set(batch_places(right_log()))
    for offset in (BASE, BASE + 7, BASE + 2 * BATCHES - 1, BASE + 2 * BATCHES):
        _locate(reader, offset)
    for position, batch in batches_read(reader):
        require(not is_other, "a batch beside the seal of another partition")
        require((position, position + len(batch)) in places, "a batch where none was")
        require(batch == right[position : position + len(batch)], "a batch that was altered")
    return "another partition's" if is_other else "read to the end"


def repair_seal(data: bytearray) -> None:
    """What says that it is a seal, a number of batches that fits its length where one does, and the
    checksum."""
    if len(data) >= 52:
        data[:10] = MAGIC + b"\0\1"
        put_number(data, 10, 2, data[11] & KNOWN_FLAGS)
        blocks = -(-int.from_bytes(data[16:24], "big") // LEAST_EVERY_BYTES) if data[11] & HAS_LEAST else 0
        home = len(data) - (len(HOME) if data[11] & HAS_HOME else 0)
        start = 52 + (DIGEST_BYTES if data[11] & HAS_ABORTED else 0)
        entries = (home - start - (8 if data[11] & RISING else 0)) // 8 - blocks
        count = entries - (entries + TIMES_EVERY) // (TIMES_EVERY + 1) if data[11] & HAS_TIMES else entries
        if data[12] < 0x80 and count >= 0:  # else what it was made to be stays
            put_number(data, 12, 4, count)
        if data[11] & HAS_ABORTED and len(data) >= start:
            fields = crc32c(bytes(data[52:60]), crc32c(bytes(data[:48])))
            put_number(data, 60, 4, crc32c(bytes(data[max(home, start) :]), fields))
        put_number(data, 48, 4, crc32c(bytes(data[52:]), crc32c(bytes(data[:48]))))


def _entries_of(width: int, starts: Sequence[tuple[int, int]]) -> object:
    """The fields of a file of entries of ``width`` bytes."""
    return lambda data: [(entry + at, size) for entry in range(0, len(data), width) for at, size in starts][:400]


def _offset_index_seeds() -> list[bytes]:
    entries = [
        (2 * number + 1, start) for number, (start, _) in enumerate(batch_places(right_log())) if number % 9 == 8
    ]
    return [b"", b"".join(offset.to_bytes(4, "big") + start.to_bytes(4, "big") for offset, start in entries)]


def _time_index_seeds() -> list[bytes]:
    numbers = range(8, BATCHES, 9)
    greatest = [max(map(_greatest_time, range(number + 1))) for number in numbers]
    return [
        b"",
        b"".join(
            time.to_bytes(8, "big") + (2 * number + 1).to_bytes(4, "big")
            for number, time in zip(numbers, greatest, strict=True)
        ),
    ]


def _transaction_index_seeds() -> list[bytes]:
    entries = [(7, 10, 19, 20), (9, 12, 30, 31), (7, 25, 44, 45)]
    return [b"".join(b"\0\0" + b"".join(number.to_bytes(8, "big") for number in entry) for entry in entries)]


def _seal_fields(data: bytes) -> list[tuple[int, int]]:
    head = [(8, 2), (10, 2), (12, 4), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4)]
    return head + [(at, 4) for at in range(52, min(len(data), 200), 4)]


TARGETS = {
    "scan": Target(run_scan, segment_seeds, repair_batches, batches_fields),
    "reader": Target(run_reader, segment_seeds, repair_batches, batches_fields),
    "offset-index": Target(run_offset_index, _offset_index_seeds, fields=_entries_of(8, [(0, 4), (4, 4)])),
    "time-index": Target(run_time_index, _time_index_seeds, fields=_entries_of(12, [(0, 8), (8, 4)])),
    "transaction-index": Target(
        run_transaction_index,
        _transaction_index_seeds,
        fields=_entries_of(34, [(0, 2), (2, 8), (10, 8), (18, 8), (26, 8)]),
    ),
    "seal": Target(run_seal, lambda: [right_seal(3), right_seal()], repair_seal, _seal_fields),
}
