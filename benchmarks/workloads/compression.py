"""Compressing on the way in: what pylog adds to the work of the compressor itself."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from benchmarks.settings import TOPIC, Scale, fresh, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.append import log_bytes
from benchmarks.workloads.pylog_log import NAME
from pylog import Log, Producer

MANY = 10_000
LEVEL = 3  # zstandard's default, and Kafka's
HEADER_BYTES = 61


def _events(count: int) -> list[bytes]:
    """JSON of an order each, about 130 bytes, which compresses as such things do."""
    chance = random.Random(20_261_121)  # the same for both contenders
    names = ["costco", "ikea", "acme", "globex", "initech"]
    return [
        json.dumps(
            {
                "order": number, "customer": chance.choice(names), "amount": round(chance.expovariate(0.01), 2),
                "currency": "USD", "items": [chance.randrange(10_000) for _ in range(3)], "paid": chance.random() < 0.9,
            }
        ).encode()
        for number in range(count)
    ]  # fmt: skip


def _write(directory: Path, values: list[list[bytes]], compression: str | None) -> float:
    with Log(directory / "log") as log:
        log.create_topic(TOPIC)
        options = {} if compression is None else {"compression": compression, "compression_level": LEVEL}
        with Producer(log, acks=1, **options) as producer:

            def send_all() -> None:
                for some in values:
                    producer.send_many(TOPIC, some)
                producer.flush()

            return seconds(send_all)


def _values(scale: Scale) -> list[list[bytes]]:
    return [_events(MANY)] * (scale.of(1_000_000, at_least=MANY) // MANY)


@contextmanager
def _pylog(place: Path, scale: Scale) -> Iterator[Measure]:
    values = _values(scale)

    def measure() -> Sample:
        with fresh(place) as directory:
            return {"records_per_s": len(values) * MANY / _write(directory, values, "zstd")}

    yield measure


@contextmanager
def _alone(place: Path, scale: Scale) -> Iterator[Measure]:
    values = _values(scale)
    _write(place, values, None)
    payloads = list(_payloads(place))
    compressor = zstandard.ZstdCompressor(level=LEVEL)

    def measure() -> Sample:
        took = seconds(lambda: [compressor.compress(payload) for payload in payloads])
        return {"records_per_s": len(values) * MANY / took, "bytes_per_s": log_bytes(place) / took}

    yield measure


def _payloads(directory: Path) -> Iterator[bytes]:
    """What is compressed of each batch: everything behind its header."""
    for path in sorted(directory.rglob("*.log")):
        data, start = path.read_bytes(), 0
        while start < len(data):
            end = start + 12 + int(struct.unpack_from(">i", data, start + 8)[0])
            yield data[start + HEADER_BYTES : end]
            start = end


WORKLOADS = [
    Workload(
        "compression",
        "send_many of JSON with zstd, beside zstandard alone on the same batches",
        (
            Contender(NAME, f'page cache: acks=1, compression="zstd", level {LEVEL}', _pylog),
            Contender("zstandard", f"ZstdCompressor(level={LEVEL}).compress, nothing written", _alone),
        ),
        (
            Figure("zstandard alone", Value(NAME, "records_per_s"), Value("zstandard", "records_per_s"), at_least=0.8),
        ),
    )
]  # fmt: skip
