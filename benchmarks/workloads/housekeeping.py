"""What maintenance costs: where nothing is due, and beside a producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import VALUE, Scale, check_count, fresh, seconds
from benchmarks.workload import Contender, Figure, Measure, Value, Workload
from benchmarks.workloads import pylog_log
from benchmarks.workloads.pylog_log import NAME
from pylog import Log, Producer

PARTITIONS = 500
SEGMENTS = 4
INTERVAL_MS = 500
MAINTAINED, BESIDE = "maintain()", "pylog, housekeeping"


@contextmanager
def _sends_beside(place: Path, scale: Scale) -> Iterator[Measure]:
    with Log(place / "other") as log:
        log.maintain()  # the first one imports the cleaner
    options = {"housekeeping": True, "housekeeping_interval_ms": INTERVAL_MS}
    with pylog_log.writes(place, scale, **options) as measure:
        yield measure


@contextmanager
def _maintains(place: Path, scale: Scale) -> Iterator[Measure]:
    """Half of the partitions have a retention, half of them are compacted; nothing is due."""
    partitions = scale.of(PARTITIONS, at_least=4)

    def measure() -> dict[str, float]:
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic("deleted", partitions=partitions // 2, retention_bytes=1 << 30, retention_ms=1 << 40)
            log.create_topic("compacted", partitions=partitions - partitions // 2, cleanup_policy="compact")
            with Producer(log, acks=1) as producer:
                for _ in range(SEGMENTS):
                    for topic in log.topics():
                        for number in range(log.describe_topic(topic).partitions):
                            producer.send(topic, VALUE, key=VALUE[:8], partition=number)
                    producer.flush()
                    for topic in log.topics():
                        for number in range(log.describe_topic(topic).partitions):
                            log.partition(topic, number).log.roll()
            log.maintain()  # drops what is superseded
            took = seconds(lambda: check_count(log.maintain().deleted_segments, 0))
        return {"ms_per_partition": took * 1000 / partitions}

    yield measure


WORKLOADS = [
    Workload(
        "housekeeping",
        "maintenance of a log in which nothing is due, and beside a producer",
        (
            pylog_log.WRITES,
            Contender(
                BESIDE,
                f"the same with Log(housekeeping=True, housekeeping_interval_ms={INTERVAL_MS})",
                _sends_beside,
            ),
            Contender(
                MAINTAINED,
                f"{PARTITIONS} partitions with {SEGMENTS} closed segments each; half have a retention, half are compacted",
                _maintains,
            ),
        ),
        (
            Figure("send without it", Value(BESIDE, "records_per_s"), Value(NAME, "records_per_s"), at_least=0.97),
            Figure("maintain(), each partition", Value(MAINTAINED, "ms_per_partition"), at_most=1, unit="ms"),
        ),
    ),
]
