"""Log: the public face of a directory of topics. Its manager (``manager/``) does the work.

There is no server: each process that opens the directory is its own broker. A Log is safe to share
among threads, and continues to work in a forked child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pylog.catalog import TopicDescription, check_topic_name
from pylog.checks import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    OfOneProcess,
    partition_of,
    refuse_decisions,
    require_bool,
    require_bools,
    require_callable,
    require_count,
    require_several,
    require_whole,
)
from pylog.clock import Clock
from pylog.codec.format import INT64_MAX
from pylog.kafka_names import AbsentNames, answers_kafkas_names
from pylog.manager.manager import LogManager
from pylog.manager.opening import check_topic_options
from pylog.model import TopicPartition
from pylog.partition import Partition
from pylog.storage import FileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from pylog.backup.report import BackupReport
    from pylog.catalog import Manifest
    from pylog.catalog.changes import Commit
    from pylog.catalog.settings import LogSettings
    from pylog.catalog.topic import TopicOptions
    from pylog.cleaner.cleaner import Cleaner
    from pylog.cleaner.compaction import Needed
    from pylog.cleaner.description import PartitionDescription
    from pylog.cleaner.erasure import ErasureReport
    from pylog.cleaner.housekeeping import Housekeeping
    from pylog.cleaner.report import MaintenanceReport, PartitionMaintenance
    from pylog.cleaner.step import Target
    from pylog.group.admin import GroupAdmin
    from pylog.group.descriptions import GroupDescription, OffsetChange
    from pylog.partition.partition_log import PartitionLog
    from pylog.partition.verify import Problem, VerifyReport
    from pylog.transaction.admin import TransactionAdmin
    from pylog.transaction.descriptions import OpenTransactionDescription, TransactionDescription
    from pylog.transaction.outcomes import Outcomes


@answers_kafkas_names
class Log(OfOneProcess, metaclass=AbsentNames):
    """A directory of topics, shared by every process that opens it.

    A missing or empty directory becomes a log, unless ``create=False``; one with other contents
    stays unchanged (``LogNotFound``). A new directory is its owner's alone, with
    ``shared_group=True`` its group's as well; in an existing one, its mode decides. A log is
    read-only with ``read_only=True``, without write permission, or if Kafka wrote it (no ``.pylog``
    in it). ``auto_create_topics=True`` creates unknown topics at the first send.
    ``housekeeping=True`` calls ``maintain`` every ``housekeeping_interval_ms`` on a thread, in one
    process for all. ``clock`` and ``filesystem`` replace the machine's in tests. Other keywords are
    ``TopicConfig`` defaults for new topics.

    Raises ``LogNotFound``, ``LogLocked`` (unreliable locks, as on NFS), ``FormatVersionError``,
    ``ConfigError``, ``UnsafeDirectory``, ``CorruptSegment`` (a damaged or lost manifest).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        read_only: bool = False,
        auto_create_topics: bool = False,
        shared_group: bool = False,
        housekeeping: bool = False,
        housekeeping_interval_ms: int = 60_000,
        clock: Clock | None = None,
        filesystem: FileSystem | None = None,
        **topic_defaults: Unpack[TopicOptions],
    ) -> None:
        require_bools(
            create=create, read_only=read_only, auto_create_topics=auto_create_topics, shared_group=shared_group,
            housekeeping=housekeeping,
        )  # fmt: skip
        require_count("housekeeping_interval_ms", housekeeping_interval_ms, 1)
        self.manager = LogManager(
            path,
            create=create,
            read_only=read_only,
            auto_create_topics=auto_create_topics,
            shared_group=shared_group,
            clock=clock,
            filesystem=filesystem,
            topic_defaults=topic_defaults,
            forget_commits=_forget_commits,
            write_commits=_write_commits,
            transactions=_outcomes,
            after_roll=_after_roll,
        )
        self._housekeeping: Housekeeping | None = None
        if housekeeping:
            from pylog.cleaner.housekeeping import Housekeeping  # rarely needed

            self._housekeeping = Housekeeping(self.manager, _maintain, housekeeping_interval_ms)

    @property
    def path(self) -> Path:
        """The directory, as named when the log was opened."""
        from pathlib import Path  # a tenth of pylog's import time, rarely needed

        return Path(self.manager.path)

    @property
    def clock(self) -> Clock:
        """The log's source of time."""
        return self.manager.clock

    @property
    def manifest(self) -> Manifest:
        """The facts written at the log's creation. Kafka's directories have none."""
        return self.manager.manifest

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written."""
        return self.manager.read_only

    @property
    def is_kafka_directory(self) -> bool:
        """Whether Kafka wrote this directory."""
        return self.manager.is_kafka_directory

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.manager.closed

    def __repr__(self) -> str:
        return f"<Log {self.manager.path!r}{' read-only' if self.manager.read_only else ''}>"

    def __enter__(self) -> Log:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Topics

    def create_topic(
        self, name: str, *, partitions: int = 1, if_not_exists: bool = False, **config: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Create a topic. ``config`` are fields of ``TopicConfig``. Durable on return.

        ``TopicExists``; with ``if_not_exists=True`` the existing topic is returned unchanged,
        whatever its partitions and configuration. ``InvalidTopicName``, ``ConfigError``,
        ``ReadOnlyLog``, ``StorageFull``; ``TopicChanged`` if a topic is losing or getting this
        name, and that can't be completed.
        """
        require_bool("if_not_exists", if_not_exists)
        check_topic_options(config)
        return self.manager.create_topic(name, partitions, config, if_not_exists=if_not_exists)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the groups' commits in it. Durable on return.

        Its producers, and consumers assigned to it, get ``TopicNotFound``; subscriptions
        continue without it. ``TopicNotFound``, ``ReadOnlyLog``; ``LogLocked`` if a stopped process
        holds a lock of the topic for 30 s: it still exists (try again), or it is gone, and the next
        opening for writing removes the rest, as after ``StorageFull``, ``StorageError`` and
        ``OutcomeUnknown`` (a sync was refused).
        """
        refuse_decisions(name, "delete_topic")
        self.manager.delete_topic(name)

    def alter_topic(self, name: str, **config: Unpack[TopicOptions]) -> TopicDescription:
        """Change fields of a topic's ``TopicConfig``, at once for all processes. Durable on return.

        After ``writable=False``, no process appends records, and all are on the disk;
        ``DeliveryTimeout`` if a writer is stopped for 30 s: it is not certain yet, call again.
        ``OutcomeUnknown`` if a sync is refused: not all records may be on the disk, call again.
        ``ConfigError`` also for another ``partitioner`` of a topic with several partitions.
        ``TopicNotFound``, ``ReadOnlyLog``.
        """
        check_topic_options(config)
        return self.manager.alter_topic(name, config)

    def rename_topic(self, old: str, new: str) -> TopicDescription:
        """Give a topic another name, with its records, id and groups' positions. Durable on return.

        Its producers get ``TopicNotFound`` then; subscriptions to the old name continue without it.
        ``TopicNotFound``, ``TopicExists``, ``InvalidTopicName``, ``ReadOnlyLog``; ``ConfigError``
        for more than about 1,800,000 commits of groups in the topic; ``TopicChanged`` if others
        have changed it, ``LogLocked`` if a transaction stays open in it for 30 s, or a stopped
        process holds a lock, ``OutcomeUnknown`` if a sync is refused: call again. If neither name
        is found then, the change is decided, and the next opening for writing completes it.
        """
        from pylog.topic_changes.rename import rename_topic  # rarely needed

        return rename_topic(self.manager, old, new)

    def repartition(
        self, name: str, partitions: int, progress: Callable[[int], object] | None = None
    ) -> TopicDescription:
        """Give a topic more or fewer partitions. Each key keeps its order: by time, as far as it
        was in several at the call. Groups continue where they have committed, at least once.
        Durable on return; a topic with so many is left as it is.

        A copy takes the topic's place: producers' records meanwhile fail with ``TopicChanged``;
        send them again. ``progress`` gets the number of bytes copied since its last call. A killed
        call is repeated, or has changed everything. ``TopicNotFound``, ``ConfigError``,
        ``ReadOnlyLog``, ``StorageFull``, ``CorruptRecord``, ``MissingCodec``; ``TopicChanged``,
        ``OutcomeUnknown``, ``LogLocked`` as for ``rename_topic``, the last one also if records are
        deleted or compacted during each of 5 copies.
        """
        from pylog.topic_changes.repartition import repartition  # rarely needed

        return repartition(self.manager, name, partitions, _checked(progress))

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Grow a topic to ``total`` partitions. Keys hash differently: order holds from here on.
        ``TopicNotFound``, ``ConfigError``, ``ReadOnlyLog``."""
        return self.manager.add_partitions(name, total)

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self.manager.topics()

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, number of partitions and configuration. ``TopicNotFound``."""
        return self.manager.describe_topic(name)

    def describe_partitions(self, name: str) -> list[PartitionDescription]:
        """Sizes, segments, offsets, the first and last record, open transactions and what is not
        compacted, of each partition. Reads no data but at both ends, takes no lock, and needs no
        permission to write. Damage is in ``problem``. ``TopicNotFound``."""
        from pylog.cleaner.description import describe_partitions  # rarely needed

        return describe_partitions(self.manager, name)

    # Partitions

    def partition(self, topic: str, number: int) -> Partition:
        """One partition. ``TopicNotFound``, ``InvalidPartition``."""
        return Partition(self.manager.partition(topic, number))

    def delete_records(self, topic_partition: TopicPartition, before: int) -> int:
        """Make ``before`` the first readable offset, and remove segments entirely before it.

        Returns the log start offset. Durable on return. ``OffsetOutOfRange`` beyond the end.
        ``TopicNotFound``, ``InvalidPartition``, ``ReadOnlyLog``; ``DeliveryTimeout`` if another
        process holds the partition's lock.
        """
        name = partition_of(topic_partition)
        refuse_decisions(name.topic, "delete_records")
        return self.manager.partition(*name).delete_before(before)

    def erase(
        self, topic: str, keys: bytes | Iterable[bytes], *, tombstones: bool | None = None, timeout_ms: int = 300_000,
        progress: Callable[[int], object] | None = None,
    ) -> ErasureReport:  # fmt: skip
        """Erase all records with these keys from every partition of a topic, at once. Offsets stay.

        On return, durable, no file of the topic has a record of them that was there at the call.
        ``tombstones`` (default: if the topic is compacted): first append one for each key found, so
        that tables and readers learn of it. ``progress`` gets the bytes read since its last call.

        ``LogLocked`` if a compaction takes longer than ``timeout_ms``; ``CorruptRecord``,
        ``MissingCodec`` for what can't be read: all else was erased; ``TopicChanged`` if the
        topic gets other partitions meanwhile: call again; ``TopicNotFound``,
        ``ReadOnlyLog``, ``ReadOnlyTopic`` (it takes no tombstones, and nothing was erased),
        ``DeliveryTimeout`` (another process has the partition's lock), ``OutcomeUnknown`` (a sync
        was refused), ``StorageFull``. After an error, call it again; after ``RecordTooLarge``
        (tombstones of too many keys for one batch) with fewer keys.
        """
        require_count("timeout_ms", timeout_ms, 0)
        if tombstones is not None:
            require_bool("tombstones", tombstones)
        from pylog.cleaner.erasure import erase_keys  # rarely needed

        return erase_keys(self.manager, topic, keys, tombstones, timeout_ms, _checked(progress))

    # Groups

    def groups(self) -> list[str]:
        """The names of groups with members or commits, sorted. Needs no write permission."""
        return _groups(self.manager).names()

    def describe_group(self, group: str) -> GroupDescription:
        """A group's members and assignments, committed offsets, and lag. ``GroupNotFound``."""
        return _groups(self.manager).describe(group)

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """A group's lag in offsets by partition, without joining the group. ``GroupNotFound``."""
        return _groups(self.manager).lag(group)

    def reset_offsets(
        self, group: str, partitions: Iterable[TopicPartition | str] | TopicPartition | None = None, *,
        to: str | int | None = None, to_time_ms: int | None = None, shift_by: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None, dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetChange]:  # fmt: skip
        """Commit other offsets for a group without members. Durable on return.

        ``partitions``: topics or partitions, by default all with commits. One of ``to=``
        ("earliest", "latest", an offset), ``to_time_ms=``, ``shift_by=``, ``offsets=`` (a mapping),
        limited to the log's range. ``dry_run=True`` commits nothing. Returns the old and new
        offsets. ``GroupNotEmpty``, ``ConfigError``; without partitions ``GroupNotFound``.
        ``TopicNotFound``, ``InvalidPartition``, ``ReadOnlyLog``; ``CommitFailed`` if a topic is
        renamed or repartitioned meanwhile, ``OutcomeUnknown`` if a sync is refused: call again;
        after ``RecordTooLarge`` (too many partitions for one batch) with fewer. With ``to_time_ms``
        ``CorruptSegment``, ``MissingCodec``.
        """
        return _groups(self.manager).reset(
            group, partitions, to=to, to_time_ms=to_time_ms, shift_by=shift_by, offsets=offsets, dry_run=dry_run
        )

    def delete_group(self, group: str) -> None:
        """Remove a group without members, and its commits. Durable on return. ``GroupNotEmpty``,
        ``GroupNotFound``, ``ReadOnlyLog``, ``LogLocked``: also if a topic's change can't be
        completed; ``StorageFull``: of more commits than one batch takes some may be gone;
        ``OutcomeUnknown``: it is gone, but a sync was refused."""
        _groups(self.manager).delete(group)

    # Transactions

    def transactions(self) -> list[str]:
        """The transactional ids that producers have had, sorted. Needs no write permission."""
        return _transactions(self.manager).ids()

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """The last transaction of an id, and where it waits for markers.
        ``TransactionNotFound``."""
        return _transactions(self.manager).describe(transactional_id)

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the ongoing transaction of an id, also if its owner lives: that one's next call
        raises ``TransactionAborted``. Visible on return. ``TransactionNotFound``,
        ``InvalidTransactionState`` if none is ongoing, ``LogLocked``, ``ReadOnlyLog``,
        ``StorageFull``, ``CorruptSegment``; ``DeliveryTimeout`` if a writer holds a partition:
        if a repeat raises ``InvalidTransactionState``, it is decided."""
        _transactions(self.manager).abort(transactional_id)

    def open_transactions(self, topics: Iterable[str] = ()) -> list[OpenTransactionDescription]:
        """Every transaction that waits for its marker in a partition of these topics, or of all,
        the oldest first. Needs no write permission. ``TopicNotFound``, ``CorruptSegment``."""
        return _transactions(self.manager).open_transactions(require_several("topics", topics))

    def abort_transaction_at(self, partition: TopicPartition, start_offset: int) -> OpenTransactionDescription:
        """Abort the open transaction whose first record in ``partition`` is at ``start_offset``,
        and return what it was. If no record tells its transactional id, it ends in this partition
        alone; so end those that Kafka left open. ``TopicNotFound``, ``InvalidPartition``, and else
        as ``abort_transaction``."""
        return _transactions(self.manager).abort_at(
            partition_of(partition), require_whole("start_offset", start_offset)
        )

    # Maintenance

    def alter(self, *, max_bytes: int) -> LogSettings:
        """Change the options of the whole log, for all processes. Durable on return.

        ``max_bytes``: a bound of all files of all partitions; -1: none. ``maintain`` deletes the
        oldest closed segments of all topics above it, but none of internal or compacted topics, or
        with ``cleanup_policy="none"``. ``ConfigError``, ``ReadOnlyLog``.
        """
        return self.manager.alter(require_count("max_bytes", max_bytes, -1, INT64_MAX))

    def settings(self) -> LogSettings:
        """The options of the whole log. ``CorruptSegment``, ``FormatVersionError``."""
        return self.manager.settings()

    def maintain(self, topics: Iterable[str] = (), *, dry_run: bool = False) -> MaintenanceReport:
        """Do all maintenance that is due, once: what the policies of these topics, or of all, and
        the log's bound no longer keep is deleted, compacted topics are compacted, what a compaction
        or an erasure that died has left is removed, and in these partitions the transactions of
        dead and late producers are ended.

        What fails on one partition is in the report. ``dry_run=True`` changes nothing and needs no
        permission to write. Durable on return. ``TopicNotFound``, ``ReadOnlyLog``;
        ``CorruptSegment`` of a topic's file or the ``LogSettings``.
        """
        require_bool("dry_run", dry_run)
        return self.manager.part(cleaner_of).maintain(require_several("topics", topics), dry_run=dry_run)

    def verify(self, topic: str | None = None, progress: Callable[[int], object] | None = None) -> VerifyReport:
        """Check every batch, record, seal, index and checkpoint of a topic, or of all. Reads only.

        Needs no lock. ``progress`` gets the number of bytes checked since its last call.
        ``TopicNotFound``.
        """
        from pylog.partition.verify import VerifyReport

        report = VerifyReport()
        report.problems += self.find_problems([] if topic is None else [topic], progress=progress, report=report)
        return report

    def find_problems(
        self, topics: Iterable[str] = (), *, progress: Callable[[int], object] | None = None, report: VerifyReport | None = None
    ) -> Iterator[Problem]:  # fmt: skip
        """Yield what ``verify`` finds in these topics, or all. ``report`` gets only the counts.
        ``TopicNotFound``."""
        wanted = require_several("topics", topics)
        names = [name if isinstance(name, str) else check_topic_name(name) for name in wanted]
        return _with_notes(self.manager, self.manager.find_problems(names, _checked(progress), report), report)

    def backup(self, path: str | Path, progress: Callable[[int], object] | None = None) -> BackupReport:
        """Copy the log, which may be in use, to the directory ``path``: a log with every record
        that was acknowledged before this call, and each transaction as a whole or not at all.
        Durable on return.

        An unchanged earlier copy there is replaced at the end, in one step; its sealed segments are
        kept, not copied. ``progress`` gets the number of bytes of segments since its last call.
        ``NotABackup``, ``ConfigError``, ``LogLocked``, ``DeliveryTimeout`` (a writer is stopped),
        ``ReadOnlyLog``, ``CorruptRecord``, ``StorageFull``; ``StorageError`` if a topic is renamed,
        repartitioned or altered to be compacted meanwhile: call again.
        """
        from pylog.backup.backup import back_up

        return back_up(self.manager, path, _checked(progress))

    def close(self) -> None:
        """Write what this log's producers have buffered, and close all files. May be repeated."""
        if self._housekeeping is not None:
            self._housekeeping.stop()
        self.manager.close()


