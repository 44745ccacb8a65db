"""The decoders of records and batches, compiled and readable, which must say the same of
everything.

The input of ``records`` is what a batch header says of its records (32 bytes, ``NUMBERS``), then
the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from struct import Struct
from types import ModuleType
from typing import Any

from pylog.codec import records as readable
from pylog.codec.batch import BatchView, build_batch, check_header, read_header
from pylog.codec.checksum import crc32c
from pylog.codec.compression import compress, decompress
from pylog.codec.control import ControlType, build_marker, read_marker
from pylog.codec.format import BATCH_OVERHEAD, CRC_START, HEADER_BYTES, NONE
from pylog.errors import CorruptRecord
from tests.codec.reference import HEADER_FIELDS, TS0, Raw, batch_of, payload_of
from tests.fuzz.mutate import mutate_once, put_number
from tests.fuzz.target import Broken, Target, require

try:
    from pylog.codec import _records as compiled
except ImportError:  # then there is nothing to compare the readable one with but itself
    compiled = readable

NUMBERS = Struct(">iqqqi")  # count, base offset, base timestamp, append time, last offset delta
LIMIT_BYTES = 1 << 20
_WIDTHS = {"b": 1, "h": 2, "i": 4, "I": 4, "q": 8}
_BATCH_FIELDS = [(position, _WIDTHS[code]) for position, code in HEADER_FIELDS.values()]


# Records


def said_of(codec: ModuleType, payload: Any, numbers: tuple[int, ...]) -> dict[str, Any]:
    """What each way through the records says: values, or the words of the error."""
    count, base_offset, base_timestamp, append_time, last_delta = numbers

    def decoder() -> Any:
        return codec.RecordDecoder(payload, count, base_offset, base_timestamp, append_time, "t", 0, last_delta)

    def take(at_once: int) -> Any:
        return lambda: list(_taken(decoder(), at_once))

    def skip(offset: int) -> Any:
        def skipped() -> Any:
            walk = decoder()
            walk.skip_to(offset)
            return walk.remaining, list(_taken(walk, 2))

        return skipped

    def columns(with_headers: bool) -> Any:
        return lambda: codec.decode_columns(
            payload, count, base_offset, base_timestamp, append_time, with_headers, last_delta
        )

    middle = min(base_offset + max(last_delta, 0) // 2, 2**63 - 1)
    ways: dict[str, Callable[[], Any]] = {
        "take all": take(1 << 20), "take one": take(1), "columns": columns(True), "columns without headers": columns(False),
        "skip one": skip(min(base_offset + 1, 2**63 - 1)), "skip half": skip(middle), "skip all": skip(2**63 - 1),
    }  # fmt: skip
    return {name: _words_of(way) for name, way in ways.items()}


def _taken(decoder: Any, at_once: int) -> Iterator[Any]:
    while taken := decoder.take(at_once):
        yield from taken


def _words_of(way: Callable[[], Any]) -> Any:
    try:
        return way()
    except CorruptRecord as error:
        return str(error)


def compare(payload: Any, numbers: tuple[int, ...]) -> str:
    """Both codecs over one payload. ``Broken`` where they differ, or where one way differs from
    another."""
    said = said_of(readable, payload, numbers)
    others = said_of(compiled, payload, numbers)
    for way, value in said.items():
        if value != others[way]:
            raise Broken(f"{way}: the readable codec says {value!r:.300}, the compiled one {others[way]!r:.300}")
    whole = said["take all"]
    require(said["take one"] == whole, "records taken one by one are others")
    if isinstance(whole, str):
        require(said["columns"] == said["columns without headers"] == whole, "columns of what is corrupt")
        raise CorruptRecord(whole)
    require(said["columns"].count == said["columns without headers"].count == len(whole), "columns of other records")
    return f"{min(len(whole), 3)} records"


def run_records(data: bytes) -> str:
    if len(data) < NUMBERS.size:
        return "no input"
    return compare(data[NUMBERS.size :], NUMBERS.unpack_from(data))


def records_seeds() -> list[bytes]:
    header = ("ß".encode(), b"x"), (b"n", None), (b"", b"")
    shapes: list[list[Raw]] = [
        [Raw()],
        [Raw(offset_delta=at, timestamp_delta=at * 7, headers=header[: at % 4]) for at in range(5)],
        [Raw(offset_delta=at, key=None, value=None) for at in range(3)],
        [Raw(-at, at * 3, b"k" * 70, b"v" * 200, header) for at in range(3)],
        [Raw(offset_delta=at * 100, value=b"v" * 9000 * (at == 1)) for at in range(2)][:1],
        [],
    ]
    return [_records_input(raws) for raws in shapes] + [_records_input(shapes[1], append_time=TS0)]


def _records_input(raws: list[Raw], append_time: int = -1) -> bytes:
    deltas = [raw.offset_delta for raw in raws if isinstance(raw.offset_delta, int)]
    return NUMBERS.pack(len(raws), 1000, TS0, append_time, max(deltas, default=0)) + payload_of(raws)


def _records_fields(data: bytes) -> list[tuple[int, int]]:
    return [(0, 4), (4, 8), (12, 8), (20, 8), (28, 4)] if len(data) >= NUMBERS.size else []


def mutate_record(chance: Random, data: bytearray, start: int = NUMBERS.size) -> None:
    """Mutate one record and put the right length in front of it again, so that what is in it is
    looked at."""
    frames = []
    at = start
    while at < len(data):
        length, body = _varint_at(data, at)
        if length < 0 or body + length > len(data):
            break
        frames.append((at, body, body + length))
        at = body + length
    if not frames:
        mutate_once(chance, data)
        return
    at, body, end = chance.choice(frames)
    record = data[body:end]
    mutate_once(chance, record)
    data[at:end] = encoded_varint(len(record)) + record


def _varint_at(data: bytearray, at: int) -> tuple[int, int]:
    bits = shift = 0
    while at < len(data) and shift < 35:
        bits |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return bits >> 1 ^ -(bits & 1), at
    return -1, at


def encoded_varint(value: int) -> bytes:
    bits, out = value << 1, bytearray()
    while bits >= 0x80:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*out, bits])


# Batches


def run_batch(data: bytes) -> str:
    header = read_header(data)
    problem = check_header(header)
    if problem is not None:
        raise CorruptRecord(problem)
    view = BatchView(data, header)
    view.check_crc()
    if header.is_control:
        _read_marker(view)
    payload = data[HEADER_BYTES:]
    if header.codec != NONE:
        payload = bytes(decompress(header.codec, payload, LIMIT_BYTES))
        require(len(payload) <= LIMIT_BYTES, "more was decompressed than the limit allows")
    append_time = header.max_timestamp_ms if header.is_log_append_time else -1
    numbers = (header.count, header.base_offset, header.base_timestamp_ms, append_time, header.last_offset_delta)
    said = compare(payload, numbers)
    for record in view.decoder("t", 0, LIMIT_BYTES).take(100):
        require(header.base_offset <= record.offset <= header.last_offset, "an offset outside the batch")
    view.columns(LIMIT_BYTES)
    return f"{said}, codec {('none', 'gzip', 'snappy', 'lz4', 'zstd')[header.codec]}"


def _read_marker(view: BatchView) -> None:
    with suppress(CorruptRecord):  # the records are compared all the same
        read_marker(view)


def repair_batch(data: bytearray) -> None:
    """A length and a CRC that fit."""
    if len(data) >= HEADER_BYTES:
        put_number(data, 8, 4, len(data) - BATCH_OVERHEAD)
        repair_crc(data)


def repair_crc(data: bytearray, start: int = 0, end: int | None = None) -> None:
    end = len(data) if end is None else end
    put_number(data, start + 17, 4, crc32c(bytes(data[start + CRC_START : end])))


def repair_batches(data: bytearray) -> None:
    """Every CRC of what may be batches behind one another."""
    for start, end in batch_places(data):
        repair_crc(data, start, end)


def batch_places(data: bytes | bytearray) -> list[tuple[int, int]]:
    places, at = [], 0
    while at + HEADER_BYTES <= len(data):
        end = at + BATCH_OVERHEAD + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if end < at + HEADER_BYTES or end > len(data):
            break
        places.append((at, end))
        at = end
    return places


def batches_fields(data: bytes) -> list[tuple[int, int]]:
    return [(start + at, width) for start, _ in batch_places(data) for at, width in _BATCH_FIELDS]


def _batch_fields(data: bytes) -> list[tuple[int, int]]:
    return _BATCH_FIELDS if len(data) >= HEADER_BYTES else []


def mutate_payload(chance: Random, data: bytearray) -> None:
    """Mutate a record of a batch, behind its compression where it has one."""
    if len(data) < HEADER_BYTES:
        mutate_once(chance, data)
        return
    codec = data[22] & 7
    try:
        payload = bytearray(decompress(codec, bytes(data[HEADER_BYTES:]), 1 << 16))
        mutate_record(chance, payload, 0)
        data[HEADER_BYTES:] = compress(codec, bytes(payload), None)
    except CorruptRecord:
        mutate_once(chance, data)


def batch_seeds() -> list[bytes]:
    raws = [Raw(at, at, b"k%d" % at, b"value " * 6, ((b"h", b"x"),) * (at % 3)) for at in range(6)]
    payload = payload_of(raws)
    made = [batch_of(compress(codec, payload, None), 6, attributes=codec) for codec in range(5)]
    made += [
        batch_of(payload, 6, attributes=0x08),
        batch_of(payload, 6, attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0),
        batch_of(b"", 0, last_offset_delta=5),
        build_marker(ControlType.COMMIT, 7, 0, 0, TS0),
        build_marker(ControlType.ABORT, 7, 0, 3, TS0),
        _of_encoder(),
    ]
    return [bytes(batch) for batch in made]


def _of_encoder() -> bytearray:
    encoder = compiled.RecordEncoder(1 << 16)
    for at in range(20):
        encoder.append(TS0 + at, b"key", b"value %d" % at, ())
    return build_batch(encoder)


# What is compressed


def run_compressed(data: bytes) -> str:
    """The first byte chooses the codec."""
    if not data:
        return "no input"
    codec = 1 + data[0] % 4
    output = decompress(codec, data[1:], LIMIT_BYTES)
    require(len(output) <= LIMIT_BYTES, "more was decompressed than the limit allows")
    return f"codec {codec}, {'nothing' if not output else 'something'}"


def compressed_seeds() -> list[bytes]:
    texts = (b"", b"x", b"pylog, " * 30, bytes(range(256)), bytes(70_000))
    return [bytes([codec - 1]) + compress(codec, text, None) for codec in range(1, 5) for text in texts]


TARGETS = {
    "records": Target(run_records, records_seeds, fields=_records_fields, inner=mutate_record),
    "batch": Target(run_batch, batch_seeds, repair_batch, _batch_fields, mutate_payload),
    "compressed": Target(run_compressed, compressed_seeds),
}
