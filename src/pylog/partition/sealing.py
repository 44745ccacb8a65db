"""Writes the seals of closed segments, from the segments themselves, each batch checked on the way.

A little after each append that follows a roll, so that none of them pays for a whole segment; outside the lock, since a
closed segment doesn't change. A crash before or in the middle leaves a segment without a seal, which reads as well; the
next roll seals it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pylog.errors import CorruptSegment, PylogError
from pylog.partition.place import Place
from pylog.partition.segments import Segments
from pylog.segment import SealBuilder, SegmentScan, write_seal
from pylog.segment.naming import LOG, SEAL
from pylog.turn import NOT_MINE, Turn

logger = logging.getLogger("pylog.partition")

LEFTOVERS_MAX = 8  # sealed after one roll, so that nobody pays for a long history
_STEP_BYTES = 1 << 20
_BATCH_COSTS_BYTES = 16 << 10  # looking at a batch takes the time of checking so many bytes more


class Sealer:
    """Seals what is closed in one partition."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.forget_parent()

    def forget_parent(self) -> None:
        """Start anew: also in a forked child, where a thread that is not there may have had the turn."""
        self._turn = Turn()
        self._is_due = False
        self._work: Iterator[int] | None = None

    def segment_closed(self) -> None:
        """There is something to seal; ``go_on`` will find it."""
        self._is_due = True

    @property
    def is_idle(self) -> bool:
        return self._work is None and not self._is_due

    def go_on(self, size_bytes: float = _STEP_BYTES) -> None:
        """Seal so many bytes more, about a millisecond's work. Nothing where another thread is at it.

        A failure is logged: the append it follows stands, and the segment stays readable without its seal.
        """
        turn = self._turn
        if turn.is_mine():  # a signal handler appends, and has interrupted this
            return
        try:
            if turn.take(blocking=False):
                self._go_on(size_bytes)
        except FileNotFoundError:
            self._work = None  # the topic was deleted meanwhile
        except PylogError as error:
            self._work = None
            logger.warning("%s: could not seal closed segments: %s", self._place.directory, error)
        finally:
            try:  # noqa: SIM105 - see turn.py
                turn.leave()
            except NOT_MINE:
                pass

    def _go_on(self, size_bytes: float) -> None:
        if self._work is None:
            self._work = self._all()
        for batch_bytes in self._work:
            size_bytes -= batch_bytes + _BATCH_COSTS_BYTES
            if size_bytes <= 0:
                return
        self._work = None

    def _all(self) -> Iterator[int]:
        """Does the work, from one batch to the next, whose size in bytes it yields."""
        while self._is_due:
            self._is_due = False
            for base in sorted(unsealed_behind(self._place, self._place.segments())):
                try:
                    yield from self._one(base)
                except FileNotFoundError:
                    continue  # deleted meanwhile

    def _one(self, base: int) -> Iterator[int]:
        path = self._place.path(base, LOG)
        file = self._place.filesystem.open_readable(path)
        try:
            builder = SealBuilder()
            scan = SegmentScan(file, 0, file.size(), next_offset=base)
            for position, header in scan:
                builder.add(position, header, scan.front(position))
                yield header.size_bytes
        finally:
            file.close()
        if scan.problem is not None:
            raise CorruptSegment(
                f"{path} is damaged at position {scan.position}, offset {scan.next_offset}: {scan.problem}",
                path=path,
                position=scan.position,
                offset=scan.next_offset,
                problem=scan.problem,
            )
        write_seal(self._place.filesystem, self._place.directory, base, builder.build())


def unsealed_behind(place: Place, segments: Segments) -> list[int]:
    """Closed segments without a seal that follow the last one with: just closed, or left by a roller that died."""
    found: list[int] = []
    for base in reversed(segments.bases[:-1]):
        if len(found) == LEFTOVERS_MAX or place.filesystem.exists(place.path(base, SEAL)):
            break
        found.append(base)
    return found