def _groups(manager: LogManager) -> GroupAdmin:
    from pylog.group.admin import GroupAdmin  # rarely needed

    return manager.part(GroupAdmin)


def _transactions(manager: LogManager) -> TransactionAdmin:
    from pylog.transaction.admin import TransactionAdmin  # rarely needed

    return manager.part(TransactionAdmin)


def _with_notes(manager: LogManager, problems: Iterator[Problem], report: VerifyReport | None) -> Iterator[Problem]:
    """The problems; then the notes of open transactions are in the report."""
    yield from problems
    if report is not None and report.open_transactions:
        report.notes += _transactions(manager).notes(report.open_transactions)


def _outcomes(manager: LogManager) -> Outcomes:
    from pylog.transaction.outcomes import Outcomes  # most logs have no transactions

    return manager.part(Outcomes)


def cleaner_of(manager: LogManager) -> Cleaner:
    """A part of the manager: ``manager.part(cleaner_of)``."""
    from pylog.cleaner.cleaner import Cleaner  # rarely needed
    from pylog.cleaner.step import Step
    from pylog.group.consumption import Consumption

    expiry = Step("expiry", lambda topic: topic.name == TRANSACTIONS_TOPIC, partial(_expire, manager))
    return Cleaner(manager, manager.part(Consumption), partial(_first_needed, manager), expiry)


