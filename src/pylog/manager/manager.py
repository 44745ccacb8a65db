"""LogManager: one open log without its public face, which ``Log`` is.

It owns the catalog and the open partitions, which it builds from concrete parts. The drafts of a
repartition are built in ``topic_changes/copying.py``. Thread-safe; continues to work in a forked
child.
"""

from __future__ import annotations

import threading  # threads share the table of open partitions
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pylog.catalog import (
    Catalog,
    KafkaCatalog,
    Layout,
    Manifest,
    TopicConfig,
    TopicDescription,
    no_such_partition,
)
from pylog.catalog.changes import Commit
from pylog.catalog.finishing import has_unfinished
from pylog.catalog.settings import LogSettings, read_settings, write_settings
from pylog.checks import refuse_records
from pylog.clock import Clock, SystemClock
from pylog.errors import Closed, PylogError, ReadOnlyLog, TopicChanged, TopicExists, TopicNotFound
from pylog.interrupts import WeakSet, own, suppress
from pylog.manager.changes import changes_of
from pylog.manager.known_topics import KnownTopics
from pylog.manager.notify import Changes
from pylog.manager.opening import check_topic_options, checked_path, open_directory
from pylog.manager.producer_ids import ProducerIds
from pylog.model import Flushable, TopicPartition
from pylog.partition.directory import PartitionDirectory, boot_of
from pylog.partition.partition_log import PartitionLog, Transactions
from pylog.storage import LOCK_TIMEOUT_S, FileSystem, OsFileSystem, Watch, after_fork_in_child

if TYPE_CHECKING:
    from pylog.partition.verify import Problem, VerifyReport

Part = TypeVar("Part")


ForgetCommits = Callable[["LogManager", str, float], None]
"""Removes the groups' commits in a deleted topic: called with its name and a timeout in seconds."""

WriteCommitsOf = Callable[["LogManager", Sequence[Commit]], None]
"""Writes commits of groups in a topic that has changed, as they are."""

AfterRoll = Callable[["LogManager", PartitionLog], None]
"""Called by the writer that has closed a segment, without the partition's lock."""


