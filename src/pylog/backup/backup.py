"""A backup: a consistent, durable copy of a log in use, beside which producers, consumers and
retention continue."""

from __future__ import annotations

from collections.abc import Callable

from pylog.backup.copying import PartitionCopy, Tally
from pylog.backup.cut import CleanerLocks, Cut, take_cut
from pylog.backup.destination import Destination, remove_below
from pylog.backup.record import ID_BYTES, CopiedPartition, Record, checksums, read_topic_files, write_record
from pylog.backup.report import BackupReport
from pylog.catalog import Layout
from pylog.catalog.layout import TOPIC_SUFFIX
from pylog.catalog.settings import LogSettings, read_settings, write_settings
from pylog.errors import ForkedHandle, PylogError, ReadOnlyLog, StorageError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.manager.changes import changed
from pylog.manager.manager import LogManager
from pylog.manager.opening import checked_path
from pylog.model import TopicPartition
from pylog.partition.cleaner_checkpoint import read_cleaned
from pylog.partition.partition_log import PartitionLog
from pylog.storage import read_whole, same_process, write_atomically
from pylog.storage.directories import parent_of

_MANIFEST_LIMIT_BYTES = 1 << 20


def back_up(manager: LogManager, path: object, progress: Callable[[int], object] = bool) -> BackupReport:
    """See ``Log.backup``."""
    target = checked_path(path)
    if manager.is_kafka_directory:
        raise ReadOnlyLog(
            f"{manager.path} is Kafka's: only its broker knows which records are committed; stop the broker and copy the "
            "directory, or copy the records with pylog consume and produce",
            path=manager.path, reason="Kafka wrote this directory (it has no .pylog)",
        )  # fmt: skip
    manager.require_writable()
    target = manager.filesystem.absolute(target).rstrip("/")
    filesystem = manager.filesystem.within(parent_of(target))
    destination = Destination(filesystem, target, manager.layout.root, manager.manifest.log_id)
    return destination.locked(_Backup(manager, destination, progress).run)


