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
from pylog.codec.format import INT64_MAX
from pylog.errors import InvalidTopicName, LogLocked
from pylog.manager.changes import changes_of
from pylog.manager.manager import LogManager
from pylog.topic_changes.copying import OutdatedCopyError, Progress, TopicCopy
from pylog.topic_changes.positions import moved_commits
from pylog.topic_changes.switch import alone, switch

_LITTLE_BYTES = 4 << 20  # to copy while writers wait
_ROUNDS_MAX = 20
_COPIES_MAX = 5


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
        except OutdatedCopyError:
            changes_of(manager, 0).drop_drafts()
        else:
            return
    policy = manager.writable_catalog().describe(topic, "").config.cleanup_policy
    raise LogLocked(
        f"records of {topic!r}, which has cleanup_policy={policy!r}, were deleted or compacted during each of {_COPIES_MAX} "
        "copies, and nothing was changed: call again with cleanup_policy='none' (alter_topic), and without delete_records and "
        "erase meanwhile; then set the policy again",
        topic=topic, cleanup_policy=policy, copies=_COPIES_MAX,
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

    def make(now: TopicDescription) -> TopicChange | None:
        # A transaction that has ended since may have held back most of the topic.
        copy.copy(_LITTLE_BYTES if copy.is_blocked else INT64_MAX)
        if copy.is_outdated():
            raise OutdatedCopyError
        if not copy.is_complete():
            return None
        after = as_it_will_be(now)
        commits = list(moved_commits(manager, now, after, copy.translated))
        copy.sync()
        return TopicChange(now, after, True, commits)

    try:
        switch(manager, before, follow, bool, make)
    finally:
        copy.close()
