"""A log in memory for the consumer's tests: real batches, no file, a clock that moves when told.

``FakePartition`` keeps encoded batches and obeys the contract of ``Partition.fetch``; what a real
one does after a crash or a transaction is set by hand here (``log_start``, ``stable_end``,
``durable_end``, ``aborted``, ``damaged``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, build_batch, read_header, stamp
from pylog.codec.compression import codec_id
from pylog.consumer import Consumer
from pylog.errors import Closed, CorruptSegment, InvalidPartition, OffsetOutOfRange, TopicNotFound
from pylog.model import OffsetAndTimestamp, Record, TopicPartition
from pylog.partition import Cursor, Fetched
from pylog.testing.manual_clock import ManualClock

START_MS = ManualClock().start_ms


class FakePartition:
    @property
    def log(self) -> FakePartition:
        return self

    def __init__(self, log: FakeLog, topic: str, number: int) -> None:
        self.topic_partition = TopicPartition(topic, number)
        self.log_start = 0
        self.stable_end: int | None = None
        self.durable_end: int | None = None
        self.blocked_end: int | None = None  # where a transaction is under way, whose end changes nothing here
        self.is_unmarked = False  # a transaction before the end is over, and has no marker
        self.is_read_only = True
        self.settled = 0  # how often the missing markers were asked for
        self.aborted: set[int] = set()  # base offsets of aborted batches
        self.control: set[int] = set()  # base offsets of markers
        self.damaged: set[int] = set()  # base offsets of batches whose checksum fails
        self.fetched: list[int] = []  # the offset of every fetch
        self.read_offsets: list[int] = []  # base offsets of all batches handed out
        self.fetch_error: BaseException | None = None
        self.closed = False
        self._log = log
        self._batches: list[BatchView] = []
        self._published = 0

    def close_read_files(self) -> None:
        pass

    # Writing

    def append(
        self, *values: bytes | None, key: bytes | None = None, timestamp_ms: int | None = None, codec: str = "none"
    ) -> int:
        """One batch; its base offset."""
        encoder = RecordEncoder(1 << 30)
        for value in values:
            encoder.append(self._log.clock.now_ms() if timestamp_ms is None else timestamp_ms, key, value, ())
        return self.append_batch(build_batch(encoder, codec=codec_id(codec)))

    def append_batch(self, batch: bytearray) -> int:
        base = self.end
        stamp(batch, base, 0)
        self._batches.append(BatchView(memoryview(batch), read_header(batch)))
        self.publish()
        return base

    def append_marker(self) -> int:
        """A control batch: it takes an offset and is nobody's record."""
        base = self.append(b"marker")
        self.control.add(base)
        return base

    def publish(self) -> None:
        self._published += 1
        self._log.wake()

    # Reading, as PartitionLog does

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"{self.topic_partition} has been closed")

    @property
    def end(self) -> int:
        return self._batches[-1].last_offset + 1 if self._batches else self.log_start

    @property
    def earliest_offset(self) -> int:
        return self.log_start

    def end_offset(self, isolation_level: str, visibility: str) -> int:
        end = self.end
        if visibility == "durable" and self.durable_end is not None:
            end = min(end, self.durable_end)
        if isolation_level == "read_committed" and self.stable_end is not None:
            end = min(end, self.stable_end)
        if isolation_level == "read_committed" and self.blocked_end is not None:
            end = min(end, self.blocked_end)
        return end

    def settle_transactions(self) -> None:
        self.settled += 1

    def change_token(self) -> Any:
        self._check_open()
        return (self._published,)

    def fetch(
        self, cursor: Cursor, *, max_bytes: int, isolation_level: str, visibility: str, quiet_token: object = None
    ) -> Fetched:
        token = self.change_token()
        if token == quiet_token:
            return Fetched([], cursor, cursor.offset, token)
        self.fetched.append(cursor.offset)
        if self.fetch_error is not None:
            raise self.fetch_error
        if not self.log_start <= cursor.offset <= self.end:
            raise OffsetOutOfRange(
                f"offset {cursor.offset}", offset=cursor.offset, earliest=self.log_start, latest=self.end
            )
        limit = self.end_offset(isolation_level, visibility)
        found: list[BatchView] = []
        offset, size = cursor.offset, 0
        for view in self._batches:
            if view.last_offset < offset or view.base_offset >= limit:
                continue
            if size and size + view.header.size_bytes > max_bytes:
                break
            if view.base_offset in self.damaged:
                if size:
                    break
                raise CorruptSegment(
                    f"batch {view.base_offset} is damaged", position=0, offset=offset, next_offset=view.last_offset + 1
                )
            size += view.header.size_bytes
            offset = view.last_offset + 1
            if view.base_offset in self.control:
                continue
            if isolation_level == "read_committed" and view.base_offset in self.aborted:
                continue
            found.append(view)
        self.read_offsets += [view.base_offset for view in found]
        is_committed = isolation_level == "read_committed"
        is_blocked = is_committed and self.blocked_end is not None
        return Fetched(found, Cursor(offset), limit, token, is_blocked, is_committed and self.is_unmarked)

    def offset_for_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        for view in self._batches:
            for record in view.records():
                if record.offset >= self.log_start and record.timestamp_ms >= timestamp_ms:
                    return OffsetAndTimestamp(record.offset, record.timestamp_ms)
        return None


