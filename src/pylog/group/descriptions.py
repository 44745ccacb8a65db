"""Values that describe a group to a user."""

from __future__ import annotations

from typing import NamedTuple

from pylog.model import OffsetAndMetadata, TopicPartition


class MemberDescription(NamedTuple):
    """``assigned`` is what a member reads, ``target`` what it will, once others gave it up.

    ``is_alive`` is false for a static member that was closed, or whose process has ended: its
    partitions wait for it.
    """

    member_id: str
    group_instance_id: str
    client_id: str
    host: str
    pid: int
    joined_ms: int
    is_alive: bool
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]


class PartitionProgress(NamedTuple):
    """A group's progress in a partition. ``committed`` and ``lag`` are None without a commit."""

    committed: OffsetAndMetadata | None
    end_offset: int
    lag: int | None
    member_id: str


class GroupDescription(NamedTuple):
    """``state`` is ``"Empty"``, ``"Stable"``, or ``"Reconciling"`` while partitions move."""

    group: str
    state: str
    generation: int
    assignor: str
    members: tuple[MemberDescription, ...]
    partitions: dict[TopicPartition, PartitionProgress]


class OffsetChange(NamedTuple):
    """What a reset does to one partition. ``before`` is None if nothing was committed."""

    before: int | None
    after: int