class LogManager:
    """Options as of ``Log``. ``filesystem``, ``layout`` and ``boot`` are for a log's parts."""

    def __init__(
        self,
        path: object,
        *,
        create: bool,
        read_only: bool,
        auto_create_topics: bool,
        shared_group: bool,
        clock: Clock | None,
        filesystem: FileSystem | None,
        topic_defaults: Mapping[str, object],
        forget_commits: ForgetCommits,
        write_commits: WriteCommitsOf,
        transactions: Callable[[LogManager], Transactions],
        after_roll: AfterRoll | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.auto_create_topics = auto_create_topics
        self.filesystem: FileSystem = filesystem or OsFileSystem()
        self.path = Layout(checked_path(path)).root
        self.layout = Layout(self.filesystem.absolute(self.path))  # the process may change its directory
        self.boot = boot_of(self.filesystem)
        check_topic_options(topic_defaults)
        defaults = TopicConfig().with_changes(topic_defaults)
        self._forget_commits = forget_commits
        self._partitions: dict[TopicPartition, PartitionLog] = {}
        self._mutex = threading.RLock()
        self._durable_topics: set[tuple[str, int]] = set()  # topics (id, partitions) whose names are on the disk
        self._changes = Changes(self.clock)
        self._transactions = partial(transactions, self)
        self._after_roll = None if after_roll is None else partial(after_roll, self)
        self._to_flush: WeakSet[Flushable] = WeakSet()
        self._parts: dict[object, Any] = {}
        self.closed = False
        opened = open_directory(
            self.filesystem, self.clock, self.layout, defaults,
            create=create, read_only=read_only, shared_group=shared_group,
        )  # fmt: skip
        self.filesystem = opened.filesystem
        self._catalog: Catalog | KafkaCatalog = opened.catalog
        self._known = KnownTopics(opened.catalog, self.clock)
        self.is_kafka_directory = isinstance(opened.catalog, KafkaCatalog)
        self._require_slots_version: Callable[[str], object] = (
            bool if isinstance(opened.catalog, KafkaCatalog) else opened.catalog.require_slots_version
        )
        self._why_read_only = opened.why_read_only
        self.read_only = opened.why_read_only is not None
        self._kafka_log_starts = opened.kafka_log_starts
        self.manifest: Manifest = opened.manifest  # type: ignore[assignment]  # None only of Kafka's, which has none
        self._producer_ids = ProducerIds(opened.filesystem, self.clock, self.layout.producer_ids)
        after_fork_in_child(self._forget_parent)
        self.write_commits: Callable[[Sequence[Commit]], None] = partial(write_commits, self)
        if isinstance(self._catalog, Catalog) and not self.read_only and has_unfinished(self._catalog):
            changes_of(self, 0.0).finish_if_free()
            self._catalog.finish_deletions(
                lambda directory: self._retire(directory, 0.0), lambda topic: self._forget_commits(self, topic, 0.0)
            )

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] = {},
        *,
        if_not_exists: bool = False,
        internal: bool = False,
        timeout_s: float = LOCK_TIMEOUT_S,
    ) -> TopicDescription:
        """See ``Log.create_topic``. ``internal``: one of Kafka's own; users can't create it."""
        catalog, work = self.writable_catalog(), (self._prepare, self._retire, self._forget)
        create = partial(catalog.create, name, partitions, config, *work, internal=internal, timeout_s=timeout_s)
        while True:
            try:
                with suppress(TopicChanged):
                    return create()
                # The process that changed a topic has died: a living one has the catalog's lock.
                catalog.locked(changes_of(self, timeout_s).finish, timeout_s)
                return create()
            except own(TopicExists) as error:
                if not if_not_exists or error.existing != name:
                    raise
            with suppress(TopicNotFound):  # deleted since
                described = self.describe_topic(name)
                catalog.make_durable()  # its creator may not have done so yet
                return described

    def delete_topic(self, name: str) -> None:
        """See ``Log.delete_topic``."""
        self.writable_catalog().delete(name, self._retire, self._forget, changes_of(self, LOCK_TIMEOUT_S).finish)
        self.close_partitions(name)

    def close_partitions(self, name: str) -> None:
        """Close what this process has open of a topic that is gone, or is another one now."""
        with self._mutex:
            closing = [self._partitions.pop(key) for key in list(self._partitions) if key.topic == name]
        for partition in closing:  # without the mutex: close waits for appends, which ask for the settings
            partition.close()

    def close_gone(self, name: str) -> None:
        """Close what this process has open of a topic that another process has deleted,
        repartitioned or created again; waits for appends. A renamed one can still be read."""
        with self._mutex:  # before the look: what is opened later is of a topic that is there
            open_now = [item for item in self._partitions.items() if item[0].topic == name]
        try:
            if isinstance(self._catalog, Catalog) and self._catalog.being_changed():
                return  # the version advances again when the change is complete
            ids = {topic.id for topic in self._known.existing(self._catalog.names()).values()}
        except own(PylogError):  # of a damaged topic: its own users get the error
            return
        for key, partition in open_now:
            if partition.topic_id not in ids:
                with self._mutex:
                    if self._partitions.get(key) is partition:
                        del self._partitions[key]
                partition.close()

    def alter_topic(self, name: str, config: Mapping[str, object]) -> TopicDescription:
        """See ``Log.alter_topic``."""
        altered = self.writable_catalog().alter(name, config, self._announce)
        if not altered.config.writable:
            for number in altered.numbers:
                self._end_appends(self.partition(name, number))
        return altered

    def _end_appends(self, partition: PartitionLog) -> None:
        """With the lock once: the appends of those that have not read the topic's settings again
        are over. Then sync what is there: a power failure takes nothing from a read-only topic."""
        partition.settle(int(LOCK_TIMEOUT_S * 1000))
        partition.sync(partition.latest_offset)

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """See ``Log.add_partitions``."""
        return self.writable_catalog().add_partitions(name, total, self._prepare)

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        self.check_open()
        return self._catalog.names()

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, number of partitions and configuration. ``TopicNotFound``."""
        if self.closed:
            raise self._closed()
        return self._known.describe(name)

    def existing_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Those of these topics that exist, by name. Costs one stat if they were asked for
        before."""
        self.check_open()
        return self._known.existing(names)

    def topic_to_send_to(self, name: str) -> TopicDescription:
        """The topic. Created if unknown and the log was opened with ``auto_create_topics=True``."""
        try:
            found = self.describe_topic(name)
        except own(TopicNotFound):
            if not self.auto_create_topics or self.read_only:
                raise
            return self.create_topic(name, if_not_exists=True)
        refuse_records(name, "send")
        return found

    def settings(self) -> LogSettings:
        """The options of the whole log, as any process has set them last."""
        self.check_open()
        return read_settings(self.filesystem, self.layout.settings)

    def alter(self, max_bytes: int) -> LogSettings:
        """See ``Log.alter``."""
        changed = LogSettings(max_bytes)
        write = partial(write_settings, self.filesystem, self.layout.settings, changed)
        return self.writable_catalog().locked(write)

    def with_topics_fixed(self, work: Callable[[], Part]) -> Part:
        """Call ``work`` while no process creates, changes or deletes a topic. ``ReadOnlyLog``,
        ``LogLocked``."""
        return self.writable_catalog().locked(work)

    def catalog_version(self) -> int:
        """A number that changes when any process changes a topic. Costs one stat."""
        self.check_open()
        return self._catalog.version()

    def require_writable(self) -> None:
        """Raises ``ReadOnlyLog``, with the reason, if records can't be appended; ``Closed``."""
        self.writable_catalog()

    def writable_catalog(self) -> Catalog:
        """The catalog, if this process may change it. ``ReadOnlyLog``, ``Closed``."""
        self.check_open()
        if self.read_only or not isinstance(self._catalog, Catalog):
            path, why = self.layout.root, self._why_read_only
            raise ReadOnlyLog(f"{path} can only be read: {why}", path=path, reason=why)
        return self._catalog

    def _prepare(self, directory: str, topic_id: str) -> None:
        PartitionDirectory.create(self.filesystem, directory, topic_id, self.boot)

    def _announce(self, directory: str) -> None:
        PartitionDirectory.announce_settings(self.filesystem, directory)

    def _retire(self, directory: str, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        PartitionDirectory.retire(self.filesystem, self.clock, directory, timeout_s)

    def _forget(self, topic: str) -> None:
        self._forget_commits(self, topic, LOCK_TIMEOUT_S)

    # Partitions

    def partition(self, topic: str, number: int) -> PartitionLog:
        """One partition. ``TopicNotFound``, ``InvalidPartition``."""
        described = self.describe_topic(topic)
        if not isinstance(number, int) or isinstance(number, bool) or number not in described.numbers:
            raise no_such_partition(topic, number, described.numbers)
        key = TopicPartition(described.name, int(number))
        outdated = None
        with self._mutex:
            self.check_open()  # else ``close`` would miss it
            partition = self._partitions.get(key)
            if partition is not None and partition.topic_id != described.id:
                described = self.describe_topic(topic)  # as it is now: it may have been the older one
                if number not in described.numbers:
                    raise no_such_partition(topic, number, described.numbers)
            if partition is None or partition.topic_id != described.id:
                outdated = partition  # the topic was deleted and created again
                partition = self._partitions[key] = self._open_partition(key, described)
        if outdated is not None:
            outdated.close()
        return partition

    def _open_partition(self, key: TopicPartition, topic: TopicDescription) -> PartitionLog:
        settings = partial(self._config_of, key, topic.id)
        sealed_for = "" if self.is_kafka_directory else topic.id  # Kafka's files may contain seals of any log
        directory = PartitionDirectory(
            self.filesystem, self.clock, self.layout.partition(*key), key, settings, self.boot, sealed_for,
            require_slots_version=self._require_slots_version, is_kafka=self.is_kafka_directory,
        )  # fmt: skip
        return PartitionLog(
            directory,
            topic_id=topic.id,
            why_read_only=self._why_read_only,
            log_start=self._kafka_log_starts.get(key, 0),
            notify=self._changes.notify,
            sync_catalog=partial(self._sync_catalog, (topic.id, topic.partitions)),
            transactions=None if self.is_kafka_directory else self._transactions,
            after_roll=self._after_roll,
        )  # fmt: skip

    def _sync_catalog(self, topic: tuple[str, int]) -> None:
        """Sync the names of all partitions that a topic had when they were opened, once.
        Later partitions need their own: their creator may have died before it synced them."""
        assert isinstance(self._catalog, Catalog)  # partitions that can't be written don't call this
        if topic not in self._durable_topics:
            self._catalog.make_durable()
            self._durable_topics.add(topic)

    def _config_of(self, key: TopicPartition, topic_id: str) -> TopicConfig:
        """A partition's settings. ``TopicNotFound`` if another topic has the name now: one that was
        created again can equal the old one in every number of its slots."""
        described = self._known.describe(key.topic)  # also after ``close``, which seals partitions
        if topic_id in described.earlier_ids:
            raise TopicChanged.since(key.topic)
        if described.id != topic_id:
            raise TopicNotFound(
                f"partition {key.partition} of {key.topic!r} is gone: the topic was deleted, and created again since",
                topic=key.topic, partition=key.partition,
            )  # fmt: skip
        return described.config

    def next_producer_id(self) -> int:
        """A producer id that no other producer of this log has or had. Reserved durably."""
        self.require_writable()
        return self._producer_ids.next()

    # Parts

    def part(self, make: Callable[[LogManager], Part]) -> Part:
        """The part that ``make`` builds of this manager at the first call, for all callers."""
        self.check_open()
        with self._mutex:
            if make not in self._parts:
                self._parts[make] = make(self)
            part: Part = self._parts[make]
            return part

    def find_problems(
        self, topics: Iterable[str], progress: Callable[[int], object], report: VerifyReport | None
    ) -> Iterator[Problem]:
        """See ``Log.find_problems``."""
        from pylog.manager.verification import verify_log

        self.check_open()
        return verify_log(self.filesystem, self.layout, self._catalog, topics, progress=progress, report=report)

    # Waiting

    def wake(self) -> None:
        """Let waiters of this process check again: something has changed that is not in a file."""
        self._changes.wake()

    def watch(self, partitions: Collection[PartitionLog], more: Collection[str] = ()) -> Watch | None:
        """A watch of these partitions, changes of topics and ``more`` files. None: poll instead."""
        if self.is_kafka_directory or type(self.clock) is not SystemClock:  # Kafka's are elsewhere; tests move time
            return None
        return self.filesystem.watch(
            [self.layout.topics, *(partition.published_path for partition in partitions), *more]
        )

    def wait_for_change(self, ready: Callable[[], bool], timeout_s: float, watch: Watch | None = None) -> bool:
        """Wait until ``ready()`` or the timeout; whether it was ready. See ``Changes.wait``."""
        return self._changes.wait(ready, timeout_s, watch)

    # Closing

    def flush_on_close(self, producer: Flushable) -> None:
        """Let ``close`` write what the producer, if it still exists, has not, and end it."""
        self._to_flush.add(producer)

    def close(self) -> None:
        """Write what this log's producers have buffered, and close all files. Repeatable."""
        for producer in [] if self.closed else list(self._to_flush):
            producer.log_closes()
        with self._mutex:
            self.closed = True
            partitions, self._partitions = list(self._partitions.values()), {}
        for partition in partitions:
            partition.close()
        self.wake()

    def check_open(self) -> None:
        """Raises ``Closed``."""
        if self.closed:
            raise self._closed()

    def _closed(self) -> Closed:
        return Closed(f"the log {self.layout.root!r} has been closed", path=self.layout.root)

    def _forget_parent(self) -> None:
        self._mutex = threading.RLock()
