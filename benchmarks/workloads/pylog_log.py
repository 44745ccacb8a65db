"""pylog as a contender: the same records as the rivals'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, keys, seconds
from benchmarks.workload import Contender, Measure, Sample
from pylog import Consumer, Log, Producer

NAME = "pylog"


def send_all(producer: Producer, keys_: list[bytes]) -> None:
    """One record a call, and everything acknowledged on return."""
    send = producer.send
    for key in keys_:
        send(TOPIC, VALUE, key=key)
    producer.flush()


def fill(log: Log, keys_: list[bytes]) -> None:
    """A topic with these records."""
    log.create_topic(TOPIC)
    with Producer(log, acks=1) as producer:
        producer.send_many(TOPIC, [VALUE] * len(keys_), keys=keys_)


def iterate(log: Log, count: int) -> None:
    """``for record in consumer``, over all there is."""
    with Consumer(log, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        consumer.subscribe(TOPIC)
        check_count(sum(1 for _ in consumer), count)


@contextmanager
def writes(place: Path, scale: Scale, *, enable_idempotence: bool = True, **options: Any) -> Iterator[Measure]:
    """``send`` for every record, and ``flush``. ``options`` are the log's."""
    keys_ = keys(scale.of(500_000))

    def measure() -> Sample:
        with fresh(place) as directory, Log(directory / "log", **options) as log:
            log.create_topic(TOPIC)
            with Producer(log, acks=1, enable_idempotence=enable_idempotence) as producer:
                took = seconds(lambda: send_all(producer, keys_))
        return {"records_per_s": len(keys_) / took}

    yield measure


@contextmanager
def reads(place: Path, scale: Scale) -> Iterator[Measure]:
    """``for record in consumer``."""
    keys_ = keys(scale.of(500_000))
    with Log(place / "log") as log:
        fill(log, keys_)
        yield lambda: {"records_per_s": len(keys_) / seconds(lambda: iterate(log, len(keys_)))}


WRITES = Contender(NAME, 'page cache: acks=1; send("events", value, key=key) in one thread, then flush()', writes)
READS = Contender(NAME, "for record in consumer: every record an object with all its fields", reads)