class Description(NamedTuple):
    name: str
    id: int
    numbers: Sequence[int]


class FakeLog:
    """Topics by name. ``on_wait`` holds what happens during each wait; without anything left, a
    wait uses up its time."""

    path = "fake"
    closed = False

    def __init__(self, **topics: int) -> None:
        self.clock = ManualClock()
        self.on_wait: list[Callable[[], object]] = []
        self.waits: list[float] = []
        self.catalog_looks = 0
        self._topics: dict[str, tuple[int, list[FakePartition]]] = {}
        self._version = 0
        for name, partitions in topics.items():
            self.create_topic(name, partitions)

    @property
    def manager(self) -> FakeLog:
        return self

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self._version += 1
        self._topics[name] = self._version, [FakePartition(self, name, number) for number in range(partitions)]

    def add_partitions(self, name: str, total: int) -> None:
        self._version += 1
        partitions = self._topics[name][1]
        partitions += [FakePartition(self, name, number) for number in range(len(partitions), total)]

    def delete_topic(self, name: str) -> None:
        self._version += 1
        for partition in self._topics.pop(name)[1]:
            partition.closed = True

    def close(self) -> None:
        self.closed = True
        for _, partitions in self._topics.values():
            for partition in partitions:
                partition.closed = True

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def describe_topic(self, name: str) -> Description:
        if name not in self._topics:
            raise TopicNotFound(f"no topic {name}", topic=name)
        return Description(name, self._topics[name][0], range(len(self._topics[name][1])))

    def existing_topics(self, names: Iterable[str]) -> dict[str, Description]:
        return {name: self.describe_topic(name) for name in sorted(names) if name in self._topics}

    def partition(self, topic: str, number: int) -> FakePartition:
        if topic not in self._topics:
            raise TopicNotFound(f"no topic {topic}", topic=topic)
        if not 0 <= number < len(self._topics[topic][1]):
            raise InvalidPartition(f"no partition {number}", topic=topic, partition=number)
        return self._topics[topic][1][number]

    def __getitem__(self, name: str) -> FakePartition:
        """Partition 0 of a topic, for short."""
        return self.partition(name, 0)

    def close_gone(self, name: str) -> None:
        """A fake log has nothing open."""

    def catalog_version(self) -> int:
        if self.closed:
            raise Closed("the log has been closed")
        self.catalog_looks += 1
        return self._version

    def watch(self, partitions: Collection[object], more: Collection[str] = ()) -> None:
        """There is none: it waits by ``wait_for_change`` alone."""

    def wait_for_change(self, ready: Callable[[], bool], timeout_s: float, watch: None = None) -> bool:
        self.waits.append(timeout_s)
        if self.on_wait:
            self.on_wait.pop(0)()
        if ready():
            return True
        self.clock.sleep(timeout_s)
        return False

    def wake(self) -> None:
        """Somebody appended, or woke a consumer."""


class BlockingLog(FakeLog):
    """A log whose waits really block until ``notify``, for tests with threads. ``waiting`` is set
    during a wait."""

    def __init__(self, **topics: int) -> None:
        self._changed = threading.Condition()
        self.waiting = threading.Event()
        super().__init__(**topics)

    def wait_for_change(self, ready: Callable[[], bool], timeout_s: float, watch: None = None) -> bool:
        with self._changed:
            self.waiting.set()
            return self._changed.wait_for(ready, 30)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def consumer_of(log: FakeLog, *topics: str, **options: Any) -> Consumer:
    """A consumer subscribed to ``topics`` from their beginning, unless ``options`` say
    otherwise."""
    consumer = Consumer(log, **{"auto_offset_reset": "earliest", **options})
    if topics:
        consumer.subscribe(topics)
    return consumer


def values(records: list[Record]) -> list[Any]:
    return [record.value for record in records]


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]
