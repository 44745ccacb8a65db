"""A log in memory for the producer's tests: what was appended, in which batches, and failures made
to order.

``FakePartition.script`` holds what the next appends do: an exception is raised (after the batch
went in, if it stands in a ``Late``), anything callable is called first. ``sync_script`` is the same
for syncs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from pylog.codec.batch import BatchHeader, BatchView, read_header, stamp
from pylog.errors import InvalidPartition, TopicNotFound
from pylog.log import Log
from pylog.model import AppendResult, Record
from pylog.producer import Producer
from pylog.testing.manual_clock import ManualClock
from tests.system import fail

START_MS = ManualClock().start_ms


class YieldingClock(ManualClock):
    """For tests with threads: a sleep passes no time, it lets the others run."""

    def sleep(self, seconds: float) -> None:
        """What the others do is waited for, not a time."""
        time.sleep(0.0005)  # noqa: TID251 - other threads run meanwhile


class Late(NamedTuple):
    """The append happens, and then this is raised."""

    error: BaseException


class FakePartition:
    is_closed = False

    @property
    def log(self) -> FakePartition:
        return self

    def __init__(self, topic: str, number: int, topic_id: str) -> None:
        self.topic, self.number, self.topic_id = topic, number, topic_id
        self.batches: list[bytes] = []
        self.durable_offset = 0
        self.append_time_ms = -1
        self.timeouts_ms: list[int] = []
        self.syncs: list[int] = []
        self.script: deque[Any] = deque()
        self.sync_script: deque[Any] = deque()
        self._lock = threading.Lock()

    def append_batch(
        self,
        batch: bytearray,
        *,
        expected_offset: int | None = None,
        timeout_ms: int = 0,
        min_timestamp_ms: int | None = None,
    ) -> AppendResult:
        assert min_timestamp_ms is not None
        assert min_timestamp_ms <= read_header(batch).base_timestamp_ms
        self.timeouts_ms.append(timeout_ms)
        step = self.script.popleft() if self.script else None
        if isinstance(step, BaseException):
            fail(step)
        if callable(step):
            step()
        with self._lock:
            result = self._append(batch)
        if isinstance(step, Late):
            fail(step.error)
        return result

    def _append(self, batch: bytearray) -> AppendResult:
        base = self.end_offset
        header = read_header(batch)
        known = [h for h in map(read_header, self.batches[-5:]) if h.producer_id >= 0 and h[9:12] == header[9:12]]
        if known:  # the same producer id, epoch and base sequence
            return AppendResult(known[0].base_offset, known[0].last_offset, -1, True)
        stamp(batch, base, 0, None if self.append_time_ms < 0 else self.append_time_ms)
        self.batches.append(bytes(batch))
        return AppendResult(base, self.end_offset - 1, self.append_time_ms, False)

    def is_syncing_here(self) -> bool:
        return False

    @property
    def end_offset(self) -> int:
        return read_header(self.batches[-1]).last_offset + 1 if self.batches else 0

    def sync(self, end_offset: int) -> None:
        self.syncs.append(end_offset)
        step = self.sync_script.popleft() if self.sync_script else None
        if isinstance(step, BaseException):
            fail(step)
        if callable(step):
            step()
        self.durable_offset = max(self.durable_offset, self.end_offset)

    @property
    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches]

    @property
    def records(self) -> list[Record]:
        return [
            record
            for batch in self.batches
            for record in BatchView(batch, read_header(batch)).records(self.topic, self.number)
        ]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


class FakeConfig(NamedTuple):
    compression_type: str = "producer"
    partitioner: str = "murmur3"
    max_message_bytes: int = (1 << 20) + 12
    is_compacted: bool = False
    writable: bool = True


class FakeDescription(NamedTuple):
    name: str
    id: str
    partitions: int
    config: FakeConfig = FakeConfig()
    earlier_ids: tuple[str, ...] = ()


class FakeLog:
    closed = False

    def flush_on_close(self, _: object) -> None:
        """It is never closed."""

    def __init__(self, *, partitions: int = 1, topic: str = "t", **config: Any) -> None:
        self.clock = YieldingClock()
        self.auto_create_topics = False
        self.version = 0
        self.descriptions: dict[str, FakeDescription] = {}
        self.partitions: dict[tuple[str, int], FakePartition] = {}
        self.producer_ids = 0
        self.create_topic(topic, partitions=partitions, **config)
        self.clock.seconds = 0.0

    def create_topic(self, name: str, *, partitions: int = 1, **config: Any) -> None:
        self._change()
        self.descriptions[name] = FakeDescription(name, f"{name} {self.version}", partitions, FakeConfig(**config))

    def _change(self) -> None:
        self.version += 1
        self.clock.seconds += 0.01  # the time after which a producer looks at the version again

    def delete_topic(self, name: str) -> None:
        self._change()
        del self.descriptions[name]

    def add_partitions(self, name: str, total: int) -> None:
        self._change()
        self.descriptions[name] = self.descriptions[name]._replace(partitions=total)

    def alter_topic(self, name: str, **config: Any) -> None:
        self._change()
        before = self.descriptions[name]
        self.descriptions[name] = before._replace(config=before.config._replace(**config))

    def describe_topic(self, name: str) -> FakeDescription:
        if name not in self.descriptions:
            raise TopicNotFound(f"no topic {name!r}", topic=name)
        return self.descriptions[name]

    @property
    def manager(self) -> FakeLog:
        return self

    def require_writable(self) -> None:
        pass

    def topic_to_send_to(self, name: str) -> FakeDescription:
        if name not in self.descriptions and self.auto_create_topics:
            self.create_topic(name)
        return self.describe_topic(name)

    def close_gone(self, name: str) -> None:
        """A fake log has nothing open."""

    def catalog_version(self) -> int:
        return self.version

    def partition(self, topic: str, number: int = 0) -> FakePartition:
        described = self.describe_topic(topic)
        if not 0 <= number < described.partitions:
            raise InvalidPartition(f"no partition {number}")
        partition = self.partitions.get((topic, number))
        if partition is None or partition.topic_id != described.id:  # the topic was deleted and created anew
            partition = self.partitions[topic, number] = FakePartition(topic, number, described.id)
        return partition

    def next_producer_id(self) -> int:
        self.producer_ids += 1
        return self.producer_ids

    def producer(self, **options: Any) -> Producer:
        """A producer whose batches wait until somebody writes them."""
        return Producer(cast(Log, self), **{"linger_ms": 60_000, **options})


def blocking() -> tuple[threading.Event, threading.Event, Callable[[], None]]:
    """A step of a script that says when it has begun, and ends when it is told to."""
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        leave.wait()

    return entered, leave, block


def call_in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def wait_until(condition: Callable[[], object]) -> None:
    """Until another thread has done it; the test's own timeout is the only bound."""
    never = threading.Event()
    while not condition():
        never.wait(0.0005)
