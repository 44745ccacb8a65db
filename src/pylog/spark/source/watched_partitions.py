"""What is published of a query's partitions, asked for again and again by a stream's driver.

Topics and partitions are listed anew only where the catalog has changed, and commit slots stay open, so that looking costs a read
for each partition; Kafka's directories, which have neither, are listed each time, and what has come to them is assessed.
"""

from __future__ import annotations

from pylog.errors import InvalidPartition, PylogError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.model import TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.published import PublishedView
from pylog.spark.source.directory import LogDirectory, PartitionSource
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.planning import select

_OPEN_MAX = 256  # descriptors kept; partitions beyond are opened each time


class Tail:
    """One partition, and what is published of it."""

    def __init__(self, source: PartitionSource, *, stays_open: bool) -> None:
        self.source = source
        self._view = PublishedView(source.place(), foreign=source.is_kafka, log_start=source.log_start)
        self.stays_open = stays_open

    def published(self) -> CommitState:
        try:
            return self._view.current()
        finally:
            if not self.stays_open:
                self._view.let_go()


class Tails:
    """Those of one query. ``missing``: what is wrong with names that were asked for and are not there."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._version: int | None = None
        self._tails: dict[TopicPartition, Tail] = {}
        self.missing: list[PylogError] = []

    def look(self) -> dict[TopicPartition, tuple[PartitionSource, CommitState]]:
        """All that are there now."""
        self.refresh()
        found = {}
        for topic_partition, tail in self._tails.items():
            with suppress(TopicNotFound):  # deleted since it was listed
                found[topic_partition] = tail.source, tail.published()
        return found

    def refresh(self) -> None:
        """List what there is, if it may be something else than when it was listed before."""
        directory = LogDirectory(self._options.path)
        version = directory.version()
        if version is None or version != self._version:
            self._list(directory)
            self._version = version

    def look_at(self, topic_partition: TopicPartition) -> tuple[PartitionSource, CommitState] | None:
        """One of those that were listed; None where it is not there."""
        tail = self._tails.get(topic_partition)
        try:
            return None if tail is None else (tail.source, tail.published())
        except own(TopicNotFound):  # deleted since
            return None

    def _list(self, directory: LogDirectory) -> None:
        found = {source.topic_partition: source for source in self._selected(directory)}
        kept = {p: tail for p, tail in self._tails.items() if found.get(p) == tail.source}
        room = _OPEN_MAX - sum(tail.stays_open for tail in kept.values())
        new = (p for p in found if p not in kept)
        made = {p: Tail(found[p], stays_open=number < room) for number, p in enumerate(new)}
        self._tails = {p: kept.get(p) or made[p] for p in found}

    def _selected(self, directory: LogDirectory) -> list[PartitionSource]:
        self.missing = []
        found: list[PartitionSource] = []
        for one in self._options.selection.each():
            try:
                found += select(directory, one)
            except own(TopicNotFound, InvalidPartition) as error:
                self.missing.append(error)
        return found
