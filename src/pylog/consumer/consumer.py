"""The public face: subscribes, reads records in order, commits, and knows its positions.

This file has the iteration with its exact position, and the rule of one thread at a time. For what
is read, from where, and how it is buffered and awaited, see ``assignment``, ``fetcher``,
``assigned_partition`` and ``poll_loop``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from pylog.checks import (
    OfOneProcess,
    by_partition,
    partition_of,
    partitions_of,
    refuses_other_options,
    require_bool,
    require_callable,
    require_count,
    require_seconds,
    require_timeout,
    warn_of_milliseconds,
)
from pylog.codec.format import INT64_MAX
from pylog.consumer.assigned_partition import AssignedPartition
from pylog.consumer.assignment import Assignment, Callback, Listeners
from pylog.consumer.config import KAFKAS_NAMES, ConsumerConfig, Deserializer
from pylog.consumer.decoding import ObjectFormat
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.offset_lookup import OffsetLookup
from pylog.consumer.poll_loop import PollLoop, Taken
from pylog.consumer.reset import no_position
from pylog.consumer.stored_offsets import OFFSETS_TABLE, Position, StoredOffsets
from pylog.consumer.subscription import Subscription, name_of
from pylog.consumer.thread_guard import SingleThreadGuard
from pylog.errors import Closed, ConfigError, PylogError
from pylog.group.offset_records import offsets_to_commit
from pylog.group.truncation import make_records_durable
from pylog.interrupts import is_of_handler, own
from pylog.kafka_names import AbsentNames, answers_kafkas_names, refuse_keywords
from pylog.limits import DECODE_RECORDS_MAX
from pylog.manager.access import manager_of
from pylog.model import (
    EARLIEST,
    LATEST,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Offsets,
    Record,
    TopicPartition,
)
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.storage import after_fork_in_child

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.consumer.group_assignment import GroupAssignment
    from pylog.manager.access import ConsumerLog, LogFace
    from pylog.partition.partition_log import PartitionLog

LOST_MEMBER = "-"
"""The id of one that is subscribed and no member, as in a forked child: nothing can be committed in
its name."""

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], PylogError | None], object]

_MILLISECONDS_FROM = 100
"""A whole number of seconds from here on may mean milliseconds, so it is warned of."""


class _IterationChunk:
    """Records of one partition that an iteration takes one by one, without Python code for each.

    ``iterator`` is the list's own. What it has left shows which record is being processed. Cutting
    the list after that record ends the iterator, and the iteration asks for its next chunk.
    """

    __slots__ = ("_records", "iterator", "source")

    def __init__(self, source: AssignedPartition, records: list[Record]) -> None:
        self.source = source
        self.iterator = iter(records)
        self._records = records

    @property
    def left(self) -> int:
        """How many records the application has not been given."""
        return length_hint(self.iterator)

    @property
    def position(self) -> int | None:
        """The offset of the next record to return: in this chunk or after it."""
        left = self.left
        return self._records[-left].offset if left else self.source.position

    def give_back_rest(self) -> int:
        """Return the rest of the records to the partition. Returns their count."""
        left = self.left
        if left:
            self.source.give_back(self._records[-left:])
            del self._records[-left:]
        return left


@answers_kafkas_names
class Consumer(OfOneProcess, metaclass=AbsentNames):
    """Reads records of topics or partitions, each partition in order.

    Options, by keyword: ``_ms`` are milliseconds, ``_bytes`` bytes. A wrong one raises
    ``ConfigError``; a closed log raises ``Closed``.

    - ``auto_offset_reset``: where to start if there is no position or it is not in the log:
      ``"latest"``, ``"earliest"``, ``"none"`` (raise), or ``"by_duration:PT1H"`` (the last hour;
      days to seconds, as in ISO 8601: ``P7D``, ``PT1H30M``).
    - ``isolation_level``: ``"read_committed"``: no records of open or aborted transactions, nor any
      after the first record of an open one; or ``"read_uncommitted"``: all records.
    - ``visibility``: ``"written"`` (as in Kafka), or ``"durable"``: only what survives power
      failure.
    - ``max_poll_records``: the most that ``poll`` returns, or an iteration takes from a partition
      at once.
    - ``fetch_max_bytes``, ``max_partition_fetch_bytes``: limits of what is read ahead in memory, in
      total and per partition; one batch may exceed them.
    - ``key_deserializer``, ``value_deserializer``: called with bytes, never with None.
    - ``consumer_timeout_ms``: an iteration ends after waiting this long for a record; None: never.
    - ``group_id``: the group whose members share the partitions of their topics, and whose
      committed offsets they continue from.
    - ``assignor``: ``"cooperative-sticky"``, ``"sticky"``, ``"range"`` or ``"round_robin"``; the
      same for all members.
    - ``enable_auto_commit``: commit processed records at intervals, when partitions move, and on
      close. Records count as processed when the application polls again.
    - ``auto_commit_interval_ms``: the time between two of these commits.
    - ``max_poll_interval_ms``: a member that neither polls nor commits for this long is expelled
      and loses its partitions.
    - ``group_instance_id``: makes a static member: a restarted consumer with this name continues as
      the same member, with its partitions.
    - ``session_timeout_ms``: how long a static member keeps its partitions after it was closed or
      its process ended.
    - ``client_id``: a name to distinguish members.
    - ``default_api_timeout_ms``: how long ``subscribe``, ``unsubscribe``, ``commit`` and ``close``
      wait for another process, which may be stopped while it holds a lock. A member's poll waits
      for a fraction of a second; before the first commit of a log, in topics with
      ``retention="consumed"``, for up to 5 s.

    Only one thread at a time may use a consumer: a call during another one raises ``WrongThread``.
    Only ``wakeup`` may be called from anywhere. A process that dies leaves its group at once,
    without a timeout.
    """

    @refuses_other_options("Consumer", ConsumerConfig._fields, KAFKAS_NAMES)
    def __init__(
        self,
        log: LogFace[ConsumerLog],
        *,
        auto_offset_reset: str = "latest",
        isolation_level: str = READ_COMMITTED,
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
            auto_offset_reset=auto_offset_reset, isolation_level=isolation_level, visibility=visibility,
            max_poll_records=max_poll_records, fetch_max_bytes=fetch_max_bytes,
            max_partition_fetch_bytes=max_partition_fetch_bytes, key_deserializer=key_deserializer,
            value_deserializer=value_deserializer, consumer_timeout_ms=consumer_timeout_ms, group_id=group_id,
            group_instance_id=group_instance_id, client_id=client_id, assignor=assignor,
            enable_auto_commit=enable_auto_commit, auto_commit_interval_ms=auto_commit_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms, session_timeout_ms=session_timeout_ms,
            default_api_timeout_ms=default_api_timeout_ms,
        ).checked()  # fmt: skip
        self._iteration_s = float("inf") if consumer_timeout_ms is None else consumer_timeout_ms / 1_000
        self._lookup = OffsetLookup(self._config, manager.clock)
        self._objects = ObjectFormat(self._config)
        self._fetcher = Fetcher(manager, self._lookup, self._config)
        self._collect_objects = partial(self._fetcher.collect, self._objects)
        self._guard = SingleThreadGuard()
        self._group = None if group_id is None else self._join_later()
        self._assignment = self._group or Assignment(manager, self._lookup, self._fetcher)
        self._poll_loop = PollLoop(manager, self._assignment, self._fetcher)
        self._chunk: _IterationChunk | None = None  # in use by an iteration
        self._reading = False
        self._closed = False
        after_fork_in_child(self._reset_in_child)

    def _join_later(self) -> GroupAssignment:
        from pylog.consumer.group_assignment import GroupAssignment  # most consumers are in no group

        return GroupAssignment(self._log, self._lookup, self._fetcher, self._config, self._guard)

    # What to read

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read all partitions of these topics instead of the previous subscription.

        A pattern must match a topic's whole name. ``auto_offset_reset`` resolves the positions now.
        Topics and partitions that appear later, and named topics that do not exist yet, are noticed
        while polling and read from their beginning. Partitions that were read before keep their
        positions. Subscribing to no topics is ``unsubscribe``.

        With a ``group_id`` the consumer joins the group and gets a share of the partitions. It
        reads each from where the group has committed, or else where the group began. The callbacks
        get lists of partitions, while polling: ``on_assigned`` those now read, ``on_revoked`` those
        about to be given up (it may still commit), ``on_lost`` those that others already have
        (default: ``on_revoked``). ``ConfigError`` if the members have another ``assignor``;
        ``LogLocked``, ``InstanceFenced``, ``StorageFull``, ``OutcomeUnknown`` (a sync was refused).

        ``InvalidTopicName``; with ``auto_offset_reset="by_duration:..."`` as ``seek_to_time``.
        """
        subscription = Subscription.of(topics)
        listeners = Listeners(on_assigned, on_revoked, on_lost).checked(self._config.group_id)
        with self._exclusive_call():
            self._give_back_rest()
            self._assignment.listeners = listeners
            if subscription.is_empty:
                self._assignment.clear()
            else:
                self._assignment.subscribe(subscription)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions instead. Those that were read before keep their positions.

        ``auto_offset_reset`` resolves the positions of the others now. Raises ``TopicNotFound`` and
        ``InvalidPartition``; with ``auto_offset_reset="by_duration:..."`` as ``seek_to_time``; with
        a ``group_id`` ``LogLocked``, ``StorageFull``.
        """
        wanted = partitions_of(partitions)
        with self._exclusive_call():
            self._give_back_rest()
            self._assignment.assign(wanted)

    def unsubscribe(self) -> None:
        """Stop reading, and forget all positions."""
        with self._exclusive_call():
            self._give_back_rest()
            self._assignment.clear()

    def subscription(self) -> set[str]:
        """The topics subscribed to, or matched by the pattern. Empty with assigned partitions."""
        with self._call():
            subscription = self._assignment.requested.subscription
            if subscription is None:
                return set()
            return set(subscription.topics) or {partition.topic for partition in self._fetcher.assigned}

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read, including paused ones."""
        with self._call():
            return set(self._fetcher.assigned)

    def topics(self) -> set[str]:
        """The names of all topics of the log."""
        with self._call():
            return set(self._log.topics())

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions in this log. Raises ``TopicNotFound``."""
        with self._call():
            return set(self._log.describe_topic(topic).numbers)

    # Reading

    def poll(self, timeout: float = 0.0, max_records: int | None = None, **unknown: NoReturn) -> list[Record]:
        """The next records. If there are none, waits for some up to ``timeout`` seconds.

        Returns at most ``max_records`` (default: ``max_poll_records``). Records of a partition are
        in order; partitions take turns. [] means that every partition that is not paused had
        nothing more to read. A whole number of 100 or more is warned of once, since Kafka's clients
        often take milliseconds: write 300.0 for five minutes.

        Raises ``Wakeup`` after ``wakeup()``. Raises ``CorruptRecord``, ``SerializationError``,
        ``OffsetOutOfRange`` and ``NoOffsetForPartition`` with ``topic``, ``partition`` and
        ``offset``, after the records before it were returned. The position stays there: a later
        poll raises again unless the application seeks. ``CorruptSegment``, ``MissingCodec``,
        ``TopicNotFound``, ``InvalidPartition`` (assigned, and its topic has fewer now). In a group
        ``InstanceFenced``, ``ConfigError`` (expelled, and the members have another ``assignor``
        now); ``LogLocked``, ``StorageFull``, ``OutcomeUnknown`` if the group's start in a topic
        with ``retention="consumed"`` can't be committed yet.
        """
        if unknown:
            refuse_keywords("Consumer.poll", unknown)
        return self._read(timeout, self._collect_objects, max_records)

    def poll_arrow(self, timeout: float = 0.0, max_records: int | None = None, *, headers: bool = False) -> pa.Table:
        """Like ``poll``, but returns an Arrow table with the columns of ``Partition.to_arrow``.

        Both move the same positions and may be mixed. Keys and values are bytes: deserializers do
        not apply. A table ends early once it holds ``fetch_max_bytes``; it has no rows if ``poll``
        would return []. It is fastest with ``max_records`` in the ten thousands.

        Raises like ``poll``, but no ``SerializationError``; ``InvalidTimestamp`` for a time out of
        range in microseconds, after the records before it; ``ConfigError`` without the ``arrow``
        extra.
        """
        from pylog.consumer.arrow_decoding import arrow_format

        require_bool("headers", headers)
        columns = arrow_format(headers, self._config.fetch_max_bytes)
        return self._read(timeout, lambda count: columns.table(self._fetcher.collect(columns, count)), max_records)

    def __iter__(self) -> Iterator[Record]:
        """All records, waiting for new ones, until ``close()`` or for ``consumer_timeout_ms``.

        The position is exact at every record: after the record being processed, also after
        ``break``.
        """
        if self._closed:
            raise _closed()
        return chain.from_iterable(iter(self._next_chunk, None))

    def _next_chunk(self) -> Iterator[Record] | None:
        """The next records of one partition as an iterator, or None if the iteration ends."""
        if self._closed:
            return None
        max_records = min(self._config.max_poll_records, DECODE_RECORDS_MAX)
        try:
            return self._read(self._iteration_s, self._take_chunk, max_records)
        except Exception as error:
            # It would end the iteration as if there were no more records, also if a signal handler
            # raised it.
            if isinstance(error, StopIteration):
                raise RuntimeError("a callback, or a signal handler, raised StopIteration") from error
            raise

    def _take_chunk(self, max_records: int) -> Iterator[Record] | None:
        chunk = self._fetcher.next_chunk(self._objects, max_records)
        if chunk is None:
            return None
        self._chunk = _IterationChunk(*chunk)
        return self._chunk.iterator

    def _give_back_rest(self) -> None:
        """End an iteration's chunk: records not returned go back to their partition."""
        if self._chunk is not None:
            self._fetcher.records_taken -= self._chunk.give_back_rest()
            self._chunk = None

    def _read(self, timeout: float, take: Callable[[int], Taken], max_records: int | None) -> Taken:
        """The result of ``take``, after waiting for it.

        An interrupt before the return restores the positions: the records were not returned.
        """
        require_seconds("timeout", timeout)
        if type(timeout) is int and timeout >= _MILLISECONDS_FROM:
            warn_of_milliseconds(timeout, stacklevel=4)
        if max_records is None:
            max_records = self._config.max_poll_records
        else:
            require_count("max_records", max_records, 1)
        if self._closed:
            raise _closed()
        reading = False
        try:
            with self._guard.exclusive_call():
                if self._chunk is not None:
                    self._give_back_rest()
                if self._group is not None:
                    self._group.tracker.mark_processed()
                self._fetcher.mark_delivered()
                reading = self._reading = True
                return self._poll_loop.poll_until(timeout, take, max_records)
        except own(PylogError):
            raise
        except BaseException:
            if reading:
                self._chunk = None
                self._fetcher.undo()
            raise
        finally:
            if reading:
                self._reading = False

    def wakeup(self) -> None:
        """Make the current poll or iteration, or else the next one, raise ``Wakeup``.

        Any thread and any signal handler may call this. An iteration raises when it next reads.
        """
        self._poll_loop.wake()

    def metrics(self) -> dict[str, int]:
        """Counts since the consumer was made, and its current state. ``bytes_fetched`` also counts
        what was read ahead. ``TopicNotFound``, ``InvalidPartition``."""
        with self._call():
            in_hand = 0 if self._chunk is None else self._chunk.left
            return {
                "records_consumed": self._fetcher.records_taken - in_hand,
                "bytes_fetched": self._fetcher.fetched_bytes,
                "fetches": self._fetcher.fetches,
                "offset_resets": self._fetcher.resets,
                "records_lag_max": max(self._lag().values(), default=0),
                "read_ahead_bytes": self._fetcher.read_ahead_bytes,
                "assigned_partitions": len(self._fetcher.assigned),
                "paused_partitions": sum(item.paused for item in self._fetcher.assigned.values()),
            }

    # Positions

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to return. ``NoOffsetForPartition`` if there is none
        yet."""
        with self._call():
            position = self._position(self._assigned(partition))
        if position is None:
            raise no_position(partition_of(partition))
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset``. If it is not in the log, the next poll finds out."""
        require_count("offset", offset, 0, INT64_MAX)
        with self._call():
            self._give_back_rest()
            self._assigned(partition).move_to(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record kept, in these partitions or in all. ``TopicNotFound``,
        ``InvalidPartition``."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record there is now, in these partitions or in all.
        ``TopicNotFound``, ``InvalidPartition``."""
        self._seek_to(LATEST, partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record at or after this timestamp, or else at the end.

        In these partitions or in all. ``TopicNotFound``, ``InvalidPartition``, ``CorruptSegment``,
        ``MissingCodec``.
        """
        self._seek_to(require_count("timestamp_ms", timestamp_ms, 0), partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until ``resume``; they keep their positions."""
        with self._call():
            self._give_back_rest()
            for assigned in [self._assigned(partition) for partition in partitions]:
                assigned.paused = True
                assigned.drop_read_ahead()

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        with self._call():
            for assigned in [self._assigned(partition) for partition in partitions]:
                assigned.paused = False

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._call():
            return {partition for partition, assigned in self._fetcher.assigned.items() if assigned.paused}

    def _seek_to(self, target: int, partitions: tuple[TopicPartition, ...]) -> None:
        with self._call():
            self._give_back_rest()
            chosen = [self._assigned(partition) for partition in partitions] or list(self._fetcher.assigned.values())
            offsets = [self._lookup.locate(self._log.partition(*item.topic_partition), target) for item in chosen]
            for assigned, offset in zip(chosen, offsets, strict=True):
                assigned.move_to(offset)

    def _assigned(self, partition: TopicPartition) -> AssignedPartition:
        assigned = self._fetcher.assigned.get(partition_of(partition))
        if assigned is None:
            raise ConfigError(
                f"{name_of(partition_of(partition))} is not assigned to this consumer",
                topic=partition[0], partition=partition[1], assignment=sorted(self._fetcher.assigned),
            )  # fmt: skip
        return assigned

    def _position(self, assigned: AssignedPartition) -> int | None:
        """The current position: during an iteration, after the record being processed."""
        chunk = self._chunk
        return chunk.position if chunk is not None and chunk.source is assigned else assigned.position

    # Committing

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = None) -> None:
        """Commit ``offsets``, the next to read of each partition, or all positions.

        During an iteration the position is after the record being processed. On return the commit
        is visible to others and survives power failure, and so do the records before it.
        ``CommitFailed``: this consumer is not a member any more, or a partition is not its own, or
        its topic was renamed or repartitioned: poll again. Of deleted topics nothing is committed.
        ``LogLocked``: another process, perhaps a stopped one, held a lock for ``timeout`` seconds
        (default: ``default_api_timeout_ms``). In both cases nothing was committed; after
        ``LogLocked``, try again. ``OutcomeUnknown``: a sync was refused, perhaps after the commit
        became visible; call again. Also raises ``StorageFull`` and ``StorageError``,
        ``InstanceFenced``; ``TopicNotFound`` and ``InvalidPartition`` of ``offsets``;
        ``RecordTooLarge`` for notes of more than a batch.
        """
        require_timeout(timeout)
        with self._call():
            wanted, is_named = self._to_commit(offsets), offsets is not None
            self._in_group().tracker.commit(wanted, durable=True, named=is_named, timeout_s=timeout)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting for the disk. The commit is visible to others on return.

        A power failure may remove the commit. It may also keep the commit and remove records before
        it, if those were not durable: then the group continues where the remaining records end.

        ``callback(offsets, error)`` gets what ``commit`` would raise, or None for success. Without
        it, errors are logged.
        """
        if callback is not None:
            require_callable("callback", callback, "offsets and an error or None")
        with self._call():
            group, wanted = self._in_group(), self._to_commit(offsets)
            try:
                group.tracker.commit(wanted, durable=False, named=offsets is not None)
                error = None
            except own(PylogError) as failure:
                error = failure
        if callback is not None:
            callback(wanted, error)
        elif error is not None:
            group.tracker.report(error)

    @overload
    def committed(self, partition: TopicPartition, metadata: Literal[False] = False) -> int | None: ...
    @overload
    def committed(self, partition: TopicPartition, metadata: Literal[True]) -> OffsetAndMetadata | None: ...
    @overload
    def committed(self, partition: TopicPartition, metadata: bool) -> int | OffsetAndMetadata | None: ...
    def committed(self, partition: TopicPartition, metadata: bool = False) -> int | OffsetAndMetadata | None:
        """The group's committed offset of a partition, assigned or not; None if there is none.

        With ``metadata=True`` as an ``OffsetAndMetadata``. With
        ``isolation_level="read_committed"`` this waits for a transaction under way that has an
        offset of the partition, up to ``default_api_timeout_ms``, then raises ``LogLocked``.
        """
        name = partition_of(partition)
        with self._call():
            found = self._in_group().tracker.committed(name)
        if found is None or metadata:
            return found
        return found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer as a member of its group, for ``Producer.send_offsets_to_transaction``.

        Call it after the poll that returned the records: the commit is refused for partitions that
        were taken later.
        """
        with self._call():
            group = self._in_group()
            group.tracker.others_commit = True
            id_, generation = group.membership.id, group.membership.generation
            if not id_:
                id_, generation = LOST_MEMBER if group.requested.is_subscribed() else "", -1  # "": assigned by hand
            read = {name: str(item.topic_id) for name, item in self._fetcher.assigned.items()}
            return ConsumerGroupMetadata(group.group_id, generation, id_, group.instance_id, read)

    def offsets_in(self, connection: Any, *, name: str | None = None, table: str = OFFSETS_TABLE) -> StoredOffsets:
        """Keep the positions in the application's own database, with the effects of the records.

        ``connection`` is of ``sqlite3``, ``psycopg``, ``psycopg2``, ``pg8000`` or SQLAlchemy, the
        one on which the effects are written; ``StoredOffsets.create_table`` has made the table.
        ``name`` distinguishes consumers in it, by default the ``group_id``. From now on, each
        partition that is assigned is read from its stored position; those that are assigned
        already move there. Nothing else is committed for them. Poll inside of the transaction::

            offsets = consumer.offsets_in(connection)
            consumer.subscribe(["orders"])
            while True:
                with offsets.transaction():
                    for record in consumer.poll(timeout=1):
                        ...

        ``ConfigError`` without a name, or for a connection of another driver or database.
        """
        name = self._config.group_id if name is None else name
        if not isinstance(name, str) or not name:
            raise ConfigError(f"offsets_in needs a name, or a consumer with a group_id; got {name!r}", option="name")
        with self._call():
            stored = StoredOffsets(connection, name, table, self._to_store, self.seek, self._make_durable)
            self._fetcher.stored_offsets = stored
            self._give_back_rest()
            for partition, assigned in self._fetcher.assigned.items():
                position = stored.start(partition, str(assigned.topic_id), self._position(assigned))
                if position is not None:
                    assigned.move_to(position)
        return stored

    def _to_store(self) -> dict[TopicPartition, Position]:
        with self._call():
            return {
                name: Position(str(assigned.topic_id), position)
                for name, assigned in self._fetcher.assigned.items()
                if (position := self._position(assigned)) is not None
            }

    def _make_durable(self, name: TopicPartition, offset: int) -> None:
        """A stored position must not outlive its records. Without permission to write, their
        writers see to that."""
        partition = self._log.partition(*name)
        if not partition.is_read_only:
            make_records_durable(partition, offset)

    def _in_group(self) -> GroupAssignment:
        if self._group is None:
            raise ConfigError(
                "this consumer is in no group, so there is nothing to commit to: Consumer(log, group_id=...)",
                option="group_id", value=None,
            )  # fmt: skip
        return self._group

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            committed: dict[TopicPartition, OffsetAndMetadata] = {}
            for name, assigned in self._fetcher.assigned.items():
                if (position := self._position(assigned)) is not None:
                    committed[name] = OffsetAndMetadata(position)
            return committed
        return offsets_to_commit(offsets)

    # What the log holds

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record kept, for each partition, assigned or not.
        ``TopicNotFound``, ``InvalidPartition``."""
        return {name: partition.earliest_offset for name, partition in self._opened(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition that this consumer may read now, by isolation and visibility.
        ``TopicNotFound``, ``InvalidPartition``."""
        return {name: self._lookup.end(partition) for name, partition in self._opened(partitions)}

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition, the first record at or after its timestamp; None if there is none.
        ``TopicNotFound``, ``InvalidPartition``, ``CorruptSegment``, ``MissingCodec``."""
        given = by_partition("timestamps_ms", timestamps_ms, "timestamp")
        times = {name: require_count("timestamp_ms", ms, 0) for name, ms in given.items()}
        return {name: partition.offset_for_time(times[name]) for name, partition in self._opened(times)}

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is behind its end, if it has a position.
        ``TopicNotFound``, ``InvalidPartition``."""
        with self._call():
            return self._lag()

    def _lag(self) -> dict[TopicPartition, int]:
        positions = {name: self._position(assigned) for name, assigned in self._fetcher.assigned.items()}
        return {
            name: max(0, self._lookup.end(self._log.partition(*name)) - position)
            for name, position in positions.items()
            if position is not None
        }

    def _opened(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, PartitionLog]]:
        with self._call():
            return [(name, self._log.partition(*name)) for name in partitions_of(partitions)]

    # One thread, one life

    def close(self, timeout: float | None = None) -> None:
        """End iterations, free memory, leave the group. Closing twice is allowed.

        Any other call then raises ``Closed``. Waits up to ``timeout`` seconds (default:
        ``default_api_timeout_ms``), including callbacks and their commits, for other processes that
        hold a lock. A stopped process may hold it forever. Time that the disk takes does not count.
        After that the consumer is closed anyway: a failed commit is logged as a warning, and its
        records are read again.

        ``enable_auto_commit`` commits what was returned. If a ``with`` ends in an exception, it
        does not commit the records returned last, which may not be processed: they are read again.
        """
        require_timeout(timeout)
        self._close(failed=False, timeout_s=timeout)

    def _close(self, *, failed: bool, timeout_s: float | None = None) -> None:
        if self._closed:
            return
        with self._exclusive_call():
            self._give_back_rest()
            try:
                self._assignment.close(failed=failed, timeout_s=timeout_s)
            except Exception as error:
                self._closed = not is_of_handler(error)
                raise
            finally:
                self._poll_loop.close()
            self._closed = True  # not set if a signal handler's exception came in between: closing again continues

    def __enter__(self) -> Consumer:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(failed=kind is not None)

    def __repr__(self) -> str:
        count = len(self._fetcher.assigned)
        state = "closed" if self._closed else f"{count} partition{'' if count == 1 else 's'}"
        return f"<Consumer of {self._log.path}: {state}>"

    def _call(self) -> AbstractContextManager[object]:
        """Guards a call that a group's callback may make. Raises ``Closed`` or ``WrongThread``."""
        if self._closed:
            raise _closed()
        return self._guard.call()

    def _exclusive_call(self) -> AbstractContextManager[object]:
        """Guards a call that a group's callback may not make."""
        if self._closed:
            raise _closed()
        return self._guard.exclusive_call()

    def _reset_in_child(self) -> None:
        if self._guard.reset_in_child() and self._reading:
            self._reading = False
            self._fetcher.undo()


def _closed() -> Closed:
    return Closed("the consumer is closed")
