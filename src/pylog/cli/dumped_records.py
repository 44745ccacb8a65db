"""How ``dump`` shows a record: as it is, or as a group's commit (``--offsets-decoder``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylog.cli.formats import headers_text, record_fields
from pylog.cli.output import safe_bytes, time_text
from pylog.errors import CorruptRecord
from pylog.model import Record

Item = dict[str, Any]
"""One line of output: ``type`` first, then its fields. ``text`` is for people and not in the JSON."""

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
        item = record_item(record)
        return {**item, "text": f"{item['text']} ({damage})", "problem": str(damage)}
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


def _head(record: Record) -> str:
    return f"    offset {record.offset}, {time_text(record.timestamp_ms)}"
