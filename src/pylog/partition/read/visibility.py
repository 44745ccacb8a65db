"""What a reader may see: pure rules over offsets and aborted transactions.

``read_uncommitted`` sees all that is visible; ``read_committed`` nothing at or after the last
stable offset, and nothing of an aborted transaction. With ``visibility="written"`` what is
published is visible, with "durable" only what is also on the disk. Control batches contain no
records for applications.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable

from pylog.codec.batch import BatchView
from pylog.errors import ConfigError, OffsetOutOfRange
from pylog.index import AbortedTransaction
from pylog.model import TopicPartition
from pylog.partition.commit_slots import CommitState

READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"
WITH_MARKERS = "with_markers"  # like read_uncommitted, and control batches too: only for the library's own topics
WRITTEN = "written"
DURABLE = "durable"


def check_isolation(isolation_level: str, visibility: str = WRITTEN) -> None:
    if isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise ConfigError(
            f"isolation_level={isolation_level!r}, expected {READ_UNCOMMITTED!r} or {READ_COMMITTED!r}",
            option="isolation_level",
        )
    if visibility not in (WRITTEN, DURABLE):
        raise ConfigError(f"visibility={visibility!r}, expected {WRITTEN!r} or {DURABLE!r}", option="visibility")


def visible_end(state: CommitState, isolation_level: str, visibility: str) -> int:
    """The offset after the last record that such a reader may see."""
    end = state.high_watermark if visibility == WRITTEN else min(state.high_watermark, state.durable_offset)
    return min(end, state.last_stable_offset) if isolation_level == READ_COMMITTED else end


def out_of_range(partition: TopicPartition, offset: int, state: CommitState) -> OffsetOutOfRange:
    """The error for an offset that the log does not hold."""
    topic, number = partition
    return OffsetOutOfRange(
        f"offset {offset} of {topic}-{number} is out of range: the log holds {state.log_start_offset} "
        f"to {state.log_end_offset}",
        topic=topic, partition=number, offset=offset,
        earliest=state.log_start_offset, latest=state.log_end_offset,
    )  # fmt: skip


def aborted_among(batches: list[BatchView], transactions: Iterable[AbortedTransaction]) -> set[int]:
    """The base offsets of the batches that belong to an aborted transaction.

    ``transactions`` come in the order of their markers; no more of them are taken than it needs to
    know of every batch.
    """
    asked: dict[int, list[int]] = {}
    for view in batches:
        if view.header.is_transactional and not view.header.is_control:
            asked.setdefault(view.header.producer_id, []).append(view.base_offset)
    aborted: set[int] = set()
    if not asked:
        return aborted
    for transaction in transactions:
        offsets = asked.get(transaction.producer_id, [])
        first, end = bisect_left(offsets, transaction.first_offset), bisect_right(offsets, transaction.last_offset)
        aborted.update(offsets[first:end])
        del offsets[first:end]
        if not any(asked.values()) or _decides_all(transaction, batches[-1].last_offset):
            break
    return aborted


def _decides_all(transaction: AbortedTransaction, offset: int) -> bool:
    """Whether all later transactions began after ``offset``: Kafka's ``TransactionIndex`` stops
    there, too."""
    return transaction.last_stable_offset > offset


def readable(batches: list[BatchView], end: int, aborted: Collection[int]) -> list[BatchView]:
    """The batches below ``end`` that hold records for an application; ``aborted`` are the base
    offsets of those to drop."""
    return [
        view
        for view in batches
        if view.header.base_offset < end
        and view.header.count > 0
        and not view.header.is_control
        and view.header.base_offset not in aborted
    ]
