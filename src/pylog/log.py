"""Log: the public face of a directory of topics. What works is its manager (``manager/manager.py``); this only delegates.

No process serves a log: whoever opens the directory is its broker. A Log is safe to share among threads, and goes on
working in a forked child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pylog.catalog import TopicDescription, check_topic_name
from pylog.checks import OfOneProcess, partition_of, require_bool, require_bools, require_several
from pylog.clock import Clock
from pylog.kafka_names import AbsentNames, answers_kafkas_names
from pylog.manager.manager import LogManager
from pylog.manager.opening import check_topic_options
from pylog.model import TopicPartition
from pylog.partition import Partition
from pylog.storage import FileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from pylog.catalog import Manifest
    from pylog.catalog.topic import TopicOptions
    from pylog.group.admin import GroupAdmin
    from pylog.group.descriptions import GroupDescription, OffsetChange
    from pylog.partition.verify import Problem, VerifyReport


@answers_kafkas_names
class Log(OfOneProcess, metaclass=AbsentNames):
    """A directory of topics, shared by every process that opens it.

    A directory that is missing or empty becomes a log, unless ``create=False``; one that holds anything else is left as it
    is (``LogNotFound``). A new directory is its owner's alone, with ``shared_group=True`` its group's as well; the mode of
    one that is there decides for all that is made in it. A log opens for reading only with ``read_only=True``, without
    permission to write, or where Kafka wrote the directory (no ``.pylog`` in it). ``auto_create_topics=True`` creates unknown
    topics on first send. Other keywords are defaults for new topics: the fields of ``TopicConfig``.

    Raises ``LogNotFound``, ``LogLocked`` (a filesystem whose locks can't be trusted, as NFS), ``FormatVersionError``,
    ``ConfigError``, ``UnsafeDirectory``, ``CorruptSegment`` (a manifest that is damaged or lost).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        read_only: bool = False,
        auto_create_topics: bool = False,
        shared_group: bool = False,
        clock: Clock | None = None,
        filesystem: FileSystem | None = None,
        **topic_defaults: Unpack[TopicOptions],
    ) -> None:
        require_bools(
            create=create, read_only=read_only, auto_create_topics=auto_create_topics, shared_group=shared_group
        )
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
        )

    @property
    def path(self) -> Path:
        """The directory, as it was named when the log was opened."""
        from pathlib import Path  # a tenth of the time that importing pylog takes, and most programs never ask

        return Path(self.manager.path)

    @property
    def clock(self) -> Clock:
        """Where it takes times from."""
        return self.manager.clock

    @property
    def manifest(self) -> Manifest:
        """What was written when the log was created. Kafka's directories have none."""
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

    def __enter__(self) -> Log:  # noqa: PYI034  (a subclass may say otherwise; Self needs Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Topics

    def create_topic(
        self, name: str, *, partitions: int = 1, if_not_exists: bool = False, **config: Unpack[TopicOptions]
    ) -> TopicDescription:
        """Create a topic. ``config`` are fields of ``TopicConfig``. Durable on return.

        ``TopicExists``, but with ``if_not_exists=True`` a topic of this name is returned as it is, whatever its partitions
        and configuration. ``InvalidTopicName``, ``ConfigError``, ``ReadOnlyLog``, ``StorageFull``.
        """
        require_bool("if_not_exists", if_not_exists)
        check_topic_options(config)
        return self.manager.create_topic(name, partitions, config, if_not_exists=if_not_exists)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and what groups have committed in it. Durable on return.

        Producers of it, and consumers that were assigned its partitions, get ``TopicNotFound``; subscriptions go on without it.
        ``TopicNotFound``; ``LogLocked`` where a stopped process holds a lock of the topic for half a minute: it is there still
        (try again), or is gone, and what is left of it goes when the log is next opened for writing. So it does after
        ``StorageFull``, ``StorageError``.
        """
        self.manager.delete_topic(name)

    def alter_topic(self, name: str, **config: Unpack[TopicOptions]) -> TopicDescription:
        """Change fields of a topic's ``TopicConfig``; other processes follow at once. Durable on return.

        ``ConfigError`` also for another ``partitioner`` of a topic with several partitions.
        """
        check_topic_options(config)
        return self.manager.alter_topic(name, config)

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Grow a topic to ``total`` partitions. Keys hash anew over the new number: their order is kept from here on only."""
        return self.manager.add_partitions(name, total)

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self.manager.topics()

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, number of partitions and configuration. ``TopicNotFound``."""
        return self.manager.describe_topic(name)

    # Partitions

    def partition(self, topic: str, number: int) -> Partition:
        """One partition. ``TopicNotFound``, ``InvalidPartition``."""
        return Partition(self.manager.partition(topic, number))

    def delete_records(self, topic_partition: TopicPartition, before: int) -> int:
        """Make offset ``before`` the first that can be read, and remove segments that lie wholly before it.

        Returns the log start offset. Durable on return. ``OffsetOutOfRange`` beyond the end.
        """
        return self.manager.partition(*partition_of(topic_partition)).delete_before(before)

    # Groups

    def groups(self) -> list[str]:
        """The names of all groups that have members or have committed offsets, sorted. Needs no permission to write."""
        return _groups(self.manager).names()

    def describe_group(self, group: str) -> GroupDescription:
        """Who is in a group and reads what, what it has committed, and its lag. ``GroupNotFound``."""
        return _groups(self.manager).describe(group)

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets a group's commits are behind the end, by partition. Joins nothing. ``GroupNotFound``."""
        return _groups(self.manager).lag(group)

    def reset_offsets(
        self, group: str, partitions: Iterable[TopicPartition | str] | None = None, *, to: str | int | None = None,
        to_time_ms: int | None = None, shift_by: int | None = None, offsets: Mapping[TopicPartition, int] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetChange]:  # fmt: skip
        """Commit other offsets for a group without members; what was and is committed, by partition. Durable on return.

        ``partitions`` are topics or partitions, by default all that it has committed in. One of ``to=`` ("earliest", "latest",
        an offset), ``to_time_ms=``, ``shift_by=``, ``offsets=`` (a mapping); what is beyond the log becomes its end, or its
        beginning. ``dry_run=True`` commits nothing. ``GroupNotEmpty``, ``ConfigError``; without partitions ``GroupNotFound``.
        """
        return _groups(self.manager).reset(
            group, partitions, to=to, to_time_ms=to_time_ms, shift_by=shift_by, offsets=offsets, dry_run=dry_run
        )

    def delete_group(self, group: str) -> None:
        """Remove a group without members, and all it has committed. Durable on return. ``GroupNotEmpty``, ``GroupNotFound``."""
        _groups(self.manager).delete(group)

    def verify(self, topic: str | None = None, progress: Callable[[int], None] | None = None) -> VerifyReport:
        """Check every batch, record, seal, index and checkpoint of one topic, or of all. Reads only, and needs no lock.

        ``progress`` is told how many bytes were passed since the last time.
        """
        from pylog.partition.verify import VerifyReport

        report = VerifyReport()
        report.problems += self.find_problems([] if topic is None else [topic], progress=progress, report=report)
        return report

    def find_problems(
        self, topics: Iterable[str] = (), *, progress: Callable[[int], None] | None = None, report: VerifyReport | None = None
    ) -> Iterator[Problem]:  # fmt: skip
        """What ``verify`` finds in these topics, or in the whole log, one by one. ``report`` gets the counts alone."""
        wanted = require_several("topics", topics)
        names = [name if isinstance(name, str) else check_topic_name(name) for name in wanted]
        return self.manager.find_problems(names, progress, report)

    def close(self) -> None:
        """Write what producers of this log hold, and give all files back. Closing twice is allowed."""
        self.manager.close()


def _groups(manager: LogManager) -> GroupAdmin:
    from pylog.group.admin import GroupAdmin  # most programs have none

    return manager.part(GroupAdmin)


def _forget_commits(manager: LogManager, topic: str, timeout_s: float) -> None:
    _groups(manager).forget_topic(topic, timeout_s)
