"""What things cost in a small log and in a large one; with one partition and with a thousand."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, keys, percentile, seconds
from benchmarks.workload import Contender, Figure, Measure, Prepare, Sample, Value, Workload
from pylog import Consumer, Log, Producer, TopicPartition

RECORD_BYTES = 118  # of the log, about: a value of 100, a key of 11, and what surrounds them
MANY = 10_000
PIECE_BYTES = 1 << 20  # what a batch holds by default
PLACE = TopicPartition(TOPIC, 0)
SIZES = {"100 MB": 100_000_000, "1 GB": 1_000_000_000, "10 GB": 10_000_000_000}
PARTITIONS = (1, 100, 1_000)


def _median_us(work: Callable[[], object], times: int, before: Callable[[], object] = int) -> float:
    """What ``work`` takes; what is done ``before`` it each time is not counted."""
    took = []
    for _ in range(times):
        before()
        start = time.perf_counter()
        work()
        took.append((time.perf_counter() - start) * 1e6)
    return percentile(sorted(took), 0.5)


def _pread_us(segments: list[tuple[Path, int]], times: int) -> float:
    """A mebibyte from anywhere in these files, by the system call alone: what a seek to a batch of
    that size can't do without."""
    files = [os.open(path, os.O_RDONLY) for path, _ in segments]
    seeds = random.Random(20_261_122)

    def read() -> None:
        number = seeds.randrange(len(files))
        os.pread(files[number], PIECE_BYTES, seeds.randrange(max(1, segments[number][1] - PIECE_BYTES)))

    try:
        return _median_us(read, times)
    finally:
        for file in files:
            os.close(file)


def _fill(place: Path, size_bytes: int) -> list[tuple[Path, int]]:
    """A log of about this size; its segment files and how large they are."""
    values, keys_ = [VALUE] * MANY, keys(MANY)
    with Log(place / "log") as log:
        log.create_topic(TOPIC)
        with Producer(log, acks=1) as producer:
            for _ in range(-(-size_bytes // (RECORD_BYTES * MANY))):
                producer.send_many(TOPIC, values, keys=keys_)
    os.sync()  # the larger a log, the longer would the system be writing it back beside what is measured
    return [(path, path.stat().st_size) for path in (place / "log").rglob("*.log")]


def _in_use(place: Path, times: int, seeds: random.Random) -> Sample:
    """Appends, fetches at the tail and seeks, in a log that is open."""
    with (
        Log(place / "log") as log,
        Producer(log, acks=1) as producer,
        Consumer(log, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([PLACE])
        end = consumer.end_offsets([PLACE])[PLACE]

        def append() -> None:
            producer.send(TOPIC, VALUE, key=b"key-0000000").result()

        def fetch_tail() -> None:
            check_count(len(consumer.poll(1.0)), 1)

        def seek() -> None:
            consumer.seek(PLACE, seeds.randrange(end))
            check_count(len(consumer.poll(0.0, max_records=1)), 1)

        append_us = _median_us(append, times * 4)
        consumer.seek_to_end(PLACE)
        return {
            "append_us": append_us,
            "fetch_us": _median_us(fetch_tail, times * 4, before=append),
            "seek_us": _median_us(seek, times),
        }


def _log_of(size_bytes: int) -> Prepare:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        segments = _fill(place, scale.of(size_bytes))
        times = scale.of(500, at_least=20)
        seeds = random.Random(20_261_121)

        def opened() -> None:
            with Log(place / "log") as log, Producer(log, acks=1) as producer:
                producer.send(TOPIC, VALUE).result()

        def tear() -> None:
            with max(segments)[0].open("r+b") as file:
                half = file.read(600_000)
                file.seek(0, os.SEEK_END)
                file.write(half)  # of a batch that its writer did not publish before it was killed

        def measure() -> Sample:
            return {
                **_in_use(place, times, seeds),
                "pread_us": _pread_us(segments, times),
                "open_ms": _median_us(opened, max(3, times // 25)) / 1e3,
                "recover_ms": _median_us(opened, max(3, times // 25), before=tear) / 1e3,
            }  # fmt: skip

        yield measure

    return prepare


def _partitions(full: int) -> Prepare:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        count = scale.of(full)
        keys_ = keys(scale.of(200_000, at_least=count))

        def measure() -> Sample:
            with fresh(place) as directory:
                with (
                    Log(directory / "log") as log,
                    Producer(log, acks=1, partitioner="round_robin", partitioner_override=True) as producer,
                ):
                    log.create_topic(TOPIC, partitions=count)
                    for _ in range(count):
                        producer.send(TOPIC, VALUE)
                    producer.flush()  # every partition is open

                    def send_all() -> None:
                        for key in keys_:
                            producer.send(TOPIC, VALUE, key=key)
                        producer.flush()

                    sent = seconds(send_all)
                with (
                    Log(directory / "log", create=False) as log,
                    Consumer(log, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer,
                ):
                    consumer.subscribe(TOPIC)
                    consumer.poll(0.0)
                    consumer.seek_to_beginning()
                    wanted = len(keys_) + count
                    read = seconds(lambda: check_count(sum(1 for _ in consumer), wanted))
            return {"send_records_per_s": len(keys_) / sent, "consume_records_per_s": wanted / read}

        yield measure

    return prepare


def _same(title: str, metric: str) -> Figure:
    return Figure(f"{title} at 10 GB beside 100 MB", Value("10 GB", metric), Value("100 MB", metric), at_most=1.1)


WORKLOADS = [
    Workload(
        "size",
        "appending, fetching at the tail, seeking at random, and opening, in logs of 100 MB to 10 GB",
        tuple(
            Contender(name, "acks=1, records of 100 bytes, segments of 128 MiB, in the page cache", _log_of(size))
            for name, size in SIZES.items()
        ),
        (_same("append", "append_us"), _same("fetch", "fetch_us"), _same("seek", "seek_us")),
        rounds_max=5,
    ),
    Workload(
        "partitions",
        "sending and consuming one by one, spread over 1, 100 and 1,000 partitions",
        tuple(
            Contender(f"{count:,} partition" + ("s" if count > 1 else ""), "acks=1, round robin", _partitions(count))
            for count in PARTITIONS
        ),
    ),
]
