"""Indexes of a segment: offset to position, time to offset, aborted transactions; no records."""

from pylog.index.offset_index import OffsetIndexReader, OffsetIndexWriter, OffsetPosition
from pylog.index.time_index import TimeIndexReader, TimeIndexWriter, TimestampOffset
from pylog.index.transaction_index import (
    AbortedTransaction,
    TransactionIndexReader,
    TransactionIndexWriter,
    encode_transactions,
)

__all__ = [
    "AbortedTransaction",
    "OffsetIndexReader",
    "OffsetIndexWriter",
    "OffsetPosition",
    "TimeIndexReader",
    "TimeIndexWriter",
    "TimestampOffset",
    "TransactionIndexReader",
    "TransactionIndexWriter",
    "encode_transactions",
]
