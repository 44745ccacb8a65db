"""One segment: a ``.log`` file, its indexes and its seal. Knows batches, not topics, producers or
other segments.

What appends to one is ``writer.py``, which a process that only reads does not load.
"""

from pylog.segment.aborted_digest import AbortedDigest
from pylog.segment.reader import BATCH_LIMIT_BYTES, SegmentReader
from pylog.segment.scan import SegmentScan, find_next_batch
from pylog.segment.seal import (
    Seal,
    SealBuilder,
    check_home,
    check_seal,
    read_aborted,
    read_seal,
    rising_seal,
    write_seal,
)
from pylog.segment.time_lookup import first_batch_since, spans_of_times

__all__ = [
    "BATCH_LIMIT_BYTES",
    "AbortedDigest",
    "Seal",
    "SealBuilder",
    "SegmentReader",
    "SegmentScan",
    "check_home",
    "check_seal",
    "find_next_batch",
    "first_batch_since",
    "read_aborted",
    "read_seal",
    "rising_seal",
    "spans_of_times",
    "write_seal",
]
