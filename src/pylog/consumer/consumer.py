"""The public face: one object that subscribes, reads records in order, and knows its positions.

Owns: that one thread at a time uses it, wakeup, waiting, and the iteration with its exact position. What is read, from
where, and how it is buffered: ``assignment``, ``fetcher``, ``lane``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING

from pylog.checks import partition_of, partitions_of, refuse_options, require_count, require_log, require_seconds
from pylog.consumer.assignment import Assignment
from pylog.consumer.config import NOT_YET, ConsumerConfig, Deserializer
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.flight import Flight
from pylog.consumer.form import DECODE_RECORDS_MAX
from pylog.consumer.lane import Lane
from pylog.consumer.lookup import OffsetLookup
from pylog.consumer.reset import no_position
from pylog.consumer.sole_use import SoleUse
from pylog.consumer.subscription import Subscription, name_of
from pylog.consumer.waiting import Taken, Waiting
from pylog.errors import Closed, ConfigError, PylogError
from pylog.model import EARLIEST, LATEST, OffsetAndTimestamp, Record, TopicPartition
from pylog.partition.isolation import READ_UNCOMMITTED, WRITTEN
from pylog.storage import after_fork_in_child

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.log import Log
    from pylog.partition import Partition


class Consumer:
    """Reads records of topics or partitions, each partition in order.

    Options, by keyword (``ConfigError`` for a wrong one; ``Closed`` where the log is):

    - ``auto_offset_reset``: where to start without a position, or when the position is not in the log: ``"latest"``,
      ``"earliest"``, ``"none"`` (raise), or ``"by_duration:PT1H"`` (the last hour; any ISO 8601 duration).
    - ``isolation_level``: ``"read_uncommitted"``, or ``"read_committed"``: nothing of open or aborted transactions.
    - ``visibility``: ``"written"`` (as in Kafka), or ``"durable"``: only what no power cut can take back.
    - ``max_poll_records``: the most ``poll`` returns, and the most an iteration takes at a time from one partition.
    - ``fetch_max_bytes``, ``max_partition_fetch_bytes``: bounds of what is read ahead in memory, over all partitions
      and of each; one batch may exceed them.
    - ``key_deserializer``, ``value_deserializer``: called with bytes, never with None.
    - ``consumer_timeout_ms``: an iteration ends after waiting so long for a record; None waits for ever.

    A consumer belongs to one thread at a time: a call while another is under way raises ``WrongThread``. Only
    ``wakeup`` may be called from anywhere.
    """

    def __init__(
        self,
        log: Log,
        *,
        auto_offset_reset: str = "latest",
        isolation_level: str = READ_UNCOMMITTED,
        visibility: str = WRITTEN,
        max_poll_records: int = 500,
        fetch_max_bytes: int = 32 << 20,
        max_partition_fetch_bytes: int = 1 << 20,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        consumer_timeout_ms: int | None = None,
        **not_yet: None,
    ) -> None:
        require_log(log, "Consumer")
        refuse_options("Consumer", not_yet, NOT_YET)
        self._config = ConsumerConfig(
            auto_offset_reset, isolation_level, visibility, max_poll_records, fetch_max_bytes,
            max_partition_fetch_bytes, key_deserializer, value_deserializer, consumer_timeout_ms,
        ).checked()  # fmt: skip
        self._iteration_s = float("inf") if consumer_timeout_ms is None else consumer_timeout_ms / 1_000
        self._log = log
        self._lookup = OffsetLookup(log, self._config)
        self._fetcher = Fetcher(self._lookup, self._config, log.clock)
        self._assignment = Assignment(log, self._lookup, self._fetcher)
        self._waiting = Waiting(log, self._assignment, self._fetcher)
        self._flight: Flight | None = None
        self._reading = False
        self._closed = False
        self._sole_use = SoleUse()
        after_fork_in_child(self._begin_in_child)

    # What to read

    def subscribe(self, topics: str | Iterable[str] | re.Pattern[str]) -> None:
        """Read all partitions of these topics, in place of the subscription before.

        A pattern must match a topic's whole name. Positions are resolved now, by ``auto_offset_reset``; topics and
        partitions that appear later are noticed while polling and read from their beginning, and so is a topic named
        here that does not exist yet. Partitions that were read before keep their positions. Subscribing to no topics
        is ``unsubscribe``.
        """
        subscription = Subscription.of(topics)
        with self._begin():
            self._land()
            if subscription.is_empty:
                self._assignment.clear()
            else:
                self._assignment.subscribe(subscription)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in place of those assigned before; those in both keep their positions.

        Positions of the others are resolved now, by ``auto_offset_reset``. Raises ``TopicNotFound`` and
        ``InvalidPartition``.
        """
        wanted = partitions_of(partitions)
        with self._begin():
            self._land()
            self._assignment.assign(wanted)

    def unsubscribe(self) -> None:
        """Read nothing any more, and forget all positions."""
        with self._begin():
            self._land()
            self._assignment.clear()

    def subscription(self) -> set[str]:
        """The topics subscribed to; of a pattern, the topics it matched so far. Empty for assigned partitions."""
        with self._begin():
            subscription = self._assignment.subscription
            if subscription is None:
                return set()
            return set(subscription.topics) or {partition.topic for partition in self._fetcher.lanes}

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read, paused ones included."""
        with self._begin():
            return set(self._fetcher.lanes)

    def topics(self) -> set[str]:
        """The names of all topics of the log."""
        with self._begin():
            return set(self._log.topics())

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions that are here. Raises ``TopicNotFound``."""
        with self._begin():
            return set(self._log.describe_topic(topic).numbers)

    # Reading

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """The next records: at once if there are any, else after waiting for some up to ``timeout`` seconds.

        At most ``max_records`` (default ``max_poll_records``). Records of a partition come in order; partitions take
        turns. [] means that every partition not paused had nothing more to read.

        Raises ``Wakeup`` after ``wakeup()``; ``CorruptRecord``, ``SerializationError``, ``OffsetOutOfRange`` and
        ``NoOffsetForPartition`` with ``topic``, ``partition`` and ``offset``, after the records before were returned.
        The position stays there, so that a later poll raises again unless the application seeks.
        """
        return self._read(timeout, self._fetcher.collect, self._wanted(timeout, max_records))

    def poll_arrow(self, timeout: float = 0.0, max_records: int | None = None, *, headers: bool = False) -> pa.Table:
        """What ``poll`` would return, as an Arrow table with the columns of ``Partition.to_arrow``.

        Both move the same positions and may be mixed. Keys and values are bytes: deserializers do not apply. A table ends
        early once it holds ``fetch_max_bytes``; it has no rows where ``poll`` would return []. The most rows a second come
        with ``max_records`` in the ten thousands.

        Raises as ``poll``; ``InvalidTimestamp`` for a time out of range in microseconds, behind the records before it;
        ``ConfigError`` without the ``arrow`` extra.
        """
        from pylog.consumer.arrow_form import arrow_form

        form = arrow_form(headers, self._config.fetch_max_bytes)
        wanted = self._wanted(timeout, max_records)
        return self._read(timeout, lambda count: form.table(self._fetcher.collect_as(form, count)), wanted)

    def _wanted(self, timeout: float, max_records: int | None) -> int:
        """How many records a poll is for, once its arguments are checked."""
        require_seconds("timeout", timeout)
        return self._config.max_poll_records if max_records is None else require_count("max_records", max_records, 1)

    def __iter__(self) -> Iterator[Record]:
        """All records, waiting for new ones, until ``close()`` or ``consumer_timeout_ms`` without one.

        The position is exact at every record: it is the one behind the record being processed, also after a ``break``.
        """
        if self._closed:
            raise _closed()
        return chain.from_iterable(iter(self._next_chunk, None))

    def _next_chunk(self) -> Iterator[Record] | None:
        """The next records of one partition as an iterator, or None where the iteration ends."""
        if self._closed:
            return None
        return self._read(self._iteration_s, self._take_off, min(self._config.max_poll_records, DECODE_RECORDS_MAX))

    def _read(self, timeout_s: float, take: Callable[[int], Taken], max_records: int) -> Taken:
        """What ``take`` brings, waited for.

        Whatever interrupts this, down to its return, puts the positions back: the records were not returned.
        """
        reading = False
        try:
            with self._begin():
                self._land()
                self._fetcher.commit()
                reading = self._reading = True
                return self._waiting.take_within(timeout_s, take, max_records)
        except PylogError:
            raise
        except BaseException:
            if reading:
                self._flight = None
                self._fetcher.undo()
            raise
        finally:
            if reading:
                self._reading = False

    def _take_off(self, max_records: int) -> Iterator[Record] | None:
        chunk = self._fetcher.next_chunk(max_records)
        if chunk is None:
            return None
        self._flight = Flight(*chunk)
        return self._flight.rest

    def _land(self) -> None:
        """End what an iteration has in hand: records it has not given out go back to their lane."""
        if self._flight is not None:
            self._fetcher.records_taken -= self._flight.land()
            self._flight = None

    def wakeup(self) -> None:
        """Make the poll or iteration under way, or else the next one, raise ``Wakeup``.

        Any thread and any signal handler may call this. An iteration notices when it asks for its next records.
        """
        self._waiting.wake()

    # Positions

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned. ``NoOffsetForPartition`` where there is none yet."""
        with self._begin():
            position = self._position(self._lane(partition))
        if position is None:
            raise no_position(partition_of(partition))
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``. One that is not in the log is found out by the next poll."""
        require_count("offset", offset, 0)
        with self._begin():
            self._land()
            self._lane(partition).move_to(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record kept, in these partitions or in all."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record there is now, in these partitions or in all."""
        self._seek_to(LATEST, partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record with this timestamp or a later one, else at the end, in these partitions or all."""
        self._seek_to(require_count("timestamp_ms", timestamp_ms, 0), partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until ``resume``; they keep their positions."""
        with self._begin():
            self._land()
            for lane in [self._lane(partition) for partition in partitions]:
                lane.paused = True
                lane.drop_read_ahead()

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        with self._begin():
            for lane in [self._lane(partition) for partition in partitions]:
                lane.paused = False

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._begin():
            return {partition for partition, lane in self._fetcher.lanes.items() if lane.paused}

    def _seek_to(self, target: int, partitions: tuple[TopicPartition, ...]) -> None:
        with self._begin():
            self._land()
            lanes = [self._lane(partition) for partition in partitions] or list(self._fetcher.lanes.values())
            offsets = [self._lookup.locate(self._lookup.partition(lane.topic_partition), target) for lane in lanes]
            for lane, offset in zip(lanes, offsets, strict=True):
                lane.move_to(offset)

    def _lane(self, partition: TopicPartition) -> Lane:
        lane = self._fetcher.lanes.get(partition_of(partition))
        if lane is None:
            raise ConfigError(
                f"{name_of(partition_of(partition))} is not assigned to this consumer",
                topic=partition[0], partition=partition[1], assignment=sorted(self._fetcher.lanes),
            )  # fmt: skip
        return lane

    def _position(self, lane: Lane) -> int | None:
        flight = self._flight
        return flight.position if flight is not None and flight.lane is lane else lane.position

    # Offsets of the log

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record kept of each partition, assigned or not."""
        return {name: self._lookup.beginning(partition) for name, partition in self._opened(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last offset this consumer may read now (its isolation and visibility count), of each."""
        return {name: self._lookup.end(partition) for name, partition in self._opened(partitions)}

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record with its timestamp or a later one; None where there is none."""
        if not isinstance(timestamps_ms, Mapping):
            raise ConfigError(f"expected a mapping of TopicPartition to timestamp, not {timestamps_ms!r}")
        times = {partition_of(name): require_count("timestamp_ms", ms, 0) for name, ms in timestamps_ms.items()}
        return {name: self._lookup.at_time(partition, times[name]) for name, partition in self._opened(times)}

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is behind its end; partitions without a position are left out."""
        with self._begin():
            return self._lag()

    def _lag(self) -> dict[TopicPartition, int]:
        positions = {name: self._position(lane) for name, lane in self._fetcher.lanes.items()}
        return {
            name: max(0, self._lookup.end(self._lookup.partition(name)) - position)
            for name, position in positions.items()
            if position is not None
        }

    def _opened(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, Partition]]:
        with self._begin():
            return [(name, self._lookup.partition(name)) for name in partitions_of(partitions)]

    def metrics(self) -> dict[str, int]:
        """Counts since the consumer was made, and its state now."""
        with self._begin():
            in_hand = 0 if self._flight is None else self._flight.left
            return {
                "records_consumed": self._fetcher.records_taken - in_hand,
                "bytes_consumed": self._fetcher.fetched_bytes,
                "fetches": self._fetcher.fetches,
                "offset_resets": self._fetcher.resets,
                "records_lag_max": max(self._lag().values(), default=0),
                "read_ahead_bytes": self._fetcher.read_ahead_bytes,
                "assigned_partitions": len(self._fetcher.lanes),
                "paused_partitions": sum(lane.paused for lane in self._fetcher.lanes.values()),
            }

    # One thread, one life

    def close(self) -> None:
        """End iterations and free what was read ahead. Closing twice is fine; any other call raises ``Closed``."""
        if self._closed:
            return
        with self._begin():
            self._land()
            self._assignment.clear()
            self._waiting.close()
            self._closed = True

    def __enter__(self) -> Consumer:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._fetcher.lanes)} partitions"
        return f"<Consumer of {self._log.path}: {state}>"

    def _begin(self) -> AbstractContextManager[object]:
        """Around every call: ``Closed``, or ``WrongThread`` where another call is under way."""
        if self._closed:
            raise _closed()
        return self._sole_use.begin()

    def _begin_in_child(self) -> None:
        if self._sole_use.begin_in_child() and self._reading:
            self._reading = False
            self._fetcher.undo()


def _closed() -> Closed:
    return Closed("the consumer is closed")
