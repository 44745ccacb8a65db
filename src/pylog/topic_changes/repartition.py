"""Gives a topic another number of partitions, while producers write and groups read.

A copy follows the topic until little is missing. Then it is completed while no process can append,
and takes the topic's place as another topic of the same name, with another id. What knows the id of
the old one, as producers and members of groups do, finds the new one as after a deletion.
"""

from __future__ import annotations

from functools import partial

from pylog.catalog import TopicDescription
from pylog.catalog.changes import TopicChange
from pylog.catalog.topic import INTERNAL_TOPICS, check_partition_count
from pylog.errors import InvalidTopicName, LogLocked
from pylog.manager.changes import changes_of
from pylog.manager.manager import LogManager
from pylog.topic_changes.copying import Progress, TopicCopy
from pylog.topic_changes.positions import moved_commits
from pylog.topic_changes.switch import alone, switch

_LITTLE_BYTES = 4 << 20  # to copy while writers wait
_ROUNDS_MAX = 20
_COPIES_MAX = 5


class _OutdatedError(Exception):
    """Records that were copied are gone from the topic: the copy would bring them back."""


def repartition(manager: LogManager, topic: str, partitions: int, progress: Progress) -> TopicDescription:
    """See ``Log.repartition``."""
    check_partition_count(partitions)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicName(f"{topic!r} keeps its partitions: pylog finds groups by them", name=topic)
    alone(manager, partial(_repartition, manager, topic, partitions, progress))
    return manager.describe_topic(topic)


def _repartition(manager: LogManager, topic: str, partitions: int, progress: Progress) -> None:
    for _ in range(_COPIES_MAX):
        before = manager.writable_catalog().describe(topic, "")
        if before.partitions == partitions:  # also after a call that was cut off
            return
        try:
            _try(manager, before, partitions, progress)
        except _OutdatedError:
            changes_of(manager, 0).drop_drafts()
        else:
            return
    raise LogLocked(
        f"records of {topic!r} were deleted or compacted during each of {_COPIES_MAX} copies: call again while no maintenance "
        "runs",
        topic=topic,
    )  # fmt: skip


def _try(manager: LogManager, before: TopicDescription, partitions: int, progress: Progress) -> None:
    new_id = manager.writable_catalog().new_id()
    earlier_ids = (*before.earlier_ids, before.id)

    def as_it_will_be(now: TopicDescription) -> TopicDescription:
        return now._replace(id=new_id, partitions=partitions, earlier_ids=earlier_ids)

    copy = TopicCopy(manager, before, as_it_will_be(before), progress)

    def follow() -> None:
        for _ in range(_ROUNDS_MAX):
            if copy.copy() < _LITTLE_BYTES:
                return

    def make(now: TopicDescription) -> TopicChange:
        copy.copy()
        if copy.is_outdated():
            raise _OutdatedError
        assert copy.is_complete(), "a transaction is open"
        after = as_it_will_be(now)
        commits = list(moved_commits(manager, now, after, copy.translated))
        copy.sync()
        return TopicChange(now, after, True, commits)

    try:
        switch(manager, before, follow, bool, make)
    finally:
        copy.close()
