"""Offsets of consumer groups in one transaction of a producer.

They are appended to ``__consumer_offsets`` as the last batches of the transaction, and are made
durable together with its other records. Only the owner of a partition may commit its offset. So
just before the decision the group's lock is taken, the ownership is checked, and the lock is held
until the decision is durable: an expelled member must not commit what its successor has begun to
read again. If an exception interrupts the decision, the offsets stay pending, and a member that
takes the partitions over waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

from pylog.codec.batch import read_header, write_header
from pylog.codec.format import TRANSACTIONAL_BIT
from pylog.errors import (
    CommitFailed,
    ConfigError,
    GroupNotEmpty,
    InvalidPartition,
    OutcomeUnknown,
    PylogError,
    TopicNotFound,
)
from pylog.group.admin import GroupAdmin
from pylog.group.directory import GroupDirectory, check_group
from pylog.group.liveness import Heartbeats
from pylog.group.lock import GroupGrant, GroupLock
from pylog.group.offset_records import Committed, offsets_to_commit
from pylog.group.offsets_partition import Appended, OffsetsPartition
from pylog.group.ownership import expelled, require_owned, require_unchanged
from pylog.group.state import Group, Member
from pylog.group.truncation import make_records_durable
from pylog.interrupts import own, suppress
from pylog.manager.manager import LogManager
from pylog.model import ConsumerGroupMetadata, OffsetAndMetadata, Offsets, TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.storage import LOCK_TIMEOUT_MS, LOCK_TIMEOUT_S
from pylog.transaction.owner import TransactionOwner

logger = logging.getLogger("pylog.transaction")

LOCKS_MAX = 8  # of groups, kept open between two transactions

Touch = Callable[[PartitionLog], object]


class _Claim:
    """What one member, or a group without members, has sent."""

    def __init__(self, member_id: str, instance_id: str) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.topic_ids: dict[str, str] = {}  # of the appended ones
        self.sent_ids: dict[TopicPartition, str] = {}  # of the topics that were read, or found by ``add``
        self.generations: dict[TopicPartition, int] = {}  # of the member: the first in which each was sent
        self.topics_since: dict[str, int] = {}  # when their files were written, before the offsets were appended

    def require_allowed(self, name: str, group: Group) -> None:
        """Raises ``CommitFailed`` if it is not, or no longer, the owner of these partitions."""
        member = group.members.get(self.member_id)
        if member is None:
            why = "others continue with its partitions; poll to join again, and repeat the work of the transaction"
            raise expelled(name, group, self.member_id, self.instance_id, why)
        require_owned(name, group, member, self.generations)


class TransactionOffsets:
    """The offsets of the open transaction. For one thread at a time."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._written: set[OffsetsPartition] = set()  # since the last ``maintain_if_due``
        self._locks: dict[str, GroupLock] = {}  # by group: kept open for the next transaction
        self.clear()

    def clear(self) -> None:
        """Begin with the next transaction."""
        if len(self._locks) > LOCKS_MAX:
            self.close()
        self._claims: dict[str, dict[str, _Claim]] = {}  # by group and member
        self._unsent: set[tuple[str, str]] = set()
        self._sequences: dict[int, int] = {}  # the next one, by partition of ``__consumer_offsets``

    def close(self) -> None:
        """Close the files of the groups. The next use opens them again."""
        while self._locks:
            self._locks.popitem()[1].close()

    def __bool__(self) -> bool:
        return bool(self._claims)

    def add(self, offsets: Offsets, member: ConsumerGroupMetadata | str) -> None:
        """See ``Producer.send_offsets_to_transaction``."""
        wanted = offsets_to_commit(offsets)
        if isinstance(member, str):
            member = ConsumerGroupMetadata(member, -1, "", None)
        if not isinstance(member, ConsumerGroupMetadata) or not isinstance(member.generation, int):
            raise ConfigError(
                f"expected consumer.group_metadata(), or the name of a group without members, got {member!r:.80}",
                option="group_metadata", value=member,
            )  # fmt: skip
        check_group(member.group_id, self._manager.layout.ignores_case)
        ids = {name: self._manager.partition(*name).topic_id for name in wanted}  # TopicNotFound, InvalidPartition
        if wanted:
            claims = self._claims.setdefault(member.group_id, {})
            claim = claims.setdefault(member.member_id, _Claim(member.member_id, member.group_instance_id or ""))
            claim.offsets.update(wanted)
            claim.sent_ids.update((name, member.topic_ids.get(name, now)) for name, now in ids.items())
            for name in wanted:
                claim.generations[name] = min(member.generation, claim.generations.get(name, member.generation))
            self._unsent.add((member.group_id, member.member_id))

    # Before the decision

    def append(self, owner: TransactionOwner, touch: Touch) -> list[Appended]:
        """Append what was added since the last call. The records before these offsets are durable
        then.

        ``touch`` is called with each partition before it is written: it will need a marker.
        Raises as ``PartitionLog.append_batch``.
        """
        appended = [
            self._append(group, self._claims[group][member], owner, touch) for group, member in sorted(self._unsent)
        ]
        self._unsent.clear()
        return [item for item in appended if item is not None]

    def _append(self, group: str, claim: _Claim, owner: TransactionOwner, touch: Touch) -> Appended | None:
        store = self._manager.part(GroupAdmin).offsets
        encoded = store.encoded(group, self._commits(group, claim))
        if encoded is None:
            return None  # their topics were deleted
        partition, batch, least_ms, records = encoded
        log = partition.log
        sequence = self._sequences.get(log.number, 0)
        header = read_header(batch)
        write_header(
            batch, header.attributes | TRANSACTIONAL_BIT, header.count, header.base_timestamp_ms, header.max_timestamp_ms,
            owner.producer_id, owner.epoch, sequence,
        )  # fmt: skip
        touch(log)
        owner.keep_alive()
        result = log.append_batch(
            batch,
            timeout_ms=LOCK_TIMEOUT_MS,
            min_timestamp_ms=least_ms,
            require_ongoing=partial(owner.require_ongoing, owner.producer_id, owner.epoch),
        )
        self._sequences[log.number] = sequence + records
        partition.end_offset = result.last_offset + 1
        self._written.add(partition)
        return Appended(partition, partition.end_offset)

    def _commits(self, group: str, claim: _Claim) -> dict[TopicPartition, Committed]:
        """The offsets as they are committed: with leader epochs, and the topics that the member has
        read."""
        topics = self._lock(group).state.read().topics if claim.member_id else {}
        commits = {}
        claim.topics_since = self._topics_since(claim)
        for name, at in claim.offsets.items():
            try:
                partition = self._manager.partition(*name)
                epoch = make_records_durable(partition, at.offset, LOCK_TIMEOUT_S)
            except own(TopicNotFound, InvalidPartition, OutcomeUnknown):
                if name not in self._gone(claim):
                    raise
                claim.topics_since.pop(name.topic, None)  # if it is back at the decision, that looks again
            else:
                topic_id = topics[name.topic].id if name.topic in topics else claim.sent_ids[name]
                commits[name] = Committed(at.offset, epoch, at.metadata, self._manager.clock.now_ms(), topic_id)
                claim.topic_ids[name.topic] = topic_id
        return commits

    def maintain_if_due(self) -> None:
        """After the markers: let others load the offsets quickly. A failure does not concern the
        caller."""
        written, self._written = self._written, set()
        for partition in written:
            try:
                self._manager.part(GroupAdmin).offsets.maintain_if_due(partition, lambda: LOCK_TIMEOUT_S)
            except own(PylogError) as error:
                logger.warning("no checkpoint of committed offsets: %s", error)

    # At the decision

    def while_owned(self, decide: Callable[[], object]) -> None:
        """Call ``decide`` with the locks of all groups, if the members own the partitions of these
        offsets.

        ``CommitFailed``; ``LogLocked`` if a group's lock is not free in 30 s: nothing is decided.
        """
        for group in sorted(self._claims, reverse=True):  # the first is locked first, so no two wait for each other
            decide = partial(self._holding, group, decide)
        decide()

    def _holding(self, group: str, decide: Callable[[], object]) -> None:
        lock = self._lock(group)
        before = lock.state.read()
        members = [before.members[claim] for claim in self._claims[group] if claim in before.members]
        beat = partial(_beat, lock.directory, members)  # a member that waits to commit counts as alive
        lock.holding(partial(self._decide, group, decide), while_waiting=beat)
        beat()

    def _decide(self, group: str, decide: Callable[[], object], grant: GroupGrant) -> None:
        groups, found = self._manager.part(GroupAdmin), grant.state.read()
        for claim in self._claims[group].values():
            if claim.member_id:
                claim.require_allowed(group, found)
            else:
                _require_empty(groups, grant)
        gone = self._of_deleted_topics(group, found)
        for claim in self._claims[group].values():
            missing = self._gone(claim)
            require_unchanged(self._manager, group, missing)
            ids = {name: claim.topic_ids[name.topic] for name in gone if name.topic in claim.topic_ids}
            require_unchanged(self._manager, group, ids)
            if claim.topics_since != self._topics_since(claim):
                self._require_pending(group, claim, {*gone, *missing})
        if gone:  # their deleter may have looked before they were appended: a later tombstone supersedes them
            groups.offsets.append(group, dict.fromkeys(gone), grant)
        grant.check()
        decide()

    def _require_pending(self, group: str, claim: _Claim, gone: Collection[TopicPartition]) -> None:
        """Raises ``CommitFailed`` if offsets of the claim, of topics that are not ``gone``, are not
        in the log: their topic was missing as they were appended, or a later commit has superseded
        them, which a change of their topic has made, and its name is back."""
        pending = self._manager.part(GroupAdmin).offsets.partitions(group, only_pending=True)
        for topic, number in sorted(claim.offsets.keys() - pending - set(gone)):
            raise CommitFailed(
                f"{topic}-{number} had another name, or was committed by others, since its offset was sent: abort the "
                f"transaction, and poll again: group {group!r} reads these records again",
                group=group, topic=topic, partition=number,
            )  # fmt: skip

    def _topics_since(self, claim: _Claim) -> dict[str, int]:
        """When each topic's file was written: again, if it had another name meanwhile."""
        found = {}
        for topic in {name.topic for name in claim.offsets}:
            with suppress(FileNotFoundError):  # it is gone
                found[topic] = self._manager.filesystem.modified_ns(self._manager.layout.topic(topic))
        return found

    def _gone(self, claim: _Claim) -> dict[TopicPartition, str]:
        """The partitions whose topic is not there any more since they were sent, with its id."""
        now = self._manager.existing_topics({name.topic for name in claim.sent_ids})
        return {name: id_ for name, id_ in claim.sent_ids.items() if name.topic not in now or now[name.topic].id != id_}

    def _of_deleted_topics(self, group: str, found: Group) -> list[TopicPartition]:
        claims = self._claims[group].values()
        topics = self._manager.existing_topics({topic for claim in claims for topic in claim.topic_ids})
        now = {name: topic.id for name, topic in topics.items()}
        return [
            name
            for claim in claims
            for name in claim.offsets
            if name.topic in claim.topic_ids
            and not claim.topic_ids[name.topic] == now.get(name.topic) == _id_of(found, name.topic, claim)
        ]

    def _lock(self, group: str) -> GroupLock:
        if group not in self._locks:
            self._locks[group] = GroupLock(self._manager.part(GroupAdmin).directory(group))
        return self._locks[group]


def _id_of(group: Group, topic: str, claim: _Claim) -> str:
    """The id of the topic whose partitions the member owns."""
    return group.topics[topic].id if claim.member_id and topic in group.topics else claim.topic_ids[topic]


def _beat(directory: GroupDirectory, members: Collection[Member]) -> None:
    if members:
        heartbeats = Heartbeats(directory.filesystem.open_appendable(directory.heartbeats))
        try:
            _beat_all(heartbeats, members)
        finally:
            heartbeats.close()


def _beat_all(heartbeats: Heartbeats, members: Collection[Member]) -> None:
    for member in members:
        heartbeats.beat(member.cell)


def _require_empty(groups: GroupAdmin, grant: GroupGrant) -> None:
    try:
        groups.require_empty(grant)
    except own(GroupNotEmpty) as error:
        raise CommitFailed(
            f"{error}; give consumer.group_metadata() of the member that has read these records", **error.facts
        ) from error
