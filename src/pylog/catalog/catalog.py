"""Which topics a log has: any process creates, lists, alters and deletes them atomically.

``.pylog/topics/<topic>.json`` is the truth. A topic exists from the renaming of its file into place
to its renaming to ``<topic>.gone``, which stays until the directories are gone: after a crash, the
next process that opens the log for writing finishes that. A directory without either file makes
room when its name is used again (``disposal.py``). Writers hold the catalog's lock.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident  # whose lock the catalog's is: a deletion appends to another topic
from typing import Any, TypeVar

from pylog.catalog.changes import being_changed, name_after
from pylog.catalog.disposal import is_own_directory, make_room, remove_all_condemned, remove_partition
from pylog.catalog.layout import DELETED_TOPIC_SUFFIX, MOVED_TOPIC_SUFFIX, TOPIC_SUFFIX, Layout
from pylog.catalog.manifest import write_json
from pylog.catalog.topic import (
    INTERNAL_TOPICS,
    TopicConfig,
    TopicDescription,
    check_new_topic_name,
    check_no_internal_name,
    check_partition_count,
    check_topic_name,
    collision_key,
    lawful_names,
)
from pylog.catalog.topic_file import has_slots_version, read_topic, topic_content
from pylog.clock import Clock
from pylog.errors import (
    ConfigError,
    CorruptSegment,
    FormatVersionError,
    InvalidTopicName,
    LogLocked,
    LogNotFound,
    PylogError,
    TopicExists,
    TopicNotFound,
)
from pylog.interrupts import own
from pylog.segment.naming import LOCK
from pylog.storage import LOCK_TIMEOUT_S, FileSystem, sync_name, while_holding

T = TypeVar("T")
logger = logging.getLogger("pylog.catalog")

Prepare = Callable[[str, str], None]
"""Prepares a new partition directory: ``(directory, topic id)``. Durable on return."""

Announce = Callable[[str], None]
"""Has the writers of a partition directory read the topic's settings again."""

Retire = Callable[[str], None]
"""Fences off the writers of a partition directory before its removal."""

Forget = Callable[[str], None]
"""Invalidates what other files record of a deleted topic, by name. Durable on return."""

_NO_ADVICE = ""  # no hint to create a topic that is to be changed or removed


