"""Values that describe a transaction to a user."""

from __future__ import annotations

from typing import NamedTuple

from pylog.model import TopicPartition


class TransactionDescription(NamedTuple):
    """The last transaction of a transactional id.

    ``state`` is one of Kafka's: ``"Empty"``, ``"Ongoing"``, ``"PrepareCommit"``, ``"CompleteCommit"``,
    ``"PrepareAbort"``, ``"CompleteAbort"``. ``has_owner``: its producer lives. ``idle_ms``: since it
    last appended; None if that is unknown, after a restart of the machine. ``open_in``: where its
    records wait for a marker, and the offset of the first one.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    has_owner: bool
    transaction_timeout_ms: int
    idle_ms: int | None
    open_in: dict[TopicPartition, int]
