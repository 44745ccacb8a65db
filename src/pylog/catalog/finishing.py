"""Decides a change of a topic, and completes it: see ``changes.py``. The callers hold the catalog's
lock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from pylog.catalog.catalog import Catalog, Retire
from pylog.catalog.changes import Commit, TopicChange, read_change, write_draft
from pylog.catalog.disposal import is_own_directory, make_room, remove_all_condemned, remove_partition
from pylog.catalog.layout import DELETED_TOPIC_SUFFIX, DRAFT_SUFFIX, MOVED_TOPIC_SUFFIX, Layout
from pylog.catalog.topic import check_topic_name
from pylog.catalog.topic_file import read_topic
from pylog.clock import Clock
from pylog.errors import CorruptSegment, FormatVersionError, InvalidTopicName, LogLocked, LogNotFound, PylogError
from pylog.interrupts import own
from pylog.segment.naming import LOCK
from pylog.storage import FileSystem, while_holding

logger = logging.getLogger("pylog.catalog")

WriteCommits = Callable[[Sequence[Commit]], None]
"""Writes commits of groups as they are. Durable on return."""


def has_unfinished(catalog: Catalog) -> bool:
    """Whether a change or a deletion of a topic is not complete, also after a crash. Takes no
    lock."""
    return any(name.endswith((MOVED_TOPIC_SUFFIX, DELETED_TOPIC_SUFFIX)) for name in catalog.with_suffix(""))


class TopicChanges:
    """The changes of topics of one log. ``retire`` fences off the writers of a partition that
    goes."""

    def __init__(
        self,
        catalog: Catalog,
        filesystem: FileSystem,
        clock: Clock,
        layout: Layout,
        retire: Retire,
        write_commits: WriteCommits,
    ) -> None:
        self._catalog = catalog
        self._filesystem = filesystem
        self._clock = clock
        self._layout = layout
        self._retire = retire
        self._write_commits = write_commits

    def decide(self, change: TopicChange) -> None:
        """From here on the topic cannot be found until ``finish`` has completed the change."""
        self._catalog.make_way_durable()
        write_draft(self._filesystem, self._layout, change)
        name = change.before.name
        self._filesystem.replace(self._layout.topic(name), self._layout.moved_topic(name))
        self._catalog.advance_version()

    def finish(self) -> list[str]:
        """Complete every change that was decided. Returns why some could not be completed."""
        left = []
        for name in self._catalog.being_changed():
            try:
                self._finish(name)
            except own(CorruptSegment, FormatVersionError, InvalidTopicName, FileNotFoundError) as damage:
                if isinstance(damage, LogNotFound):
                    raise
                logger.warning("a change of the topic %r that was cut off is left as it is: %s", name, damage)
                left.append(f"{name!r}: {damage}")
        return left

    def finish_if_free(self) -> None:
        """After a crash, with the lock if it is free now. Errors are only logged: the next opening
        tries again."""
        if self._catalog.being_changed():
            try:
                self._catalog.locked(self.finish, timeout_s=0)
            except own(LogLocked):
                pass
            except own(LogNotFound):
                raise
            except own(PylogError) as error:
                logger.warning("a change of a topic that was cut off could not be finished: %s", error)

    def _finish(self, name: str) -> None:
        filesystem, layout, catalog = self._filesystem, self._layout, self._catalog
        filesystem.sync_directory(layout.topics)  # its process may have died before its own sync
        catalog.advance_version()
        change = read_change(filesystem, layout, check_topic_name(name))
        if not self._is_published(change):
            for there in dict.fromkeys((name, change.after.name)):
                if filesystem.exists(layout.topic(there)):  # an earlier version, or a restored copy: its directories?
                    logger.warning("there is a topic %r again, so the change of %r is left as it is", there, name)
                    return
            for number in range(max(change.before.partitions, change.after.partitions)):
                self._take_place(change, number)
            remove_all_condemned(filesystem, layout)  # an earlier attempt may have died while it removed one
            filesystem.sync_directory(layout.root)
            self._write_commits(change.commits)
            catalog.publish(change.after)
        filesystem.remove(layout.moved_topic(name))
        filesystem.sync_directory(layout.topics)  # without its draft, the decision could not be read
        catalog.advance_version()
        filesystem.remove(layout.draft(name))

    def _is_published(self, change: TopicChange) -> bool:
        path = self._layout.topic(change.after.name)
        if not self._filesystem.exists(path):
            return False
        return read_topic(self._filesystem, change.after.name, path).id == change.after.id

    def _take_place(self, change: TopicChange, number: int) -> None:
        """Have the new partition where it belongs, and nothing where there is none. May be
        repeated."""
        filesystem, layout, after = self._filesystem, self._layout, change.after
        source = (
            layout.copy(after.name, number, after.id)
            if change.is_copy
            else layout.partition(change.before.name, number)
        )
        place = layout.partition(after.name, number)
        if number < after.partitions and not filesystem.exists(source):
            return  # it is in its place
        if not change.is_copy:
            make_room(filesystem, layout, after.name, number)
            # No writer is in the middle of a step, and writes to a path that another topic may get.
            move = partial(filesystem.replace, source, place)
            while_holding(filesystem, self._clock, f"{source}/{LOCK}", move)
            return
        if is_own_directory(filesystem, place):
            self._retire(place)
        if filesystem.exists(place):
            remove_partition(filesystem, layout, after.name, number)
        if number < after.partitions:
            filesystem.replace(source, place)

    def drop_drafts(self) -> None:
        """With the lock of changes, after ``finish``: remove what a process that died before its
        decision has left."""
        filesystem, layout = self._filesystem, self._layout
        for name in self._catalog.with_suffix(DRAFT_SUFFIX):
            if not filesystem.exists(layout.moved_topic(name)):
                filesystem.remove(layout.draft(name))
        for name in filesystem.names(layout.root):
            directory = f"{layout.root}/{name}"
            if layout.is_copy(name) and is_own_directory(filesystem, directory):
                for file in filesystem.names(directory):
                    filesystem.remove(f"{directory}/{file}")
                filesystem.remove_directory(directory)
