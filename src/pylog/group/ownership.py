"""Whether a member may commit for partitions: it must own them, and since before it read them. They
must be where they were, too.

The group's generation may be a later one: every join of any member raises it, and most of them move
none of this member's partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from pylog.errors import CommitFailed, InstanceFenced
from pylog.group.state import Group, Member
from pylog.manager.changes import ChangingLog, changed
from pylog.model import TopicPartition


def require_owned(name: str, group: Group, member: Member, partitions: Mapping[TopicPartition, int]) -> None:
    """Raises ``CommitFailed`` if the member of the group of this name does not own all these
    partitions, or has taken one after the generation beside it: after its records were read."""
    owned = member.owned
    for partition in partitions:
        if partition not in owned:
            raise _not_owned(
                name, group, member, partition,
                f"is not assigned to this member of group {name!r} (generation {group.generation}): it was given to another, or "
                "its topic was missing meanwhile, perhaps renamed or repartitioned; these records are read again",
            )  # fmt: skip
        if owned[partition] > partitions[partition]:
            raise _not_owned(
                name, group, member, partition,
                f"was taken by this member of group {name!r} in generation {owned[partition]}, after generation "
                f"{partitions[partition]} of this commit: these records are read again, or group_metadata() was called "
                "before the poll that returned them",
            )  # fmt: skip


def require_unchanged(manager: ChangingLog, name: str, gone: Mapping[TopicPartition, str]) -> None:
    """``gone`` has partitions whose topic is not there any more, each with the topic's id.
    ``CommitFailed`` if a topic continues under any name: others may have read these records as
    its owners, or the group of this name reads them again. Nothing if they were deleted."""
    ids = changed(manager, set(gone.values())) if gone else ()
    for partition, topic_id in gone.items():
        if topic_id in ids:
            raise CommitFailed(
                f"topic {partition.topic!r} got another name or other partitions meanwhile, so none of these offsets was "
                "committed: poll again, or assign other partitions (if they are in a transaction, abort it first); group "
                f"{name!r} reads these records again",
                group=name, topic=partition.topic, partition=partition.partition,
            )  # fmt: skip


def _not_owned(name: str, group: Group, member: Member, partition: TopicPartition, why: str) -> CommitFailed:
    topic, number = partition
    return CommitFailed(
        f"{topic}-{number} {why}",
        group=name, member=member.id, generation=group.generation, topic=topic, partition=number,
    )  # fmt: skip


def expelled(name: str, group: Group, member_id: str, instance_id: str, why: str, **more: object) -> CommitFailed:
    """The error for one that is not a member any more. ``why`` ends the message, ``more`` are
    further facts."""
    successor = group.member_of_instance(instance_id)
    facts = {"group": name, "member": member_id, "generation": group.generation}
    if successor is not None and successor.id != member_id:
        return InstanceFenced(
            f"another consumer of group {name!r} with group_instance_id={instance_id!r} has taken this one's place "
            f"(process {successor.pid} on {successor.host})",
            **facts, group_instance_id=instance_id, pid=successor.pid, host=successor.host,
        )  # fmt: skip
    return CommitFailed(f"this consumer is not a member of group {name!r} any more: {why}", **facts, **more)
