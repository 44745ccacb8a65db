"""Every integer of a batch header and of a record, with every boundary value, under a right
checksum: read, or named.

Both codecs and every way through the records say the same (``record_targets.compare``); scan and
reader of a segment judge alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pylog.codec.compression import compress
from pylog.codec.control import ControlType, build_marker
from pylog.codec.format import NONE
from pylog.errors import CorruptRecord, CorruptSegment
from pylog.segment import SegmentReader, SegmentScan
from pylog.segment.naming import LOG, file_path
from tests.codec.reference import HEADER_FIELDS, TS0, Raw, batch_of, payload_of, set_fields
from tests.fuzz.files import BytesFile, Files
from tests.fuzz.record_targets import run_batch

WIDTHS = {"b": 8, "h": 16, "i": 32, "I": 32, "q": 64}
RECORD_FIELDS: dict[str, Callable[[Any], Raw]] = {
    "length": lambda v: Raw(length=v),
    "attributes": lambda v: Raw(attributes=bytes([v & 0xFF])),
    "timestampDelta": lambda v: Raw(timestamp_delta=v),
    "offsetDelta": lambda v: Raw(offset_delta=v),
    "keyLength": lambda v: Raw(key_size=v),
    "valueLength": lambda v: Raw(value_size=v),
    "headersCount": lambda v: Raw(headers=((b"h", b"x"), (b"", None)), headers_count=v),
    "headerKeyLength": lambda v: Raw(headers=((b"h", b"x"),), header_key_size=v),
    "headerValueLength": lambda v: Raw(headers=((b"h", b"x"),), header_value_size=v),
}


def boundaries(bits: int, *, signed: bool = True) -> list[int]:
    """Sixteen: around zero, around the ends of the type, around a half, and sizes that mean
    something."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    values = [0, 1, -1, 2, -2, 6, 48, 49, 127, -128, high, high - 1, low, low + 1, high >> 1, low >> 1]
    fitting = [value if low <= value <= high else value & high for value in values]
    return list(dict.fromkeys(fitting)) if bits > 8 else fitting


def batches() -> dict[str, bytes]:
    payload = payload_of(Raw(at, at, b"k", b"value " * 9, ((b"h", None),) * (at % 2)) for at in range(10))
    made = {
        f"codec {codec}": bytes(batch_of(compress(codec, payload, None), 10, attributes=codec)) for codec in range(5)
    }
    made["log append time"] = bytes(batch_of(payload, 10, attributes=8))
    made["transactional"] = bytes(
        batch_of(payload, 10, attributes=16, producer_id=7, producer_epoch=0, base_sequence=0)
    )
    made["control"] = bytes(build_marker(ControlType.ABORT, 7, 0, 3, TS0))
    return made


BATCHES = batches()


def verdict(run: Callable[[], object]) -> str:
    try:
        run()
    except CorruptSegment:
        return "corrupt"
    except CorruptRecord as error:
        return f"corrupt: {error}"
    return "read"


def judged(batch: bytes) -> str:
    """What the decoders say of it; scan and reader agree about everything but the records."""
    said = verdict(lambda: run_batch(batch))
    path = file_path("d", 0, LOG)
    scan = SegmentScan(BytesFile(path, batch), 0, len(batch), next_offset=0, dense=False)
    scanned = [header for _, header in scan]
    reader = SegmentReader(Files({path: batch}), "d", 0, closed=False, dense=False)
    read = verdict(lambda: reader.read(0, len(batch), max_bytes=1, next_offset=0))
    is_control = bool(scanned) and scanned[0].is_control
    assert (read == "read") == bool(scanned) or (is_control and read == "corrupt"), (read, scan.problem)
    assert scan.problem is None or said != "read"
    assert all(0 <= header.base_offset <= header.last_offset < 2**63 for header in scanned)
    return said


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_every_header_field_with_every_boundary_value(field: str) -> None:
    said: Counter[str] = Counter()
    code = HEADER_FIELDS[field][1]
    for right in BATCHES.values():
        for value in boundaries(WIDTHS[code], signed=code != "I"):
            said[judged(bytes(set_fields(bytearray(right), **{field: value}))).partition(":")[0]] += 1
    assert said["corrupt"] or field == "max_timestamp_ms"
    assert said["read"] or field in {"length", "magic", "crc"}


@pytest.mark.parametrize("compression", [NONE, 4])
@pytest.mark.parametrize("field", RECORD_FIELDS)
def test_every_record_field_with_every_boundary_value(field: str, compression: int) -> None:
    said: Counter[str] = Counter()
    for value in dict.fromkeys(boundaries(32) + boundaries(64) + [2**32, 2**64 - 1, -(2**64)]):
        wrong = RECORD_FIELDS[field](value)
        later = wrong._replace(offset_delta=1) if field != "offsetDelta" else wrong
        for raws in ([wrong], [wrong, Raw(offset_delta=200)], [Raw(), later], [Raw(), later, Raw(offset_delta=200)]):
            payload = compress(compression, payload_of(raws), None)
            batch = batch_of(payload, len(raws), attributes=compression, last_offset_delta=300)
            said[judged(bytes(batch)).partition(":")[0]] += 1
    assert said["corrupt"] or field == "attributes"
    assert said["read"] or field in {
        "length",
        "keyLength",
        "valueLength",
        "headersCount",
        "headerKeyLength",
        "headerValueLength",
    }
