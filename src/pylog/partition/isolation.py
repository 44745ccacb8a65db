"""What a reader may see: pure rules over offsets and aborted transactions.

``read_uncommitted`` sees all that is visible; ``read_committed`` nothing at or beyond the last stable offset, and nothing of
an aborted transaction. ``visibility`` says what visible means: published ("written"), or published and on the medium
("durable"). Control batches are nobody's records.
"""

from __future__ import annotations

from collections.abc import Iterable

from pylog.codec.batch import BatchHeader, BatchView
from pylog.errors import ConfigError
from pylog.index import AbortedTransaction
from pylog.partition.commit_slots import CommitState

READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"
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
    """The offset behind the last record a reader of this kind may see."""
    end = state.high_watermark if visibility == WRITTEN else min(state.high_watermark, state.durable_offset)
    return min(end, state.last_stable_offset) if isolation_level == READ_COMMITTED else end


def is_aborted(header: BatchHeader, aborted: Iterable[AbortedTransaction]) -> bool:
    """Whether the batch belongs to one of the ``aborted`` transactions."""
    return header.is_transactional and any(
        transaction.producer_id == header.producer_id
        and transaction.first_offset <= header.base_offset <= transaction.last_offset
        for transaction in aborted
    )


def readable(batches: list[BatchView], end: int, aborted: list[AbortedTransaction]) -> list[BatchView]:
    """The batches below ``end`` that hold records for an application."""
    return [
        view
        for view in batches
        if view.header.base_offset < end
        and view.header.count > 0
        and not view.header.is_control
        and not (aborted and is_aborted(view.header, aborted))
    ]
