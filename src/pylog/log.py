"""Log: opens a directory, owns the catalog and the open partitions. The only file that wires concrete parts together.

No process serves a log: whoever opens the directory is its broker. A Log is safe to share among threads, and goes on
working in a forked child.
"""

from __future__ import annotations

import threading  # threads share the table of open partitions
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pylog.catalog import (
    Catalog,
    KafkaCatalog,
    Layout,
    Manifest,
    TopicConfig,
    TopicDescription,
    check_topic_name,
    no_such_partition,
)
from pylog.checks import OfOneProcess, partition_of, require_bool, require_bools, require_several
from pylog.clock import Clock, SystemClock
from pylog.errors import Closed, ReadOnlyLog, TopicExists, TopicNotFound
from pylog.interrupts import WeakSet, own, suppress
from pylog.kafka_names import AbsentNames, answers_kafkas_names
from pylog.manager.notify import Changes
from pylog.manager.opening import check_topic_options, checked_path, open_directory, why_read_only
from pylog.manager.producer_ids import ProducerIds
from pylog.model import Flushable, TopicPartition
from pylog.partition import Partition
from pylog.partition.directory import boot_of
from pylog.partition.lifecycle import prepare_directory, retire_directory
from pylog.storage import FileSystem, OsFileSystem, Watch, after_fork_in_child

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from pylog.catalog.topic import TopicOptions
    from pylog.group.admin import Groups
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
        self.clock: Clock = clock or SystemClock()
        self.auto_create_topics = auto_create_topics
        self._filesystem: FileSystem = filesystem or OsFileSystem()
        self._given = Layout(checked_path(path)).root
        self._layout = Layout(self._filesystem.absolute(self._given))  # the process may go elsewhere, the log does not
        self._boot = boot_of(self._filesystem)
        check_topic_options(topic_defaults)
        self._defaults = TopicConfig().with_changes(topic_defaults)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topics: dict[str, TopicDescription] = {}
        self._topics_version = -1
        self._mutex = threading.RLock()
        self._durable_topics: set[tuple[str, int]] = set()  # id and number of partitions: their names are on the medium
        self._changes = Changes(self.clock)
        self._to_flush: WeakSet[Flushable] = WeakSet()
        self._closed = False
        self._groups: Groups | None = None
        self._open(create, read_only, shared_group)
        self._why_read_only = why_read_only(read_only, self.is_kafka_directory)
        after_fork_in_child(self._forget_parent)
        if isinstance(self._catalog, Catalog) and not self.read_only:
            self._catalog.finish_deletions(
                lambda directory: self._retire(directory, 0.0), lambda topic: self._forget_commits(topic, 0.0)
            )

    def _open(self, create: bool, read_only: bool, shared_group: bool) -> None:
        opened = open_directory(
            self._filesystem, self.clock, self._layout, self._defaults,
            create=create, read_only=read_only, shared_group=shared_group,
        )  # fmt: skip
        self._filesystem = opened.filesystem
        self._catalog: Catalog | KafkaCatalog = opened.catalog
        self.is_kafka_directory = isinstance(opened.catalog, KafkaCatalog)
        self.read_only = opened.read_only
        self._kafka_log_starts = opened.kafka_log_starts
        self.manifest: Manifest = opened.manifest  # type: ignore[assignment]  # None only of Kafka's, which has none
        ids, lock = self._layout.producer_ids, self._layout.producer_ids_lock
        self._producer_ids = ProducerIds(opened.filesystem, self.clock, ids, lock)

    @property
    def path(self) -> Path:
        """The directory, as it was named when the log was opened."""
        from pathlib import Path  # a tenth of the time that importing pylog takes, and most programs never ask

        return Path(self._given)

    def __repr__(self) -> str:
        return f"<Log {self._given!r}{' read-only' if self.read_only else ''}>"

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
        return self._create_topic(name, partitions, config, if_not_exists=if_not_exists)

    def create_internal_topic(self, name: str, config: Mapping[str, object]) -> TopicDescription:
        """For groups: a topic that no user may create, or the one that is there."""
        return self._create_topic(name, 1, config, if_not_exists=True, internal=True)

    def _create_topic(
        self, name: str, partitions: int, config: Mapping[str, object], *, if_not_exists: bool, internal: bool = False
    ) -> TopicDescription:
        catalog = self._writable_catalog()
        prepare, retire, forget = self._prepare, self._retire, self._forget_commits
        while True:
            try:
                return catalog.create(name, partitions, config, prepare, retire, forget, internal=internal)
            except own(TopicExists) as error:
                if not if_not_exists or error.existing != name:
                    raise
            with suppress(TopicNotFound):  # deleted meanwhile
                described = self.describe_topic(name)
                catalog.make_durable()  # by whoever has made it so, it may not be yet
                return described

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and what groups have committed in it. Durable on return.

        Producers of it, and consumers that were assigned its partitions, get ``TopicNotFound``; subscriptions go on without it.
        ``TopicNotFound``; ``LogLocked`` where a stopped process holds a lock of the topic for half a minute: it is there still
        (try again), or is gone, and what is left of it goes when the log is next opened for writing. So it does after
        ``StorageFull``, ``StorageError``.
        """
        self._writable_catalog().delete(name, self._retire, self._forget_commits)
        self._forget(name)

    def alter_topic(self, name: str, **config: Unpack[TopicOptions]) -> TopicDescription:
        """Change fields of a topic's ``TopicConfig``; other processes follow at once. Durable on return.

        ``ConfigError`` also for another ``partitioner`` of a topic with several partitions.
        """
        check_topic_options(config)
        return self._writable_catalog().alter(name, config)

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Grow a topic to ``total`` partitions. Keys hash anew over the new number: their order is kept from here on only."""
        return self._writable_catalog().add_partitions(name, total, self._prepare)

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        self._check_open()
        return self._catalog.names()

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, number of partitions and configuration. ``TopicNotFound``."""
        self._check_open()
        return self._describe(name)

    def _describe(self, name: str) -> TopicDescription:
        if not isinstance(name, str):
            check_topic_name(name)  # here, since a list can't be looked up
        version = self._catalog.version()
        if version == self._topics_version and (known := self._topics.get(name)) is not None:
            return known  # the version is set last, so what stands here is of this one, or of a later one
        with self._mutex:
            if version != self._topics_version:
                self._topics, self._topics_version = {}, version
            topic = self._topics.get(name)
            if topic is None:
                topic = self._topics[name] = self._catalog.describe(name)
            return topic

    def topic_to_send_to(self, name: str) -> TopicDescription:
        """The topic, created now if it is unknown and the log was opened with ``auto_create_topics=True``."""
        try:
            return self.describe_topic(name)
        except own(TopicNotFound):
            if not self.auto_create_topics or self.read_only:
                raise
        return self.create_topic(name, if_not_exists=True)

    def catalog_version(self) -> int:
        """A number that changes whenever a topic is created, altered, grown or deleted by any process. Costs one stat."""
        self._check_open()
        return self._catalog.version()

    def require_writable(self) -> None:
        """``ReadOnlyLog``, with the reason, where records can't be appended; ``Closed``."""
        self._writable_catalog()

    def _read_only(self) -> ReadOnlyLog:
        path, why = self._layout.root, self._why_read_only
        return ReadOnlyLog(f"{path} can only be read: {why}", path=path, reason=why)

    def _writable_catalog(self) -> Catalog:
        self._check_open()
        if self.read_only or not isinstance(self._catalog, Catalog):
            raise self._read_only()
        return self._catalog

    def _prepare(self, directory: str, topic_id: str) -> None:
        prepare_directory(self._filesystem, directory, topic_id, self._boot)

    def _retire(self, directory: str, timeout_s: float = 30.0) -> None:
        retire_directory(self._filesystem, self.clock, directory, timeout_s)

    def _forget_commits(self, topic: str, timeout_s: float = 30.0) -> None:
        self.group_access().forget_topic(topic, timeout_s)

    # Partitions

    def partition(self, topic: str, number: int) -> Partition:
        """One partition. ``TopicNotFound``, ``InvalidPartition``."""
        described = self.describe_topic(topic)
        if not isinstance(number, int) or isinstance(number, bool) or number not in described.numbers:
            raise no_such_partition(topic, number, described.numbers)
        key = TopicPartition(topic, number)
        outdated = None
        with self._mutex:
            self._check_open()  # else it would be opened behind the back of ``close``
            partition = self._partitions.get(key)
            if partition is not None and partition.topic_id != described.id:
                outdated, partition = partition, None  # the topic was deleted and created anew
            if partition is None:
                partition = self._partitions[key] = self._open_partition(key, described)
        if outdated is not None:
            outdated.close()
        return partition

    def _open_partition(self, key: TopicPartition, topic: TopicDescription) -> Partition:
        return Partition(
            self._filesystem, self.clock, self._layout.partition(*key), key,
            lambda: self._config_of(key, topic.id),
            self._boot,
            topic_id=topic.id,
            read_only=self.read_only,
            why_read_only=self._why_read_only,
            foreign=self.is_kafka_directory,
            log_start=self._kafka_log_starts.get(key, 0),
            notify=self._changes.notify,
            sync_catalog=partial(self._sync_catalog, (topic.id, topic.partitions)),
            require_slots_version=partial(self._require_slots_version, topic.name),
        )  # fmt: skip

    def _sync_catalog(self, topic: tuple[str, int]) -> None:
        """Once for all partitions that a topic had when they were opened: they ask for the same.

        Another process may have added some later, and may have died before it synced their names.
        """
        assert isinstance(self._catalog, Catalog)  # since partitions that can't be written don't ask
        if topic not in self._durable_topics:
            self._catalog.make_durable()
            self._durable_topics.add(topic)

    def _require_slots_version(self, topic: str) -> None:
        assert isinstance(self._catalog, Catalog)  # since partitions that can't be written don't ask
        self._catalog.require_slots_version(topic)

    def _config_of(self, key: TopicPartition, topic_id: str) -> TopicConfig:
        """The settings of a partition opened for this topic. ``TopicNotFound`` where another one has its name now."""
        described = self._describe(key.topic)  # also while the log is closed: its partitions are sealed then
        if described.id != topic_id:
            raise TopicNotFound(
                f"partition {key.partition} of {key.topic!r} is gone: the topic was deleted, and created again since",
                topic=key.topic, partition=key.partition,
            )  # fmt: skip
        return described.config

    def _forget(self, topic: str) -> None:
        with self._mutex:
            forgotten = [self._partitions.pop(key) for key in list(self._partitions) if key.topic == topic]
        for partition in forgotten:  # not under the mutex: an append, which closing waits for, asks for the settings
            partition.close()

    def delete_records(self, topic_partition: TopicPartition, before: int) -> int:
        """Make offset ``before`` the first that can be read, and remove segments that lie wholly before it.

        Returns the log start offset. Durable on return. ``OffsetOutOfRange`` beyond the end.
        """
        return self.partition(*partition_of(topic_partition)).delete_before(before)

    def next_producer_id(self) -> int:
        """A producer id that no other producer of this log has or had. Reserved durably."""
        self.require_writable()
        return self._producer_ids.next()

    # Groups

    def group_access(self) -> Groups:
        """For consumers and the methods below: the groups of this log."""
        self._check_open()
        from pylog.group.admin import Groups

        with self._mutex:
            self._groups = self._groups or Groups(self, self._filesystem, self._layout, self._boot)
            return self._groups

    def groups(self) -> list[str]:
        """The names of all groups that have members or have committed offsets, sorted. Needs no permission to write."""
        return self.group_access().names()

    def describe_group(self, group: str) -> GroupDescription:
        """Who is in a group and reads what, what it has committed, and its lag. ``GroupNotFound``."""
        return self.group_access().describe(group)

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets a group's commits are behind the end, by partition. Joins nothing. ``GroupNotFound``."""
        return self.group_access().lag(group)

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
        return self.group_access().reset(
            group, partitions, to=to, to_time_ms=to_time_ms, shift_by=shift_by, offsets=offsets, dry_run=dry_run
        )

    def delete_group(self, group: str) -> None:
        """Remove a group without members, and all it has committed. Durable on return. ``GroupNotEmpty``, ``GroupNotFound``."""
        self.group_access().delete(group)

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
        from pylog.manager.verification import verify_log

        self._check_open()
        wanted = require_several("topics", topics)
        names = [name if isinstance(name, str) else check_topic_name(name) for name in wanted]
        return verify_log(self._filesystem, self._layout, self._catalog, names, progress=progress, report=report)

    # Waiting

    def wake(self) -> None:
        """Have waiters of this process ask again: something has changed that is in no file."""
        self._changes.wake()

    def watch(self, partitions: Collection[Partition], more: Collection[str] = ()) -> Watch | None:
        """To wait for what is published of these partitions, changes of topics and ``more`` files. None: look instead."""
        if self.is_kafka_directory or type(self.clock) is not SystemClock:  # published elsewhere; a test moves time
            return None
        return self._filesystem.watch(
            [self._layout.topics, *(partition.published_path for partition in partitions), *more]
        )

    def wait_for_change(self, ready: Callable[[], bool], timeout_s: float, watch: Watch | None = None) -> bool:
        """Wait until ``ready()`` or until the time is over; whether it was ready. ``watch``: of all that it looks at."""
        return self._changes.wait(ready, timeout_s, watch)

    # The end

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def flush_on_close(self, producer: Flushable) -> None:
        """Have ``close`` write what the producer, if it is there still, has not written by then, and end it."""
        self._to_flush.add(producer)

    def close(self) -> None:
        """Write what producers of this log hold, and give all files back. Closing twice is allowed."""
        for producer in [] if self._closed else list(self._to_flush):
            producer.log_closes()
        with self._mutex:
            self._closed = True
            partitions, self._partitions = list(self._partitions.values()), {}
        for partition in partitions:
            partition.close()
        self.wake()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the log {self._layout.root!r} has been closed", path=self._layout.root)

    def _forget_parent(self) -> None:
        self._mutex = threading.RLock()
