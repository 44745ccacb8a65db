"""Where a partition is and what surrounds it: passed whole to the parts that work on its directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pylog.clock import Clock
from pylog.codec.checksum import crc32c
from pylog.errors import CorruptSegment, PylogError, TopicNotFound
from pylog.interrupts import own
from pylog.model import TopicPartition
from pylog.partition.segments import Segments
from pylog.partition.settings import PartitionSettings
from pylog.segment import SegmentWriter
from pylog.segment.naming import file_path
from pylog.storage import FileSystem


def boot_of(filesystem: FileSystem) -> int:
    """A short name of this boot of the machine: the 32 bits that commit slots have room for."""
    return crc32c(filesystem.boot_id().encode())


def another_boot(boot: int) -> int:
    """A name that no directory in use has during this boot: slots that name it are to be recovered, by any writer."""
    return boot ^ 0xFFFFFFFF


def home_of(topic_id: str, number: int) -> str:
    """What the seals of a partition say of where they belong. Empty where the topic's id is not known, and they say nothing."""
    return f"{topic_id}-{number}" if topic_id else ""


class Place(NamedTuple):
    """One partition directory. ``boot`` is ``boot_of`` its filesystem. ``topic_id`` is empty where nothing vouches for it.

    ``require_slots_version`` has versions that know only older commit slots refuse the topic; a writer calls it before it
    upgrades such slots. ``settings`` raises ``TopicNotFound`` if the topic is gone, or another one has its name. So does
    ``find_topic``, for a place whose settings say nothing of that.
    """

    filesystem: FileSystem
    clock: Clock
    directory: str
    topic_partition: TopicPartition
    settings: Callable[[], PartitionSettings]
    boot: int
    topic_id: str
    find_topic: Callable[[], object] | None = None
    require_slots_version: Callable[[], object] = bool

    @property
    def home(self) -> str:
        return home_of(self.topic_id, self.topic_partition.partition)

    def path(self, base: int, kind: str) -> str:
        return file_path(self.directory, base, kind)

    def names(self) -> list[str]:
        return self.filesystem.names(self.directory)

    def segments(self) -> Segments:
        return Segments.list(self.filesystem, self.directory)

    def segment_writer(self, base: int, index_suffix: str = "") -> SegmentWriter:
        settings = self.settings()
        return SegmentWriter(
            self.filesystem,
            self.directory,
            base,
            index_interval_bytes=settings.index_interval_bytes,
            index_max_bytes=settings.segment_index_bytes,
            index_suffix=index_suffix,
        )

    def check_topic(self) -> None:
        """``TopicNotFound`` where another topic of the same name has the directory now.

        For whoever opens files there anew: what they remember of the old ones does not hold for these.
        """
        self.settings()

    def missing(self, error: FileNotFoundError) -> PylogError:
        """What it means that a file was not found: the topic is gone, or the partition is damaged."""
        if not self.filesystem.is_directory(self.directory):
            return self.gone()
        return CorruptSegment(f"a file of {self.directory} is missing: {error}", path=self.directory, position=0)

    def gone(self) -> PylogError:
        """What it means that the directory is missing: the topic was deleted, or only the directory was removed.

        ``LogNotFound`` is raised if the whole log is missing.
        """
        topic, number = self.topic_partition
        if not self.topic_id:
            return TopicNotFound(
                f"partition {number} of {topic!r} is gone: the topic was deleted, or {self.directory} was moved or removed",
                topic=topic, partition=number, path=self.directory,
            )  # fmt: skip
        try:
            (self.find_topic or self.settings)()
        except own(TopicNotFound):
            return TopicNotFound(
                f"partition {number} of {topic!r} is gone: the topic was deleted", topic=topic, partition=number
            )
        return CorruptSegment(
            f"the directory of partition {number} of {topic!r} is missing, but the topic was not deleted: put {self.directory} "
            "back from a copy, or delete the topic if nobody needs its records",
            path=self.directory, position=0, topic=topic, partition=number,
        )  # fmt: skip
