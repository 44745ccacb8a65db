"""Other readers of Kafka's batches read what a compaction has left: the same offsets, times, keys,
values and headers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords

from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.format import CODEC_NAMES
from pylog.partition.compact.engine import compact
from tests.foreign.interchange import Plain, random_record
from tests.partition.logs import open_partition


def batch_of_some(random_: random.Random, codec: int) -> bytearray:
    encoder = RecordEncoder(1 << 22)
    for _ in range(random_.randrange(1, 30)):
        record = random_record(random_, 0)
        key = None if record.key is None else b"key %d" % random_.randrange(200)
        encoder.append(record.timestamp_ms, key, record.value, record.headers)
    return build_batch(encoder, codec=codec)


@pytest.mark.parametrize("reader", [AiokafkaRecords, KafkaPythonRecords])
@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)), ids=CODEC_NAMES)
def test_what_is_left_is_read_by_others(
    tmp_path: Path, codec: int, reader: type[AiokafkaRecords | KafkaPythonRecords], seed: int
) -> None:
    directory, random_ = tmp_path / "t-0", random.Random(seed)
    partition = open_partition(directory, segment_bytes=1 << 22, max_message_bytes=1 << 22)
    for number in range(60):
        partition.log.append_batch(batch_of_some(random_, codec))
        if number % 20 == 19:
            partition.log.roll()
    partition.log.sync(partition.latest_offset)
    report = compact(partition.log)
    assert report.records_dropped > 0
    ours = [Plain(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in partition.scan()]
    theirs = []
    for path in sorted(directory.glob("*.log")):
        records = reader(path.read_bytes())
        while records.has_next():
            batch = records.next_batch()
            assert batch.validate_crc()
            theirs += [Plain(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert theirs == ours
    assert any(record.value is None for record in ours)  # a tombstone, with the delete horizon in its batch
