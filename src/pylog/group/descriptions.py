"""What is told of a group to whoever looks at it."""

from __future__ import annotations

from typing import NamedTuple

from pylog.model import OffsetAndMetadata, TopicPartition


class MemberDescription(NamedTuple):
    """A member as it stands. ``assigned`` is what it reads now, ``target`` what it will, once others have given that up."""

    member_id: str
    group_instance_id: str
    client_id: str
    host: str
    pid: int
    joined_ms: int
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]


class PartitionProgress(NamedTuple):
    """How far a group has come in a partition. ``committed`` and ``lag`` are None where it has committed nothing there."""

    committed: OffsetAndMetadata | None
    end_offset: int
    lag: int | None
    member_id: str


class GroupDescription(NamedTuple):
    """A group as it stands. ``state`` is ``"Empty"``, ``"Stable"``, or ``"Reconciling"`` while partitions move."""

    group: str
    state: str
    generation: int
    assignor: str
    members: tuple[MemberDescription, ...]
    partitions: dict[TopicPartition, PartitionProgress]


class OffsetChange(NamedTuple):
    """What a reset does to one partition. ``before`` is None where nothing was committed."""

    before: int | None
    after: int
