"""Values that describe a transaction to a user."""

from __future__ import annotations

from typing import NamedTuple

from pylog.model import TopicPartition


class TransactionDescription(NamedTuple):
    """The last transaction of a transactional id.

    ``state`` is one of Kafka's: ``"Empty"``, ``"Ongoing"``, ``"PrepareCommit"``,
    ``"CompleteCommit"``, ``"PrepareAbort"``, ``"CompleteAbort"``. ``has_owner``: its producer
    lives. ``idle_ms``: since it last appended; None if that is unknown, after a restart of the
    machine. ``open_in``: where its records wait for a marker, and the offset of the first one.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    has_owner: bool
    transaction_timeout_ms: int
    idle_ms: int | None
    open_in: dict[TopicPartition, int]


class OpenTransactionDescription(NamedTuple):
    """A transaction that waits for its marker in one partition.

    ``transactional_id`` is None if no record tells it. ``has_owner``: its producer lives and has
    begun no other one; None in Kafka's directories, where only Kafka knows. ``age_ms``: by the
    timestamp of its first batch.
    """

    topic: str
    partition: int
    first_offset: int
    producer_id: int
    epoch: int
    transactional_id: str | None
    has_owner: bool | None
    age_ms: int
