"""What ``read_committed`` may see after the last stable offset: of transactions that have no marker yet.

A transaction is decided before its markers are written, and a dead owner never writes them. So a
reader asks how each of them ended, and stops only at the first one that is still under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from pylog.codec.batch import BatchView
from pylog.codec.control import ControlType, read_marker
from pylog.errors import CorruptRecord
from pylog.index import AbortedTransaction
from pylog.interrupts import own


class Outcome(Enum):
    """What a reader may know of a transaction."""

    UNDECIDED = "undecided"
    COMMITTED = "committed"
    ABORTED = "aborted"


AskOutcome = Callable[[int, int], Outcome]
"""How the transaction of a producer id and epoch ended. Called after its batches were read."""


class OpenTransaction(NamedTuple):
    """A transaction without a marker in what was scanned."""

    producer_id: int
    epoch: int
    first_offset: int


class Undecided(NamedTuple):
    """Where reading stops, and which batches before it to leave out."""

    end: int
    aborted: tuple[AbortedTransaction, ...]
    is_blocked: bool  # by a transaction that is under way


class OpenTransactions:
    """The transactions without a marker among the batches that were scanned, in order."""

    def __init__(self, start: int) -> None:
        self.start = start  # the last stable offset when the scan began
        self.next_offset = start
        self._found: dict[int, OpenTransaction] = {}
        self._committed: set[int] = set()  # the first offsets of those that a marker ended during this look

    def copy(self) -> OpenTransactions:
        """The same, for one look: threads share what is kept."""
        made = OpenTransactions(self.start)
        made.next_offset, made._found = self.next_offset, dict(self._found)
        return made

    def scan(self, batches: Iterable[BatchView]) -> None:
        """Take in the batches that follow."""
        for view in batches:
            header = view.header
            self.next_offset = header.last_offset + 1
            if not header.is_transactional:
                continue
            if not header.is_control:
                known = OpenTransaction(header.producer_id, header.producer_epoch, header.base_offset)
                self._found.setdefault(header.producer_id, known)
            elif (kind := _type_of(view)) in (ControlType.ABORT, ControlType.COMMIT):
                ended = self._found.pop(header.producer_id, None)
                if ended is not None and kind is ControlType.COMMIT:
                    self._committed.add(ended.first_offset)

    def all(self) -> list[OpenTransaction]:
        """All of them, by their first offsets."""
        return sorted(self._found.values(), key=_first_offset)

    def decided(self, end: int, ask: AskOutcome) -> Undecided:
        """What may be read of them below ``end``, by how each of them ended."""
        aborted: list[AbortedTransaction] = []
        for producer_id, epoch, first_offset in self.all():
            if first_offset >= end:
                break
            outcome = ask(producer_id, epoch)
            if outcome is Outcome.UNDECIDED:
                return Undecided(first_offset, tuple(aborted), True)
            if outcome is Outcome.ABORTED:
                aborted.append(AbortedTransaction(producer_id, first_offset, end - 1, -1))
        return Undecided(end, tuple(aborted), False)

    def without_committed(self, undecided: Undecided) -> Undecided:
        """Without those that a commit marker has ended since they were asked for.

        The table forgets a commit after its markers. So "no record of a commit" counts only if the marker, looked
        for after the question, is no commit either.
        """
        aborted = tuple(each for each in undecided.aborted if each.first_offset not in self._committed)
        return undecided._replace(aborted=aborted)


def _first_offset(transaction: OpenTransaction) -> int:
    return transaction.first_offset


def _type_of(view: BatchView) -> ControlType | None:
    try:
        return read_marker(view).type if view.header.count > 0 else None
    except own(CorruptRecord):
        return None  # as for the writer: it ends nothing