class Catalog:
    """The topics of one log that pylog writes."""

    def __init__(self, filesystem: FileSystem, clock: Clock, layout: Layout, defaults: TopicConfig) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._layout = layout
        self._defaults = defaults
        self._way_is_durable = False
        self._holder: tuple[int, int] | None = None  # the process and thread that has the catalog's lock

    def version(self) -> int:
        """A number that changes with each change of a topic. Costs one stat. ``LogNotFound``."""
        try:
            return self._filesystem.modified_ns(self._layout.topics)
        except own(FileNotFoundError) as error:
            raise LogNotFound.while_open(self._layout.topics) from error

    def names(self) -> list[str]:
        """The topics' names, sorted: as a file, ``orders-eu.json`` precedes ``orders.json``."""
        return lawful_names(self.places(), self._layout.topics)

    def places(self) -> dict[str, str]:
        """Every name found, valid or not, and its path."""
        return {name: self._layout.topic(name) for name in self.with_suffix(TOPIC_SUFFIX)}

    def being_deleted(self) -> list[str]:
        """Topics whose directories are being removed, also after a crash. ``LogNotFound``."""
        return self.with_suffix(DELETED_TOPIC_SUFFIX)

    def _is_being_deleted(self, name: str) -> bool:
        # ``exists`` is quick; on some filesystems it also finds a name in another case.
        return self._filesystem.exists(self._layout.deleted_topic(name)) and name in self.being_deleted()

    def being_changed(self) -> list[str]:
        """Topics whose change was decided and is not complete: see ``changes.py``."""
        return self.with_suffix(MOVED_TOPIC_SUFFIX)

    def with_suffix(self, suffix: str) -> list[str]:
        """The catalog's files that end with ``suffix``, without it. ``LogNotFound``."""
        try:
            found = self._filesystem.names(self._layout.topics)
        except own(FileNotFoundError) as error:
            raise LogNotFound.while_open(self._layout.topics) from error
        return [name.removesuffix(suffix) for name in found if name.endswith(suffix)]

    def describe(self, name: str, advice: str = "; create it with create_topic") -> TopicDescription:
        """The topic. ``TopicNotFound``, with ``advice``."""
        try:
            return read_topic(self._filesystem, name, self._layout.topic(check_topic_name(name)))
        except own(FileNotFoundError):
            if self._filesystem.exists(self._layout.moved_topic(name)):
                raise being_changed(name, self._layout.root) from None
            there = ", ".join(self.names()[:10]) or "none"
            raise TopicNotFound(
                f"no topic {name!r} in {self._layout.root} (topics: {there}){advice}", topic=name
            ) from None

    def create(
        self,
        name: str,
        partitions: int,
        changes: Mapping[str, Any],
        prepare: Prepare,
        retire: Retire,
        forget: Forget,
        *,
        internal: bool = False,
        timeout_s: float,
    ) -> TopicDescription:
        """``internal``: one of Kafka's own. Durable on return. ``TopicExists``, ``ConfigError``,
        ``InvalidTopicName``; ``LogLocked`` after ``timeout_s``."""
        check_new_topic_name(name)
        check_partition_count(partitions)
        config = self._defaults.with_changes(changes)
        if not config.writable:
            raise ConfigError(
                f"topic {name!r} would be created with writable=False, and stay empty: make it read-only with alter_topic when "
                "it has its records",
                option="writable", value=False, topic=name,
            )  # fmt: skip
        if not internal and not self._filesystem.exists(self._layout.topic(name)):  # else it is TopicExists
            check_no_internal_name(name)
        return self.locked(partial(self._create, name, partitions, config, prepare, retire, forget), timeout_s)

    def _create(
        self, name: str, partitions: int, config: TopicConfig, prepare: Prepare, retire: Retire, forget: Forget
    ) -> TopicDescription:
        self._refuse_changed(name, partitions)
        self.refuse_collision(name)
        if self._is_being_deleted(name):
            self._finish_deletion(name, retire, forget)
        topic_id = self.new_id()
        self._prepare(name, range(partitions), topic_id, prepare)
        return self.publish(TopicDescription(name, topic_id, partitions, config))

    def _refuse_changed(self, name: str, partitions: int) -> None:
        """Raises ``TopicChanged`` if a topic has had the name, or one too similar, or may be about
        to get it."""
        filesystem, layout = self._filesystem, self._layout
        for before in self.being_changed():
            after = name_after(filesystem, layout, before)
            if after is None:  # then its partitions may be here
                concerned = any(filesystem.exists(layout.partition(name, number)) for number in range(partitions))
            else:
                concerned = collision_key(after) == collision_key(name)
            if concerned or collision_key(before) == collision_key(name):
                raise being_changed(before, layout.root)

    def new_id(self) -> str:
        """A random UUID in base64. As in Kafka, it does not begin with ``-``, like an option of a
        command, and is not the reserved 0 or 1."""
        while True:
            drawn = self._filesystem.random_bytes(16)
            topic_id = base64.urlsafe_b64encode(drawn).decode().rstrip("=")
            if not topic_id.startswith("-") and int.from_bytes(drawn, "big") > 1:
                return topic_id

    def refuse_collision(self, name: str) -> None:
        """Raises ``TopicExists`` if a topic has the name, or one too similar."""
        for other in self.names():
            if other == name:
                raise TopicExists(
                    f"there is a topic {name!r} in {self._layout.root} already; use it, or take another name",
                    topic=name, existing=name,
                )  # fmt: skip
            if collision_key(other) == collision_key(name):
                raise TopicExists(
                    f"topic {name!r} can't stand beside {other!r} in {self._layout.root}: names must differ in more than case "
                    "and the choice of . and _; take another name",
                    topic=name, existing=other,
                )  # fmt: skip

    def refuse_deleted(self, name: str) -> None:
        """Raises ``TopicExists`` while directories of a deleted topic of this name exist."""
        if self._is_being_deleted(name):
            raise TopicExists(
                f"a topic {name!r} was deleted, and not all of it is gone yet: open the log for writing again, which removes "
                "it, or take another name",
                topic=name, existing=name,
            )  # fmt: skip

    def add_partitions(self, name: str, total: int, prepare: Prepare) -> TopicDescription:
        check_partition_count(total)
        return self.locked(partial(self._add_partitions, name, total, prepare))

    def _add_partitions(self, name: str, total: int, prepare: Prepare) -> TopicDescription:
        topic = self.describe(name, _NO_ADVICE)
        if total <= topic.partitions:
            raise ConfigError(
                f"{name!r} has {topic.partitions} partition{'s' if topic.partitions > 1 else ''}; "
                f"their number only grows, got {total}",
                option="total", value=total, partitions=topic.partitions,
            )  # fmt: skip
        self._prepare(name, range(topic.partitions, total), topic.id, prepare)
        return self.publish(topic._replace(partitions=total))

    def alter(self, name: str, changes: Mapping[str, Any], announce: Announce) -> TopicDescription:
        if not changes:
            raise ConfigError(
                f"nothing to alter of {name!r}: name options as keywords, alter_topic(name, segment_ms=...)",
                option="config",
            )
        return self.locked(partial(self._alter, name, changes, announce))

    def _alter(self, name: str, changes: Mapping[str, Any], announce: Announce) -> TopicDescription:
        topic = self.describe(name, _NO_ADVICE)
        config = topic.config.with_changes(changes)
        if not config.writable and name in INTERNAL_TOPICS:
            raise InvalidTopicName(
                f"{name!r} can't be read-only: commits and transactions of this log are written to it; take another topic",
                name=name,
            )
        before, after = topic.config.partitioner, config.partitioner
        if before != after and topic.partitions > 1:
            raise ConfigError(
                f"the partitioner of {name!r} can't be changed from {before} to {after}: the topic has {topic.partitions} "
                "partitions, and producers may hold records for them now; if it is empty, delete it and create it again with "
                f"partitioner={after!r}, else create another one, and copy the records there",
                option="partitioner", value=after, topic=name, topic_partitioner=before,
            )  # fmt: skip
        altered = self.publish(topic._replace(config=config))
        for number in altered.numbers:
            announce(self._layout.partition(name, number))
        return altered

    def delete(self, name: str, retire: Retire, forget: Forget, finish: Callable[[], object]) -> None:
        """Remove the topic, then its directories. ``retire(directory)`` first fences off their
        writers; ``forget(name)`` comes last. Durable on return.

        ``LogLocked`` if a writer does not finish. Usually nothing was removed then. If the writer
        came in between, the topic is gone, and its directories go when the log is next opened for
        writing, as after a crash. What is not a directory of this log, such as a link, is moved
        aside unchanged: writers with files open there are not fenced off.

        ``finish`` completes changes of topics that were cut off: later they would bring the topic
        back.
        """
        self.locked(partial(self._delete, name, retire, forget, finish))

    def _delete(self, name: str, retire: Retire, forget: Forget, finish: Callable[[], object]) -> None:
        filesystem = self._filesystem
        finish()
        try:
            topic = self.describe(name, _NO_ADVICE)
        except own(TopicNotFound):
            if self._is_being_deleted(name):  # its deleter failed, and other processes may not know
                self.advance_version()
            filesystem.sync_directory(self._layout.topics)  # its deleter may not have done so yet
            raise
        for number in range(topic.partitions):  # a stopped append must not leave half a topic
            directory = self._layout.partition(name, number)
            if is_own_directory(filesystem, directory):
                while_holding(filesystem, self._clock, f"{directory}/{LOCK}", bool)
        filesystem.replace(self._layout.topic(name), self._layout.deleted_topic(name))
        self.advance_version()
        self._remove_the_rest(topic, retire, forget)

    def _remove_the_rest(self, topic: TopicDescription, retire: Retire, forget: Forget) -> None:
        filesystem, layout = self._filesystem, self._layout
        filesystem.sync_directory(layout.topics)  # again: the deleter may have died before its sync
        for number in range(topic.partitions):
            directory = layout.partition(topic.name, number)
            if is_own_directory(filesystem, directory):
                retire(directory)
            if filesystem.exists(directory):
                remove_partition(filesystem, layout, topic.name, number)
        remove_all_condemned(filesystem, layout)
        filesystem.sync_directory(layout.root)
        forget(topic.name)  # last: a full disk has room now
        filesystem.remove(layout.deleted_topic(topic.name))
        filesystem.sync_directory(layout.topics)

    def finish_deletions(self, retire: Retire, forget: Forget) -> None:
        """Finish deletions cut off by a crash, unless the catalog is locked: one may be running.
        Other errors are only logged: the next opening tries again."""
        if self.being_deleted():
            try:
                self.locked(partial(self._finish_deletions, retire, forget), timeout_s=0)
            except own(LogLocked):
                pass
            except own(LogNotFound):
                raise
            except own(PylogError) as error:
                logger.warning("a deletion that was cut off could not be finished: %s", error)

    def _finish_deletions(self, retire: Retire, forget: Forget) -> None:
        for name in self.being_deleted():
            self._finish_deletion(name, retire, forget)

    def _finish_deletion(self, name: str, retire: Retire, forget: Forget) -> None:
        path = self._layout.deleted_topic(name)
        try:
            topic = read_topic(self._filesystem, name, self._layout.deleted_topic(check_topic_name(name)))
        except own(CorruptSegment, FormatVersionError, InvalidTopicName) as damage:
            logger.warning("a deletion that was cut off is left as it is: %s", damage)
            return
        # If a copy was restored over the log, the directories' owner is unknown.
        if self._filesystem.exists(self._layout.topic(name)):
            logger.warning("there is a topic %r, so its directories stay; remove %r if it was not meant", name, path)
            return
        logger.info("finishing the deletion of %r, which was cut off", name)
        self.advance_version()  # the deleter may have died before it did so
        self._remove_the_rest(topic, retire, forget)

    def _prepare(self, name: str, numbers: range, topic_id: str, prepare: Prepare) -> None:
        for number in numbers:
            make_room(self._filesystem, self._layout, name, number)
            directory = self._layout.partition(name, number)
            self._filesystem.make_directory(directory)
            prepare(directory, topic_id)
        self._filesystem.sync_directory(self._layout.root)

    def publish(self, topic: TopicDescription) -> TopicDescription:
        self.make_way_durable()
        write_json(self._filesystem, self._layout.topic(topic.name), topic_content(topic))
        self.advance_version()
        return topic

    def require_slots_version(self, name: str) -> None:
        """Have versions that know only older commit slots refuse the topic. Durable on return.
        ``TopicNotFound``, ``LogLocked``."""
        self.locked(partial(self._require_slots_version, name), nested=True)

    def _require_slots_version(self, name: str) -> None:
        topic = self.describe(name, _NO_ADVICE)
        if not has_slots_version(self._filesystem, self._layout.topic(name)):
            self.publish(topic)

    def make_durable(self) -> None:
        """Let every topic, and the directories above it, survive a power failure. ``StorageError``.
        Needed for others' topics: they are visible when renamed, before the sync."""
        self.make_way_durable()
        self._filesystem.sync_directory(self._layout.topics)

    def make_way_durable(self) -> None:
        """Sync what precedes any topic: the manifest, and the directories."""
        if not self._way_is_durable:
            sync_name(self._filesystem, self._layout.root)
            for directory in (self._layout.root, self._layout.private):
                self._filesystem.sync_directory(directory)
            self._way_is_durable = True

    def advance_version(self) -> None:
        """Give the directory a new time: file times can be as coarse as the kernel's tick."""
        mark = f"{self._layout.topics}/.changed"
        before = self.version()
        while True:
            self._filesystem.open_appendable(mark).close()
            self._filesystem.remove(mark)
            if self.version() != before:
                return
            self._clock.sleep(0.001)

    def locked(self, work: Callable[[], T], timeout_s: float = LOCK_TIMEOUT_S, *, nested: bool = False) -> T:
        """Return ``work()``, called with the catalog's lock. ``LogLocked``, ``LogNotFound``.
        ``nested``: this thread may hold it, to delete or change a topic."""
        if nested and self._holder == (self._filesystem.process_id(), get_ident()):
            return work()

        def noted() -> T:
            self._holder = self._filesystem.process_id(), get_ident()
            try:
                return work()
            finally:
                self._holder = None

        try:
            return while_holding(self._filesystem, self._clock, self._layout.catalog_lock, noted, timeout_s)
        except own(FileNotFoundError) as error:
            if isinstance(error, LogNotFound) or self._filesystem.is_directory(self._layout.topics):
                raise
            raise LogNotFound.while_open(self._layout.topics) from error
