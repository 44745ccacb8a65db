"""What is published of a stream's partitions: its driver asks again and again.

Topics are listed again only after the catalog has changed, and commit slots stay open: a look costs
one read per partition. Kafka's directories have neither and are listed and assessed each time.
"""

from __future__ import annotations

from pylog.errors import InvalidPartition, PylogError, TopicNotFound
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.model import TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.spark.source.decisions import Decisions
from pylog.spark.source.directory import LogDirectory, PartitionSource
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.planning import select_partitions, warn_of_no_match

_OPEN_MAX = 256  # descriptors kept; further partitions are opened each time


class WatchedPartition:
    """One partition and its published state."""

    def __init__(self, source: PartitionSource, *, stays_open: bool) -> None:
        self.source = source
        self._view = source.view()
        self.stays_open = stays_open
        self.aborted: tuple[AbortedTransaction, ...] = ()

    def published(self, decisions: Decisions) -> CommitState:
        """With all decided below its last stable offset; ``aborted`` has what is aborted there
        without a marker."""
        try:
            published, self.aborted = decisions.of(self.source, self._view.current())
            return published
        finally:
            if not self.stays_open:
                self._view.let_go()


class WatchedPartitions:
    """One query's partitions. ``missing``: errors for names that do not exist."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._version: int | None = None
        self._watched: dict[TopicPartition, WatchedPartition] = {}
        self._decisions = Decisions(None, options.isolation_level)
        self.missing: list[PylogError] = []
        self._has_warned = False  # of a pattern without a topic

    def published(self) -> dict[TopicPartition, tuple[PartitionSource, CommitState]]:
        """All partitions that exist now."""
        self.refresh()
        found = {topic_partition: self.published_of(topic_partition) for topic_partition in self._watched}
        return {topic_partition: there for topic_partition, there in found.items() if there is not None}

    def refresh(self) -> None:
        """List again if the catalog may have changed since."""
        directory = LogDirectory(self._options.path)
        version = directory.version()
        if version is None or version != self._version:
            self._list(directory)
            self._version = version
            self.close()  # the log may be another one now
            self._decisions = Decisions(directory.transactions_root, self._options.isolation_level)

    def published_of(self, topic_partition: TopicPartition) -> tuple[PartitionSource, CommitState] | None:
        """The state of a listed partition; None if it is gone."""
        partition = self._watched.get(topic_partition)
        try:
            return None if partition is None else (partition.source, partition.published(self._decisions))
        except own(TopicNotFound):  # deleted since it was listed
            return None

    def aborted_of(self, topic_partition: TopicPartition) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions without a marker, when its state was last asked for."""
        return self._watched[topic_partition].aborted

    def close(self) -> None:
        self._decisions.close()

    def _list(self, directory: LogDirectory) -> None:
        found = {source.topic_partition: source for source in self._selected(directory)}
        kept = {p: partition for p, partition in self._watched.items() if found.get(p) == partition.source}
        room = _OPEN_MAX - sum(partition.stays_open for partition in kept.values())
        new = (p for p in found if p not in kept)
        made = {p: WatchedPartition(found[p], stays_open=number < room) for number, p in enumerate(new)}
        self._watched = {p: kept.get(p) or made[p] for p in found}

    def _selected(self, directory: LogDirectory) -> list[PartitionSource]:
        self.missing = []
        found: list[PartitionSource] = []
        for one in self._options.selection.each():
            try:
                found += select_partitions(directory, one)
            except own(TopicNotFound, InvalidPartition) as error:
                self.missing.append(error)
        if self._options.selection.pattern and not (found or self._has_warned):
            warn_of_no_match(directory, self._options)
            self._has_warned = True
        return found
