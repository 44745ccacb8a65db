"""The memory of a process that produces, that consumes, that has a thousand partitions open: what
the kernel says is resident. Each is measured in a process of its own, above what it had when the
log was open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, in_own_process, keys
from benchmarks.workload import Contender, Figure, Measure, Prepare, Sample, Value, Workload
from pylog import Consumer, Log, Producer, TopicPartition

PARTITIONS = 1_000
MANY = 10_000
SIZES = {"100 MB": 100_000_000, "1 GB": 1_000_000_000}
BUFFER_BYTES = 32 << 20


def resident(peak: bool = False) -> int:
    """Bytes of this process that are in memory, or were at most."""
    name = "VmHWM:" if peak else "VmRSS:"
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(name))
    return int(line.split()[1]) * 1024


def _idle(log: Log, count: int) -> int:
    """Partitions that were written and read, and are left alone."""
    places = [TopicPartition(TOPIC, number) for number in range(count)]
    with Producer(log, acks=1) as producer, Consumer(log, auto_offset_reset="earliest") as consumer:
        producer.send(TOPIC, VALUE, partition=0).result()
        consumer.assign(places[:1])
        check_count(len(consumer.poll(1.0)), 1)
        before = resident()
        producer.send(TOPIC, VALUE, partition=0).result()
        for number in range(1, count):
            producer.send(TOPIC, VALUE, partition=number).result()
        consumer.assign(places)
        found = 0
        while found < count:
            found += len(consumer.poll(1.0))
        return (resident() - before) // count


def _produce(log: Log, size_bytes: int) -> int:
    with Producer(log, acks=1) as producer:
        producer.send(TOPIC, VALUE).result()
        keys_ = keys(MANY)
        before = resident()
        for _ in range(_lots(size_bytes)):  # no list of all keys, which would be what is measured
            for key in keys_:
                producer.send(TOPIC, VALUE, key=key)
        producer.flush()
    return resident(peak=True) - before


def _fill(log: Log, size_bytes: int) -> int:
    """What ``_consume`` reads, written by another process, whose memory is none of the
    consumer's."""
    with Producer(log, acks=1) as producer:
        batch = [VALUE] * MANY
        for _ in range(_lots(size_bytes)):
            producer.send_many(TOPIC, batch)
    return 0


def _consume(log: Log, size_bytes: int) -> int:
    with Consumer(log, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        consumer.subscribe(TOPIC)
        before = resident()
        check_count(sum(1 for _ in consumer), _lots(size_bytes) * MANY)
    return resident(peak=True) - before


def _lots(size_bytes: int) -> int:
    """Of ``MANY`` records, for a log of about this size."""
    return max(1, size_bytes // (118 * MANY))


PARTS = {"idle": _idle, "produce": _produce, "fill": _fill, "consume": _consume}


def _in_processes(parts: tuple[str, ...], amount: int, partitions: int = 1) -> Prepare:
    """Each part in a process of its own, on one log; what the last of them measured."""

    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        size = max(10, scale.of(amount))
        many = max(10, scale.of(partitions)) if partitions > 1 else 1

        def run(part: str, directory: Path) -> float:
            return float(in_own_process("benchmarks.workloads.memory", part, directory / "log", size, many))

        def measure() -> Sample:
            with fresh(place) as directory:
                return {"bytes": [run(part, directory) for part in parts][-1]}

        yield measure

    return prepare


WORKLOADS = [
    Workload(
        "memory",
        "resident memory: of an idle partition, and at most while a log is written and read",
        (
            Contender("idle partition", "one of 1,000 that were written and read by this process",
                      _in_processes(("idle",), PARTITIONS, PARTITIONS)),
            *(Contender(f"producer, {name}", "send one by one, acks=1, default buffers", _in_processes(("produce",), size))
              for name, size in SIZES.items()),
            *(Contender(f"consumer, {name}", "for record in consumer, default buffers", _in_processes(("fill", "consume"), size))
              for name, size in SIZES.items()),
        ),
        (
            Figure("idle partition", Value("idle partition", "bytes"), at_most=20_000, unit="B"),
            Figure("producer of 1 GB, peak", Value("producer, 1 GB", "bytes"), at_most=BUFFER_BYTES, unit="B"),
            Figure("consumer of 1 GB, peak", Value("consumer, 1 GB", "bytes"), at_most=BUFFER_BYTES, unit="B"),
        ),
        rounds_max=5,
    )
]  # fmt: skip

if __name__ == "__main__":
    os.environ.pop("PYTHONTRACEMALLOC", None)
    with Log(sys.argv[2]) as opened:
        opened.create_topic(TOPIC, partitions=int(sys.argv[4]), if_not_exists=True)
        print(PARTS[sys.argv[1]](opened, int(sys.argv[3])))
