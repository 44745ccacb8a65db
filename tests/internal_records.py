"""Records for topics that no producer may write to: as Kafka, an earlier version or damage left them."""

from __future__ import annotations

from pylog import Log, ProducerRecord
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.model import AppendResult


def append_by_hand(log: Log, topic: str, *records: ProducerRecord) -> AppendResult:
    """One batch in the first partition."""
    partition = log.manager.partition(topic, 0)
    return partition.append_records(records, expected_offset=None, timeout_ms=DEFAULT_TIMEOUT_MS, process_id=None)
