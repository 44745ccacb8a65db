"""The memory of a repartition has a bound, however many partitions the topic has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pylog import Log, ProducerRecord, Record
from pylog.codec import RecordDecoder, RecordEncoder
from pylog.codec.batch import BatchView, build_batch
from pylog.codec.format import GZIP
from pylog.topic_changes.copying import TopicCopy
from pylog.topic_changes.keys import KeyHash
from pylog.topic_changes.merging import Stream, merged
from tests.topic_changes.test_repartition import fill, numbers, records

_PARTITIONS = 20


class Held:
    """What decoders hold, and the records that they gave. ``record`` and ``batch`` are the largest
    that there was."""

    def __init__(self) -> None:
        self.open_bytes = self.batch_bytes = self.record_bytes = self.opened = 0


class CountedDecoder:
    """A decoder whose bytes are counted as long as something refers to it."""

    def __init__(self, decoder: RecordDecoder, held: Held) -> None:
        self._decoder, self._held = decoder, held
        self.size_bytes, self.skip_to = decoder.size_bytes, decoder.skip_to
        held.opened += 1
        held.open_bytes += self.size_bytes
        held.batch_bytes = max(held.batch_bytes, self.size_bytes)

    def __del__(self) -> None:
        self._held.open_bytes -= self.size_bytes

    @property
    def remaining(self) -> int:
        return self._decoder.remaining

    def take(self, count: int) -> list[Record]:
        found = self._decoder.take(count)
        self._held.record_bytes += sum(map(size_of, found))
        return found


def size_of(item: Any) -> int:
    """In memory; topic and partition are shared."""
    if isinstance(item, Record):
        return sys.getsizeof(item) + sum(map(size_of, item[2:]))
    return sys.getsizeof(item) + (sum(map(size_of, item)) if isinstance(item, tuple) else 0)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    found, decoder = Held(), BatchView.decoder
    monkeypatch.setattr(BatchView, "decoder", lambda *given: CountedDecoder(decoder(*given), found))
    return found


def put(log: Log, records: list[ProducerRecord], headers: Sequence[tuple[str, bytes]] = ()) -> None:
    """As one batch of each partition."""
    for number in range(_PARTITIONS):
        encoder = RecordEncoder(1 << 24)
        for record in records:
            assert record.timestamp_ms is not None
            encoder.append(record.timestamp_ms, record.key, record.value, headers)
        log.partition("t", number).log.append_batch(build_batch(encoder, codec=GZIP))


def streams(log: Log, max_bytes: int) -> list[Stream]:
    before = log.describe_topic("t")
    now, after = KeyHash(before), KeyHash(before._replace(partitions=7))
    logs = [log.partition("t", number).log for number in before.numbers]
    return [Stream(each, 0, each.latest_offset, now=now, after=after, max_bytes=max_bytes) for each in logs]


@pytest.mark.slow
@pytest.mark.parametrize("headers", [[], [(str(n), b"") for n in range(20)]], ids=["small", "many headers"])
def test_all_records_that_are_read_ahead_take_what_each_partition_may(
    tmp_log_dir: Path, held: Held, headers: list[tuple[str, bytes]]
) -> None:
    """Also records whose objects are much larger than their bytes in a batch."""
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=_PARTITIONS)
        put(log, [ProducerRecord(b"", b"%d" % n, timestamp_ms=n) for n in range(600)], headers)
        most_bytes = count = 0
        for found, _ in merged(streams(log, 30_000)):
            most_bytes = max(most_bytes, held.record_bytes)
            held.record_bytes -= sum(map(size_of, found))
            count += len(found)
        assert count == 600 * _PARTITIONS
        assert held.record_bytes == 0
        assert 5_000 * _PARTITIONS < most_bytes <= 36_000 * _PARTITIONS


@pytest.mark.slow
def test_few_decompressed_batches_are_kept(
    tmp_log_dir: Path, held: Held, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are read again, and the order of the records is the same."""
    random = Random(seed)
    times = sorted(random.choices(range(100), k=100))
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=_PARTITIONS)
        for _ in range(2):
            put(log, [ProducerRecord(bytes(1000), b"%d" % n, timestamp_ms=n) for n in times])
        whole = [pair for part in merged(streams(log, 10_000)) for pair in zip(*part, strict=True)]
        assert held.opened == 2 * _PARTITIONS
        monkeypatch.setattr("pylog.topic_changes.merging._OPEN_BYTES", 500_000)
        most_bytes = 0
        again: list[tuple[Record, int]] = []
        for part in merged(streams(log, 10_000)):
            most_bytes = max(most_bytes, held.open_bytes)
            again += zip(*part, strict=True)
        assert again == whole, f"seed {seed}"
        assert held.batch_bytes <= most_bytes <= 500_000
        assert held.open_bytes == 0


def test_a_large_batch_is_not_read_again_if_no_other_is_open(
    tmp_log_dir: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.topic_changes.merging._OPEN_BYTES", 1)
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=_PARTITIONS)
        put(log, [ProducerRecord(bytes(1000), b"%d" % n, timestamp_ms=n) for n in range(100)])
        assert sum(len(found) for found, _ in merged(streams(log, 10_000)[:1])) == 100
        assert held.opened == 1


def test_what_a_step_notes_has_a_bound(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many partitions, several sources share what they reached."""
    monkeypatch.setattr("pylog.topic_changes.copying._REACHED_BITS", 100)
    monkeypatch.setattr("pylog.topic_changes.copying._STEP_BYTES", 1000)
    sync = TopicCopy.sync
    noted: list[int] = []

    def kept(copy: TopicCopy) -> None:
        noted.extend(sum(max(bits.bit_length(), 1) for bits in step.reached) for step in copy._steps)
        sync(copy)

    monkeypatch.setattr(TopicCopy, "sync", kept)
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=_PARTITIONS)
        fill(log, 0, 1000)
        log.repartition("t", 30)
        assert numbers(records(log)) == list(range(1000))
    assert 30 < max(noted) <= 100