class _Backup:
    """One run, under the lock of its destination."""

    def __init__(self, manager: LogManager, destination: Destination, progress: Callable[[int], object]) -> None:
        self._manager = manager
        self._destination = destination
        self._target = destination.filesystem
        self._layout = Layout(destination.unfinished)
        self._tally = Tally(progress)
        self._started_s = manager.clock.monotonic()
        path = destination.path
        self._check_process = same_process(self._target, f"a backup to {path} was being made", path=path)

    def run(self) -> BackupReport:
        earlier = self._destination.earlier()
        record = Record(
            self._target.random_bytes(ID_BYTES).hex(),
            self._manager.manifest.log_id,
            "" if earlier is None else earlier.id,
        )
        self._check_process()
        self._destination.begin()
        try:
            self._check_process()
            write_record(self._target, self._layout.root, record)
            self._destination.sync_beginning()
            copied = self._copy(earlier)
            self._finish(record, copied)
            self._destination.check_unchanged(earlier)
            self._check_process()
        except own(PylogError) as error:
            if not isinstance(error, ForkedHandle):
                self._check_process()  # what is unfinished is the parent's
                with suppress(StorageError):
                    self._destination.remove_unfinished()  # the disk may be full of it
            raise
        self._destination.put(earlier)
        return self._report(copied)

    def _copy(self, earlier: Record | None) -> dict[PartitionLog, CopiedPartition]:
        locks = CleanerLocks(self._manager)
        copies: dict[PartitionLog, PartitionCopy] = {}

        def prepare(partition: PartitionLog) -> None:
            copies[partition] = self._copy_of(partition, earlier)
            copies[partition].prepare()

        try:
            cut = take_cut(self._manager, locks, prepare)
            copied: dict[PartitionLog, CopiedPartition] = {}
            gone: set[str] = set()
            # Compacted ones first: compaction may continue as soon as they are copied.
            for partition in sorted(cut.states, key=lambda each: each.topic not in cut.compacted):
                try:
                    self._check_process()
                    locks.hold(partition)
                    state = copies[partition].copy(cut.states[partition])
                    self._refuse_compaction(partition, cut)
                    copied[partition] = CopiedPartition.of(state)
                except own(TopicNotFound) as error:
                    if changed(self._manager, [partition.topic_id]):
                        raise StorageError(
                            f"{partition.topic!r} got another name or other partitions during the backup; begin again",
                            path=partition.directory.path, topic=partition.topic,
                        ) from error  # fmt: skip
                    gone.add(partition.topic)
                finally:
                    locks.release(partition)
        finally:
            locks.close()
        self._write_topics(cut, gone)
        return {partition: end for partition, end in copied.items() if partition.topic not in gone}

    def _copy_of(self, partition: PartitionLog, earlier: Record | None) -> PartitionCopy:
        """``earlier`` has the partition only if it is of the same topic, not of one that had its
        name."""
        topic, number = partition.topic_partition
        path = self._layout.partition(topic, number)
        there = Layout(self._destination.path).partition(topic, number)
        is_there = earlier is not None and self._target.is_directory(there)
        return PartitionCopy(
            partition, self._target, path, there if is_there else None, self._tally, self._check_process
        )

    def _refuse_compaction(self, partition: PartitionLog, cut: Cut) -> None:
        """Raises ``StorageError`` if the topic is, or was, compacted only since the cut: records
        may be gone that the copy must have."""
        topic = self._manager.describe_topic(partition.topic)
        if topic.name in cut.compacted:
            return
        if topic.config.is_compacted or read_cleaned(partition.directory) != cut.cleaned[partition]:
            raise StorageError(
                f"{topic.name!r} was altered to be compacted during the backup (its cleanup_policy is now "
                f"{topic.config.cleanup_policy!r}); begin again",
                path=partition.directory.path, topic=topic.name,
            )  # fmt: skip

    def _write_topics(self, cut: Cut, gone: set[str]) -> None:
        """The topics' files. One that was deleted meanwhile is being deleted in the copy, so that
        its commits go, too."""
        self._check_process()
        self._target.make_directory(self._layout.topics)
        for name, data in cut.topic_files.items():
            topic = name.removesuffix(TOPIC_SUFFIX)
            there = self._layout.deleted_topic(topic) if topic in gone else f"{self._layout.topics}/{name}"
            write_atomically(self._target, there, data)

    def _finish(self, record: Record, copied: dict[PartitionLog, CopiedPartition]) -> None:
        """All that makes the copies of partitions a log; the manifest is last. Durable on
        return."""
        self._check_process()
        source, target, layout = self._manager.layout, self._target, self._layout
        names = {layout.partition(*partition.topic_partition): end for partition, end in copied.items()}
        for name in target.names(layout.root):
            path = f"{layout.root}/{name}"
            if path not in names and path != layout.private:  # of a topic that was deleted meanwhile
                remove_below(target, path, self._check_process)
                target.remove_directory(path)
        settings = read_settings(self._manager.filesystem, source.settings)
        if settings != LogSettings():
            write_settings(target, layout.settings, settings)
        ends = {path.rpartition("/")[2]: end for path, end in names.items()}
        topics = checksums(read_topic_files(target, layout, TOPIC_SUFFIX))
        write_record(target, layout.root, record._replace(partitions=ends, topics=topics))
        target.sync_directory(layout.root)
        write_atomically(
            target, layout.manifest, read_whole(self._manager.filesystem, source.manifest, _MANIFEST_LIMIT_BYTES)
        )

    def _report(self, copied: dict[PartitionLog, CopiedPartition]) -> BackupReport:
        tally = self._tally
        return BackupReport(
            self._destination.path, len({partition.topic for partition in copied}), len(copied),
            tally.copied_bytes, tally.kept_bytes, tally.copied_segments, tally.kept_segments,
            round((self._manager.clock.monotonic() - self._started_s) * 1000),
            {TopicPartition(*partition.topic_partition): end.end for partition, end in copied.items()},
        )  # fmt: skip
