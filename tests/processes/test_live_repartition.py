"""Real processes write and read a topic while another one gives it other partitions, and is killed
again and again.

Every acknowledged record is in the topic once, each key keeps its order, and the group sees each
record, the first time in that order.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from pylog import Consumer, Log, Producer
from pylog.errors import NotAppended, OutcomeUnknown, TopicNotFound
from tests.processes.sharing import forked, result_of

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TOPIC = "t"
PRODUCERS = 2
KEYS = 6
CALLS = (7, 2)


def produce(directory: str, number: int, stop: Path) -> dict[bytes, list[tuple[int, bool]]]:
    """Numbered values by key, one at a time by key, each sent until it is in. Returns them, with
    whether that is certain."""
    sent: dict[bytes, list[tuple[int, bool]]] = {b"%d-%d" % (number, key): [] for key in range(KEYS)}
    value = 0
    with Log(directory) as log, Producer(log, acks=1) as producer:
        while not stop.exists():
            waiting = dict.fromkeys(sent, True)
            while waiting:
                deliveries = {}
                for key in waiting:
                    try:
                        deliveries[key] = producer.send(TOPIC, b"%d" % value, key=key)
                    except TopicNotFound:  # also TopicChanged
                        time.sleep(0.005)
                producer.flush()
                for key, delivery in deliveries.items():
                    error = delivery.exception()
                    if error is None or isinstance(error, OutcomeUnknown):
                        sent[key].append((value, error is None))
                        del waiting[key]
                    elif not isinstance(error, NotAppended):
                        raise error
            value += 1
            time.sleep(0.001)
    return sent


def consume(directory: str, told: Path) -> dict[bytes, list[int]]:
    """The values of each key in the order of their first deliveries, until all that was told is
    there."""
    seen: dict[bytes, list[int]] = {}
    known: dict[bytes, set[int]] = {}
    with (
        Log(directory) as log,
        Consumer(
            log, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=20, max_poll_records=50
        ) as consumer,
    ):
        consumer.subscribe([TOPIC])
        until = time.monotonic() + 120
        while time.monotonic() < until:
            for record in consumer.poll(0.1):
                value = int(record.value)
                if value not in known.setdefault(record.key, set()):
                    known[record.key].add(value)
                    seen.setdefault(record.key, []).append(value)
            if told.exists() and sum(map(len, seen.values())) >= int(told.read_text()):
                return seen
    return seen


def repartition(directory: str, partitions: int) -> None:
    with Log(directory) as log:
        log.repartition(TOPIC, partitions)


@pytest.mark.slow
def test_producers_write_and_a_group_reads_while_a_topic_gets_other_partitions(tmp_path: Path, seed: int) -> None:
    random, directory = Random(seed), str(tmp_path / "log")
    stop, told = tmp_path / "stop", tmp_path / "told"
    with Log(directory) as log:
        log.create_topic(TOPIC, partitions=3, segment_bytes=16_384)
    producers = [forked(lambda number=number: produce(directory, number, stop)) for number in range(PRODUCERS)]
    consumer = forked(lambda: consume(directory, told))
    kills = 0
    for partitions in CALLS:
        time.sleep(1)
        while True:
            child = forked(lambda partitions=partitions: repartition(directory, partitions))
            if kills % 4 < 3:
                time.sleep(random.uniform(0, 0.15))
                os.kill(child[0], signal.SIGKILL)
            kills += 1
            try:
                result_of(child)
            except (RuntimeError, EOFError):
                continue
            break
    time.sleep(1)
    stop.touch()
    sent: dict[bytes, list[tuple[int, bool]]] = {}
    for producer in producers:
        sent.update(result_of(producer))
    in_topic: dict[bytes, list[int]] = {}
    with Log(directory) as log:
        assert log.describe_topic(TOPIC).partitions == CALLS[-1]
        places: dict[bytes, int] = {}
        for number in range(CALLS[-1]):
            for record in log.partition(TOPIC, number).scan():
                assert places.setdefault(record.key, number) == number
                in_topic.setdefault(record.key, []).append(int(record.value))
        assert not log.verify().problems
    (tmp_path / "new").write_text(str(sum(map(len, in_topic.values()))))
    (tmp_path / "new").rename(told)
    seen = result_of(consumer)
    for key, values in sent.items():
        found = in_topic[key]
        assert found == sorted(set(found)), f"{key!r}: twice, or out of order"
        assert {value for value, is_certain in values if is_certain} <= set(found), f"{key!r}: lost"
        assert set(found) <= {value for value, _ in values}
        assert seen[key] == found, f"{key!r}: the group missed one, or saw it late"
    assert sum(map(len, in_topic.values())) > 100
