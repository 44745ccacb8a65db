"""How ``dump`` shows a record: as it is, or decoded (``--offsets-decoder``,
``--transaction-log-decoder``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylog.cli.formats import headers_text, record_fields
from pylog.cli.output import safe_bytes, time_text
from pylog.errors import CorruptRecord
from pylog.model import Record

Item = dict[str, Any]
"""One line of output: ``type`` first, then its fields. ``text`` is for people and not in the
JSON."""

Render = Callable[[Record], Item]


def record_item(record: Record) -> Item:
    """Key, value and headers."""
    text = f"{_head(record)}, key {safe_bytes(record.key)}"
    if record.headers:
        text += f", headers {headers_text(record.headers)}"
    fields = record_fields(record)
    del fields["topic"], fields["partition"]
    return {"type": "record", "text": f"{text}, value {safe_bytes(record.value)}", **fields}


def committed_item(record: Record) -> Item:
    """A committed offset or its removal. Others as they are, with the ``problem`` if damaged."""
    from pylog.group.offset_records import decode_key, decode_value

    try:
        name = None if record.key is None else decode_key(record.key)
        committed = None if name is None or record.value is None else decode_value(record.value)
    except CorruptRecord as damage:
        return _damaged(record, damage)
    if name is None:
        return record_item(record)
    group, partition = name
    text = f"{_head(record)}, group {group}, {partition.topic}-{partition.partition}: "
    text += "removed" if committed is None else f"committed {committed.offset}"
    if committed is not None and committed.metadata:
        text += f", metadata {committed.metadata}"
    return {
        "type": "committed_offset",
        "text": text,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "group": group,
        **partition._asdict(),
        "committed_offset": committed and committed.offset,
        "leader_epoch": committed and committed.leader_epoch,
        "metadata": committed and committed.metadata,
        "commit_timestamp_ms": committed and committed.timestamp_ms,
        "topic_id": committed and committed.topic_id,
    }


def decision_item(record: Record) -> Item:
    """The state of a transactional id. Others as they are, with the ``problem`` if damaged."""
    from pylog.transaction.records import decode

    try:
        decision = decode(record.key, record.value)
    except CorruptRecord as damage:
        return _damaged(record, damage)
    if decision is None:  # a tombstone, or a state that only Kafka has
        return record_item(record)
    partitions = [each._asdict() for each in sorted(decision.partitions)]
    text = (
        f"{_head(record)}, {decision.transactional_id}, producer {decision.producer_id} epoch {decision.epoch}: "
        f"{decision.status.kafka_name}"
    )
    if partitions:
        text += f", in {', '.join(f'{topic}-{number}' for topic, number in sorted(decision.partitions))}"
    return {
        "type": "transaction_state",
        "text": text,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "transactional_id": decision.transactional_id,
        "producer_id": decision.producer_id,
        "epoch": decision.epoch,
        "state": decision.status.kafka_name,
        "transaction_timeout_ms": decision.timeout_ms,
        "partitions": partitions,
        "update_timestamp_ms": decision.update_ms,
        "start_timestamp_ms": decision.start_ms,
    }


def _damaged(record: Record, damage: CorruptRecord) -> Item:
    item = record_item(record)
    return {**item, "text": f"{item['text']} ({damage})", "problem": str(damage)}


def _head(record: Record) -> str:
    return f"    offset {record.offset}, {time_text(record.timestamp_ms)}"
