"""Records for topics that no producer may write to: as Kafka, an earlier version or damage left
them."""

from __future__ import annotations

from pylog import Log, ProducerRecord
from pylog.model import AppendResult
from pylog.partition.write.batch_input import encoded_batch


def append_by_hand(log: Log, topic: str, *records: ProducerRecord) -> AppendResult:
    """One batch in the first partition."""
    partition = log.manager.partition(topic, 0)
    batch, least_ms = encoded_batch(records, log.describe_topic(topic).config.max_message_bytes, log.clock.now_ms())
    return partition.append_batch(batch, min_timestamp_ms=least_ms)
