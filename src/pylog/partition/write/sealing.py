"""Writes the seals of closed segments, and checks each batch of them.

Each append after a roll seals a part, so that no append pays for a whole segment. Reading needs no
lock; the seal gets its name under the partition's lock, if the segment is still the one that was
read: compaction replaces segments. Closing the partition seals the rest. A crash leaves a segment
without a seal, which is readable. Each later roll seals a few such segments, and reads some older
seals: a torn one is made again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import NamedTuple

from pylog.codec.batch import header_crc
from pylog.codec.format import HEADER_BYTES
from pylog.errors import Closed, CorruptSegment, PylogError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.partition.directory import PartitionDirectory
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.read.aborted import folded
from pylog.partition.write.lock import WriteLock
from pylog.segment import (
    AbortedDigest,
    Seal,
    SealBuilder,
    SegmentScan,
    check_home,
    check_seal,
    rising_seal,
    write_seal,
)
from pylog.segment.naming import LOG, SEAL, SNAPSHOT, TRANSACTION_INDEX, file_name, offsets_of
from pylog.turn import NOT_MINE, Turn

logger = logging.getLogger("pylog.partition")

LEFTOVERS_PER_ROLL = 2  # a long history is sealed in time, and no append pays for all of it
_STEP_BYTES = 1 << 20
_WAIT_MS = 1000  # for the lock: a process that holds it so long is stopped
_CHECKED_PER_ROLL_BYTES = 1 << 20
_BATCH_COSTS_BYTES = 16 << 10  # a batch or a seal takes as long as checking this many bytes more
_HEADERS_COST_LESS = 64  # than a batch's checksum, about
_COMPRESSED_COSTS = 4  # times the bytes of a batch, to decompress it


class RolledSegment(NamedTuple):
    """A segment that this process has rolled, and whether only it has written there."""

    base: int
    end_offset: int
    written_alone: bool


class Sealer:
    """Seals the closed segments of one partition."""

    def __init__(self, directory: PartitionDirectory, lock: WriteLock) -> None:
        self._directory = directory
        self._lock = lock
        self.forget_parent()

    def forget_parent(self) -> None:
        """Forget everything. In a forked child, a thread of the parent may have the turn."""
        self._turn = Turn()
        self.due: list[RolledSegment] = []  # to be sealed by ``go_on``
        self._leftovers: list[int] = []  # left unsealed by others, rising; the newest are sealed first
        self._unchecked: list[int] = []  # sealed, but this process has not read the seal; rising
        self._known_end = -1  # closed segments before it are in a list, or sealed by this process
        self._work: Iterator[int] | None = None
        self._told = -1  # the segment that ``has_news`` told of

    def segment_rolled(self, base: int, end_offset: int, *, written_alone: bool) -> None:
        """Let ``go_on`` seal this segment."""
        self.due.append(RolledSegment(base, end_offset, written_alone))

    def has_news(self) -> bool:
        """Whether a segment was closed since the last call."""
        told, self._told = self._told, self.due[-1].base if self.due else -1
        return told != self._told

    def finish(self) -> None:
        """Seal the rest, after waiting for a thread that is sealing."""
        if self.due:
            self.go_on(float("inf"), wait=True)

    def go_on(self, size_bytes: float = _STEP_BYTES, *, wait: bool = False) -> None:
        """Seal about ``size_bytes`` more (by default, a millisecond's work).

        If another thread is sealing, does nothing, or waits for it (``wait``). Failures are only
        logged: a segment is readable without its seal.
        """
        turn = self._turn
        if turn.is_mine():  # a signal handler, which interrupted this, appends
            return
        try:
            if turn.take(blocking=wait):
                self._go_on(size_bytes)
        except own(FileNotFoundError):
            self._drop()  # the topic was deleted
        except own(PylogError) as error:
            self._drop()
            logger.warning("%r: could not look for unsealed segments: %s", self._directory.path, error)
        finally:
            try:  # see turn.py
                turn.leave()
            except own(NOT_MINE):
                pass

    def _drop(self) -> None:
        """Leave the rest to the next roll, which looks for unsealed segments."""
        self._work, self._known_end = None, -1
        self._leftovers, self._unchecked = [], []
        self.due.clear()

    def _go_on(self, size_bytes: float) -> None:
        if self._work is None:
            self._work = self._all()
        for batch_bytes in self._work:
            size_bytes -= batch_bytes + _BATCH_COSTS_BYTES
            if size_bytes <= 0:
                return
        self._work = None

    def _all(self) -> Iterator[int]:
        """Seals, and yields the size in bytes of each batch. It is started again if interrupted."""
        due = self.due  # a child forked during this has another
        while due:
            rolled = due[0]
            yield from self._attempt(rolled.base)
            self._look(rolled)
            for _ in range(min(LEFTOVERS_PER_ROLL, len(self._leftovers))):
                yield from self._attempt(self._leftovers[-1])
                self._leftovers.pop()
            yield from self._check_some()
            due.pop(0)

    def _look(self, rolled: RolledSegment) -> None:
        """Find what others left unsealed, if others have written since the last look.

        Removes the snapshots that they saved inside of segments closed since.
        """
        if rolled.end_offset == self._known_end:
            return  # an interrupted call has looked already
        if rolled.base < self._known_end:
            self._known_end = -1  # the log was cut, or the topic created again
            self._leftovers, self._unchecked = [], []
        if not rolled.written_alone or rolled.base != self._known_end:
            names = self._directory.names()
            names = names[bisect_left(names, file_name(self._known_end, "")) if self._known_end > 0 else 0 :]
            sealed = set(offsets_of(names, SEAL))
            bases = offsets_of(names, LOG)
            inner = set(offsets_of(names, SNAPSHOT)).difference(bases)
            snapshots.remove(
                self._directory.filesystem, self._directory.path, (at for at in inner if at < rolled.end_offset)
            )
            for base in bases:
                if base < rolled.end_offset and base != rolled.base:
                    (self._unchecked if base in sealed else self._leftovers).append(base)
        self._known_end = rolled.end_offset

    def _check_some(self) -> Iterator[int]:
        """Read some seals of other processes, and make unreadable ones again."""
        left = _CHECKED_PER_ROLL_BYTES
        while self._unchecked and left > 0:
            for size_bytes in self._attempt(self._unchecked[-1]):
                left -= size_bytes
                yield size_bytes
            left -= _BATCH_COSTS_BYTES
            self._unchecked.pop()

    def _attempt(self, base: int) -> Iterator[int]:
        try:
            if not (yield from self._is_sealed(base)):
                yield from self._seal(base)
        except own(FileNotFoundError, TopicNotFound, Closed):
            pass  # the segment was deleted
        except own(PylogError) as error:
            logger.warning("%r: could not seal a closed segment: %s", self._directory.path, error)

    def _is_sealed(self, base: int) -> Generator[int, None, bool]:
        yield 0
        try:
            home = yield from check_seal(self._directory.filesystem, self._directory.path, base)
        except own(FileNotFoundError):
            return False
        except own(CorruptSegment) as damage:
            logger.warning("%s; making it again", damage)
            return False
        # The seal of another partition stays, as evidence.
        check_home(home, self._directory.home, self._directory.file_path(base, SEAL))
        return True

    def _seal(self, base: int) -> Iterator[int]:
        file = self._directory.filesystem.open_readable(self._directory.file_path(base, LOG))
        try:
            builder, has_markers, has_gaps = SealBuilder(self._directory.home), False, False
            scan = SegmentScan(file, 0, file.size(), next_offset=base)
            for position, header in scan:
                has_markers = has_markers or header.is_control
                has_gaps = has_gaps or header.count <= header.last_offset_delta  # compacted; its seal was lost
                front = scan.front(position)
                builder.add(position, header, front, scan.least_timestamp_ms(position, header))
                yield header.size_bytes * (_COMPRESSED_COSTS if header.codec else 1)
        finally:
            file.close()
        if scan.problem is not None:
            raise scan.damage()
        aborted = (yield from self._aborted(base)) if has_markers else AbortedDigest(0, 0)
        seal = builder.build(scan.next_offset if has_gaps else -1, aborted)
        self._compare_index(base, seal)
        put = partial(self._put, base, seal)
        write_seal(self._directory.filesystem, self._directory.path, base, seal, put=put)

    def _aborted(self, base: int) -> Generator[int, None, AbortedDigest | None]:
        """What the transaction index must be, by the batches; None if what producers did before
        them is unknown."""
        directory = self._directory
        segments = directory.segments()
        if segments.bases[:1] != (0,) and not snapshots.is_whole(directory.filesystem, directory.path, base):
            logger.warning(
                "%r: the snapshot at %d is lost or damaged; the seal will not record the aborted transactions",
                directory.path, base,
            )  # fmt: skip
            return None
        producers = snapshots.load(directory.filesystem, directory.path, segments, base, now_ms=0)
        found = []
        for header, aborted in folded(directory, producers, base):
            if aborted is not None:
                found.append(aborted)
            yield header.size_bytes // _HEADERS_COST_LESS
        return AbortedDigest.of(found)

    def _compare_index(self, base: int, seal: Seal) -> None:
        directory = self._directory
        if seal.aborted is not None and not seal.aborted.matches_index(directory.filesystem, directory.path, base):
            path = directory.file_path(base, TRANSACTION_INDEX)
            logger.warning("%r is lost or damaged; readers will read its segment instead", path)

    def _put(self, base: int, seal: Seal, rename: Callable[[], object]) -> None:
        def put(grant: Grant) -> None:
            with suppress(FileNotFoundError):  # the segment was deleted, or a recovery has removed the new file
                if self._applies(base, seal, grant):
                    grant.check()
                    rename()

        self._lock.holding(_WAIT_MS, put)

    def _applies(self, base: int, seal: Seal, grant: Grant) -> bool:
        """Whether the segment at this path now is closed, and the one that was read.

        It is not if the topic was deleted and created again, or a recovery cut the log.
        """
        directory = self._directory
        directory.check_topic()  # another topic's segment can have the same bytes
        state = grant.slots.read()
        if state is None or state.boot != directory.boot or state.active_base <= base:
            return False
        if rising_seal(directory.filesystem, directory.path, base) is not None:
            return False  # compacted meanwhile
        file = directory.filesystem.open_readable(directory.file_path(base, LOG))
        try:
            return file.size() == seal.size_bytes and (
                not seal.positions or header_crc(file.pread(HEADER_BYTES, seal.positions[-1])) == seal.header_crcs[-1]
            )
        finally:
            file.close()
