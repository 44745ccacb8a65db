"""Encodes what ``Partition.append`` was given as one batch: all of it, or an error."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchHeader, BatchView, build_batch, check_header, read_header
from pylog.codec.format import HEADER_BYTES, INT64_MAX
from pylog.errors import ConfigError, CorruptRecord, InvalidRecord, RecordTooLarge
from pylog.interrupts import own
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import ProducerRecord, Record

_NONE_YET = ProducerRecord(None)
_RECORDS = "records are appended with append([ProducerRecord(value, key)])"


def encoded_batch(
    records: Iterable[ProducerRecord], limit_bytes: int, now_ms: int, keyed_topic: str | None = None
) -> tuple[bytearray, int]:
    """The records as one batch of at most ``limit_bytes``, and their least timestamp.
    ``keyed_topic``: a compacted one.

    ``RecordTooLarge`` if they don't all fit. ``InvalidRecord`` for one without a key that needs it.
    What is not a ``ProducerRecord`` is found by the error that it causes: checking each type takes
    a tenth of an append's time.
    """
    if isinstance(records, ProducerRecord) or not hasattr(records, "__iter__"):
        raise _no_record(records, None)
    encoder = RecordEncoder(limit_bytes)
    record: object = _NONE_YET
    try:
        for record in records:
            value, key, headers, timestamp_ms = record
            if key is None and keyed_topic is not None:
                raise without_key(keyed_topic, encoder.count)
            if not encoder.append(now_ms if timestamp_ms is None else timestamp_ms, key, value, headers):
                raise _too_many(records, encoder.count, limit_bytes)
    except own(RecordTooLarge) as error:
        raise _with_advice(error) from None
    except own(TypeError, ValueError) as error:
        if isinstance(record, ProducerRecord) or isinstance(
            error, InvalidRecord
        ):  # a field is wrong, or the iterable raised it
            raise
        raise _no_record(record, encoder.count) from None
    if encoder.count == 0:
        raise ConfigError("append() got no records", option="records")
    min_timestamp_ms = encoder.min_timestamp_ms
    return build_batch(encoder), min_timestamp_ms


def _no_record(given: object, index: int | None) -> ConfigError:
    what = f"{'one ' if isinstance(given, ProducerRecord) else ''}{type(given).__name__}"
    return ConfigError(
        f"expected ProducerRecord values, got {what}{'' if index is None else f' at index {index}'}; "
        "append([ProducerRecord(value, key)])",
        option="records", value=given, index=index,
    )  # fmt: skip


def _with_advice(error: RecordTooLarge) -> RecordTooLarge:
    if "size_bytes" not in error.facts:
        return error
    return RecordTooLarge(f"{error}, the topic's max_message_bytes; raise it with alter_topic", **error.facts)


def _too_many(records: Iterable[ProducerRecord], fitting: int, limit_bytes: int) -> RecordTooLarge:
    count = len(records) if isinstance(records, Sized) else None
    return RecordTooLarge(
        f"the first {fitting} {f'of {count} ' if count else ''}records fill a batch of {limit_bytes} bytes, the topic's "
        "max_message_bytes; nothing was appended: append fewer at a time, or raise max_message_bytes with alter_topic",
        limit_bytes=limit_bytes, fitting=fitting, count=count,
    )  # fmt: skip


def without_key(topic: str, index: int = 0) -> InvalidRecord:
    """The error for a record without a key."""
    return InvalidRecord(
        f"topic {topic!r} is compacted, which keeps the newest record of each key and drops records without one: give the "
        "record a key, or alter the topic's cleanup_policy",
        topic=topic, index=index,
    )  # fmt: skip


def checked_batch(data: bytes | bytearray | memoryview, keyed_topic: str | None = None) -> tuple[bytearray, int]:
    """A copy of one encoded batch, and the least timestamp of its records. ``keyed_topic``: a
    compacted one.

    ``CorruptRecord`` if it is not a batch, ``ConfigError`` if it may not be appended,
    ``InvalidRecord`` if a record has no key and needs it.
    """
    batch = bytearray(data)
    if len(batch) < HEADER_BYTES:
        raise CorruptRecord(
            f"bytes are taken for a whole encoded batch, which has at least {HEADER_BYTES}, got {len(batch)}; {_RECORDS}",
            size_bytes=len(batch),
        )
    header = read_header(batch)
    problem = check_header(header)
    if problem is None and header.size_bytes != len(batch):
        problem = f"its length says {header.size_bytes} bytes, got {len(batch)}"
    if problem is None and header.last_offset_delta != header.count - 1:
        problem = f"its last offset delta is {header.last_offset_delta}, but it has {header.count} records"
    if problem is not None:
        raise CorruptRecord(f"bytes are taken for a whole encoded batch, but {problem}; {_RECORDS}", problem=problem)
    _refuse_what_the_log_writes(header)
    view = BatchView(batch, header)
    view.check_crc()
    decoder = view.decoder("", 0)
    least_ms = INT64_MAX
    while taken := decoder.take(RECORDS_AT_ONCE):
        if keyed_topic is not None:
            _require_keys(taken, keyed_topic, header.base_offset)
        times_ms = [record.timestamp_ms for record in taken]
        latest_ms, least_ms = max(times_ms), min(least_ms, *times_ms)
        if latest_ms > header.max_timestamp_ms:  # no lookup of a time would find it
            problem = f"its greatest timestamp is said to be {header.max_timestamp_ms}, but a record has {latest_ms}"
            raise CorruptRecord(
                f"bytes are taken for a whole encoded batch, but {problem}; {_RECORDS}", problem=problem
            )
    return batch, least_ms


def _require_keys(records: Iterable[Record], topic: str, base_offset: int) -> None:
    for record in records:
        if record.key is None:
            raise without_key(topic, record.offset - base_offset)


def _refuse_what_the_log_writes(header: BatchHeader) -> None:
    """Only a coordinator may write markers and transactions, and only the log LogAppendTime."""
    for is_so, what in (
        (header.is_control, "a control batch"),
        (header.is_transactional, "of a transaction, which nothing here would end"),
        (header.is_log_append_time, "stamped with a LogAppendTime"),
    ):
        if is_so:
            raise ConfigError(
                f"append() got a batch that is {what}; decode it and append its records instead",
                option="records",
                attributes=header.attributes,
            )