def _checked(progress: Callable[[int], object] | None) -> Callable[[int], object]:
    return bool if progress is None else require_callable("progress", progress, "a number of bytes")


def _first_needed(manager: LogManager, partition: PartitionLog) -> Needed:
    from pylog.cleaner.compaction import Needed

    if partition.topic != TRANSACTIONS_TOPIC:
        return Needed()
    from pylog.transaction.needed import first_needed  # most logs have no transactions

    return first_needed(manager, partition)


def _expire(manager: LogManager, target: Target) -> PartitionMaintenance:
    from pylog.transaction.expiry import expire  # most logs have no transactions

    return expire(manager, target)


def _maintain(manager: LogManager) -> MaintenanceReport:
    return manager.part(cleaner_of).maintain()


def _after_roll(manager: LogManager, partition: PartitionLog) -> None:
    """Apply retention and the log's bound, unless they must ask the groups: that is left to
    maintenance."""
    config, max_bytes = manager.describe_topic(partition.topic).config, manager.settings().max_bytes
    if max_bytes != -1 or config.has_limit:
        manager.part(cleaner_of).after_roll(partition, max_bytes)
    if partition.topic == OFFSETS_TOPIC:
        _groups(manager).offsets.after_commit(partition, manager.part(cleaner_of).compact_if_small)


def _write_commits(manager: LogManager, commits: Sequence[Commit]) -> None:
    _groups(manager).offsets.write_as_they_are(commits)


def _forget_commits(manager: LogManager, topic: str, timeout_s: float) -> None:
    _groups(manager).forget_topic(topic, timeout_s)
