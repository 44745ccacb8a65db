"""The same records in one partition and in a thousand: what grows with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, keys, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from pylog import Consumer, Log, Producer

MANY = 10_000
PARTITIONS = 1_000
_POLL_RECORDS = 5_000


def _spread_over(partitions: int) -> Callable[[Path, Scale], AbstractContextManager[Measure]]:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        count = scale.of(400, at_least=1)
        opened = partitions if scale.share == 1 else min(partitions, 20)
        values, keys_ = [VALUE] * MANY, keys(MANY)

        def measure() -> Sample:
            with fresh(place) as directory, Log(directory / "log") as log:
                log.create_topic(TOPIC, partitions=opened)
                with Producer(log, acks=1) as producer:
                    for number in range(opened):  # opens them, and makes their files
                        producer.send(TOPIC, VALUE, partition=number)
                    producer.flush()

                    def send_all(keys_: list[bytes] | None, count: int) -> None:
                        for _ in range(count):
                            producer.send_many(TOPIC, values, keys=keys_)
                        producer.flush()

                    took = seconds(lambda: send_all(None, count))
                    took_consume = seconds(lambda: _consume_all(log, count * MANY + opened))
                    count_keyed = max(count // 10, 1)
                    took_keyed = seconds(lambda: send_all(keys_, count_keyed))
            return {
                "sent_per_s": count * MANY / took,
                "consumed_per_s": (count * MANY + opened) / took_consume,
                "sent_with_keys_per_s": count_keyed * MANY / took_keyed,
            }

        yield measure

    return prepare


def _consume_all(log: Log, count: int) -> None:
    with Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(TOPIC)
        found = 0
        while records := consumer.poll(0, max_records=_POLL_RECORDS):
            found += len(records)
        check_count(found, count)


_ONE, _MANY = "1 partition", f"{PARTITIONS:,} partitions"

WORKLOADS = [
    Workload(
        "many_partitions",
        f"send_many of {MANY:,} records of 100 bytes a call, and polling all of them: {_MANY} beside {_ONE}",
        (
            Contender(_ONE, "page cache: acks=1; opened before; one consumer, subscribing included", _spread_over(1)),
            Contender(_MANY, "the same", _spread_over(PARTITIONS)),
        ),
        (
            Figure("send_many", Value(_MANY, "sent_per_s"), Value(_ONE, "sent_per_s"), at_least=0.6),
            Figure("consuming a backlog", Value(_MANY, "consumed_per_s"), Value(_ONE, "consumed_per_s"), at_least=0.6),
        ),
    ),
]
