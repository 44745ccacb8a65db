"""The consumer against a list: whatever is done in whatever order, records come in order, once,
from the position on."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pylog.consumer import Consumer
from pylog.log import Log
from pylog.model import ProducerRecord, Record, TopicPartition
from tests.consumer.fakes import FakeLog

PARTITIONS = 3
NAMES = [TopicPartition("orders", number) for number in range(PARTITIONS)]
partitions = st.integers(0, PARTITIONS - 1)


class AgainstAList(RuleBasedStateMachine):
    """Over the fake log; below, over a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.log = self.open_log()
        self.stored: list[list[bytes]] = [[] for _ in NAMES]
        self.position = [0] * PARTITIONS
        self.paused: set[int] = set()
        self.consumed = 0
        self.consumer = Consumer(
            self.log,
            auto_offset_reset="earliest",
            max_poll_records=7,
            max_partition_fetch_bytes=300,
            fetch_max_bytes=700,
            consumer_timeout_ms=0,
            value_deserializer=int,
        )
        self.consumer.subscribe("orders")

    def open_log(self) -> Any:
        return FakeLog(orders=PARTITIONS)

    def append_batch(self, number: int, values: list[bytes], codec: str) -> None:
        self.log.partition("orders", number).append(*values, codec=codec)

    @rule(number=partitions, count=st.integers(1, 12), codec=st.sampled_from(["none", "gzip"]))
    def append(self, number: int, count: int, codec: str) -> None:
        start = len(self.stored[number])
        values = [b"%d" % value for value in range(start, start + count)]
        self.stored[number] += values
        self.append_batch(number, values, codec)

    @rule(count=st.integers(1, 30))
    def poll(self, count: int) -> None:
        records = self.consumer.poll(max_records=count)
        self.check(records)
        assert len(records) <= count
        assert records or not self.left()

    @rule(count=st.integers(1, 30), headers=st.booleans())
    def poll_arrow(self, count: int, headers: bool) -> None:
        table = self.consumer.poll_arrow(max_records=count, headers=headers)
        columns = [table.column(name).to_pylist() for name in ("partition", "offset", "value")]
        rows = zip(*columns, strict=True)
        self.check([Record("orders", number, offset, 0, None, int(value), ()) for number, offset, value in rows])
        assert table.num_rows <= count
        assert table.num_rows or not self.left()

    @rule(count=st.integers(1, 30))
    def iterate_and_break(self, count: int) -> None:
        read: list[Record] = []
        for record in self.consumer:
            read.append(record)
            self.check([record])
            assert self.consumer.position(NAMES[record.partition]) == record.offset + 1
            if len(read) == count:
                break
        assert len(read) == min(count, len(read) + self.left())

    @rule(number=partitions, share=st.floats(0, 1))
    def seek(self, number: int, share: float) -> None:
        self.position[number] = round(share * len(self.stored[number]))
        self.consumer.seek(NAMES[number], self.position[number])

    @rule(number=partitions, beyond=st.integers(1, 5))
    def seek_beyond_the_end(self, number: int, beyond: int) -> None:
        self.consumer.seek(NAMES[number], len(self.stored[number]) + beyond)
        if number in self.paused:
            self.consumer.seek(NAMES[number], 0)
        self.position[number] = 0
        if number not in self.paused:
            self.poll(1_000)

    @rule(number=partitions)
    def seek_to_end(self, number: int) -> None:
        self.position[number] = len(self.stored[number])
        self.consumer.seek_to_end(NAMES[number])

    @rule()
    def seek_to_beginning(self) -> None:
        self.position = [0] * PARTITIONS
        self.consumer.seek_to_beginning()

    @rule(number=partitions)
    def pause(self, number: int) -> None:
        self.paused.add(number)
        self.consumer.pause(NAMES[number])

    @precondition(lambda self: self.paused)
    @rule()
    def resume(self) -> None:
        self.consumer.resume(*[NAMES[number] for number in self.paused])
        self.paused.clear()

    @rule()
    def subscribe_again(self) -> None:
        self.consumer.subscribe(["orders", "payments"])

    @invariant()
    def positions_and_lag_are_those_of_the_list(self) -> None:
        for number, name in enumerate(NAMES):
            assert self.consumer.position(name) == self.position[number]
            assert self.consumer.lag()[name] == len(self.stored[number]) - self.position[number]
        assert self.consumer.paused() == {NAMES[number] for number in self.paused}
        assert self.consumer.metrics()["records_consumed"] == self.consumed

    def left(self) -> int:
        """How many records may still be returned."""
        return sum(len(self.stored[n]) - self.position[n] for n in range(PARTITIONS) if n not in self.paused)

    def check(self, records: list[Record]) -> None:
        for record in records:
            number = record.partition
            assert number not in self.paused
            assert record.offset == self.position[number]
            assert record.value == int(self.stored[number][record.offset])
            self.position[number] += 1
        self.consumed += len(records)

    def teardown(self) -> None:
        self.consumer.close()


class AgainstAListOverARealLog(AgainstAList):
    def open_log(self) -> Log:
        self.directory = tempfile.TemporaryDirectory(prefix="pylog-")
        log = Log(f"{self.directory.name}/log", segment_bytes=1_024, index_interval_bytes=100)
        log.create_topic("orders", partitions=PARTITIONS)
        return log

    def append_batch(self, number: int, values: list[bytes], codec: str) -> None:
        self.log.partition("orders", number).append([ProducerRecord(value) for value in values], acks=1)

    def teardown(self) -> None:
        super().teardown()
        self.log.close()
        self.directory.cleanup()


TestAgainstAList = pytest.mark.slow(AgainstAList.TestCase)
TestAgainstAList.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAgainstAListOverARealLog = pytest.mark.slow(AgainstAListOverARealLog.TestCase)
TestAgainstAListOverARealLog.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
