"""What the batches of a partition contain, in order, of epochs and producers; and whether the small
files agree.

Producer state is known from the partition's first offset on, or from the snapshot at its first
segment. After damage it is unknown, so later snapshots and transactions are not judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import pairwise

from pylog.codec.batch import BatchHeader
from pylog.codec.control import ControlType, Marker
from pylog.errors import CorruptSegment, FormatVersionError, StorageError
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerEntry, ProducerStates
from pylog.partition.read.undecided import OpenTransaction
from pylog.partition.verify.findings import Finding, FirstFinding
from pylog.partition.verify.producer_ids import ProducerIdCheck
from pylog.segment.naming import EPOCH_CHECKPOINT, SNAPSHOT, file_path, offset_of
from pylog.storage import FileSystem

_BEYOND_EPOCHS = 1 << 31


class History:
    """Folds batches. ``strict`` compares the small files with the result; Kafka's are only read
    (compaction changes them)."""

    def __init__(self, filesystem: FileSystem, directory: str, producer_ids: ProducerIdCheck, *, strict: bool) -> None:
        self.producer_ids = producer_ids
        self._filesystem = filesystem
        self._directory = directory
        self._strict = strict
        self._starts: list[tuple[int, int]] = []
        self._snapshots: dict[int, ProducerStates] = {}
        self._producers: ProducerStates | None = None
        self._markers: dict[int, int] = {}

    @property
    def knows_producers(self) -> bool:
        return self._producers is not None

    # The small files

    def read_files(self, unsynced: Collection[int] | None = None) -> Iterator[Finding]:
        """``unsynced`` are the snapshots that the next recovery will remove, None if none is
        needed. It will also make an unreadable epoch checkpoint again.
        """
        yield from self._read_epochs(is_remade=unsynced is not None)
        for name in self._filesystem.names(self._directory):
            offset = offset_of(name, SNAPSHOT)
            if offset is not None and offset not in (unsynced or ()):
                yield from self._read_snapshot(offset)

    def _read_epochs(self, *, is_remade: bool) -> Iterator[Finding]:
        path = f"{self._directory}/{EPOCH_CHECKPOINT}"
        if self._strict and not is_remade and not self._filesystem.exists(path):
            yield Finding("epochs", path, 0, None, None, "is missing")
        try:
            starts = LeaderEpochs.load(self._filesystem, self._directory).starts
        except own(CorruptSegment, FormatVersionError, StorageError) as damage:
            if not is_remade or isinstance(damage, StorageError):
                yield Finding("epochs", path, 0, None, None, str(damage))
            return
        for before, after in pairwise(starts):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                yield Finding("epochs", path, 0, after.start_offset, None, f"{tuple(after)} follows {tuple(before)}")
                return
        self._starts = [(start.start_offset, start.epoch) for start in starts]

    def _read_snapshot(self, offset: int) -> Iterator[Finding]:
        try:
            states = self._snapshots[offset] = snapshots.read(self._filesystem, self._directory, offset)
        except own(FileNotFoundError):
            return  # a newer one took its place
        except own(CorruptSegment, FormatVersionError, StorageError) as damage:
            path = file_path(self._directory, offset, SNAPSHOT)
            yield Finding("snapshot", path, 0, None, offset, str(damage))
            return
        for producer_id in states.entries:
            self.producer_ids.add(producer_id, file_path(self._directory, offset, SNAPSHOT), 0, None, offset)

    # The batches

    def begin(self, offset: int) -> None:
        """The first segment begins here."""
        from_nothing = offset == 0 or not self._strict
        self._producers = ProducerStates() if from_nothing else self._snapshots.pop(offset, None)

    def last_marker(self, producer_id: int) -> int:
        """The offset of this producer's latest commit or abort; -1 before the first."""
        return self._markers.get(producer_id, -1)

    def forget(self) -> None:
        """Batches were lost: what producers did in them is unknown."""
        self._producers = None

    def begin_compacted(self, base: int, next_base: int) -> None:
        """The batches of the next segment no longer show what producers did: snapshots inside of it
        are not compared."""
        for offset in [at for at in self._snapshots if base < at < next_base]:
            del self._snapshots[offset]

    def end_compacted(self, next_base: int) -> None:
        """Only the snapshot at its end shows it."""
        self._producers = self._snapshots.pop(next_base, None)

    def take(self, header: BatchHeader, marker: Marker | None) -> AbortedTransaction | None:
        """Fold a batch in; the transaction it aborted, if it is an abort marker."""
        ends = marker is not None and marker.type in (ControlType.COMMIT, ControlType.ABORT)
        if ends:
            self._markers[header.producer_id] = header.base_offset
        if self._producers is None or header.producer_id < 0:
            return None
        if marker is not None and ends:
            return self._producers.end_transaction(
                header, committed=marker.type == ControlType.COMMIT, coordinator_epoch=marker.coordinator_epoch
            )
        if not header.is_control:
            self._producers.update(header)
        return None

    def open_transactions(self) -> list[OpenTransaction]:
        """Those without a marker so far; none if what producers did is unknown."""
        found = [] if self._producers is None else self._producers.open_transactions()
        return sorted([OpenTransaction(*each) for each in found], key=lambda each: each.first_offset)

    def epoch_problem(self, header: BatchHeader) -> str | None:
        """What is wrong with the leader epoch of a batch; None if it is the checkpoint's, or there
        is none to compare."""
        if not self._strict or not self._starts:
            return None
        number = bisect_right(self._starts, (header.base_offset, _BEYOND_EPOCHS))
        epoch = self._starts[number - 1][1] if number else None
        if header.leader_epoch == epoch:
            return None
        return f"leader epoch {header.leader_epoch} at offset {header.base_offset}, the checkpoint says {epoch}"

    def reach(self, offset: int) -> Iterator[Finding]:
        """The next batch begins here, or the log ends: compare a snapshot of this offset with the
        state."""
        snapshot = self._snapshots.get(offset)
        if snapshot is None or self._producers is None:
            return
        findings = FirstFinding("snapshot", file_path(self._directory, offset, SNAPSHOT))
        for producer_id, known in self._producers.entries.items():
            entry = snapshot.entries.get(producer_id)
            start = entry.transaction_start if entry is not None else None  # idle producers may be left out
            differs = (start is None) is not (known.transaction_start is None)  # Kafka's log may begin inside one
            if differs or (self._strict and start != known.transaction_start):
                findings.add(0, known.transaction_start, offset, _about_transaction(producer_id, start, known))
        for producer_id, entry in snapshot.entries.items() if self._strict else ():
            known_or_none = self._producers.entries.get(producer_id)
            if known_or_none is None or _last_batch(known_or_none) != _last_batch(entry):
                findings.add(
                    0, None, offset, f"says of producer {producer_id} other than the batches before offset {offset}"
                )
        yield from findings.result()


def _last_batch(entry: ProducerEntry) -> tuple[object, ...]:
    return entry.epoch, *entry.batches[-1:]


def _about_transaction(producer_id: int, start: int | None, known: ProducerEntry) -> str:
    said = "has no open transaction" if start is None else f"has a transaction open since {start}"
    known_start = known.transaction_start
    is_so = "it has none" if known_start is None else f"it has one since {known_start}"
    return f"says that producer {producer_id} {said}; {is_so}"
