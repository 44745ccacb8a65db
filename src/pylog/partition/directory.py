"""One partition's directory: where it is, what surrounds it, how it is created and retired."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pylog.clock import Clock
from pylog.codec.checksum import crc32c
from pylog.codec.format import INT64_MAX
from pylog.errors import CorruptSegment, PylogError, TopicChanged, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.model import TopicPartition
from pylog.partition.commit_slots import FILE_BYTES, CommitSlots, CommitState
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.segments import Segments
from pylog.segment.naming import COMMIT_SLOTS, LOCK, LOG, PARTITION_METADATA, SEAL, SWAP, file_path, offsets_of
from pylog.segment.swap_view import seen_through, swap_seal
from pylog.storage import FileSystem, while_holding, write_atomically

_LISTINGS_MAX = 10  # each while another swap was finished


class PartitionSettings(Protocol):
    """Limits and policies of one topic, in the units of their names: what a partition needs of a
    ``TopicConfig``."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def is_compacted(self) -> bool: ...
    @property
    def writable(self) -> bool: ...


def boot_of(filesystem: FileSystem) -> int:
    """A short name of this boot of the machine, in the 32 bits of a commit slot."""
    return crc32c(filesystem.boot_id().encode())


def another_boot(boot: int) -> int:
    """A name that differs from this boot's: every writer recovers slots that have it."""
    return boot ^ 0xFFFFFFFF


def home_of(topic_id: str, number: int) -> str:
    """How the seals of a partition name it. Empty if the topic's id is unknown."""
    return f"{topic_id}-{number}" if topic_id else ""


def segments_in(filesystem: FileSystem, path: str) -> Segments:
    """The segments in a directory of pylog's, those being swapped as they will be."""
    for _ in range(_LISTINGS_MAX):
        names = filesystem.names(path)
        segments = Segments.among(names)
        with suppress(FileNotFoundError):  # the swap was finished meanwhile
            for base in offsets_of(names, SEAL + SWAP):
                segments = segments.swapped(base, swap_seal(filesystem, path, base).next_base)
            return segments
    raise CorruptSegment(f"a file of {path} is missing: the log of a segment that is swapped", path=path, position=0)


class PartitionDirectory(NamedTuple):
    """One partition directory, at ``path``. ``boot`` is ``boot_of`` its filesystem.

    ``topic_id`` is empty if it is not certain. ``settings`` raises ``TopicNotFound`` if the topic
    is gone, or another one has its name; ``find_topic`` does so for a directory whose settings
    cannot. A writer calls ``require_slots_version`` with the topic's name, before it upgrades older
    commit slots: versions of pylog that know only those then refuse the topic. ``is_kafka``: Kafka
    wrote it, so it has no slots, and offsets only rise.
    """

    filesystem: FileSystem
    clock: Clock
    path: str
    topic_partition: TopicPartition
    settings: Callable[[], PartitionSettings]
    boot: int
    topic_id: str
    find_topic: Callable[[], object] | None = None
    require_slots_version: Callable[[str], object] = bool
    is_kafka: bool = False

    @staticmethod
    def create(filesystem: FileSystem, path: str, topic_id: str, boot: int) -> None:
        """Lay out an empty partition. Its slots name this boot, so a later recovery knows of a
        power failure.

        Durable on return.
        """
        metadata = f"version: 0\ntopic_id: {topic_id}"
        write_atomically(filesystem, f"{path}/{PARTITION_METADATA}", metadata.encode(), durable=False)
        epochs = LeaderEpochs([])
        epochs.assigned(0, 0)
        epochs.save(filesystem, path, durable=False)
        filesystem.open_appendable(file_path(path, 0, LOG)).close()
        slots = CommitSlots(filesystem.open_appendable(f"{path}/{COMMIT_SLOTS}"))
        try:
            slots.begin(
                CommitState(
                    sequence=2, boot=boot, leader_epoch=0, active_base=0, written_end=0, log_end_offset=0,
                    durable_offset=0, last_stable_offset=0, log_start_offset=0, high_watermark=0, segments_version=0,
                    least_timestamp_ms=INT64_MAX,
                )
            )  # fmt: skip
            slots.sync()
        finally:
            slots.close()
        filesystem.sync_directory(path)

    @staticmethod
    def retire(filesystem: FileSystem, clock: Clock, path: str, timeout_s: float) -> None:
        """Wait for an append under way, then overwrite the slots with zeros, so that writers with
        open files notice.

        ``LogLocked`` if it has not ended after ``timeout_s`` seconds.
        """

        def spoil() -> None:
            slots = filesystem.open_appendable(f"{path}/{COMMIT_SLOTS}")
            try:
                slots.pwrite(bytes(FILE_BYTES), 0)
            finally:
                slots.close()

        while_holding(filesystem, clock, f"{path}/{LOCK}", spoil, timeout_s)

    @staticmethod
    def announce_settings(filesystem: FileSystem, path: str) -> None:
        """After a change of the topic's settings: every writer reads them again before its next
        append.

        It grows the lock file, which every writer looks at. Without one the next writer reads the
        settings anyway.
        """
        try:
            lock = filesystem.open_appendable(f"{path}/{LOCK}", create=False)
        except own(FileNotFoundError):
            return
        try:
            lock.truncate(lock.size() + 1)
        finally:
            lock.close()

    @property
    def home(self) -> str:
        return home_of(self.topic_id, self.topic_partition.partition)

    def file_path(self, base: int, kind: str) -> str:
        """The file of this kind of the segment at ``base``."""
        return file_path(self.path, base, kind)

    def names(self) -> list[str]:
        return self.filesystem.names(self.path)

    def segments(self) -> Segments:
        """The segments as they are now. If some are being swapped, their files are those of
        ``seen_by`` the result."""
        return Segments.among(self.names()) if self.is_kafka else segments_in(self.filesystem, self.path)

    def seen_by(self, segments: Segments) -> PartitionDirectory:
        """The directory, to open the files of these segments for reading."""
        if not segments.swaps:
            return self
        return self._replace(filesystem=seen_through(self.filesystem, self.path, segments.swaps))

    def check_topic(self) -> None:
        """Raises ``TopicNotFound`` if another topic of the same name has the directory now.

        For callers that open files again: what they know of the old files is not true of these.
        """
        self.settings()

    def missing(self, error: FileNotFoundError) -> PylogError:
        """The error for a missing file: the topic is gone, or the partition is damaged."""
        if not self.filesystem.is_directory(self.path):
            return self.gone()
        return CorruptSegment(f"a file of {self.path} is missing: {error}", path=self.path, position=0)

    def gone(self) -> PylogError:
        """The error for a missing directory: the topic was deleted, or only the directory was
        removed.

        ``LogNotFound`` is raised if the whole log is missing.
        """
        topic, number = self.topic_partition
        if not self.topic_id:
            return TopicNotFound(
                f"partition {number} of {topic!r} is gone: the topic was deleted, or {self.path} was moved or removed",
                topic=topic, partition=number, path=self.path,
            )  # fmt: skip
        try:
            (self.find_topic or self.settings)()
        except own(TopicNotFound) as error:
            if isinstance(error, TopicChanged):
                return error
            return TopicNotFound(
                f"partition {number} of {topic!r} is gone: the topic was deleted", topic=topic, partition=number
            )
        return CorruptSegment(
            f"the directory of partition {number} of {topic!r} is missing, but the topic was not deleted: put {self.path} "
            "back from a copy, or delete the topic if its records are not needed",
            path=self.path, position=0, topic=topic, partition=number,
        )  # fmt: skip
