"""What is published of a query's partitions, asked for again and again by a stream's driver.

Topics and partitions are listed anew only where the catalog has changed, and commit slots stay open, so that looking costs a read
for each partition; Kafka's directories, which have neither, are listed and assessed each time.
"""

from __future__ import annotations

from contextlib import suppress

from pylog.errors import InvalidPartition, TopicNotFound
from pylog.model import TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.published import PublishedView
from pylog.spark.directory import LogDirectory, PartitionSource
from pylog.spark.options import SourceOptions
from pylog.spark.positions import select

_OPEN_MAX = 256  # descriptors kept; partitions beyond are opened each time


class Tail:
    """One partition, and what is published of it."""

    def __init__(self, source: PartitionSource, *, stays_open: bool) -> None:
        self.source = source
        self._view = PublishedView(source.place(), foreign=source.is_kafka, log_start=source.log_start)
        self._stays_open = stays_open

    def published(self) -> CommitState:
        try:
            return self._view.state()
        finally:
            if not self._stays_open:
                self._view.let_go()


class Tails:
    """Those of one query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._version: int | None = None
        self._tails: dict[TopicPartition, Tail] = {}
        self._identities: dict[TopicPartition, bytes] = {}

    def look(self) -> dict[TopicPartition, CommitState]:
        """All that are there now. ``TopicNotFound`` and ``InvalidPartition`` for one that is named, if data loss matters."""
        self.refresh()
        found = {}
        for topic_partition, tail in self._tails.items():
            with suppress(TopicNotFound):  # deleted since it was listed
                found[topic_partition] = tail.published()
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
        except TopicNotFound:  # deleted since
            return None

    def created_anew(self) -> set[TopicPartition]:
        """Those that are not the partitions which had their names before, as far as this object has seen these."""
        return {
            p
            for p, tail in self._tails.items()
            if self._identities.get(p, tail.source.identity) != tail.source.identity
        }

    def accept_as_they_are(self) -> None:
        """None of them counts as created anew any more."""
        self._identities = {p: tail.source.identity for p, tail in self._tails.items()}

    def _list(self, directory: LogDirectory) -> None:
        known, self._tails = self._tails, {}
        for number, source in enumerate(self._selected(directory)):
            tail = known.get(source.topic_partition)
            if tail is None or tail.source != source:
                tail = Tail(source, stays_open=number < _OPEN_MAX)
            self._tails[source.topic_partition] = tail

    def _selected(self, directory: LogDirectory) -> list[PartitionSource]:
        selection = self._options.selection
        if self._options.fail_on_data_loss:
            return select(directory, selection)
        found: list[PartitionSource] = []
        for one in selection.each():
            with suppress(TopicNotFound, InvalidPartition):  # lost: who knows where the query stands warns of it
                found += select(directory, one)
        return found
