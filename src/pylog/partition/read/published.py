"""What is published of a partition, for readers: they take no lock and change nothing.

Valid commit slots of this boot record it. Otherwise (another boot, lost slots, a Kafka directory)
the partition's writer recovers, if there is one; or the segments are assessed without changing
them, and the result is kept until they change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple, Protocol

from pylog.codec.format import HEADER_BYTES, INT64_MAX, INT64_MIN
from pylog.errors import Closed
from pylog.interrupts import own, suppress
from pylog.partition.commit_slots import CommitSlotsReader, CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.read.assessment import Assessment, assess
from pylog.partition.segments import Segments
from pylog.segment import SegmentScan
from pylog.segment.naming import COMMIT_SLOTS, LOG, file_path
from pylog.storage import FileSystem, ReadableFile

_LISTINGS_MAX = 5


class Published(Protocol):
    """What a reader may see: a ``PublishedView``, or its state at one time."""

    def current(self) -> CommitState: ...
    def current_with_token(self) -> tuple[CommitState, object]: ...


class PublishedOnce(NamedTuple):
    """A state that does not change, whatever is appended."""

    state: CommitState

    def current(self) -> CommitState:
        return self.state

    def current_with_token(self) -> tuple[CommitState, object]:
        return self.state, None


class PublishedView:
    """Reads the commit slots of one directory, and assesses the segments if they are not valid."""

    def __init__(
        self, directory: PartitionDirectory, *, log_start: int, recover: Callable[[], CommitState] | None = None
    ) -> None:
        """In a directory of Kafka's, which has no slots, closed segments are trusted until they are
        read.

        ``recover`` returns what is published after a repair. Without it the segments are assessed.
        """
        self._directory = directory
        self._filesystem = directory.filesystem
        self._path = directory.path
        self._boot = directory.boot
        self._log_start = log_start
        self._recover = recover
        self._slots: CommitSlotsReader | None = None
        self._is_closed = False
        self._assessed: tuple[tuple[object, ...], CommitState] | None = None
        # The state of a Kafka directory. A thread that continues from it takes it out.
        self._tail: list[_KafkaTail] = []

    def current(self) -> CommitState:
        """What is visible. ``CorruptSegment`` for damage that assessment may not skip, ``Closed``
        after ``close``."""
        slots = self._slots
        state = None if slots is None else slots.read()
        return state if state is not None and state.boot == self._boot else self._current()

    def current_with_token(self) -> tuple[CommitState, object]:
        """What is visible, and the ``token`` of that moment: by one read, if the slots are
        valid."""
        slots = self._slots
        if slots is not None:
            raw, state = slots.look()
            if state is not None and state.boot == self._boot:
                return state, (raw,)
        token = self.token()  # before: a repair or an append after it changes the token
        return self._current(), token

    def _current(self) -> CommitState:
        """What is visible, if the slots are not open, not valid, or missing."""
        if self._directory.is_kafka:
            self.check_open()
            return self._assess(None)
        state = self._read_slots()
        if state is None:
            self._slots = None  # spoiled: the topic may have been deleted, and created again under its name
            state = self._read_slots()
        if state is not None and state.boot == self._boot:
            return state
        return self._assess(state) if self._recover is None else self._recover()

    def token(self) -> object:
        """A value that differs whenever something was published since. Costs one read of 384
        bytes."""
        slots = self._slots
        if slots is None:
            self.check_open()
            slots = None if self._directory.is_kafka else self._slots_reader()
        if slots is not None and (raw := slots.raw()):
            return (raw,)
        segments = self._list()
        last = segments.bases[-1] if segments.bases else None
        try:
            return last, self._filesystem.size(self._directory.file_path(last, LOG)) if last is not None else 0
        except own(FileNotFoundError):  # removed meanwhile, or a link that leads nowhere
            return last, -1

    def let_go(self) -> None:
        """Close the slots when the last thread that reads them is done. The next call opens the
        file again."""
        self._slots = None

    def close(self) -> None:
        """Close the slots for good."""
        self._is_closed = True
        self._slots = None

    def check_open(self) -> None:
        """Raises ``Closed`` after ``close``."""
        if self._is_closed:
            raise self.closed()

    def closed(self) -> Closed:
        """The error after ``close``. If the topic is gone, which is why it was closed, raises
        that."""
        self._directory.check_topic()
        return Closed(f"{self._path} has been closed", path=self._path)

    def _read_slots(self) -> CommitState | None:
        slots = self._slots_reader()
        return None if slots is None else slots.read()

    def _slots_reader(self) -> CommitSlotsReader | None:
        slots = self._slots
        if slots is None:
            self.check_open()
            try:
                slots = CommitSlotsReader(self._filesystem.open_readable(f"{self._path}/{COMMIT_SLOTS}"))
            except own(FileNotFoundError):
                return None
            self._directory.check_topic()
            slots.close_when_idle()
            self._slots = slots
        return slots

    def _list(self) -> Segments:
        try:
            return self._directory.segments()
        except own(FileNotFoundError) as error:
            raise self._directory.gone() from error

    def _assess(self, slots: CommitState | None) -> CommitState:
        for _ in range(_LISTINGS_MAX - 1):
            with suppress(FileNotFoundError):  # removed since it was listed
                return self._assess_listed(slots)
        try:
            return self._assess_listed(slots)
        except own(FileNotFoundError) as error:  # a link that leads nowhere
            raise self._directory.missing(error) from error

    def _assess_listed(self, slots: CommitState | None) -> CommitState:
        segments = self._list()
        last = segments.bases[-1] if segments.bases else None
        directory = self._directory.seen_by(segments)
        size = 0 if last is None else directory.filesystem.size(directory.file_path(last, LOG))
        seen = slots, segments, size
        known = self._assessed
        if known is not None and known[0] == seen:
            return known[1]
        state = self._assess_segments(directory, slots, segments)
        self._assessed = seen, state
        return state

    def _assess_segments(
        self, directory: PartitionDirectory, slots: CommitState | None, segments: Segments
    ) -> CommitState:
        start = slots.log_start_offset if slots is not None else max((*segments.bases[:1], self._log_start))
        segments = segments.since(start)
        durable = slots.durable_offset if slots is not None else start
        if self._directory.is_kafka and segments.bases:
            found, open_offset = self._kafka_end(segments)
        else:
            found, producers = self._end(directory, segments, start, durable, known_durable=slots is not None)
            open_offset = producers.first_open_offset()
        end = found.log_end_offset
        stable = end if open_offset is None else min(open_offset, end)
        start = min(start, end)
        return CommitState(
            sequence=0,
            boot=self._boot,
            leader_epoch=-1,
            active_base=found.active_base,
            written_end=found.written_end,
            log_end_offset=end,
            durable_offset=end if self._directory.is_kafka else min(durable, end),
            last_stable_offset=max(stable, start),
            log_start_offset=start,
            high_watermark=end,
            segments_version=slots.segments_version if slots is not None else 0,
            least_timestamp_ms=INT64_MIN if found.written_end else INT64_MAX,
        )

    def _end(
        self, directory: PartitionDirectory, segments: Segments, start: int, durable: int, *, known_durable: bool
    ) -> tuple[Assessment, ProducerStates]:
        """Where the log ends, and its producers there."""
        found = assess(directory, segments, start=start, durable_offset=durable, known_durable=known_durable)
        kept = segments.up_to(found.active_base)
        return found, snapshots.load(directory.filesystem, self._path, kept, found.log_end_offset, now_ms=0)

    def _kafka_end(self, segments: Segments) -> tuple[Assessment, int | None]:
        """Where a directory of Kafka's ends, and its first open offset. Its last segment is read
        once, then what is added."""
        tail: _KafkaTail | None = None
        with suppress(IndexError):  # unknown, or another thread is using it
            before = self._tail.pop()
            if before.found.active_base == segments.bases[-1]:
                tail = before.grown(self._filesystem, self._path)
        if tail is None:
            bases = segments.bases
            found, producers = self._end(self._directory, segments, bases[0], bases[-1], known_durable=True)
            tail = _KafkaTail.of(self._filesystem, self._path, found, producers)
        end = tail.found, tail.producers.first_open_offset()
        self._tail[:] = [tail]  # another thread may take it now
        return end


class _KafkaTail(NamedTuple):
    """The assessment of a Kafka directory, so that only what is new must be read: without slots,
    readers look often.

    Kafka appends to the last segment; a follower may also cut it and continue. So the assessment
    counts only while its last batch is unchanged. ``last_header`` has the bytes of that batch's
    header. ``grown`` changes ``producers``, so one thread takes the tail from all others.
    """

    found: Assessment
    producers: ProducerStates
    last_header: bytes

    @classmethod
    def of(cls, filesystem: FileSystem, path: str, found: Assessment, producers: ProducerStates) -> _KafkaTail:
        """The tail from which to continue later."""
        with closing(filesystem.open_readable(file_path(path, found.active_base, LOG))) as file:
            return cls(found, producers, _header(file, found.last_position))

    def grown(self, filesystem: FileSystem, path: str) -> _KafkaTail | None:
        """The tail with all that was added to its last segment. None: assess everything again."""
        found = self.found
        with closing(filesystem.open_readable(file_path(path, found.active_base, LOG))) as file:
            size = file.size()
            if size < found.written_end or _header(file, found.last_position) != self.last_header:
                return None
            scan = SegmentScan(file, found.written_end, size, next_offset=found.log_end_offset, dense=False)
            last = found.last_position
            for last, header in scan:
                snapshots.fold(self.producers, header, last, file)
            if scan.problem is not None:
                return None
            ahead = found._replace(written_end=size, log_end_offset=scan.next_offset, cut_bytes=0, last_position=last)
            return _KafkaTail(ahead, self.producers, _header(file, last))


def _header(file: ReadableFile, position: int) -> bytes:
    """The bytes of a header; none if there is no batch yet."""
    return file.pread(HEADER_BYTES, position) if position >= 0 else b""
