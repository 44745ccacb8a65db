"""What a consumer in a group can do beyond one without: commit how far it has come, and ask what was committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from pylog.checks import partition_of, require_callable, require_count, require_timeout
from pylog.codec.format import INT64_MAX
from pylog.consumer.parts import Parts, of_consumer
from pylog.errors import ConfigError, PylogError
from pylog.group.offset_records import METADATA_LIMIT_BYTES
from pylog.interrupts import own
from pylog.kafka_names import answers_kafkas_names
from pylog.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pylog.consumer.group_assignment import GroupAssignment

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], PylogError | None], object]


@answers_kafkas_names
class ConsumerGroupMetadata(NamedTuple):
    """What a member is in its group: for commits that others make in its name. ``generation`` -1 where it is no member."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


@of_consumer
class Commits(Parts):
    """A part of ``Consumer``."""

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = None) -> None:
        """Have the group go on behind what was processed: from ``offsets``, the next to read of each partition, or else from
        the positions of all assigned partitions. Inside of an iteration that is behind the record being processed.

        On return others see it, and no loss of power takes it back; nor the records before it, which are made durable as well.
        ``CommitFailed`` where this consumer is no member any more, or a partition is not its own: nothing was committed then.
        ``LogLocked`` after ``timeout`` seconds (default: ``default_api_timeout_ms``) in which another process held a lock, as one
        that is stopped: nothing was committed, try again. ``StorageFull``, ``StorageError``.
        """
        require_timeout(timeout)
        with self._begin():
            wanted, is_named = self._to_commit(offsets), offsets is not None
            self._in_group().progress.commit(wanted, durable=True, again=is_named, patience_s=timeout)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """The same without waiting for the disk: others see it on return, but a loss of power may take it back, or leave it and
        take the records before it, where those were not durable: the group then goes on where the records that are left end.

        What ``commit`` would raise is given to ``callback(offsets, error)``, or logged without one; None stands for success.
        """
        if callback is not None:
            require_callable("callback", callback, "offsets and an error or None")
        with self._begin():
            group, wanted = self._in_group(), self._to_commit(offsets)
            try:
                group.progress.commit(wanted, durable=False, again=offsets is not None)
                error = None
            except own(PylogError) as failure:
                error = failure
        if callback is not None:
            callback(wanted, error)
        elif error is not None:
            group.progress.report(error)

    @overload
    def committed(self, partition: TopicPartition, metadata: Literal[False] = False) -> int | None: ...
    @overload
    def committed(self, partition: TopicPartition, metadata: Literal[True]) -> OffsetAndMetadata | None: ...
    @overload
    def committed(self, partition: TopicPartition, metadata: bool) -> int | OffsetAndMetadata | None: ...
    def committed(self, partition: TopicPartition, metadata: bool = False) -> int | OffsetAndMetadata | None:
        """The offset the group has committed of a partition, assigned or not; None where there is none.

        With ``metadata=True`` as an ``OffsetAndMetadata``.
        """
        name = partition_of(partition)
        with self._begin():
            found = self._in_group().progress.committed(name)
        if found is None or metadata:
            return found
        return found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer as a member of its group."""
        with self._begin():
            group = self._in_group()
            membership = group.membership
            generation = membership.generation if membership.id else -1
            return ConsumerGroupMetadata(group.group_id, generation, membership.id, group.instance_id)

    def _in_group(self) -> GroupAssignment:
        from pylog.consumer.group_assignment import GroupAssignment

        if not isinstance(self._assignment, GroupAssignment):
            raise ConfigError(
                "this consumer is in no group, so there is nothing to commit to: Consumer(log, group_id=...)",
                option="group_id", value=None,
            )  # fmt: skip
        return self._assignment

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            positions = {name: self._position(lane) for name, lane in self._fetcher.lanes.items()}
            return {name: _offset(position) for name, position in positions.items() if position is not None}
        if not isinstance(offsets, Mapping):
            raise ConfigError(f"expected a mapping of TopicPartition to offset, not {offsets!r:.80}", option="offsets")
        return {partition_of(name): _offset(value) for name, value in offsets.items()}


def _offset(value: object) -> OffsetAndMetadata:
    at = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)  # type: ignore[arg-type]
    _check_metadata(at.metadata)
    return OffsetAndMetadata(require_count("offset", at.offset, 0, INT64_MAX), at.metadata)


def _check_metadata(metadata: object) -> None:
    try:
        if isinstance(metadata, str) and len(metadata.encode()) <= METADATA_LIMIT_BYTES:
            return
    except own(UnicodeEncodeError):
        pass
    raise ConfigError(
        f"the metadata of a commit is text of at most {METADATA_LIMIT_BYTES} bytes, got {metadata!r:.80}",
        option="metadata", limit_bytes=METADATA_LIMIT_BYTES,
    )  # fmt: skip
