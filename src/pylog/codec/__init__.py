"""Bytes to values and back: Kafka's record batch v2. No file, no thread; a clock only for a record without a time.

    format.py      every constant and layout           batch.py        headers, whole batches, CRC
    records.py     records encoded and decoded         compression.py  none, gzip, snappy, lz4, zstd, bounded
    _records.pyx   the same, compiled                  control.py      commit and abort markers
    framing.py     what a record is, check by check    columns.py      a batch as columns
    fields.py      what one may be made of             faults.py       what can be wrong, in words
    varint.py      how its numbers are written        least_time.py   the least timestamp of a batch
    times.py       the timestamps in an encoder        producer_entries.py   the entries of a snapshot
    by_partition.py   many records grouped by partition

This file chooses between compiled and readable, for everyone: ``PYLOG_PURE_PYTHON=1``, or no compiled module, means
readable. Nobody else imports either of the two.
"""

from os import environ

from pylog.codec.columns import Columns as Columns

COMPILED: bool
try:
    if environ.get("PYLOG_PURE_PYTHON", "0") not in ("", "0"):
        raise ImportError("PYLOG_PURE_PYTHON is set")
    from pylog.codec._records import (
        Receipt,
        RecordDecoder,
        RecordEncoder,
        check_producers,
        choose_partitions,
        count_plain,
        decode_columns,
        find_producer,
        group_by_partition,
        least_timestamp_ms,
        microseconds,
        murmur2,
        pick,
        without_expired,
    )  # pragma: no cover - see below

    COMPILED = True  # pragma: no cover - scripts/coverage measures with the readable codec
except ImportError:
    from pylog.codec.by_partition import choose_partitions, count_plain, group_by_partition, murmur2, pick
    from pylog.codec.columns import microseconds
    from pylog.codec.least_time import least_timestamp_ms
    from pylog.codec.producer_entries import check_producers, find_producer, without_expired
    from pylog.codec.receipt import Receipt
    from pylog.codec.records import RecordDecoder, RecordEncoder, decode_columns

    COMPILED = False

__all__ = [
    "COMPILED",
    "Columns",
    "Receipt",
    "RecordDecoder",
    "RecordEncoder",
    "check_producers",
    "choose_partitions",
    "count_plain",
    "decode_columns",
    "find_producer",
    "group_by_partition",
    "least_timestamp_ms",
    "microseconds",
    "murmur2",
    "pick",
    "without_expired",
]
