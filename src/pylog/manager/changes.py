"""The changes of topics of an open log: another name, other partitions. See
``catalog/changes.py``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from pylog.catalog import Catalog, Layout, TopicDescription
from pylog.catalog.disposal import remove_all_condemned
from pylog.catalog.finishing import TopicChanges, WriteCommits
from pylog.catalog.layout import parse_condemned
from pylog.catalog.topic_file import read_topic
from pylog.clock import Clock
from pylog.errors import CorruptSegment, FormatVersionError, LogLocked, PylogError
from pylog.interrupts import own, suppress
from pylog.partition.directory import PartitionDirectory
from pylog.storage import FileSystem, while_holding


class ChangingLog(Protocol):
    """What a change uses of a ``LogManager``."""

    filesystem: FileSystem
    clock: Clock
    layout: Layout
    write_commits: WriteCommits

    def writable_catalog(self) -> Catalog:
        """The catalog, if this process may change it."""

    def catalog_version(self) -> int:
        """A number that differs after each change of a topic."""

    def topics(self) -> list[str]:
        """The names of all topics."""

    def existing_topics(self, names: Iterable[str]) -> Mapping[str, TopicDescription]:
        """Those of these topics that exist."""


def changes_of(manager: ChangingLog, timeout_s: float) -> TopicChanges:
    """Decides and completes changes. ``timeout_s``: to wait for a writer of a partition that
    goes."""
    filesystem, clock = manager.filesystem, manager.clock

    def retire(directory: str) -> None:
        PartitionDirectory.retire(filesystem, clock, directory, timeout_s)

    return TopicChanges(
        manager.writable_catalog(), filesystem, clock, manager.layout, retire, manager.write_commits
    )  # fmt: skip


def complete_changes(manager: ChangingLog, timeout_s: float) -> None:
    """Complete what a process that died has left. ``LogLocked`` if that can't be done."""
    catalog = manager.writable_catalog()
    why = catalog.locked(changes_of(manager, timeout_s).finish, nested=True) if catalog.being_changed() else []
    if left := catalog.being_changed():
        raise LogLocked(
            f"a change of {left} cannot be completed: {'; '.join(why) or 'there is a topic of its name again'}",
            path=manager.layout.topics, topics=left,
        )  # fmt: skip


def drop_leftovers(manager: ChangingLog, timeout_s: float) -> dict[str, PylogError]:
    """Remove the partitions that killed processes have left: copies for a repartition, unless a
    change is under way, and what was being removed. Returns an error for each topic with one of the
    latter that stays. ``LogLocked`` if the catalog is locked for ``timeout_s``."""
    catalog, filesystem, layout = manager.writable_catalog(), manager.filesystem, manager.layout

    def drop_copies() -> None:
        if not catalog.being_changed():  # else it needs them
            changes_of(manager, 0.0).drop_drafts()

    names = filesystem.names(layout.root)
    if any(map(layout.is_copy, names)):
        with suppress(LogLocked):
            while_holding(filesystem, manager.clock, layout.changes_lock, drop_copies, 0.0)
    failures: dict[str, PylogError] = {}
    if any(map(parse_condemned, names)):
        failures = catalog.locked(partial(remove_all_condemned, filesystem, layout), timeout_s)
    if any(layout.is_copy(name) or parse_condemned(name) for name in names):
        filesystem.sync_directory(layout.root)
    return failures


def changed(manager: ChangingLog, topic_ids: Collection[str]) -> set[str]:
    """Those of these topics, none of which has its name and id any more, that continue under
    another name or another id, or are about to. The others were deleted.

    A topic whose file can't be read is skipped: its own users get the error.
    """
    version = manager.catalog_version()
    found: set[str] = set()
    for name in manager.writable_catalog().being_changed():
        try:
            found.update(_ids(read_topic(manager.filesystem, name, manager.layout.moved_topic(name))))
        except own(FileNotFoundError):  # complete now: it is in the list below
            continue
        except own(CorruptSegment, FormatVersionError):
            return set(topic_ids)  # it may be any of them
    for name in manager.topics():
        with suppress(CorruptSegment, FormatVersionError):
            for topic in manager.existing_topics([name]).values():
                found.update(_ids(topic))
    if manager.catalog_version() != version:  # another change may have come between the two lists
        return changed(manager, topic_ids)
    return found.intersection(topic_ids)


def _ids(topic: TopicDescription) -> tuple[str, ...]:
    return (topic.id, *topic.earlier_ids)
