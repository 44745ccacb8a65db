"""Other readers of Kafka's batches read what an erasure has left: the same offsets, times, keys,
values and headers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords

from pylog.codec.format import CODEC_NAMES
from pylog.partition.compact.erasure import erase
from tests.foreign.interchange import Plain
from tests.foreign.test_compacted import batch_of_some
from tests.partition.logs import open_partition


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
    before = [Plain(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in partition.scan()]
    keys = frozenset(b"key %d" % number for number in range(0, 200, 2))
    assert erase(partition.log, keys, tombstones=False, timeout_ms=0).records > 0
    theirs = []
    for path in sorted(directory.glob("*.log")):
        records = reader(path.read_bytes())
        while records.has_next():
            batch = records.next_batch()
            assert batch.validate_crc()
            theirs += [Plain(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert theirs == [record for record in before if record.key not in keys]
    ours = [Plain(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in partition.scan()]
    assert theirs == ours
