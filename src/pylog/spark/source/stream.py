"""A streaming query's source: where it starts, what is new, and which ranges a micro-batch reads.

Spark keeps one in a separate process on the driver while the query runs. The offsets contain all
state that must survive it: Spark writes them into the checkpoint and replays a batch with them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pylog.clock import Clock, SystemClock
from pylog.model import OffsetRange, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.spark.source import stream_offsets
from pylog.spark.source.decisions import Decided
from pylog.spark.source.directory import PartitionSource
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.partition_range import PartitionRange
from pylog.spark.source.planning import (
    check_complete,
    existing,
    readable_offsets,
    report_loss,
    report_missing_offsets,
    start_offset,
)
from pylog.spark.source.ranges import PartitionRanges, read_task
from pylog.spark.source.schema import arrow_schema
from pylog.spark.source.splits import coalesce, sized, split
from pylog.spark.source.stream_offsets import Positions
from pylog.spark.source.trigger_limits import Range, share_of_bytes, share_of_offsets
from pylog.spark.source.watched_partitions import WatchedPartitions
from pylog.spark.source.worker import ReaderInWorker

logger = logging.getLogger("pylog.spark")

_ANOTHER_TOPIC = (
    "the topic was deleted, and created again, or repartitioned, or this is another log: all its records count as new"
)

There = Mapping[TopicPartition, tuple[PartitionSource, CommitState]]


class StreamReader(ReaderInWorker, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Methods check the options: Spark reports an error of ``__init__`` under another name."""

    def __init__(self, options: Mapping[str, str], schema: StructType, clock: Clock | None = None) -> None:
        self._given = dict(options)
        self._schema = schema
        self._clock = clock or SystemClock()
        self._initial: dict[str, Any] | None = None
        self._latest: dict[str, Any] | None = None
        self._target: Positions | None = None
        self._took_s: float | None = None
        self._warned: set[str] = set()  # missing names that were warned of

    @cached_property
    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self._given, streaming=True)

    @cached_property
    def _watched(self) -> WatchedPartitions:
        return WatchedPartitions(self._options)

    # Where it starts

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """The start of a query without a checkpoint. Every call gives the same answer."""
        if self._initial is None:
            options, there = self._options, self._watched.published()
            if self._watched.missing:
                raise self._watched.missing[0]
            check_complete(options.starting, list(there))
            starts = {p: _start(source, published, options) for p, (source, published) in there.items()}
            self._initial = stream_offsets.encode(starts, _ids(there))
        return self._initial

    # What is new

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query at what exists now."""
        self._target = {p: self._readable(published).end for p, (_, published) in self._watched.published().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What Spark hands to ``latestOffset``, where any kind of limit applies all options."""
        limits = self._options.limits
        if limits.offsets_max:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.offsets_min) if limits.offsets_min else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of a batch from ``start``; ``start`` itself if nothing is there to read."""
        positions, there = stream_offsets.decode(start), self._watched.published()
        ids, known_ids = _ids(there), stream_offsets.ids(start)
        recreated = {p: 0 for p in positions if p in there and _differ(ids, known_ids, p.topic)}
        readable = {p: self._readable(published) for p, (_, published) in there.items()}
        self._check_for_loss(positions, recreated, there, readable)
        starts = self._starts(positions | recreated, there, readable)
        ends = self._up_to_target(starts, {p: max(offsets.end, starts.get(p, 0)) for p, offsets in readable.items()})
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(starts, ends, readable, there)
        latest = {p: offsets.end for p, offsets in readable.items()}
        self._latest = stream_offsets.report(latest, ids, self._options.path, ends)
        if start == self._initial:  # Spark must record where the query started, even without records
            return stream_offsets.encode(ends, ids, positions)
        if recreated:
            return stream_offsets.encode(ends, ids, recreated)
        is_known = all(known_ids.get(topic) == ids.get(topic) for topic in ids)
        return start if ends == positions and is_known else stream_offsets.encode(ends, ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What was readable when Spark last asked, without limits, and the lag: for the query's
        progress."""
        return self._latest

    def _readable(self, published: CommitState) -> OffsetRange:
        return readable_offsets(published, self._options.isolation_level)

    def _check_for_loss(
        self, positions: Positions, recreated: Positions, there: There, readable: Mapping[TopicPartition, OffsetRange]
    ) -> None:
        for topic_partition, position in positions.items():
            if topic_partition not in there:
                self._report_loss(topic_partition, position, "it is not there any more, or the options don't select it")
            elif topic_partition in recreated:
                self._report_loss(topic_partition, position, _ANOTHER_TOPIC)
            elif there[topic_partition][1].high_watermark < position:
                end = readable[topic_partition].end
                self._report_loss(topic_partition, position, f"it ends at {end}: it was cut, or created again")
        self._check_for_missing()

    def _check_for_missing(self) -> None:
        """Raise or warn of missing names, once of each: Spark asks a hundred times a second."""
        if self._watched.missing and self._options.fail_on_data_loss:
            raise self._watched.missing[0]
        missing = {str(error) for error in self._watched.missing}
        for problem in sorted(missing - self._warned):
            logger.warning("%s; continuing with what is there", problem)
        self._warned = missing

    @staticmethod
    def _starts(positions: Positions, there: There, readable: Mapping[TopicPartition, OffsetRange]) -> Positions:
        """The next batch's start in existing partitions: the end of a truncated one."""
        return {
            p: position if position <= there[p][1].high_watermark else readable[p].end
            for p, position in positions.items()
            if p in there
        }

    def _up_to_target(self, starts: Positions, ends: Positions) -> Positions:
        """With the AvailableNow trigger: no further than what existed when the query began."""
        target = self._target
        if target is None:
            return ends
        known = target.keys() | starts.keys()
        return {p: max(min(end, target.get(p, 0)), starts.get(p, 0)) for p, end in ends.items() if p in known}

    def _limited(
        self, positions: Positions, ends: Positions, readable: Mapping[TopicPartition, OffsetRange], there: There
    ) -> Positions:
        """Apply the limits. Offsets that are gone do not count."""
        limits = self._options.limits
        new: dict[TopicPartition, Range] = {
            p: (min(max(positions.get(p, 0), readable[p].start), end), end) for p, end in ends.items()
        }
        count = sum(end - start for start, end in new.values())
        # the first batch does not wait, as in Spark's Kafka source
        has_waited = self._took_s is None or self._clock.monotonic() - self._took_s >= limits.delay_s
        may_wait = self._target is None and not has_waited
        if may_wait and count < limits.offsets_min:
            return {p: positions[p] for p in ends if p in positions}
        if count:
            self._took_s = self._clock.monotonic()

        def weigh(topic_partition: TopicPartition, offsets: Range) -> int:
            source, published = there[topic_partition]
            with closing(source.reader(published)) as reader:  # one byte more shows that there is more
                return max(reader.size_bytes(*offsets, limits.bytes_max + 1), 1)

        def cut(topic_partition: TopicPartition, offsets: Range, wanted_bytes: int) -> int:
            source, published = there[topic_partition]
            with closing(source.reader(published)) as reader:
                return reader.first_cut(*offsets, wanted_bytes)

        by_count, by_bytes = share_of_offsets(new, limits), share_of_bytes(new, limits, weigh, cut)
        return {p: min(by_count[p], by_bytes[p]) for p in ends}

    # What a batch reads

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets: the same for a replay, as far as they exist."""
        planned_ids = stream_offsets.ids(end)
        starts, ends = stream_offsets.starts(start, end), stream_offsets.decode(end)
        self._watched.refresh()
        planned = []
        for topic_partition, until in ends.items():
            wanted = OffsetRange(starts.get(topic_partition, 0), until)  # a new one is read from offset 0
            if wanted.start < wanted.end:
                there = self._watched.published_of(topic_partition)
                if there is None:
                    self._report_loss(topic_partition, wanted.start, "it is not there any more")
                    continue
                source, published = there
                if _differ({topic_partition.topic: source.known_id}, planned_ids, topic_partition.topic):
                    self._report_loss(topic_partition, wanted.start, _ANOTHER_TOPIC)
                    continue
                offsets = self._checked(topic_partition, published, wanted)
                if offsets.start < offsets.end:
                    decided = Decided(published, self._watched.aborted_of(topic_partition))
                    planned.append(self._range(source, decided, offsets))
        splitting = self._options.splitting
        return [PartitionRanges(task) for task in coalesce(split(planned, splitting), splitting)]

    def stop(self) -> None:
        """The query has ended. Spark calls this last, and ends the process."""
        if "_watched" in self.__dict__:
            self._watched.close()
        if isinstance(sys.exc_info()[1], EOFError):
            sys.excepthook = _all_but_broken_pipes

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, arrow_schema(self._schema, include_headers=self._options.include_headers))

    def _checked(self, topic_partition: TopicPartition, published: CommitState, wanted: OffsetRange) -> OffsetRange:
        there = readable_offsets(published, self._options.isolation_level)
        found = existing(wanted, there)
        if found != wanted:
            report_missing_offsets(topic_partition, wanted, there, published.high_watermark, self._options)
        return found

    def _range(self, source: PartitionSource, decided: Decided, offsets: OffsetRange) -> PartitionRange:
        with closing(source.reader(decided.published)) as reader:
            return sized(reader, PartitionRange.of(source, decided, offsets, self._options), *offsets)

    def _report_loss(self, topic_partition: TopicPartition, position: int, cause: str) -> None:
        topic, partition = topic_partition
        report_loss(
            f"the query is to read {topic}-{partition} from offset {position} on: {cause}",
            topic_partition,
            fails=self._options.fail_on_data_loss, offset=position, cause=cause,
        )  # fmt: skip


def _all_but_broken_pipes(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """After a driver has stopped a query, PySpark fails to report to it that it is gone."""
    if not issubclass(kind, BrokenPipeError | ConnectionResetError):
        sys.__excepthook__(kind, error, traceback)


def _ids(there: There) -> dict[str, str]:
    return {p.topic: source.known_id for p, (source, _) in there.items() if source.known_id}


def _differ(ids: Mapping[str, str], known: Mapping[str, str], topic: str) -> bool:
    """Whether the two ids show two topics; an unknown id shows nothing."""
    return bool(ids.get(topic) and known.get(topic)) and ids[topic] != known[topic]


def _start(source: PartitionSource, published: CommitState, options: SourceOptions) -> int:
    there = readable_offsets(published, options.isolation_level)
    with closing(source.reader(published)) as reader:
        start = start_offset(reader, source.topic_partition, there, options)
    wanted = OffsetRange(start, start)
    found = existing(wanted, there)
    if found != wanted:
        report_missing_offsets(source.topic_partition, wanted, there, published.high_watermark, options)
    return found.start
