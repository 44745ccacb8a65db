"""Writes a small log with everything in it that this version can write, and a listing of what must
be read from it.

    python -m tests.data.make_golden tests/data/pylog-<version>[-<number>]

To be run once for each version that writes anything else than the one before;
tests/test_format_stability.py has every later version read the result. Time, ids and the name of
the boot are given, so that a second run writes the same bytes (but for what other versions of the
compression libraries make of them).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Condition
from typing import Any

from pylog import Log, Producer
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.control import ControlType, build_marker
from pylog.model import ProducerRecord, TopicPartition
from pylog.partition import Cursor, Partition
from pylog.storage import OsFileSystem

START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = (("trace", b"\x00\xff"), ("trace", None), ("grüße", b""))
ROLLED_PRODUCER = 5_000


class SameEveryTime(OsFileSystem):
    """The machine's filesystem with bytes that are not random and one name of the boot."""

    def __init__(self) -> None:
        self.drawn = 0

    def random_bytes(self, size: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(size, "big")

    def boot_id(self) -> str:
        return "the boot of the golden log"


class Standing:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)

    def wait(self, condition: Condition, seconds: float) -> None:
        self.ms += int(seconds * 1000)


def write(root: Path) -> None:
    clock = Standing()
    with Log(root, filesystem=SameEveryTime(), clock=clock, segment_bytes=2048, index_interval_bytes=256) as log:
        for codec in CODECS:
            compressed(log, codec)
        rolled(log)
        trimmed(log)
        tombstones(log)
        append_time(log, clock)
        transactions(log)
        log.create_topic("empty")
        log.create_topic("Odd_name.1-x", partitions=3, retention_ms=-1, max_message_bytes=5000)
        log.partition("Odd_name.1-x", 1).append([ProducerRecord(b"only here", timestamp_ms=START_MS)])


def compressed(log: Log, codec: str) -> None:
    """Two batches of many records by a producer, one of a single record that compression does not
    make smaller."""
    topic = f"codec-{codec}"
    log.create_topic(topic, segment_bytes=1 << 20)
    with Producer(log, compression=codec, linger_ms=1000, batch_bytes=8192) as producer:
        for count in (9, 8, 1):
            for number in range(count):
                value = b"record %d of %s " % (number, codec.encode()) * (1 + number % 4)
                producer.send(
                    topic, value, key=b"%d" % (number % 3), headers=HEADERS[: number % 4], timestamp_ms=START_MS
                )
            producer.flush()


def rolled(log: Log) -> None:
    """Several segments with indexes, seals and snapshots of a producer with sequence numbers."""
    log.create_topic("rolled")
    for number in range(40):
        append(log.partition("rolled", 0), encoded(b"rolled %d " % number * 12, number, ROLLED_PRODUCER, number))
    log.partition("rolled", 0).log.sync(40)


def trimmed(log: Log) -> None:
    """The first segments deleted, and part of the one that the log now begins in."""
    log.create_topic("trimmed")
    for number in range(30):
        log.partition("trimmed", 0).append(
            [ProducerRecord(b"trimmed %d " % number * 20, timestamp_ms=START_MS + number)]
        )
    log.delete_records(TopicPartition("trimmed", 0), 16)


def tombstones(log: Log) -> None:
    log.create_topic("tombstones")
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", None), (None, b""), (b"", b""), (None, None), (b"b", None)):
        log.partition("tombstones", 0).append([ProducerRecord(value, key, HEADERS, START_MS)] * 2)


def append_time(log: Log, clock: Standing) -> None:
    log.create_topic("append-time", message_timestamp_type="LogAppendTime")
    for number in range(5):
        clock.ms = START_MS + 1000 * number
        log.partition("append-time", 0).append([ProducerRecord(b"%d" % number, timestamp_ms=1)] * 3, acks=1)


def transactions(log: Log) -> None:
    """Committed, aborted, interleaved, over segments, and one that is open."""
    log.create_topic("transactions")
    partition = log.partition("transactions", 0)
    sequences: dict[int, int] = {}

    def data(producer: int, *numbers: int) -> None:
        for number in numbers:
            sequence = sequences.get(producer, 0)
            append(partition, encoded(b"t%d " % number * 30, number, producer, sequence, transactional=True))
            sequences[producer] = sequence + 1

    def end(producer: int, *, commit: bool) -> None:
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        append(partition, build_marker(kind, producer, 0, 3, START_MS))

    data(1, 0, 1, 2)
    data(2, 3)
    end(1, commit=True)
    data(3, 4, 5)
    data(2, 6, 7)
    end(2, commit=False)
    append(partition, encoded(b"plain", 8, -1, -1))
    partition.log.roll()
    data(1, 9)
    data(3, *range(10, 22))
    end(3, commit=False)
    end(1, commit=True)
    partition.log.roll()
    data(2, 22, 23)
    end(2, commit=True)
    data(3, 24)  # undecided
    append(partition, encoded(b"behind it", 25, -1, -1))


def encoded(value: bytes, number: int, producer: int, sequence: int, *, transactional: bool = False) -> bytearray:
    encoder = RecordEncoder(1 << 20)
    encoder.append(START_MS + number, b"key", value, HEADERS[: number % 4])
    epoch = -1 if producer < 0 else 0
    return build_batch(
        encoder, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def append(partition: Partition, batch: bytearray) -> None:
    partition.log.append_batch(batch)


# What must be read


def listing(log: Log) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """For each partition a name and its lines: what it says of itself, then every record with who
    may read it."""
    for topic in log.topics():
        described = log.describe_topic(topic)
        for number in described.numbers:
            partition = log.partition(topic, number)
            committed = {record["offset"] for record in records(partition, "read_committed")}
            facts = {
                "topic": topic,
                "id": described.id,
                "partitions": described.partitions,
                "config": described.config.as_dict(),
                "earliest": partition.earliest_offset,
                "latest": partition.latest_offset,
                "last_stable": partition.last_stable_offset,
                "segments": [segment.base_offset for segment in partition.segments],
            }
            lines = [{**record, "committed": record["offset"] in committed} for record in records(partition)]
            yield f"{topic}-{number}", [facts, *lines]


def records(partition: Partition, isolation_level: str = "read_uncommitted") -> Iterator[dict[str, Any]]:
    cursor = Cursor(partition.earliest_offset)
    while True:
        fetched = partition.log.fetch(cursor, max_bytes=4096, isolation_level=isolation_level, visibility="written")
        for view in fetched.batches:
            for record in view.records():
                if record.offset >= cursor.offset:
                    yield as_line(record)
        if fetched.cursor.offset == cursor.offset:
            return
        cursor = fetched.cursor


def as_line(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def write_listing(log: Log, target: Path) -> None:
    target.mkdir()
    for name, lines in listing(log):
        whole = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
        (target / f"{name}.jsonl").write_text(whole)


def main(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    write(target / "log")
    with Log(target / "log", read_only=True, filesystem=SameEveryTime()) as log:
        write_listing(log, target / "expected")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
