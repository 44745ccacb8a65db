"""The records after the last stable offset, for ``read_committed``: scanned once, asked about at
each look.

The order of a look is part of what makes its answer right: first the batches, then how each
transaction without a marker ended, then the markers again. See ``transaction/outcomes.py``.
"""

from __future__ import annotations

from typing import Protocol

from pylog.codec.batch import BatchView
from pylog.errors import CorruptSegment
from pylog.interrupts import own
from pylog.limits import FETCH_BYTES
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.cursor import Cursor
from pylog.partition.read.published import Published
from pylog.partition.read.undecided import AskOutcome, OpenTransactions, Undecided
from pylog.partition.read.visibility import READ_UNCOMMITTED, visible_end


class Source(Protocol):
    """What the tail uses of its reader."""

    def read_at(self, cursor: Cursor, state: CommitState, max_bytes: int) -> tuple[list[BatchView], Cursor]:
        """Whole batches at the cursor. ``CorruptSegment``, ``FileNotFoundError``."""

    def after_damage(self, damage: CorruptSegment, offset: int) -> Cursor:
        """Where whole batches continue."""

    def close(self) -> None:
        """Open every file again."""


class Tail:
    """The transactions without a marker in one partition. Threads share it: what is kept is
    replaced whole."""

    def __init__(self, source: Source, published: Published, ask: AskOutcome) -> None:
        self._source = source
        self._published = published
        self._ask = ask
        self._kept: OpenTransactions | None = None

    def look(self, state: CommitState, visibility: str, offset: int | None = None) -> Undecided:
        """What may be read after the last stable offset of ``state``.

        Raises what the question about a transaction raises: ``CorruptSegment`` if the table is
        damaged. And what a scan met, if ``offset`` is inside of damage, which may hide
        transactions.
        """
        end = visible_end(state, READ_UNCOMMITTED, visibility)
        if end <= state.last_stable_offset:
            return Undecided(end, (), False)
        known = self.scanned(state)
        if offset is not None:
            known.check(offset)
        undecided = known.decided(end, self._ask)
        if not known.knows(undecided.aborted):
            known = self._scanned(known.copy(), self._published.current())
            undecided = known.without_committed(undecided)
            self._kept = known
        return undecided._replace(end=max(undecided.end, state.last_stable_offset))  # its first records may be deleted

    def scanned(self, state: CommitState) -> OpenTransactions:
        """The open transactions at the end of the log. Only what is new since the last call is
        read."""
        known = self._kept
        if (
            known is None
            or known.leader_epoch != state.leader_epoch
            or not state.last_stable_offset <= known.next_offset <= state.log_end_offset
        ):
            known = OpenTransactions(state.last_stable_offset, state.leader_epoch)
        if known.next_offset < state.log_end_offset:
            known = self._kept = self._scanned(known.copy(), state)
        return known

    def _scanned(self, known: OpenTransactions, state: CommitState) -> OpenTransactions:
        """``known``, with what follows up to the log's end. Damage is skipped: a reader meets it
        where it is.

        ``FileNotFoundError`` if the files have changed meanwhile: take the state again.
        """
        cursor, is_reopened = Cursor(known.next_offset), False
        while cursor.offset < state.log_end_offset:
            batches: list[BatchView] = []
            try:
                batches, after = self._source.read_at(cursor, state, FETCH_BYTES)
            except own(CorruptSegment) as damage:
                now = self._published.current()
                if now.segments_version != state.segments_version or now.log_start_offset > cursor.offset:
                    raise FileNotFoundError("files were deleted or replaced meanwhile") from damage
                if not is_reopened:  # they were before, and an old one is still open
                    self._source.close()
                    cursor, is_reopened = Cursor(cursor.offset), True
                    continue
                after = self._source.after_damage(damage, cursor.offset)
                known.damaged.append((cursor.offset, after.offset, damage))
            if after.offset <= cursor.offset:
                break
            known.scan(batches, after.offset)
            cursor = after
        return known
