"""What it takes until the first record: importing, a fresh log, a log of a thousand partitions, one
whose writer was killed, one that lost its power.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, keys, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.append import log_bytes
from pylog import Consumer, Log, Producer, TopicPartition
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.model import ProducerRecord
from pylog.storage import OsFileSystem

PARTITIONS = 1_000
SMALL_BATCHES = 30_000
MANY = 10_000
OPENINGS = 25
IMPORTING = "import sys, time; t = time.perf_counter(); import pylog; t = time.perf_counter() - t"
_boots = count()


@contextmanager
def _fresh_log(place: Path, _scale: Scale) -> Iterator[Measure]:
    def first_record(directory: Path) -> None:
        with Log(directory / "log") as log:
            log.create_topic(TOPIC)
            with Producer(log, acks=1) as producer:
                producer.send(TOPIC, VALUE).result()
            with Consumer(log, auto_offset_reset="earliest") as consumer:
                consumer.subscribe(TOPIC)
                check_count(len(consumer.poll(1.0)), 1)

    def measure() -> Sample:
        with fresh(place) as directory:
            return {"ms": 1e3 * seconds(lambda: first_record(directory))}

    yield measure


@contextmanager
def _many_partitions(place: Path, scale: Scale) -> Iterator[Measure]:
    partitions = scale.of(PARTITIONS, at_least=10)
    places = [TopicPartition(TOPIC, number) for number in range(partitions)]
    with Log(place / "log") as log, Producer(log, acks=1) as producer:
        log.create_topic(TOPIC, partitions=partitions)
        for number in range(partitions):
            producer.send(TOPIC, VALUE, partition=number)

    def open_all() -> None:
        with Log(place / "log", create=False) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
            consumer.assign(places)
            check_count(sum(consumer.end_offsets(places).values()), partitions)

    yield lambda: {"ms": 1e3 * seconds(open_all)}


@contextmanager
def _importing(_place: Path, _scale: Scale) -> Iterator[Measure]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    program = f"{IMPORTING}; assert not {{'pyspark', 'pyarrow'}} & set(sys.modules); print(t * 1e3)"

    def measure() -> Sample:
        printed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        return {"ms": float(printed.stdout)}

    yield measure


def _fill(directory: Path, size_bytes: int) -> Path:
    """A partition of about so many bytes in one segment, nothing of it synced; where it is."""
    with Log(directory / "log") as log:
        log.create_topic(TOPIC, segment_bytes=(2 << 30) - 1)
        with Producer(log, acks=1) as producer:
            for _ in range(max(1, size_bytes // (118 * MANY))):
                producer.send_many(TOPIC, [VALUE] * MANY, keys=keys(MANY))
    return directory / "log" / f"{TOPIC}-0"


@contextmanager
def _killed(place: Path, scale: Scale) -> Iterator[Measure]:
    partition = _fill(place, scale.of(1_000_000_000))
    segment = next(partition.glob("*.log"))

    def open_and_append() -> None:
        with Log(place / "log", create=False) as log, Producer(log, acks=1) as producer:
            producer.send(TOPIC, VALUE).result()

    def measure() -> Sample:
        with segment.open("r+b") as file:
            start = file.read(600_000)
            file.seek(0, os.SEEK_END)
            file.write(start)  # the half of a batch that its writer did not publish
        return {"ms": 1e3 * seconds(open_and_append)}

    yield measure


def _left_by(producers: int) -> Contender:
    """Many batches of one record, by so many producers one after another, whose writer did not
    close the log."""

    @contextmanager
    def reopened(place: Path, scale: Scale) -> Iterator[Measure]:
        encoder = RecordEncoder(1 << 20)
        left = Log(place / "log")
        left.create_topic(TOPIC)
        partition = left.partition(TOPIC, 0)
        for number in range(scale.of(SMALL_BATCHES, at_least=100)):
            encoder.append(time.time_ns() // 1_000_000, None, VALUE, ())  # of now, or the next append rolls
            sequence, producer_id = divmod(number, producers)
            partition.log.append_batch(
                build_batch(encoder, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            )

        def open_and_append() -> None:
            with Log(place / "log", create=False) as log:
                log.partition(TOPIC, 0).append([ProducerRecord(VALUE)], acks=1)

        # The median: garbage collected during an opening adds half of its time.
        yield lambda: {"ms": 1e3 * median(seconds(open_and_append) for _ in range(OPENINGS))}
        left.close()

    what = f"30,000 batches of one record by {producers:,} producers; Log, Partition.append (acks=1)"
    return Contender(f"{producers:,} producers", what, reopened)


class _AnotherBoot(OsFileSystem):
    """The same files after a start of the machine: of what was not synced, anything may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self._name = f"boot {next(_boots)}"

    def boot_id(self) -> str:
        return self._name


@contextmanager
def _power_lost(place: Path, scale: Scale) -> Iterator[Measure]:
    partition = _fill(place, scale.of(1_000_000_000))
    published = (partition / ".commit").read_bytes()
    size = log_bytes(partition)

    def open_and_read() -> None:
        with Log(place / "log", create=False, filesystem=_AnotherBoot()) as log, Producer(log, acks=1) as producer:
            producer.send(TOPIC, VALUE).result()

    def measure() -> Sample:
        with (partition / ".commit").open("r+b") as file:
            file.write(published)
        return {"bytes_per_s": size / seconds(open_and_read)}

    yield measure


WORKLOADS = [
    Workload(
        "open",
        "until the first record of a fresh log was produced and consumed; until 1,000 partitions can be read",
        (
            Contender("fresh log", "Log, create_topic, one record sent (acks=1) and polled", _fresh_log),
            Contender("1,000 partitions", "Log, Consumer.assign, end_offsets of all of them", _many_partitions),
        ),
        (
            Figure("fresh log, first record", Value("fresh log", "ms"), at_most=10, unit="ms"),
            Figure("log of 1,000 partitions", Value("1,000 partitions", "ms"), at_most=500, unit="ms"),
        ),
    ),
    Workload(
        "import",
        "import pylog in a new process, from bytecode; neither pyspark nor pyarrow comes with it",
        (Contender("import pylog", "a process of its own each time", _importing),),
        (Figure("import pylog", Value("import pylog", "ms"), at_most=60, unit="ms"),),
    ),
    Workload(
        "reopen",
        "until a record is appended to a log of many small batches, whose writer was killed between two of them",
        (_left_by(1), _left_by(SMALL_BATCHES)),
        (
            Figure("30,000 batches, one producer", Value("1 producers", "ms"), at_most=15, unit="ms"),
            Figure("30,000 batches, as many producers", Value("30,000 producers", "ms"), at_most=15, unit="ms"),
        ),
    ),
    Workload(
        "recover",
        "until a record is appended to a log of 1 GB: after its writer was killed in an append, and after a loss of power",
        (
            Contender(
                "after a kill", "half a batch behind the published end, one segment of 1 GB, in the page cache", _killed
            ),
            Contender(
                "after power loss",
                "another boot, nothing was synced: the whole segment is checked, from the page cache",
                _power_lost,
            ),
        ),
        (
            Figure("open after a kill", Value("after a kill", "ms"), at_most=50, unit="ms"),
            Figure("scan after power loss", Value("after power loss", "bytes_per_s"), at_least=1e9, unit="B/s"),
        ),
    ),
]
