"""What a transaction costs: beside the same records sent idempotently, and beside the syncs that it
cannot avoid."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.settings import TOPIC, VALUE, Scale, fresh
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.pylog_log import NAME
from pylog import Log, Producer, TopicPartition

RECORDS = 100
TRANSACTIONS = 200
SYNCED_BYTES = 4096
PARTITIONS = (1, 4, 16)
IDEMPOTENT = "pylog, idempotent"
SYNCS = "fdatasync"


def _median_us(count: int, work: Callable[[], object]) -> float:
    took = []
    for _ in range(count):
        start = time.perf_counter_ns()
        work()
        took.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(took)


def _send(producer: Producer, partitions: int) -> None:
    for number in range(RECORDS):
        producer.send(TOPIC, VALUE, partition=number % partitions)


@contextmanager
def _transactions(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(TRANSACTIONS, at_least=5)

    def measure() -> Sample:
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic(TOPIC, partitions=max(PARTITIONS))
            with Producer(log, transactional_id="benchmark") as producer:
                producer.init_transactions()
                done = iter(range(1, 1 << 30))

                def with_offsets() -> None:
                    with producer.transaction():
                        _send(producer, 1)
                        producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): next(done)}, "benchmark")

                def over(partitions: int) -> None:
                    with producer.transaction():
                        _send(producer, partitions)

                return {
                    "with_offsets_us": _median_us(count, with_offsets),
                    **{f"partitions_{k}_us": _median_us(count, partial(over, k)) for k in PARTITIONS},
                }

    yield measure


@contextmanager
def _flushes(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(TRANSACTIONS, at_least=5)

    def measure() -> Sample:
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic(TOPIC, partitions=max(PARTITIONS))
            with Producer(log, linger_ms=60_000) as producer:

                def flushed() -> None:
                    _send(producer, 1)
                    producer.flush()

                return {"partitions_1_us": _median_us(count, flushed)}

    yield measure


@contextmanager
def _syncs(place: Path, scale: Scale) -> Iterator[Measure]:
    """One after another, as a program without threads would do it."""
    count = scale.of(TRANSACTIONS, at_least=5)
    piece = os.urandom(SYNCED_BYTES)

    def measure() -> Sample:
        with fresh(place) as directory:
            files = [
                os.open(directory / str(n), os.O_WRONLY | os.O_CREAT | os.O_APPEND) for n in range(max(PARTITIONS) + 1)
            ]

            def write(partitions: int) -> None:
                for file in files[: partitions + 1]:
                    os.write(file, piece)
                    os.fdatasync(file)

            try:
                return {f"partitions_{k}_us": _median_us(count, partial(write, k)) for k in PARTITIONS}
            finally:
                for file in files:
                    os.close(file)

    yield measure


WORKLOADS = (
    Workload(
        name="transactions",
        summary=f"a transaction of {RECORDS} records of {len(VALUE)} bytes, in one partition and in several",
        contenders=(
            Contender(NAME, "send, then commit_transaction; with the offsets of a group, and without", _transactions),
            Contender(IDEMPOTENT, 'acks="all": send, then flush', _flushes),
            Contender(SYNCS, "k + 1 files, for k partitions: 4 KiB and fdatasync each", _syncs),
        ),
        figures=(
            Figure(
                "the same sent idempotently; with offsets",
                Value(NAME, "with_offsets_us"),
                Value(IDEMPOTENT, "partitions_1_us"),
                at_most=3,
            ),
            Figure(
                "one batch without offsets",
                Value(NAME, "partitions_1_us"),
                Value(IDEMPOTENT, "partitions_1_us"),
                at_most=1.2,
            ),
            *(
                Figure(
                    f"{k} partitions, of {k + 1} fdatasync",
                    Value(NAME, f"partitions_{k}_us"),
                    Value(SYNCS, f"partitions_{k}_us"),
                    at_most=1.6,
                )
                for k in PARTITIONS[1:]
            ),
        ),
    ),
)
