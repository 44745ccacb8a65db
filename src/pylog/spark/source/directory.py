"""A path's topics, partitions and their published state. Needs no lock or write permission.

A path is a log, a Kafka broker's log directory, or one partition's directory (``orders-0``) of
either kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pylog.catalog import Catalog, KafkaCatalog, Layout, TopicConfig, detect_kind
from pylog.catalog.layout import parse_partition
from pylog.clock import SystemClock
from pylog.errors import InvalidPartition, LogNotFound, TopicNotFound
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.model import TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory, boot_of
from pylog.partition.read.published import PublishedOnce, PublishedView
from pylog.partition.read.reader import PartitionReader
from pylog.segment.kafka_checkpoint import LOG_START, read_offsets
from pylog.segment.naming import COMMIT_SLOTS, PARTITION_METADATA, base_offsets
from pylog.storage import FileSystem, OsFileSystem, read_whole

_IDENTITY_LIMIT_BYTES = 4096


class PartitionSource(NamedTuple):
    """One partition, as plain values, so that a plan can be sent to executors.

    ``is_kafka``: Kafka writes it, so offsets may have gaps and there are no commit slots.
    ``log_start`` is from Kafka's checkpoint. ``identity`` differs for a recreated topic.
    ``topic_id`` is empty if no catalog confirms it.
    """

    topic_partition: TopicPartition
    directory: str
    is_kafka: bool
    log_start: int
    identity: bytes
    topic_id: str

    @property
    def known_id(self) -> str:
        """The topic's id in the partition's own file; empty if missing (Kafka writes it late)."""
        found = re.search(rb"topic_id: *([!-~]{1,64})", self.identity)
        return found[1].decode() if found else ""

    def partition_directory(self) -> PartitionDirectory:
        filesystem = OsFileSystem()
        if not self.is_kafka:
            filesystem = filesystem.within(self.directory)
        boot = boot_of(filesystem)
        return PartitionDirectory(
            filesystem, SystemClock(), self.directory, self.topic_partition, TopicConfig, boot, self.topic_id, self._find_topic,
            is_kafka=self.is_kafka,
        )  # fmt: skip

    def _find_topic(self) -> None:
        """For a missing directory: ``TopicNotFound`` if the log has no topic of this id."""
        layout = Layout(self.directory.rpartition("/")[0])
        catalog = Catalog(OsFileSystem().within(layout.root), SystemClock(), layout, TopicConfig())
        topic, number = self.topic_partition
        if catalog.describe(topic).id != self.topic_id:
            raise TopicNotFound(
                f"partition {number} of {topic!r} is gone: the topic was deleted, and created again since",
                topic=topic, partition=number,
            )  # fmt: skip

    def published(self) -> CommitState:
        """What can be read now. ``TopicNotFound``; ``CorruptSegment``, also without a directory."""
        return self.view().current()

    def reader(
        self, published: CommitState | None = None, aborted: tuple[AbortedTransaction, ...] = ()
    ) -> PartitionReader:
        """Reads what is ``published`` (default: now), not later appends. The caller closes it.

        ``aborted``: transactions before the last stable offset that have no marker.
        """
        directory = self.partition_directory()
        there = PublishedOnce(published or self.view(directory).current())
        return PartitionReader(directory, there, aborted=aborted)

    def view(self, directory: PartitionDirectory | None = None) -> PublishedView:
        return PublishedView(directory or self.partition_directory(), log_start=self.log_start)


def identity_of(filesystem: FileSystem, directory: str) -> bytes:
    """The ``partition.metadata``, with the topic's id: a recreated partition has another one."""
    try:
        return read_whole(filesystem, f"{directory}/{PARTITION_METADATA}", _IDENTITY_LIMIT_BYTES)
    except own(FileNotFoundError):
        return b""


class LogDirectory:
    """The topics and partitions below a path."""

    def __init__(self, path: str) -> None:
        """Raises ``LogNotFound`` if the path is not one of the three kinds;
        ``FormatVersionError``."""
        self._filesystem: FileSystem = OsFileSystem()
        self._layout = Layout(path)
        self._alone: TopicPartition | None = None
        self._log_starts: dict[tuple[str, int], int] = {}
        self._catalog: Catalog | KafkaCatalog
        if not self._filesystem.is_directory(path):
            raise LogNotFound(f"there is no directory {path!r}", path=path)
        manifest, self._is_kafka = detect_kind(self._filesystem, self._layout)
        if manifest is None and not self._is_kafka:
            self._use_alone(path)
        root = self._layout.root
        if self._is_kafka:
            self._catalog = KafkaCatalog(self._filesystem, self._layout)
            self._log_starts = read_offsets(self._filesystem, f"{root}/{LOG_START}")
        else:
            if not self._alone:
                self._filesystem = self._filesystem.within(root)
            self._catalog = Catalog(self._filesystem, SystemClock(), self._layout, TopicConfig())

    def _use_alone(self, path: str) -> None:
        root, _, name = path.rpartition("/")
        names = self._filesystem.names(path)
        self._alone = parse_partition(name)
        if self._alone is None or not (base_offsets(names) or COMMIT_SLOTS in names):
            raise LogNotFound(
                f"{path!r} is neither a log (it has no .pylog), nor a Kafka broker's log directory, nor one partition's",
                path=path,
            )
        self._layout, self._is_kafka = Layout(root), COMMIT_SLOTS not in names

    @property
    def transactions_root(self) -> str | None:
        """The log's directory; None if its transactions can't be asked about: only their markers
        decide then."""
        return None if self._is_kafka or self._alone else self._layout.root

    def version(self) -> int | None:
        """A number that changes if a topic is created, altered or deleted; None if unknown."""
        return None if self._is_kafka or self._alone else self._catalog.version()

    def topics(self) -> list[str]:
        return [self._alone.topic] if self._alone else sorted(self._catalog.names())

    def partitions(self, topic: str) -> list[PartitionSource]:
        """The topic's partitions here; a Kafka broker may lack some. ``TopicNotFound``."""
        numbers, topic_id = self._described(topic)
        return [self._source(TopicPartition(topic, number), topic_id) for number in numbers]

    def partition(self, topic_partition: TopicPartition) -> PartitionSource:
        """Return the partition. Raises ``TopicNotFound``, ``InvalidPartition``."""
        topic, number = topic_partition
        numbers, topic_id = self._described(topic)
        if number not in numbers:
            raise InvalidPartition(
                f"topic {topic!r} has no partition {number} in {self._layout.root}, but {', '.join(map(str, numbers))}",
                topic=topic, partition=number, partitions=[*numbers],
            )  # fmt: skip
        return self._source(topic_partition, topic_id)

    def _described(self, topic: str) -> tuple[Sequence[int], str]:
        """The partitions' numbers and the topic's id; empty for Kafka or a single directory."""
        if self._alone:
            if topic != self._alone.topic:
                raise TopicNotFound(f"no topic {topic!r}: the path holds {self._alone.topic!r} alone", topic=topic)
            return [self._alone.partition], ""
        described = self._catalog.describe(topic)
        return described.numbers, "" if self._is_kafka else described.id

    def _source(self, topic_partition: TopicPartition, topic_id: str) -> PartitionSource:
        directory = self._layout.partition(*topic_partition)
        log_start = self._log_starts.get(topic_partition, 0)
        identity = identity_of(self._filesystem, directory)
        return PartitionSource(topic_partition, directory, self._is_kafka, log_start, identity, topic_id)
