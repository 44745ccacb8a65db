"""Copies one partition up to the cut. What is copied is read once, and checked by the batches'
checksums and the seals.

A closed segment whose seal is the same in the earlier copy has the same bytes: the seal has the
checksum of each batch. It is linked, not copied. The rest is as after a crash at the cut: the next
writer of the copy makes the indexes of the last segment, and begins a leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest

from pylog.backup.cut import vanished
from pylog.codec.format import INT64_MAX
from pylog.errors import CorruptSegment, StorageError
from pylog.index import TransactionIndexReader, encode_transactions
from pylog.interrupts import own
from pylog.limits import FETCH_BYTES
from pylog.partition.commit_slots import CommitSlots, CommitState
from pylog.partition.directory import PartitionDirectory, another_boot
from pylog.partition.partition_log import PartitionLog
from pylog.segment import SegmentReader
from pylog.segment.naming import (
    CLEANER_CHECKPOINT,
    COMMIT_SLOTS,
    EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SEAL,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offsets,
    file_name,
    file_path,
    offsets_of,
)
from pylog.storage import LOCK_TIMEOUT_MS, FileSystem, write_atomically

_SIDE_KINDS = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT, SEAL)
_LISTINGS_MAX = 5  # without an advance of the log start
_PIECE_BYTES = 1 << 20
_SNAPSHOTS = 3  # the active segment has up to two more than the one at its base


@dataclass
class Tally:
    """Counts of one backup. ``progress`` gets the bytes of segments that are done."""

    progress: Callable[[int], object] = bool
    copied_bytes: int = 0
    kept_bytes: int = 0
    copied_segments: int = 0
    kept_segments: int = 0


class PartitionCopy:
    """The copy of one partition, in the directory ``path`` of ``target``; ``earlier`` is its
    directory in the earlier copy. ``check_process`` is of the whole backup."""

    def __init__(
        self,
        partition: PartitionLog,
        target: FileSystem,
        path: str,
        earlier: str | None,
        tally: Tally,
        check_process: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._directory: PartitionDirectory = partition.directory
        self._source = partition.directory.filesystem
        self._target = target
        self._path = path
        self._earlier = earlier
        self._tally = tally
        self._check_process = check_process
        self._done: dict[int, int] = {}  # sizes of copied segments, by base

    def prepare(self) -> None:
        """Before the cut: copy the producers' snapshots. Later ones replace them in the log, but
        are no use to the copy."""
        self._check_process()
        self._target.make_directory(self._path)
        try:
            newest = sorted(offsets_of(self._directory.names(), SNAPSHOT))[-_SNAPSHOTS:]
        except own(FileNotFoundError) as error:
            raise vanished(self._directory, error) from error
        for offset in newest:
            self._copy_file(file_name(offset, SNAPSHOT))

    def copy(self, state: CommitState) -> CommitState:
        """Copy what is before the end of ``state``, and return the state of the copy. Durable on
        return.

        Retention may delete records meanwhile: then the copy begins later. ``TopicNotFound`` if the
        topic was deleted. ``CorruptSegment`` for damage, ``StorageError``.
        """
        try:
            state = self._copy_segments(state)
        except own(FileNotFoundError) as error:
            raise vanished(self._directory, error) from error
        if state.active_base not in self._done:
            self._target.open_appendable(file_path(self._path, state.active_base, LOG)).close()
        single = (EPOCH_CHECKPOINT, PARTITION_METADATA, CLEANER_CHECKPOINT, file_name(state.active_base, SNAPSHOT))
        for name in single:
            self._copy_file(name)
        self._remove_what_is_gone(state)
        self._check_process()
        with closing(CommitSlots(self._target.open_appendable(f"{self._path}/{COMMIT_SLOTS}"))) as slots:
            slots.begin(state)
            slots.sync()
        self._target.sync_directory(self._path)
        self._directory.check_topic()
        return state

    # Segments

    def _copy_segments(self, state: CommitState) -> CommitState:
        start, tries = state.log_start_offset, 0
        while True:
            try:
                self._copy_listed(state, start)
                size = self._done.get(state.active_base, state.written_end)  # less after an erasure
                return _state_of_copy(state._replace(written_end=size), start, self._directory.boot)
            except own(CorruptSegment):
                self._directory.check_topic()  # else the files are of another topic
                raise
            except own(FileNotFoundError) as error:
                self._directory.check_topic()
                if not self._target.is_directory(self._path):
                    raise StorageError(
                        f"{self._path} was removed while a backup wrote to it", path=self._path
                    ) from error
                now = self._partition.writable().recovered(LOCK_TIMEOUT_MS).log_start_offset
                tries = 0 if now > start else tries + 1
                if tries > _LISTINGS_MAX:
                    raise
                start = max(start, now)

    def _copy_listed(self, state: CommitState, start: int) -> None:
        """Copy the segments. Raises ``FileNotFoundError`` if one is not there any more."""
        end = state.log_end_offset
        if start >= end:
            return
        segments = self._directory.segments().since(start).up_to(state.active_base)
        bases = [*segments.bases]
        if not state.written_end and state.active_base in bases:
            bases.remove(state.active_base)
        if not bases or bases[0] > start:
            raise FileNotFoundError(2, "deleted meanwhile", file_path(self._directory.path, start, LOG))
        for base in bases:
            following = segments.after(base)
            if base == state.active_base:
                following = end
            if base not in self._done:
                self._done[base] = self._copy_segment(base, following or state.active_base, state)

    def _copy_segment(self, base: int, following: int, state: CommitState) -> int:
        """Returns the size of the copied log."""
        tally, is_closed, log = self._tally, base != state.active_base, self._directory.file_path(base, LOG)
        if is_closed and self._is_kept(base) and self._link(file_name(base, LOG)):
            tally.kept_segments += 1
            for kind in _SIDE_KINDS:
                self._keep_file(file_name(base, kind))
            self._source.size(log)  # as below
            size = self._target.size(file_path(self._path, base, LOG))
            tally.progress(size)
            return size
        tally.copied_segments += 1
        # Once it is closed, an erasure may have written it again: the same offsets are at other
        # positions.
        is_as_at_cut = not is_closed and self._partition.current().active_base == base
        size = state.written_end if is_as_at_cut else self._source.size(log)
        size = self._copy_log(base, following, size, is_closed=is_closed)
        if is_closed:
            for kind in _SIDE_KINDS:
                self._copy_file(file_name(base, kind))
            self._source.size(log)  # retention takes the log away first: while it is there, so were the others
        else:
            self._copy_aborted(base, state.log_end_offset)
        return size

    def _copy_log(self, base: int, following: int, size: int, *, is_closed: bool) -> int:
        """Copy the batches before the offset ``following``. Returns their bytes."""
        directory = self._directory
        reader = SegmentReader(
            self._source, directory.path, base, closed=is_closed, home=directory.home, end_offset=following,
            batch_limit_bytes=lambda: directory.settings().max_message_bytes,
        )  # fmt: skip
        with closing(reader), closing(self._target.open_appendable(file_path(self._path, base, LOG))) as target:
            position, offset = 0, base
            while offset < following:
                found = reader.read(position, size, max_bytes=FETCH_BYTES, next_offset=offset)
                views = [view for view in found if view.base_offset < following]
                if not views:
                    break
                self._check_process()
                data = b"".join(view.buffer for view in views)
                target.pwrite(data, position)
                position, offset = position + len(data), views[-1].last_offset + 1
                self._tally.copied_bytes += len(data)
                self._tally.progress(len(data))
            if is_closed:
                offset = reader.gap_end(offset)
            if offset != following:
                raise CorruptSegment(
                    f"{reader.path} ends at offset {offset}, expected {following}; it was not backed up: pylog verify",
                    path=reader.path, position=position, offset=offset, expected=following,
                )  # fmt: skip
            target.sync()
        return position

    def _copy_aborted(self, base: int, end: int) -> None:
        """The transaction index of the last segment, as it was at the cut: with the markers before
        ``end``."""
        try:
            file = self._source.open_readable(self._directory.file_path(base, TRANSACTION_INDEX))
        except own(FileNotFoundError):
            return
        with closing(TransactionIndexReader(file)) as index:
            aborted = [each for each in index.entries() if each.last_offset < end]
        if aborted:
            data = encode_transactions(aborted)
            write_atomically(self._target, file_path(self._path, base, TRANSACTION_INDEX), data)
            self._tally.copied_bytes += len(data)

    # Files

    def _is_kept(self, base: int) -> bool:
        """Whether the earlier copy has the same segment: the same seal, and as many bytes."""
        if self._earlier is None or not self._is_same(file_name(base, SEAL)):
            return False
        try:
            size = self._source.size(self._directory.file_path(base, LOG))
            return self._target.size(file_path(self._earlier, base, LOG)) == size
        except own(FileNotFoundError):
            return False

    def _is_same(self, name: str) -> bool:
        """Whether the earlier copy has this file with these bytes."""
        here, there = f"{self._directory.path}/{name}", f"{self._earlier}/{name}"
        try:
            if self._source.size(here) != self._target.size(there):
                return False
            pieces = zip_longest(_pieces(self._source, here), _pieces(self._target, there))
            return all(mine == earlier for mine, earlier in pieces)
        except own(FileNotFoundError):
            return False

    def _keep_file(self, name: str) -> None:
        """Link a file of the earlier copy that belongs to a segment; copy it if it is another
        one."""
        if not (self._is_same(name) and self._link(name)):
            self._copy_file(name)

    def _link(self, name: str) -> bool:
        """Let the copy have a file of the earlier one. False where links are refused, or there are
        too many."""
        there, here = f"{self._earlier}/{name}", f"{self._path}/{name}"
        try:
            self._check_process()
            self._target.remove(here)
            self._check_process()
            self._target.link(there, here)
        except own(StorageError):
            return False
        self._tally.kept_bytes += self._target.size(here)
        return True

    def _copy_file(self, name: str) -> None:
        """Copy a file as it is, durably, unless it is missing."""
        try:
            pieces = _pieces(self._source, f"{self._directory.path}/{name}")
            first = next(pieces, b"")
        except own(FileNotFoundError):
            return
        self._check_process()
        with closing(self._target.open_appendable(f"{self._path}/{name}")) as target:
            position = 0
            target.truncate(0)
            while first:
                target.pwrite(first, position)
                position += len(first)
                first = next(pieces, b"")
            self._tally.copied_bytes += position
            target.sync()

    def _remove_what_is_gone(self, state: CommitState) -> None:
        """Segments before the log start, which retention has deleted meanwhile; snapshots at no
        segment's base."""
        names = self._target.names(self._path)
        bases = base_offsets(names)
        first = max((base for base in bases if base <= state.log_start_offset), default=state.active_base)
        for name in names:
            base = next((at for kind in (LOG, *_SIDE_KINDS) for at in offsets_of([name], kind)), first)
            if base < first or any(at not in bases for at in offsets_of([name], SNAPSHOT)):
                self._check_process()
                self._target.remove(f"{self._path}/{name}")


def _state_of_copy(state: CommitState, start: int, boot: int) -> CommitState:
    """What the slots of the copy say. They name another boot: the next writer recovers, and so
    begins a leader epoch.

    Readers that have read records after the cut, from the log, notice by it that the copy's are
    others.
    """
    end = state.log_end_offset
    start = min(start, end)
    active, written = (state.active_base, state.written_end) if start < end or not state.written_end else (end, 0)
    return state._replace(
        least_timestamp_ms=state.least_timestamp_ms if written else INT64_MAX,
        boot=another_boot(boot), active_base=active, written_end=written, durable_offset=end, high_watermark=end,
        last_stable_offset=max(state.last_stable_offset, start), log_start_offset=start,
    )  # fmt: skip


def _pieces(filesystem: FileSystem, path: str) -> Iterator[bytes]:
    """The bytes of a file. It is opened at the first one."""
    with closing(filesystem.open_readable(path)) as file:
        position = 0
        while piece := file.pread(_PIECE_BYTES, position):
            yield piece
            position += len(piece)
