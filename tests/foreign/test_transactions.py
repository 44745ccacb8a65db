"""The batches of transactions, and their markers, as aiokafka and kafka-python read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords

from pylog import Log
from tests.transaction.story import Batch, at_random, commit_abort_commit, story
from tests.transaction.views import TOPIC

MARKERS = {b"\0\0\0\0": "ABORT", b"\0\0\0\1": "COMMIT"}
READERS = {"aiokafka": AiokafkaRecords, "kafka-python": KafkaPythonRecords}


@pytest.mark.parametrize("name", READERS)
def test_other_projects_see_producer_epoch_sequence_bits_and_marker_of_each_batch(
    tmp_path: Path, seed: int, name: str
) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic(TOPIC, segment_bytes=1024)
        with story(log) as it:
            commit_abort_commit(it)
            at_random(it, Random(seed), 20)
            assert list(read_with(READERS[name], tmp_path / "log", name)) == [
                each._replace(transaction=None) for each in it.batches
            ]


def read_with(reader: type, log: Path, name: str) -> Iterator[Batch]:
    """The batches of all segments. ``AssertionError`` for bits, a checksum or a marker that are not
    right."""
    for segment in sorted((log / f"{TOPIC}-0").glob("*.log")):
        batches = reader(segment.read_bytes())
        while batches.has_next():
            batch = batches.next_batch()
            assert batch.validate_crc()
            assert batch.is_transactional == (batch.producer_id >= 0)
            records = list(batch)
            values = tuple(bytes(record.value).decode() for record in records)
            marker = None
            if batch.is_control_batch:
                (record,) = records
                marker, values = MARKERS[bytes(record.key)], ()
                assert bytes(record.value) == bytes(6)  # version 0, coordinator epoch 0
            yield Batch(
                batch.base_offset,
                values,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                None,
                marker,
            )
