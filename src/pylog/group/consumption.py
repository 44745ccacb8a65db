"""Up to where all groups have consumed a partition, for ``retention="consumed"``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylog.group.admin import GroupAdmin
from pylog.group.truncation import next_offset
from pylog.manager.manager import LogManager
from pylog.partition.partition_log import PartitionLog


class Consumed(NamedTuple):
    """Every group of the topic has committed up to ``offset``; ``held_by`` has not committed
    more."""

    offset: int
    held_by: str
    groups: Sequence[str] = ()


class Consumption:
    """The groups of a topic are those with commits in it, and those with members that want it.

    A group that has committed nothing in a partition holds all of it. So does a topic without
    groups. A member commits where its group begins before it returns records. An offset that was
    committed in a transaction counts from its marker on.
    """

    def __init__(self, manager: LogManager) -> None:
        self._groups = manager.part(GroupAdmin)
        self._durable_groups: dict[tuple[str, int], list[str]] = {}  # by topic id and partition

    def is_still_consumed(self, partition: PartitionLog, offset: int) -> bool:
        """Whether every group has committed up to ``offset``, as the last call of ``consumed`` with
        ``durably`` found.

        Takes no lock of another process, so that newer commits may not be durable: a group that has
        come since then has not consumed anything, for it could lose them.
        """
        known = self._durable_groups.get((partition.topic_id, partition.number), ())
        now = self.consumed(partition, durably=False)
        return offset <= now.offset and set(now.groups).issubset(known)

    def consumed(self, partition: PartitionLog, *, durably: bool) -> Consumed:
        """``durably``: what is returned is on the disk. Else it takes no lock of another
        process."""
        topic, least = partition.topic, Consumed(partition.latest_offset, "")
        members_of = self._groups.reading(topic)  # before the commits: one that leaves in between has committed
        commits = self._groups.offsets.settled_in(topic)
        groups = sorted(members_of.union(commits))
        if not groups:
            return Consumed(0, "a group yet to come")
        for group in groups:
            committed = commits.get(group, {}).get(partition.topic_partition)
            is_of_it = committed is not None and committed.topic_id in ("", partition.topic_id)
            offset = next_offset(partition, committed) if is_of_it and committed is not None else 0
            if offset < least.offset or not least.held_by:
                least = Consumed(min(offset, least.offset), f"group {group!r}")
        if durably and least.offset:
            self._groups.offsets.make_durable()
            self._durable_groups[partition.topic_id, partition.number] = groups
        return least._replace(groups=groups)
