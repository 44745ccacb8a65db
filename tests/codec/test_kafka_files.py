"""Segments that Kafka itself wrote (tests/data): every batch is read as Kafka's own tools and
consumers read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, build_batch, stamp
from pylog.codec.control import ControlType, read_marker
from pylog.codec.format import CODEC_NAMES, NO_PRODUCER_ID
from pylog.model import Record
from tests.codec.reference import scan_headers

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
SEGMENTS = sorted(KAFKA.glob("log/*/*.log"))
TOPICS = sorted({path.name.partition(".")[0] for path in KAFKA.glob("expected/*.read_uncommitted.jsonl")})

pytestmark = pytest.mark.skipif(not SEGMENTS, reason=f"no segments of Kafka's under {KAFKA}")


def batches(segment: Path) -> Iterator[tuple[int, BatchView]]:
    data = memoryview(segment.read_bytes())
    end = 0
    for position, header in scan_headers(data):
        assert position == end
        end = position + header.size_bytes
        yield position, BatchView(data[position:end], header)
    assert end == len(data)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def as_expected(record: Record, shown: dict[str, Any]) -> dict[str, Any]:
    """The record as the Java consumer's line shows it."""
    found: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": None if record.key is None else record.key.hex(),
        "headers": [[name, None if value is None else value.hex()] for name, value in record.headers],
    }
    if "value_sha256" in shown:
        found |= {"value_sha256": hashlib.sha256(record.value).hexdigest(), "value_bytes": len(record.value)}
    else:
        found["value"] = None if record.value is None else record.value.hex()
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_is_what_a_java_consumer_read(topic: str) -> None:
    shown = {
        (line["partition"], line["offset"]): line
        for line in lines(KAFKA / "expected" / f"{topic}.read_uncommitted.jsonl")
    }
    found = {}
    for segment in SEGMENTS:
        name, _, number = segment.parent.name.rpartition("-")
        if name == topic:
            for _, view in batches(segment):
                view.check_crc()
                if not view.header.is_control:
                    found |= {
                        (int(number), r.offset): (r, view.header.leader_epoch) for r in view.records(topic, int(number))
                    }
    deleted = {place for place in found if place not in shown}
    assert deleted <= {(0, offset) for offset in range(20, 23)}
    assert not deleted or topic == "trimmed"  # below the log start offset, in the first segment kept
    for place, line in shown.items():
        record, leader_epoch = found[place]
        expected = {key: value for key, value in line.items() if key not in {"leader_epoch", "timestamp_type"}}
        headers = expected["headers"]
        expected["headers"] = [list(pair.values()) if isinstance(pair, dict) else pair for pair in headers]
        assert as_expected(record, line) == expected
        assert leader_epoch == line["leader_epoch"]


DUMPED = [line for line in lines(KAFKA / "expected" / "dump.jsonl") if line["kind"] == "log"] if SEGMENTS else []


@pytest.mark.parametrize("dump", DUMPED, ids=lambda dump: dump["file"])
def test_every_header_is_what_dump_log_segments_shows(dump: dict[str, Any]) -> None:
    found = [
        {
            "baseOffset": view.base_offset,
            "lastOffset": view.last_offset,
            "count": view.header.count,
            "baseSequence": view.header.base_sequence,
            "lastSequence": view.header.last_sequence,
            "producerId": view.header.producer_id,
            "producerEpoch": view.header.producer_epoch,
            "partitionLeaderEpoch": view.header.leader_epoch,
            "isTransactional": view.header.is_transactional,
            "isControl": view.header.is_control,
            "deleteHorizonMs": view.header.delete_horizon_ms,
            "position": position,
            "timestampType": "LogAppendTime" if view.header.is_log_append_time else "CreateTime",
            "maxTimestamp": view.header.max_timestamp_ms,
            "size": view.header.size_bytes,
            "magic": view.header.magic,
            "compresscodec": CODEC_NAMES[view.header.codec],
            "crc": view.header.crc,
        }
        for position, view in batches(KAFKA / "log" / dump["file"])
    ]
    shown = [entry for entry in dump["details"] if "baseOffset" in entry]
    assert [{key: entry[key] for key in found[0]} for entry in shown] == found if found else not shown


def test_what_kafka_wrote_uncompressed_we_write_the_same() -> None:
    """Every batch with the offsets and timestamps of a first writing is encoded again to the same
    bytes."""
    compared = 0
    for view in (view for segment in SEGMENTS for _, view in batches(segment)):
        header = view.header
        records = view.records()
        if header.attributes & ~0x10 or header.count != header.last_offset_delta + 1:
            continue
        if not records or records[0].timestamp_ms != header.base_timestamp_ms:
            continue
        encoder = RecordEncoder(1 << 22)
        for record in records:
            encoder.append(record.timestamp_ms, record.key, record.value, record.headers)
        again = build_batch(
            encoder,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
        stamp(again, header.base_offset, header.leader_epoch)
        assert again == view.buffer
        compared += 1
    assert compared > 300


def test_kafkas_markers_are_read() -> None:
    kinds = set()
    for segment in SEGMENTS:
        for _, view in batches(segment):
            if view.header.is_control and view.header.count:
                marker = read_marker(view)
                ends_a_transaction = view.header.producer_id != NO_PRODUCER_ID
                assert (marker.type in (ControlType.ABORT, ControlType.COMMIT)) == ends_a_transaction
                assert (marker.coordinator_epoch >= 0) == ends_a_transaction
                kinds.add(marker.type)
    assert kinds >= {ControlType.ABORT, ControlType.COMMIT, ControlType.LEADER_CHANGE}
