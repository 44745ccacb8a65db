"""Whatever is raised at whatever moment of a poll or an iteration: the records that were not
returned come again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pylog.consumer import Consumer
from tests.consumer.fakes import FakeLog, consumer_of, numbered
from tests.consumer.interrupts import Interrupt, interrupt_at

ROOMS = re.compile("/pylog/(consumer|arrow)/")


def small_log() -> FakeLog:
    log = FakeLog(orders=2)
    for number in range(2):
        log.partition("orders", number).append(*numbered(0, 3))
        log.partition("orders", number).append(*numbered(3, 6), codec="gzip")
    return log


def poll_once(consumer: Consumer, into: list[tuple[int, int]]) -> None:
    records = consumer.poll(max_records=8)
    into += [(record.partition, record.offset) for record in records]


def poll_arrow_once(consumer: Consumer, into: list[tuple[int, int]]) -> None:
    table = consumer.poll_arrow(max_records=8)
    into += zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)


def iterate_once(consumer: Consumer, into: list[tuple[int, int]]) -> None:
    for record in consumer:
        into.append((record.partition, record.offset))
        if len(into) == 8:
            break


@pytest.mark.slow
@pytest.mark.parametrize("act", [poll_once, poll_arrow_once, iterate_once])
@pytest.mark.parametrize("before", ["a poll", "an Arrow poll", "a break", "new partitions"])
@pytest.mark.one_in(8)
def test_an_interrupt_anywhere_loses_no_record_and_repeats_none(
    before: str, act: Callable[[Consumer, list[tuple[int, int]]], None], seed: int
) -> None:
    """Each run takes every second place."""
    step, passed = -(seed % 2), [0]
    while passed[0] >= step:  # the last one was reached
        step += 2
        log, partitions = small_log(), 2
        consumer = consumer_of(log, "orders", max_poll_records=4, value_deserializer=int, consumer_timeout_ms=0)
        read: list[tuple[int, int]] = []
        if before == "a poll":
            poll_once(consumer, read)
        elif before == "an Arrow poll":
            poll_arrow_once(consumer, read)
        elif before == "new partitions":
            log.add_partitions("orders", partitions := 4)
            for number in (2, 3):
                log.partition("orders", number).append(*numbered(0, 6))
        else:
            read.append(next(iter(consumer))[1:3])
        try:
            with interrupt_at(step, ROOMS) as passed:
                act(consumer, read)
        except Interrupt:
            pass
        while len(read) < 6 * partitions:
            count = len(read)
            poll_once(consumer, read)
            assert len(read) > count, f"records are missing after an interrupt at step {step}"
        assert consumer.poll() == []
        assert sorted(read) == [(number, offset) for number in range(partitions) for offset in range(6)], f"step {step}"
        metrics = consumer.metrics()
        assert metrics["read_ahead_bytes"] == 0, f"step {step}"
        assert metrics["records_consumed"] == len(read) or before == "a break", f"step {step}"
    assert step > 50
