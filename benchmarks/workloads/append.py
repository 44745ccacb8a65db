"""Appending into the page cache: one record a call, many a call, one acknowledged before the
next."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.rivals import RIVALS, raw_file
from benchmarks.settings import TOPIC, VALUE, Scale, fresh, keys, percentile, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads import pylog_log
from benchmarks.workloads.pylog_log import NAME
from pylog import Log, Producer

MANY = 10_000
PLAIN = "pylog, not idempotent"
RAW_PIECE_BYTES = 1 << 20
_RATE = Value(NAME, "records_per_s")


def log_bytes(directory: Path) -> int:
    """The size of all segment files below."""
    return sum(path.stat().st_size for path in directory.rglob("*.log"))


@contextmanager
def _sends_many(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(2_000_000, at_least=MANY)
    lists = [(keys(MANY), [VALUE] * MANY)] * (count // MANY)

    def measure() -> Sample:
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic(TOPIC)
            with Producer(log, acks=1) as producer:

                def send_all() -> None:
                    for keys_, values in lists:
                        producer.send_many(TOPIC, values, keys=keys_)
                    producer.flush()

                took = seconds(send_all)
            size = log_bytes(directory)
        return {"bytes_per_s": size / took, "records_per_s": len(lists) * MANY / took}

    yield measure


@contextmanager
def _raw_writes(place: Path, scale: Scale) -> Iterator[Measure]:
    with Log(place / "log") as log:
        log.create_topic(TOPIC)
        with Producer(log, acks=1) as producer:
            for _ in range(scale.of(2_000_000, at_least=MANY) // MANY):
                producer.send_many(TOPIC, [VALUE] * MANY, keys=keys(MANY))
    data = b"".join(path.read_bytes() for path in sorted((place / "log").rglob("*.log")))
    pieces = [data[start : start + RAW_PIECE_BYTES] for start in range(0, len(data), RAW_PIECE_BYTES)]

    def measure() -> Sample:
        with fresh(place) as directory:
            file = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT)
            try:
                took = seconds(lambda: [os.write(file, piece) for piece in pieces])
            finally:
                os.close(file)
        return {"bytes_per_s": len(data) / took}

    yield measure


@contextmanager
def _sends_one_by_one(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(20_000, at_least=200)

    def measure() -> Sample:
        took = []
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic(TOPIC)
            with Producer(log, acks=1) as producer:
                send, clock = producer.send, time.perf_counter_ns
                for key in keys(count):
                    start = clock()
                    send(TOPIC, VALUE, key=key).result()
                    took.append((clock() - start) / 1e3)
        took.sort()
        return {"p50_us": percentile(took, 0.5), "p99_us": percentile(took, 0.99)}

    yield measure


WORKLOADS = [
    Workload(
        "append_send",
        "one thread sends records of 100 bytes one by one, into the page cache",
        (
            pylog_log.WRITES,
            Contender(
                PLAIN, "the same with enable_idempotence=False", partial(pylog_log.writes, enable_idempotence=False)
            ),
            *(Contender(name, rival.WRITING, rival.writes) for name, rival in RIVALS.items()),
        ),
        (
            Figure("the same without idempotence", _RATE, Value(PLAIN, "records_per_s"), at_least=0.95),
            Figure("LMDB", _RATE, Value("LMDB", "records_per_s"), at_least=2),
            Figure("SQLite", _RATE, Value("SQLite", "records_per_s"), at_least=7),
        ),
    ),
    Workload(
        "append_many",
        f"send_many of {MANY:,} records of 100 bytes a call, beside write(2) of the same bytes",
        (
            Contender(NAME, "page cache: acks=1; lists of keys and values", _sends_many),
            Contender("write(2)", "page cache: the same bytes, a mebibyte a call, nothing else", _raw_writes),
        ),
        (
            Figure(
                "write(2) of the same bytes", Value(NAME, "bytes_per_s"), Value("write(2)", "bytes_per_s"), at_least=0.7
            ),
        ),
    ),
    Workload(
        "append_sync",
        "send(...).result(): each record in the log before the next is sent",
        (
            Contender(NAME, "page cache: acks=1; one record a batch", _sends_one_by_one),
            Contender(
                "system calls",
                "those that pylog's append makes, from Python, with nothing in between",
                raw_file.append_calls,
            ),
        ),
        (Figure("one record, median", Value(NAME, "p50_us"), at_most=15, unit="µs"),),
    ),
]
