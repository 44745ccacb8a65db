"""The aborted transactions of a partition, for ``read_committed``: by the indexes of its segments,
or by the markers.

The seal of a closed segment records what its index must be. If it is another one, or lost, this
reader makes the entries again from the batches; the next recovery repairs the file.

Transaction indexes are synced when their segment is closed. So after a power failure entries may be
missing although the markers are there. The next writer makes them again; a reader that comes before
it, or that may not write, reads the markers.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing

from pylog.codec.batch import BatchHeader
from pylog.codec.format import HEADER_BYTES
from pylog.errors import CorruptSegment
from pylog.index import AbortedTransaction, TransactionIndexReader
from pylog.interrupts import own
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.segments import Segments
from pylog.segment import AbortedDigest, SegmentScan, read_aborted, rising_seal
from pylog.segment.naming import LOG, TRANSACTION_INDEX

logger = logging.getLogger("pylog.partition")


class AbortedTransactions:
    """Those of one list of segments. Threads share it: two of them may do the same work."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._checked: set[int] = set()  # closed segments whose index was compared with the seal
        self._indexed: set[int] = set()  # those whose index was there
        self._without: set[int] = set()  # of the checked ones, those without aborted transactions
        self._remade: dict[int, list[AbortedTransaction]] = {}  # of the checked ones, those with another index
        self._unindexed: tuple[CommitState, list[AbortedTransaction]] | None = None  # the last that was read

    def since(self, offset: int, state: CommitState, segments: Segments) -> Generator[AbortedTransaction, None, None]:
        """Those that may reach ``offset``, in the order of their markers, which are there or later.

        ``CorruptSegment`` if an index is not right and cannot be made again.
        """
        first = segments.floor(offset)
        is_assessed_state = is_assessed(self._directory, state)
        for base in segments.bases:
            if is_assessed_state and segments.is_rebuilt(base, state.durable_offset):
                continue
            if first is not None and base < first:
                continue
            if base != state.active_base and base not in self._checked:
                self._check(base, segments)
            if base not in self._without:
                yield from self._of(base, offset, segments)
        if is_assessed_state:
            unindexed = self._unindexed
            if unindexed is None or unindexed[0] != state:
                unindexed = self._unindexed = state, aborted_by_markers(self._directory, segments, state)
            yield from (each for each in unindexed[1] if each.last_offset >= offset)

    def _of(self, base: int, offset: int, segments: Segments) -> Iterator[AbortedTransaction]:
        if base in self._remade:
            yield from self._remade_of(base, offset)
            return
        directory = self._directory
        try:
            index = TransactionIndexReader(
                directory.filesystem.open_readable(directory.file_path(base, TRANSACTION_INDEX))
            )
        except own(FileNotFoundError):
            if base in self._checked:
                # A log is removed before its index: without this look, a removed index would say
                # "no aborts".
                directory.filesystem.size(directory.file_path(base, LOG))
                if base in self._indexed:  # it was lost since
                    self._check(base, segments)
                if base not in self._remade:
                    self._without.add(base)
            yield from self._remade_of(base, offset)
            return
        self._indexed.add(base)
        try:
            segment_bytes = directory.filesystem.size(directory.file_path(base, LOG))
            index.refuse_more_than(segment_bytes // HEADER_BYTES + 1)
            yield from index.entries(offset)
        finally:
            index.close()

    def _remade_of(self, base: int, offset: int) -> Iterator[AbortedTransaction]:
        return (each for each in self._remade.get(base, ()) if each.last_offset >= offset)

    def _check(self, base: int, segments: Segments) -> None:
        """Compare the index with the seal, if that records it, and make the entries again if they
        differ."""
        digest = differing_digest(self._directory, base)
        if digest is not None:
            self._remade[base] = aborted_again(self._directory, segments, base, digest)
        self._checked.add(base)  # last: another thread that sees this uses the rest


def differing_digest(directory: PartitionDirectory, base: int) -> AbortedDigest | None:
    """What the seal of a closed segment records of the transaction index, if that is another one.

    A damaged seal counts as absent. ``CorruptSegment`` for the seal of another partition.
    """
    try:
        digest = read_aborted(directory.filesystem, directory.path, base, directory.home)
    except own(CorruptSegment) as damage:
        if "home" in damage.facts:
            raise
        logger.warning("%s; reading on without it", damage)
        return None
    if digest is None or digest.matches_index(directory.filesystem, directory.path, base):
        return None
    path = directory.file_path(base, TRANSACTION_INDEX)
    logger.warning("%r is not the index that the seal of its segment records; reading the segment", path)
    return digest


def aborted_again(
    directory: PartitionDirectory, segments: Segments, base: int, digest: AbortedDigest
) -> list[AbortedTransaction]:
    """The entries of a closed segment's transaction index, by its batches. ``CorruptSegment`` if
    the seal records others.

    A compacted segment may have fewer: compaction has dropped all records of the other
    transactions, not the markers.
    """
    producers = snapshots.load(directory.filesystem, directory.path, segments, base, now_ms=0)
    found = [aborted for _, aborted in folded(directory, producers, base) if aborted is not None]
    if AbortedDigest.of(found) != digest and rising_seal(directory.filesystem, directory.path, base) is None:
        path = directory.file_path(base, TRANSACTION_INDEX)
        raise CorruptSegment(
            f"{path} is lost or damaged, and cannot be made again: the seal of its segment records {digest.entries} "
            f"aborted transactions, which are not the {len(found)} that the batches show; restore the partition from a copy",
            path=path, position=0, entries=len(found), expected=digest.entries,
        )  # fmt: skip
    return found


def is_assessed(directory: PartitionDirectory, state: CommitState) -> bool:
    """Whether ``state`` is of the segments of another boot, and no writer has repaired them."""
    return state.sequence == 0 and state.leader_epoch < 0 and not directory.is_kafka


def aborted_by_markers(
    directory: PartitionDirectory, segments: Segments, state: CommitState
) -> list[AbortedTransaction]:
    """Those whose markers are in segments that the next writer indexes again, in the order of the
    markers."""
    found: list[AbortedTransaction] = []
    bases = [
        base
        for base in segments.bases
        if segments.is_rebuilt(base, state.durable_offset)
        and (state.written_end or base != state.active_base)  # a roll publishes a segment before it has a file
    ]
    if not bases:
        return found
    producers = snapshots.load(directory.filesystem, directory.path, segments, bases[0], now_ms=0)
    for base in bases:
        end = state.written_end if base == state.active_base else None
        found += [aborted for _, aborted in folded(directory, producers, base, end) if aborted is not None]
    return found


def folded(
    directory: PartitionDirectory, producers: ProducerStates, base: int, end: int | None = None
) -> Iterator[tuple[BatchHeader, AbortedTransaction | None]]:
    """Each batch of a segment before position ``end``, and the transaction that it aborts.

    ``producers`` are those at the segment's base, and then those after each batch.
    """
    with closing(directory.filesystem.open_readable(directory.file_path(base, LOG))) as file:
        end = file.size() if end is None else end
        for position, header in SegmentScan(file, 0, end, next_offset=base, dense=False, check_crc=False):
            yield header, snapshots.fold(producers, header, position, file)
