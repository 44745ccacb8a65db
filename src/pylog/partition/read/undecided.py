"""What ``read_committed`` may see after the last stable offset: of transactions that have no marker
yet.

A transaction is decided before its markers are written, and a dead owner never writes them. So a
reader asks how each of them ended, and stops only at the first one that is still under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from pylog.codec.batch import BatchView
from pylog.codec.control import ControlType, read_marker
from pylog.errors import CorruptSegment
from pylog.index import AbortedTransaction


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
    timestamp_ms: int = -1
    """The greatest one of its first batch."""


class Undecided(NamedTuple):
    """Where reading stops, and which batches before it to leave out."""

    end: int
    aborted: tuple[AbortedTransaction, ...]
    is_blocked: bool  # by a transaction that is under way
    is_unmarked: bool = False  # a transaction before the end is over, and has no marker


class OpenTransactions:
    """The transactions without a marker among the batches that were scanned, in order."""

    def __init__(self, start: int, leader_epoch: int) -> None:
        self.next_offset = start
        self.leader_epoch = leader_epoch
        self._found: dict[int, OpenTransaction] = {}
        self._outcomes: dict[int, Outcome] = {}  # by first offset; those that will not change
        self.damaged: list[tuple[int, int, CorruptSegment]] = []  # offsets, the second exclusive, that were not scanned
        self._committed: set[int] = set()  # the first offsets of those that a marker ended since the last copy

    def copy(self) -> OpenTransactions:
        """The same, for one look: threads share what is kept."""
        made = OpenTransactions(self.next_offset, self.leader_epoch)
        made._found, made._outcomes, made.damaged = dict(self._found), dict(self._outcomes), list(self.damaged)
        return made

    def check(self, offset: int) -> None:
        """Raises ``CorruptSegment`` inside of a damaged part: a transaction may be hidden there."""
        for start, end, damage in self.damaged:
            if start < offset < end:
                raise CorruptSegment(str(damage), **damage.facts)

    def all(self) -> list[OpenTransaction]:
        """All of them, by their first offsets."""
        return sorted(self._found.values(), key=_first_offset)

    def scan(self, batches: Iterable[BatchView], next_offset: int) -> None:
        """Take in the batches that follow, up to ``next_offset``."""
        for view in batches:
            header = view.header
            if not header.is_transactional:
                continue
            if not header.is_control:
                known = OpenTransaction(
                    header.producer_id, header.producer_epoch, header.base_offset, header.max_timestamp_ms
                )
                self._found.setdefault(header.producer_id, known)
            elif (kind := _type_of(view)) in (ControlType.ABORT, ControlType.COMMIT):
                ended = self._found.pop(header.producer_id, None)
                if ended is not None:
                    self._outcomes.pop(ended.first_offset, None)
                    if kind is ControlType.COMMIT:
                        self._committed.add(ended.first_offset)
        self.next_offset = next_offset

    def decided(self, end: int, ask: AskOutcome) -> Undecided:
        """What may be read of them below ``end``, by how each of them ended."""
        aborted: list[AbortedTransaction] = []
        is_unmarked = False
        for producer_id, epoch, first_offset, _ in self.all():
            if first_offset >= end:
                break
            outcome = self._outcomes.get(first_offset) or ask(producer_id, epoch)
            if outcome is Outcome.UNDECIDED:
                return Undecided(first_offset, tuple(aborted), True, is_unmarked)
            is_unmarked = True
            if outcome is Outcome.ABORTED:
                aborted.append(AbortedTransaction(producer_id, first_offset, end - 1, -1))
            else:
                self._outcomes[first_offset] = outcome
        return Undecided(end, tuple(aborted), False, is_unmarked)

    def knows(self, aborted: Iterable[AbortedTransaction]) -> bool:
        """Whether all of these were found aborted before."""
        return all(each.first_offset in self._outcomes for each in aborted)

    def without_committed(self, undecided: Undecided) -> Undecided:
        """Without those that a commit marker has ended since they were asked for.

        The table forgets a commit after its markers. So "no record of a commit" counts only if the
        marker, looked for after the question, is no commit either.
        """
        aborted = tuple(each for each in undecided.aborted if each.first_offset not in self._committed)
        open_offsets = {found.first_offset for found in self._found.values()}
        self._outcomes.update(
            {each.first_offset: Outcome.ABORTED for each in aborted if each.first_offset in open_offsets}
        )
        return undecided._replace(aborted=aborted)


def _first_offset(transaction: OpenTransaction) -> int:
    return transaction.first_offset


def _type_of(view: BatchView) -> ControlType | None:
    """None if compaction has emptied it. The reader of its segment refuses a malformed one."""
    return read_marker(view).type if view.header.count > 0 else None
