"""The moment of which a backup is: where every partition ends, while no transaction can be decided.

A decision counts by its record in ``__transaction_state``. So that topic's locks are held while the
ends are read: a transaction whose decision is before the end has all its records before the other
ends; one that is decided later has no marker there. The committed offsets' end is read before the
data's, so that no group's position is beyond the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pylog.backup.record import read_topic_files
from pylog.catalog.layout import DELETED_TOPIC_SUFFIX, TOPIC_SUFFIX
from pylog.checks import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pylog.errors import InvalidPartition, LogLocked, PylogError, TopicNotFound
from pylog.interrupts import own
from pylog.manager.changes import complete_changes
from pylog.manager.manager import LogManager
from pylog.model import TopicPartition
from pylog.partition.cleaner_checkpoint import CleanerCheckpoint, read_cleaned
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.partition_log import PartitionLog
from pylog.segment.naming import CLEANER_LOCK
from pylog.storage import LOCK_TIMEOUT_MS, LOCK_TIMEOUT_S, FileLock, acquire

COMPACTION_TIMEOUT_S = 600.0  # a compaction of a large partition takes minutes
_TRIES_MAX = 20  # each after topics were changed meanwhile


class Cut(NamedTuple):
    """``topic_files`` are those of the catalog by name; ``states`` what was published of each
    partition; ``cleaned`` what compaction had done to those of topics that are not compacted."""

    topic_files: dict[str, bytes]
    states: dict[PartitionLog, CommitState]
    compacted: frozenset[str]
    cleaned: dict[PartitionLog, CleanerCheckpoint]


def vanished(directory: PartitionDirectory, error: FileNotFoundError) -> PylogError:
    """The error for a missing file of a partition. ``TopicNotFound`` is raised if its topic is
    gone."""
    directory.check_topic()
    return directory.missing(error)


class CleanerLocks:
    """Keeps compaction away from partitions: it would drop what newer records, beyond the cut,
    replace."""

    def __init__(self, manager: LogManager) -> None:
        self._clock = manager.clock
        self._held: dict[TopicPartition, FileLock] = {}

    def hold(self, partition: PartitionLog) -> None:
        """Wait for a compaction under way, and finish the swap of one that has died. ``LogLocked``,
        ``TopicNotFound``."""
        if partition.topic_partition in self._held:
            return
        directory = partition.directory
        path = f"{directory.path}/{CLEANER_LOCK}"
        try:
            lock = directory.filesystem.lock(path)
        except own(FileNotFoundError) as error:
            raise vanished(directory, error) from error
        self._held[partition.topic_partition] = lock
        if not acquire(lock, self._clock, COMPACTION_TIMEOUT_S) or not lock.is_in_place():
            directory.check_topic()
            raise LogLocked(
                f"{path} stayed locked for {COMPACTION_TIMEOUT_S:g} s: the partition is being compacted; try again",
                path=path, timeout_s=COMPACTION_TIMEOUT_S,
            )  # fmt: skip
        partition.writable().change_segments(lambda _, state: state, LOCK_TIMEOUT_MS)

    def release(self, partition: PartitionLog) -> None:
        lock = self._held.pop(partition.topic_partition, None)
        if lock is not None:
            lock.close()

    def close(self) -> None:
        """Release all that are left."""
        for name in list(self._held):
            self._held.pop(name).close()


def take_cut(manager: LogManager, locks: CleanerLocks, prepare: Callable[[PartitionLog], object]) -> Cut:
    """The cut. Until their ``release``, no partition of a topic that is compacted is compacted
    further.

    ``prepare`` is called for each partition before. ``LogLocked`` if topics change all the time, or
    a lock is not free in time; errors of a recovery.
    """
    prepared: dict[TopicPartition, PartitionLog] = {}
    for _ in range(_TRIES_MAX):
        complete_changes(manager, LOCK_TIMEOUT_S)  # until then such a topic has no file
        try:
            files = _topic_files(manager)
            partitions, compacted = _prepared(manager, locks, prepare, prepared)
        except own(TopicNotFound, InvalidPartition):
            continue  # deleted meanwhile, or created again with fewer partitions
        if files is None:
            continue
        cut = manager.with_topics_fixed(partial(_cut_of, manager, files, partitions, compacted))
        if cut is not None:
            return cut
    raise LogLocked(
        f"topics of {manager.path} were created or changed during each of {_TRIES_MAX} attempts to find a moment for the backup; "
        "try again",
        path=manager.path,
    )  # fmt: skip


def _topic_files(manager: LogManager) -> dict[str, bytes] | None:
    """Those of deleted topics, too: the next writer of the copy finishes their deletion. None if
    some were just removed."""
    try:
        return read_topic_files(manager.filesystem, manager.layout, TOPIC_SUFFIX, DELETED_TOPIC_SUFFIX)
    except own(FileNotFoundError):
        manager.topics()  # the log itself is there
        return None


def _prepared(
    manager: LogManager,
    locks: CleanerLocks,
    prepare: Callable[[PartitionLog], object],
    prepared: dict[TopicPartition, PartitionLog],
) -> tuple[list[PartitionLog], frozenset[str]]:
    partitions, compacted = [], set()
    for topic in (manager.describe_topic(name) for name in manager.topics()):
        if topic.config.is_compacted:
            compacted.add(topic.name)
        for number in topic.numbers:
            partition = manager.partition(topic.name, number)
            if prepared.get(partition.topic_partition) is not partition:
                partition.writable().recovered(LOCK_TIMEOUT_MS)
                prepare(partition)
                prepared[partition.topic_partition] = partition
            if topic.config.is_compacted:
                locks.hold(partition)
            partitions.append(partition)
    return partitions, frozenset(compacted)


def _cut_of(
    manager: LogManager, files: dict[str, bytes], partitions: Sequence[PartitionLog], compacted: frozenset[str]
) -> Cut | None:
    """None if the topics are others than ``files`` now."""
    if manager.writable_catalog().being_changed() or _topic_files(manager) != files:
        return None
    deciding = [each for each in partitions if each.topic == TRANSACTIONS_TOPIC]
    others = sorted((each for each in partitions if each.topic != TRANSACTIONS_TOPIC), key=_is_data)
    states = _while_undecided(deciding, lambda: {each: each.current() for each in others})
    cleaned = {each: read_cleaned(each.directory) for each in partitions if each.topic not in compacted}
    return Cut(files, states, compacted, cleaned)


def _is_data(partition: PartitionLog) -> bool:
    return partition.topic != OFFSETS_TOPIC


def _while_undecided(
    deciding: Sequence[PartitionLog], read: Callable[[], dict[PartitionLog, CommitState]]
) -> dict[PartitionLog, CommitState]:
    """What ``read`` returns while the locks of ``deciding`` are held, and the states of these."""
    if not deciding:
        return read()
    first = deciding[0]
    return first.writable().change_segments(
        lambda _, state: {first: state, **_while_undecided(deciding[1:], read)}, LOCK_TIMEOUT_MS
    )
