"""The changes of topics of an open log: another name, other partitions. See
``catalog/changes.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from pylog.catalog import Catalog, Layout, TopicDescription
from pylog.catalog.disposal import remove_all_condemned
from pylog.catalog.finishing import TopicChanges, WriteCommits
from pylog.catalog.layout import parse_condemned
from pylog.clock import Clock
from pylog.errors import LogLocked, PylogError
from pylog.interrupts import suppress
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
    why = catalog.locked(changes_of(manager, timeout_s).finish) if catalog.being_changed() else []
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


def has_changed(manager: ChangingLog, topic_id: str) -> bool:
    """Whether a topic continues under another name or another id, or may be about to."""
    if manager.writable_catalog().being_changed():
        return True
    topics = manager.existing_topics(manager.topics()).values()
    return any(topic_id in (topic.id, *topic.earlier_ids) for topic in topics)
