"""Logs at random: transactions of several producers, gaps of compaction, all codecs, headers,
tombstones."""

from __future__ import annotations

from pathlib import Path
from random import Random

from pylog import Log, Producer, ProducerRecord
from pylog.codec.batch import BatchView
from pylog.codec.format import CODEC_NAMES
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from tests.arrow.rows import view_of
from tests.spark.reading import append_view

TOPIC = "orders"
T0 = 1_700_000_000_000
_NAMES = ("", "h", "trace", "ключ", "鍵", "long" * 40)
_WORDS = b"GET /index.html HTTP/1.1 200 512 - Mozilla/5.0 (X11; Linux x86_64) ".split(b" ")


def random_log(path: Path, chance: Random, batches: int = 40) -> None:
    """A log at ``path``, closed."""
    with Log(path) as log:
        partitions = chance.choice((1, 1, 2))
        log.create_topic(
            TOPIC,
            partitions=partitions,
            segment_bytes=chance.choice((1_500, 20_000, 1 << 30)),
            index_interval_bytes=chance.choice((64, 4096)),
            message_timestamp_type=chance.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        )
        producers = [
            Producer(log, transactional_id=f"id{number}", compression=chance.choice(CODEC_NAMES))
            for number in range(chance.choice((0, 1, 3)))
        ]
        ongoing: set[int] = set()
        for producer in producers:
            producer.init_transactions()
        for _ in range(batches):
            partition = chance.randrange(partitions)
            if producers and chance.random() < 0.6:
                _step_of(producers, ongoing, chance, partition)
            else:
                append_view(log, random_batch(chance), TOPIC, partition)
        for number in ongoing:
            if chance.random() < 0.5:
                producers[number].abort_transaction()
        for producer in producers:
            producer.close()
        if chance.random() < 0.4:
            for number in range(partitions):
                there = log.partition(TOPIC, number).log
                there.roll()
                there.sync(log.partition(TOPIC, number).latest_offset)
                compact(there, CompactionOptions())


def _step_of(producers: list[Producer], ongoing: set[int], chance: Random, partition: int) -> None:
    """One producer begins, sends or ends its transaction."""
    number = chance.randrange(len(producers))
    producer = producers[number]
    if number not in ongoing:
        producer.begin_transaction()
        ongoing.add(number)
    elif chance.random() < 0.4:
        ongoing.discard(number)
        if chance.random() < 0.5:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        return
    for record in random_records(chance, chance.choice((1, 1, 5))):
        producer.send(
            TOPIC,
            record.value,
            key=record.key,
            partition=partition,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
        )
    producer.flush()


def random_batch(chance: Random) -> BatchView:
    """A batch of records, by any codec."""
    count = chance.choice((1, 1, 2, 7, 30, 300))
    return view_of(random_records(chance, count), codec=chance.choice(CODEC_NAMES))


def random_records(chance: Random, count: int) -> list[ProducerRecord]:
    time = T0
    records = []
    for _ in range(count):
        time += chance.choice((0, 0, 1, 60, 70, 9_000, -5, 10**7))
        records.append(
            ProducerRecord(_bytes(chance, 200), _key(chance), _headers(chance), max(time, 0))
        )  # fmt: skip
    return records


def _key(chance: Random) -> bytes | None:
    return None if chance.random() < 0.3 else b"key %d" % chance.randrange(12)


def _bytes(chance: Random, longest: int) -> bytes | None:
    kind = chance.random()
    if kind < 0.15:
        return None
    if kind < 0.5:
        return chance.randbytes(chance.randrange(longest))
    if kind < 0.52:
        return chance.randbytes(9_000)
    return b" ".join(chance.choices(_WORDS, k=chance.randrange(20)))


def _headers(chance: Random) -> tuple[tuple[str, bytes | None], ...]:
    if chance.random() < 0.7:
        return ()
    return tuple((chance.choice(_NAMES), _bytes(chance, 20)) for _ in range(chance.choice((1, 2, 5))))
