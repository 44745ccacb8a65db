"""A streaming query's source: where it starts, what is new, and which ranges a micro-batch reads.

Spark keeps one of these in a process of its own on the driver, for as long as the query runs. All that must survive it is in
the offsets, which Spark writes into the query's checkpoint; a batch that is replayed has the same ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import chain
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
from pylog.errors import OffsetOutOfRange
from pylog.model import OffsetRange, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.spark import stream_offsets
from pylog.spark.directory import LogDirectory, PartitionSource
from pylog.spark.limits import Range, share_of_bytes, share_of_offsets
from pylog.spark.options import SourceOptions
from pylog.spark.positions import check_complete, readable, report_loss, select, start_offset
from pylog.spark.ranges import PartitionRange, PartitionRanges, record_batches
from pylog.spark.schema import arrow_schema
from pylog.spark.splits import coalesce, size_bytes, split
from pylog.spark.stream_offsets import Positions
from pylog.spark.tails import Tails

logger = logging.getLogger("pylog.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is wrong with the options is raised by the method that needs them: Spark names an error of ``__init__`` otherwise."""

    def __init__(self, options: Mapping[str, str], schema: StructType, clock: Clock | None = None) -> None:
        self._given = dict(options)
        self._schema = schema
        self._clock = clock or SystemClock()
        self._initial: dict[str, Any] | None = None
        self._latest: Positions | None = None
        self._target: Positions | None = None
        self._took_s: float | None = None

    @cached_property
    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self._given, streaming=True)

    @cached_property
    def _tails(self) -> Tails:
        return Tails(self._options)

    # Where it starts

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as those below
        """Of a query without a checkpoint: asked more than once, and the same each time."""
        if self._initial is None:
            options = self._options
            sources = select(LogDirectory(options.path), options.selection)
            check_complete(options.starting, [source.topic_partition for source in sources])
            self._initial = stream_offsets.encode({s.topic_partition: _start(s, options) for s in sources})
        return self._initial

    # What is new

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends at what is there now."""
        self._target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say, for Spark to hand back; which of them it is does not matter."""
        limits = self._options.limits
        if limits.offsets_max:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.offsets_min) if limits.offsets_min else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where a batch that starts there would end; ``start`` itself where there is nothing to be read."""
        positions = stream_offsets.decode(start)
        ends, anew = self._ends_for(positions)
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(positions | anew, ends)
        if start == self._initial:  # the first batch, if only to have it written down where the query started
            return stream_offsets.encode(ends, positions)
        if anew:
            return stream_offsets.encode(ends, anew)
        return start if ends == positions else stream_offsets.encode(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What there was to be read when Spark last asked, whatever the limits: for the query's progress."""
        return None if self._latest is None else stream_offsets.encode(self._latest)

    def _ends(self) -> Positions:
        isolation_level = self._options.isolation_level
        return {
            topic_partition: readable(published, isolation_level).end
            for topic_partition, published in self._tails.look().items()
        }

    def _ends_for(self, positions: Positions) -> tuple[Positions, Positions]:
        """What there is to be read, and where to start in partitions that were created anew."""
        ends = self._latest = self._ends()
        target = self._target
        if target is not None:  # a partition that came since is read up to where the query stands: not at all
            known = target.keys() | positions.keys()
            ends = {p: max(min(end, target.get(p, 0)), positions.get(p, 0)) for p, end in ends.items() if p in known}
        anew = dict.fromkeys(self._tails.created_anew() & positions.keys() & ends.keys(), 0)
        for topic_partition, position in positions.items():
            end = ends.get(topic_partition)
            if end is None:
                self._report_loss(topic_partition, position, "it is not there any more")
            elif topic_partition in anew:
                self._report_loss(topic_partition, position, "the topic was deleted, and created anew")
            elif end < position:
                self._report_loss(topic_partition, position, f"it ends at {end}: it was cut, or created anew")
        self._tails.accept_as_they_are()
        return ends, anew

    def _limited(self, positions: Positions, ends: Positions) -> Positions:
        limits = self._options.limits
        new: dict[TopicPartition, Range] = {p: (min(positions.get(p, 0), end), end) for p, end in ends.items()}
        count = sum(end - start for start, end in new.values())
        may_wait = self._target is None and not self._has_waited(limits.delay_s)
        if may_wait and count < limits.offsets_min:
            return {p: positions[p] for p in ends if p in positions}
        if count:
            self._took_s = self._clock.monotonic()
        by_count = share_of_offsets(new, limits)
        by_bytes = share_of_bytes(new, limits, self._weigh, self._cut)
        return {p: min(by_count[p], by_bytes[p]) for p in ends}

    def _has_waited(self, delay_s: float) -> bool:
        """The first batch waits for nothing, as in Spark's Kafka source."""
        return self._took_s is None or self._clock.monotonic() - self._took_s >= delay_s

    def _weigh(self, topic_partition: TopicPartition, offsets: Range) -> int:
        there = self._tails.look_at(topic_partition)
        return size_bytes(self._range(*there, OffsetRange(*offsets))) if there else 0

    def _cut(self, topic_partition: TopicPartition, offsets: Range, wanted_bytes: int) -> int:
        there = self._tails.look_at(topic_partition)
        start, end = offsets
        if there is None:
            return end
        source, published = there
        window = 1024
        with closing(source.reader(published)) as reader:
            while start + window < end:  # cuts cost what lies between
                if found := reader.cuts(start, start + window, wanted_bytes):
                    return found[0]
                window *= 4
            return next(iter(reader.cuts(start, end, wanted_bytes)), end)

    # What a batch reads

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between; the same for a batch that is replayed, as far as it is there still."""
        starts, ends = stream_offsets.starts(start, end), stream_offsets.decode(end)
        self._tails.refresh()
        planned = []
        for topic_partition, until in ends.items():
            wanted = OffsetRange(starts.get(topic_partition, 0), until)  # one that is new is read from its first
            if wanted.start < wanted.end:
                there = self._tails.look_at(topic_partition)
                if there is None:
                    self._report_loss(topic_partition, wanted.start, "it is not there any more")
                    continue
                source, published = there
                planned.append(self._range(source, published, self._checked(topic_partition, published, wanted)))
        splitting = self._options.splitting
        return coalesce(split([piece for piece in planned if piece.start < piece.end], splitting), splitting)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, PartitionRanges):
            return iter(())  # Spark makes a partition of its own where the plan has none
        columns = arrow_schema(self._schema, include_headers=self._options.include_headers)
        return chain.from_iterable(record_batches(piece, columns) for piece in partition.ranges)

    def _checked(self, topic_partition: TopicPartition, published: CommitState, wanted: OffsetRange) -> OffsetRange:
        there = readable(published, self._options.isolation_level)
        start = min(max(wanted.start, there.start), there.end)
        end = min(max(wanted.end, start), there.end)
        if (start, end) != (wanted.start, wanted.end):
            report_loss(topic_partition, wanted, there, published.high_watermark, self._options)
        return OffsetRange(start, end)

    def _range(self, source: PartitionSource, published: CommitState, offsets: OffsetRange) -> PartitionRange:
        options = self._options
        return PartitionRange(
            source, published, offsets.start, offsets.end, options.isolation_level, options.fail_on_data_loss,
            skip_damage=options.skip_damage,
        )  # fmt: skip

    def _report_loss(self, topic_partition: TopicPartition, position: int, cause: str) -> None:
        topic, partition = topic_partition
        message = f"the query is to read {topic}-{partition} from offset {position} on: {cause}"
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"{message}; failOnDataLoss=false goes on with what there is",
                topic=topic,
                partition=partition,
                offset=position,
                cause=cause,
            )
        logger.warning("%s; going on with what there is", message)


def _start(source: PartitionSource, options: SourceOptions) -> int:
    published = source.published()
    there = readable(published, options.isolation_level)
    wanted = start_offset(source, published, there, options)
    start = min(max(wanted, there.start), there.end)
    if start != wanted:
        report_loss(source.topic_partition, OffsetRange(wanted, wanted), there, published.high_watermark, options)
    return start
