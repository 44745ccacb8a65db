"""Kafka's record batch v2: bytes to values and back. No files, no threads.

    format.py      constants and layouts               batch.py          whole batches
    records.py     encodes and decodes records         header.py         their headers, with the CRC
    _records.pyx   the compiled codec: *.pxi           compression.py    bounded decompression
    framing.py     reads a record, check by check      control.py        transaction markers
    fields.py      the parts of a record as bytes      columns.py        a batch as columns
    varint.py      numbers of variable length          faults.py         the errors of a record
    times.py       the timestamps in an encoder        least_time.py     a batch's least timestamp
    receipt.py     what an encoder returns             by_partition.py   records by partition
    taken.py       the records taken from it           producer_entries.py   snapshot entries
    key_map.py     the newest offset of each key       newest.py         a batch's newest records
    without_keys.py   a batch without some keys        messages.py       fields of Kafka's messages
    checked_file.py   the head of pylog's small files  checksum.py       CRC-32C
    slot_pair.py      two slots of a file, in turn

Only this module chooses between the compiled and the readable codec: readable if
``PYLOG_PURE_PYTHON=1`` or if there is no compiled module. Other packages import the names here.
"""

from os import environ

from pylog.codec.columns import Columns as Columns

COMPILED: bool
try:
    if environ.get("PYLOG_PURE_PYTHON", "0") not in ("", "0"):
        raise ImportError("PYLOG_PURE_PYTHON is set")
    from pylog.codec._records import (
        KeyMap,
        Receipt,
        RecordDecoder,
        RecordEncoder,
        TakenRecords,
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
        pick_times,
        read_header,
        stamp,
        without_expired,
        write_header,
    )  # pragma: no cover - see below

    COMPILED = True  # pragma: no cover - scripts/coverage measures with the readable codec
except ImportError:
    from pylog.codec.by_partition import choose_partitions, count_plain, group_by_partition, murmur2, pick, pick_times
    from pylog.codec.columns import microseconds
    from pylog.codec.header import read_header, stamp, write_header
    from pylog.codec.key_map import KeyMap
    from pylog.codec.least_time import least_timestamp_ms
    from pylog.codec.producer_entries import check_producers, find_producer, without_expired
    from pylog.codec.receipt import Receipt
    from pylog.codec.records import RecordDecoder, RecordEncoder, decode_columns
    from pylog.codec.taken import TakenRecords

    COMPILED = False

__all__ = [
    "COMPILED",
    "Columns",
    "KeyMap",
    "Receipt",
    "RecordDecoder",
    "RecordEncoder",
    "TakenRecords",
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
    "pick_times",
    "read_header",
    "stamp",
    "without_expired",
    "write_header",
]
