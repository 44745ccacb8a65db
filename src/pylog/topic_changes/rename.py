"""Gives a topic another name. Its id stays, and with it everything that knows the topic by its
id."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pylog.catalog import TopicDescription
from pylog.catalog.changes import TopicChange
from pylog.catalog.topic import INTERNAL_TOPICS, check_new_topic_name, check_no_internal_name
from pylog.errors import InvalidTopicName
from pylog.group.offset_records import Committed
from pylog.manager.manager import LogManager
from pylog.topic_changes.positions import moved_commits
from pylog.topic_changes.switch import alone, switch


def rename_topic(manager: LogManager, old: str, new: str) -> TopicDescription:
    """See ``Log.rename_topic``."""
    check_new_topic_name(new)
    check_no_internal_name(new)
    if old in INTERNAL_TOPICS:
        raise InvalidTopicName(f"{old!r} keeps its name: pylog finds it by that; take another topic", name=old)
    alone(manager, partial(_rename, manager, old, new))
    return manager.describe_topic(new)


def _rename(manager: LogManager, old: str, new: str) -> None:
    catalog = manager.writable_catalog()
    before = catalog.describe(old, "")

    def check() -> None:
        catalog.refuse_collision(new)  # also with the old name: on some filesystems it is the same directory
        catalog.refuse_deleted(new)

    def make(now: TopicDescription) -> TopicChange:
        after = now._replace(name=new)
        return TopicChange(now, after, False, list(moved_commits(manager, now, after, _the_same)))

    switch(manager, before, bool, check, make)


def _the_same(positions: Mapping[int, Committed]) -> Mapping[int, Committed]:
    return positions
