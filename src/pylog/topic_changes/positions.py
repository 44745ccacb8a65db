"""The positions of groups in a topic that changes: as commits, for the topic as it will be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pylog.catalog import TopicDescription
from pylog.catalog.changes import Commit
from pylog.group.admin import GroupAdmin
from pylog.group.lock import read_group
from pylog.group.offset_records import Committed, encode_key, encode_value
from pylog.group.truncation import next_offset
from pylog.manager.manager import LogManager
from pylog.model import TopicPartition

Translate = Callable[[Mapping[int, Committed]], Mapping[int, Committed]]
"""From a group's positions by partition to those in the changed topic."""


def moved_commits(
    manager: LogManager, before: TopicDescription, after: TopicDescription, translate: Translate
) -> Iterator[Commit]:
    """What to write for all groups. The locks of the groups are held.

    Where a member has begun without a commit counts as committed. A pending offset, of a
    transaction that is not decided, never counts: the transaction is refused.
    """
    groups = manager.part(GroupAdmin)
    names = {*groups.offsets.groups(), *groups.in_files(), *groups.offsets.settled_in(before.name)}
    for group in sorted(names):
        positions = _positions(manager, groups, before, group)
        later = translate(positions) if positions else {}
        for number, committed in later.items():
            yield encode_key(group, TopicPartition(after.name, number)), encode_value(committed)
        for name in groups.offsets.partitions(group):
            if name.topic == before.name and (before.name != after.name or name.partition not in later):
                yield encode_key(group, name), None


def _positions(manager: LogManager, groups: GroupAdmin, before: TopicDescription, group: str) -> dict[int, Committed]:
    found = {}
    if group in groups.in_files():
        state = read_group(groups.directory(group))
        known = state.topics.get(before.name)
        if known is not None and known.id == before.id:
            for name, offset in state.starts.items():
                if name.topic == before.name and name.partition in before.numbers:
                    epoch = manager.partition(*name).leader_epoch
                    found[name.partition] = Committed(offset, epoch, "", manager.clock.now_ms(), before.id)
    for name, committed in groups.offsets.committed(group).items():
        if name.topic == before.name and committed.topic_id in ("", before.id) and name.partition in before.numbers:
            offset = next_offset(manager.partition(*name), committed)
            found[name.partition] = committed._replace(offset=offset, topic_id=before.id)
    return found
