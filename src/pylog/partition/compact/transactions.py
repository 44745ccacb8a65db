"""Which transactional batches are aborted, and which markers nothing needs any more. Follows the
batches in order.

Kafka's ``CleanedTransactionMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pylog.codec.batch import BatchView
from pylog.codec.control import ControlType, read_marker
from pylog.index import AbortedTransaction


class Judged(NamedTuple):
    """``is_unneeded``: the batch is of an aborted transaction, or a marker of one that has no
    batches left.

    ``aborted`` is the transaction that the batch, an abort marker, ends.
    """

    is_unneeded: bool
    aborted: AbortedTransaction | None = None


class TransactionsInOrder:
    """``aborted`` are all transactions with an abort marker that reach into the batches."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(set(aborted), key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # under way; whether a batch of it was met
        self._committed: set[int] = set()  # producers with a batch of a transaction that is not aborted

    def copy(self) -> TransactionsInOrder:
        """To look ahead."""
        made = TransactionsInOrder(())
        made.follow(self)
        return made

    def follow(self, other: TransactionsInOrder) -> None:
        """Continue where the other stands."""
        self._coming, self._aborted, self._committed = (
            other._coming.copy(),
            other._aborted.copy(),
            other._committed.copy(),
        )

    def judge(self, view: BatchView) -> Judged:
        header = view.header
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            begun = self._coming.pop()
            self._aborted[begun.producer_id] = begun, False
        if header.is_control:
            return self._judge_marker(view)
        if not header.is_transactional:
            return Judged(False)
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return Judged(False)
        self._aborted[header.producer_id] = known[0], True
        return Judged(True)

    def _judge_marker(self, view: BatchView) -> Judged:
        producer_id = view.header.producer_id
        if not view.header.count:
            return Judged(True)  # cleaned before
        kind = read_marker(view).type
        if kind is ControlType.ABORT:
            ended, has_batches = self._aborted.pop(producer_id, (None, False))
            return Judged(not has_batches, ended)
        if kind is ControlType.COMMIT:
            is_unneeded = producer_id not in self._committed
            self._committed.discard(producer_id)
            return Judged(is_unneeded)
        return Judged(False)
