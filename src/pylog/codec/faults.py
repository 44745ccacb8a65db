"""The errors of records and headers, the same for the readable and the compiled codec. The caller
raises them.

``record`` is the index in the batch, ``position`` a byte position in the decompressed payload.
"""

from __future__ import annotations

from pylog.codec.format import HEADER_BYTES, INT32_MAX, INT64_MAX, MAX_HEADERS, MIN_RECORD_BYTES
from pylog.errors import ConfigError, CorruptRecord, InvalidTimestamp, PylogError, RecordTooLarge, SerializationError

# The fields of a record in order; the decoders name them by number
FIELDS = (
    "length",
    "attributes",
    "timestampDelta",
    "offsetDelta",
    "keyLength",
    "valueLength",
    "headersCount",
    "headerKeyLength",
    "headerValueLength",
)
LENGTH = 0
ATTRIBUTES = 1
TIMESTAMP_DELTA = 2
OFFSET_DELTA = 3
KEY_LENGTH = 4
VALUE_LENGTH = 5
HEADERS_COUNT = 6
HEADER_KEY_LENGTH = 7
HEADER_VALUE_LENGTH = 8


def _fault(record: int, position: int, what: str, problem: str) -> CorruptRecord:
    return CorruptRecord(
        f"record {record}: {what} at payload position {position}{problem}", record=record, payload_position=position
    )


def truncated(record: int, field: int, position: int, end: int) -> CorruptRecord:
    return _fault(record, position, FIELDS[field], f" runs past the end at {end}")


def overlong(record: int, field: int, position: int) -> CorruptRecord:
    return _fault(record, position, FIELDS[field], f" does not fit {64 if field == TIMESTAMP_DELTA else 32} bits")


def wrong_size(record: int, field: int, position: int, size: int, remaining: int) -> CorruptRecord:
    return _fault(record, position, f"{FIELDS[field]} {size}, but {remaining} bytes remain", "")


def timestamp_overflow(record: int, position: int, base_timestamp_ms: int, delta: int) -> CorruptRecord:
    problem = f" from base timestamp {base_timestamp_ms} does not fit 64 bits"
    return _fault(record, position, f"timestampDelta {delta}", problem)


def offset_out_of_order(record: int, position: int, delta: int, lowest: int, highest: int) -> CorruptRecord:
    return _fault(record, position, f"offsetDelta {delta}", f", expected {lowest} to {highest}")


def impossible_headers(record: int, position: int, count: int, remaining: int) -> CorruptRecord:
    problem = f", but {remaining} bytes remain and {MAX_HEADERS} headers are the limit"
    return _fault(record, position, f"headersCount {count}", problem)


def not_utf8(record: int, position: int) -> CorruptRecord:
    return _fault(record, position, "header key", " is not UTF-8")


def wrong_end(record: int, position: int, length: int, taken: int) -> CorruptRecord:
    return _fault(record, position, f"length {length}, but its fields take {taken} bytes and end", "")


def trailing_bytes(count: int, position: int, remaining: int) -> CorruptRecord:
    return CorruptRecord(
        f"{remaining} bytes remain at payload position {position} after the last of {count} records",
        payload_position=position,
    )


def impossible_count(count: int, payload_bytes: int) -> CorruptRecord:
    return CorruptRecord(
        f"records count {count}, but a payload of {payload_bytes} bytes holds 0 to {payload_bytes // MIN_RECORD_BYTES}",
        count=count,
    )


def payload_too_large(payload_bytes: int, limit_bytes: int) -> CorruptRecord:
    return CorruptRecord(
        f"payload of {payload_bytes} bytes, but columns address {limit_bytes}", payload_bytes=payload_bytes
    )


def changed_meanwhile(record: int) -> CorruptRecord:  # pragma: no cover - the compiled codec alone reads twice
    return CorruptRecord(f"record {record}: the payload changed while it was read", record=record)


def header_cut_off(position: int, size_bytes: int) -> CorruptRecord:
    return CorruptRecord(
        f"{HEADER_BYTES} bytes of batch header expected at position {position}, but the buffer ends at {size_bytes}",
        position=position,
    )


# The caller's memory


def wrong_space(found_bytes: int, wanted_bytes: int) -> ConfigError:
    return ConfigError(f"allocate gave {found_bytes} bytes, expected {wanted_bytes}")


# The caller's records


def unusable_timestamp(timestamp_ms: object) -> InvalidTimestamp:
    return InvalidTimestamp(
        f"timestamp {timestamp_ms!r}, expected whole milliseconds from 0 to {INT64_MAX}", timestamp_ms=timestamp_ms
    )


def check_timestamp(timestamp_ms: int) -> None:
    """Raises ``InvalidTimestamp`` for a time that no record can have."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool) or not 0 <= timestamp_ms <= INT64_MAX:
        raise unusable_timestamp(timestamp_ms)


def not_bytes(field: str, value: object) -> SerializationError:
    return SerializationError(f"{field} is {type(value).__name__}, expected bytes or None", field=field)


def unusable_header(header: object, reason: str) -> SerializationError:
    return SerializationError(f"header {header!r:.80}: {reason}, expected (str, bytes or None)", field="headers")


def unusable_headers(headers: object) -> SerializationError:
    return SerializationError(
        f"headers are {type(headers).__name__}, expected a sequence of (str, bytes or None)", field="headers"
    )


def record_too_large(batch_bytes: int, limit_bytes: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"record of {batch_bytes} bytes with its batch header, but the limit is {limit_bytes}",
        size_bytes=batch_bytes,
        limit_bytes=limit_bytes,
    )


def headers_too_many(count: int) -> RecordTooLarge:
    return RecordTooLarge(f"record has {count} headers, but the limit is {MAX_HEADERS}", headers=count)


def unusable_limit(limit_bytes: object) -> ConfigError:
    return ConfigError(f"limit of a batch {limit_bytes!r}, expected 1 to {INT32_MAX} bytes", limit_bytes=limit_bytes)


def unusable_slice(values: int, keys: int, start: int) -> ConfigError:
    return ConfigError(f"{keys} keys for {values} values from {start}, expected as many keys, and a start among them")


def unusable_times(typecode: str, length: int, start: int, stop: int) -> ConfigError:
    return ConfigError(
        f"an array({typecode!r}) of {length} timestamps for the values {start} to {stop}, expected array('q'), one a value"
    )


def locate(error: BaseException, index: int) -> None:
    """Add the index of the faulty value to ``error``."""
    if isinstance(error, PylogError):
        error.facts["index"] = index
