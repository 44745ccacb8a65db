"""The changes of topics of an open log: another name, other partitions. See ``catalog/changes.py``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pylog.catalog.finishing import TopicChanges
from pylog.partition.directory import PartitionDirectory

if TYPE_CHECKING:
    from pylog.manager.manager import LogManager


def changes_of(manager: LogManager, timeout_s: float) -> TopicChanges:
    """Decides and completes changes. ``timeout_s``: to wait for a writer of a partition that goes."""
    filesystem, clock = manager.filesystem, manager.clock

    def retire(directory: str) -> None:
        PartitionDirectory.retire(filesystem, clock, directory, timeout_s)

    write_commits = partial(manager.write_commits, manager)
    return TopicChanges(manager.writable_catalog(), filesystem, clock, manager.layout, retire, write_commits)


def has_changed(manager: LogManager, topic_id: str) -> bool:
    """Whether a topic continues under another name or another id, or may be about to."""
    if manager.writable_catalog().being_changed():
        return True
    topics = manager.existing_topics(manager.topics()).values()
    return any(topic_id in (topic.id, *topic.earlier_ids) for topic in topics)
