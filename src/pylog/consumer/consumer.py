"""The public face: one object that subscribes, reads records in order, and knows its positions.

Owns: that one thread at a time uses it, wakeup, waiting, and the iteration with its exact position. What is read, from
where, and how it is buffered: ``assignment``, ``fetcher``, ``lane``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from pylog.checks import (
    OfOneProcess,
    partitions_of,
    refuses_other_options,
    require_count,
    require_seconds,
    require_timeout,
    warn_of_milliseconds,
)
from pylog.consumer.assignment import Assignment, Callback, Listeners
from pylog.consumer.commits import Commits
from pylog.consumer.config import KAFKAS_NAMES, ConsumerConfig, Deserializer
from pylog.consumer.decoding import DECODE_RECORDS_MAX
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.flight import Flight
from pylog.consumer.log_offsets import LogOffsets
from pylog.consumer.offset_lookup import OffsetLookup
from pylog.consumer.poll_loop import Taken, Waiting
from pylog.consumer.positions import Positions
from pylog.consumer.subscription import Subscription
from pylog.consumer.thread_guard import SingleThreadGuard
from pylog.errors import Closed, PylogError
from pylog.interrupts import is_of_handler, own
from pylog.kafka_names import AbsentNames, answers_kafkas_names, refuse_keywords
from pylog.manager.access import manager_of
from pylog.model import Record, TopicPartition
from pylog.partition.read.visibility import READ_UNCOMMITTED, WRITTEN
from pylog.storage import after_fork_in_child

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.manager.access import ConsumerLog, LogFace


_MILLISECONDS_FROM = 100
"""A whole number of seconds from here on is taken for milliseconds, and warned of: who waits so long can write 300.0."""


@answers_kafkas_names
class Consumer(OfOneProcess, Commits, LogOffsets, Positions, metaclass=AbsentNames):
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
    - ``group_id``: the group whose members share what they subscribe to, and whose committed offsets they go on from.
    - ``assignor``: how: ``"cooperative-sticky"``, ``"sticky"``, ``"range"`` or ``"round_robin"``; all members the same.
    - ``enable_auto_commit``: whether what the application came back from is committed every ``auto_commit_interval_ms``, when
      partitions move, and at the end.
    - ``max_poll_interval_ms``: who neither polls nor commits for so long is expelled, and others read its partitions.
    - ``group_instance_id``: keeps its partitions over a restart that takes less than ``session_timeout_ms``.
    - ``client_id``: a name to tell members by.
    - ``default_api_timeout_ms``: for how long ``subscribe``, ``unsubscribe``, ``commit`` and ``close`` wait at most for another
      process, which may be stopped with a lock in its hands. A poll of a member waits for a fraction of a second.

    A consumer belongs to one thread at a time: a call while another is under way raises ``WrongThread``. Only
    ``wakeup`` may be called from anywhere. A process that dies leaves its group at once, with no timeout to wait for.
    """

    @refuses_other_options("Consumer", {}, ConsumerConfig._fields, KAFKAS_NAMES)
    def __init__(
        self,
        log: LogFace[ConsumerLog],
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
        group_id: str | None = None,
        group_instance_id: str | None = None,
        client_id: str | None = None,
        assignor: str = "cooperative-sticky",
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: int = 5_000,
        max_poll_interval_ms: int = 300_000,
        session_timeout_ms: int = 45_000,
        default_api_timeout_ms: int = 30_000,
    ) -> None:
        self._log = manager = manager_of(log, "Consumer")
        self._config = ConsumerConfig(
            auto_offset_reset, isolation_level, visibility, max_poll_records, fetch_max_bytes,
            max_partition_fetch_bytes, key_deserializer, value_deserializer, consumer_timeout_ms,
            group_id, group_instance_id, client_id, assignor, enable_auto_commit, auto_commit_interval_ms,
            max_poll_interval_ms, session_timeout_ms, default_api_timeout_ms,
        ).checked()  # fmt: skip
        self._iteration_s = float("inf") if consumer_timeout_ms is None else consumer_timeout_ms / 1_000
        self._lookup = OffsetLookup(manager, self._config)
        self._fetcher = Fetcher(self._lookup, self._config, manager.clock)
        self._sole_use = SingleThreadGuard()
        self._assignment = self._assignment_for(group_id)
        self._waiting = Waiting(manager, self._assignment, self._fetcher)
        self._flight: Flight | None = None
        self._reading = False
        self._closed = False
        after_fork_in_child(self._begin_in_child)

    def _assignment_for(self, group_id: str | None) -> Assignment:
        if group_id is None:
            return Assignment(self._log, self._lookup, self._fetcher)
        from pylog.consumer.group_assignment import GroupAssignment  # most consumers are in none

        return GroupAssignment(self._log, self._lookup, self._fetcher, self._config, self._sole_use)

    # What to read

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read all partitions of these topics, in place of the subscription before.

        A pattern must match a topic's whole name. Positions are resolved now, by ``auto_offset_reset``; topics and
        partitions that appear later are noticed while polling and read from their beginning, and so is a topic named
        here that does not exist yet. Partitions that were read before keep their positions. Subscribing to no topics
        is ``unsubscribe``.

        With a ``group_id`` it joins the group, which gives it a share of the partitions, each read from where the group has
        committed, or else has begun. The callbacks get lists of partitions, while polling: ``on_assigned`` those now read,
        ``on_revoked`` those about to be given up (it may still commit), ``on_lost`` those that others have already (by default
        ``on_revoked``). ``ConfigError`` where the members have another ``assignor``.
        """
        subscription = Subscription.of(topics)
        listeners = Listeners(on_assigned, on_revoked, on_lost).checked(self._config.group_id)
        with self._begin_alone():
            self._land()
            self._assignment.listeners = listeners
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
        with self._begin_alone():
            self._land()
            self._assignment.assign(wanted)

    def unsubscribe(self) -> None:
        """Read nothing any more, and forget all positions."""
        with self._begin_alone():
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

    def poll(self, timeout: float = 0.0, max_records: int | None = None, **unknown: NoReturn) -> list[Record]:
        """The next records: at once if there are any, else after waiting for some up to ``timeout`` seconds.

        A whole number of 100 or more is warned of once, since Kafka's clients often take milliseconds: write 300.0 for
        five minutes. At most ``max_records`` (default ``max_poll_records``). Records of a partition come in order;
        partitions take turns. [] means that every partition not paused had nothing more to read.

        Raises ``Wakeup`` after ``wakeup()``; ``CorruptRecord``, ``SerializationError``, ``OffsetOutOfRange`` and
        ``NoOffsetForPartition`` with ``topic``, ``partition`` and ``offset``, after the records before were returned.
        The position stays there, so that a later poll raises again unless the application seeks.
        """
        if unknown:
            refuse_keywords("Consumer.poll", unknown)
        return self._read(timeout, self._fetcher.collect, self._wanted(timeout, max_records))

    def poll_arrow(self, timeout: float = 0.0, max_records: int | None = None, *, headers: bool = False) -> pa.Table:
        """What ``poll`` would return, as an Arrow table with the columns of ``Partition.to_arrow``.

        Both move the same positions and may be mixed. Keys and values are bytes: deserializers do not apply. A table ends
        early once it holds ``fetch_max_bytes``; it has no rows where ``poll`` would return []. The most rows a second come
        with ``max_records`` in the ten thousands.

        Raises as ``poll``; ``InvalidTimestamp`` for a time out of range in microseconds, behind the records before it;
        ``ConfigError`` without the ``arrow`` extra.
        """
        from pylog.consumer.arrow_decoding import arrow_form

        form = arrow_form(headers, self._config.fetch_max_bytes)
        wanted = self._wanted(timeout, max_records)
        return self._read(timeout, lambda count: form.table(self._fetcher.collect_as(form, count)), wanted)

    def _wanted(self, timeout: float, max_records: int | None) -> int:
        """How many records a poll is for, once its arguments are checked."""
        require_seconds("timeout", timeout)
        if type(timeout) is int and timeout >= _MILLISECONDS_FROM:
            warn_of_milliseconds(timeout, stacklevel=4)
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
            with self._begin_alone():
                self._land()
                self._assignment.came_back()
                self._fetcher.commit()
                reading = self._reading = True
                return self._waiting.take_within(timeout_s, take, max_records)
        except own(PylogError):
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

    def close(self, timeout: float | None = None) -> None:
        """End iterations, free what was read ahead, leave the group. Closing twice is fine; other calls raise ``Closed``.

        For ``timeout`` seconds (default: ``default_api_timeout_ms``), callbacks and their commits included, it waits for other
        processes that hold a lock, and a stopped one may hold it for ever; time that the disk takes is not counted. After that
        the consumer is closed all the same: what could not be committed is logged as a warning, and comes again.

        With ``enable_auto_commit`` what was returned is committed; not so where a ``with`` ends in an exception: what the
        application was given last may not be processed then, and comes again.
        """
        require_timeout(timeout)
        self._close(failed=False, timeout_s=timeout)

    def _close(self, *, failed: bool, timeout_s: float | None = None) -> None:
        if self._closed:
            return
        with self._begin_alone():
            self._land()
            try:
                self._assignment.close(failed=failed, timeout_s=timeout_s)
            except Exception as error:
                self._closed = not is_of_handler(error)
                raise
            finally:
                self._waiting.close()
            self._closed = True  # not where a signal handler's exception came in between: closing again goes on with it

    def __enter__(self) -> Consumer:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(failed=kind is not None)

    def __repr__(self) -> str:
        count = len(self._fetcher.lanes)
        state = "closed" if self._closed else f"{count} partition{'' if count == 1 else 's'}"
        return f"<Consumer of {self._log.path}: {state}>"

    def _begin(self) -> AbstractContextManager[object]:
        """Around every call: ``Closed``, or ``WrongThread`` where another call is under way. Callbacks of the group may call."""
        if self._closed:
            raise _closed()
        return self._sole_use.begin_in_callback()

    def _begin_alone(self) -> AbstractContextManager[object]:
        """The same around a call that such a callback may not make."""
        if self._closed:
            raise _closed()
        return self._sole_use.begin()

    def _begin_in_child(self) -> None:
        if self._sole_use.begin_in_child() and self._reading:
            self._reading = False
            self._fetcher.undo()


def _closed() -> Closed:
    return Closed("the consumer is closed")
