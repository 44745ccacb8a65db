"""Random records through each codec into a log, read back by pylog, aiokafka and kafka-python: all
must read the same.

python -m tests.foreign.interchange --records 100000 [--directory DIR] [--keep] [--seed N]
scripts/kafka-oracle dump DIR/<codec>        (with --keep: they are left for Kafka's own tool)
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords

from pylog import Log, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC = "interchange"
START_MS = 1_700_000_000_000
VALUE_BYTES_MAX = 1 << 20


class Plain(NamedTuple):
    """One record, whoever read it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def random_bytes(random_: random.Random, size: int) -> bytes:
    """Some that compress and some that don't."""
    return (
        random_.randbytes(size) if random_.random() < 0.5 else random_.randbytes(16) * (size // 16) + bytes(size % 16)
    )


def random_record(random_: random.Random, offset: int) -> Plain:
    size = random_.choice((0, 1, 10, 100, 100, 100, 1000))
    if random_.random() < 0.0005:
        size = random_.randrange(VALUE_BYTES_MAX + 1)
    return Plain(
        offset,
        START_MS + random_.randrange(-100_000, 100_000),  # so that deltas within a batch are negative half of the time
        None if random_.random() < 0.2 else random_bytes(random_, random_.choice((0, 1, 11, 64, 300))),
        None if random_.random() < 0.1 else random_bytes(random_, size),
        tuple(
            (
                random_.choice(("trace", "", "ünïcode", "a" * 130)),
                random_.choice((None, b"", b"x", random_.randbytes(200))),
            )
            for _ in range(random_.choice((0, 0, 0, 1, 3)))
        ),
    )


def write(directory: Path, codec: str, records: int, seed: int) -> list[Plain]:
    """The records, as they were sent."""
    random_ = random.Random(f"{seed} {codec}")
    sent = []
    with Log(directory) as log:
        log.create_topic(TOPIC, max_message_bytes=4 << 20, segment_bytes=16 << 20)
        with Producer(
            log, acks=1, compression=codec, batch_bytes=random_.choice((16_384, 262_144, 1_048_576))
        ) as producer:
            for offset in range(records):
                record = random_record(random_, offset)
                sent.append(record)
                producer.send(
                    TOPIC, record.value, key=record.key, timestamp_ms=record.timestamp_ms, headers=record.headers
                )
    return sent


def read_with_pylog(directory: Path) -> Iterator[Plain]:
    with Log(directory, read_only=True) as log:
        for record in log.partition(TOPIC, 0).scan():
            yield Plain(record.offset, record.timestamp_ms, record.key, record.value, record.headers)


def read_with(reader: type, directory: Path) -> Iterator[Plain]:
    """Every segment file through another project's decoder, checksums included."""
    for segment in sorted((directory / f"{TOPIC}-0").glob("*.log")):
        batches = reader(segment.read_bytes())
        while batches.has_next():
            batch = batches.next_batch()
            assert batch is not None
            assert batch.validate_crc()
            for record in batch:
                headers = tuple((key, None if value is None else bytes(value)) for key, value in record.headers)
                key = None if record.key is None else bytes(record.key)
                value = None if record.value is None else bytes(record.value)
                yield Plain(record.offset, record.timestamp, key, value, headers)


def differences(sent: list[Plain], read: Iterator[Plain]) -> list[str]:
    found = []
    count = 0
    for wanted, got in zip(sent, read, strict=False):
        count += 1
        if wanted != got:
            found.append(f"offset {wanted.offset}: sent {str(wanted)[:200]}, read {str(got)[:200]}")
    if count != len(sent) or next(read, None) is not None:
        found.append(f"{len(sent)} records sent, {count} read, or more")
    return found


def run(directory: Path, codec: str, records: int, seed: int) -> dict[str, list[str]]:
    """What each reader read differently from what was sent."""
    sent = write(directory, codec, records, seed)
    return {
        "pylog": differences(sent, read_with_pylog(directory)),
        "aiokafka": differences(sent, read_with(AiokafkaRecords, directory)),
        "kafka-python": differences(sent, read_with(KafkaPythonRecords, directory)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--directory")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="pylog-interchange-"))
    failed = False
    for codec in CODECS:
        for reader, found in run(directory / codec, codec, options.records, options.seed).items():
            failed |= bool(found)
            print(f"{codec}: {options.records} records read by {reader}, {len(found)} differences {found[:2] or ''}")
    if options.keep:
        print(f"kept in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
