"""What is published of a partition, for a reader that may not repair anything.

Valid commit slots of this boot say it. Otherwise (another boot, lost slots, a Kafka directory) the segments are assessed
without touching them; the answer is kept until something there changes.
"""

from __future__ import annotations

from collections import deque

from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, StorageError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.partition.commit_slots import CommitSlotsReader, CommitState
from pylog.partition.directory import Place
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.read.assessment import Assessment, assess
from pylog.partition.read.kafka_tail import Known, grown, remembered
from pylog.partition.segments import Segments
from pylog.segment.naming import COMMIT_SLOTS, LOG, file_path

_NO_SLOTS = b""
_LISTINGS_MAX = 5


class PublishedView:
    """Reads the commit slots of one directory, and assesses the segments where they say nothing."""

    def __init__(self, place: Place, *, foreign: bool, log_start: int) -> None:
        """``foreign`` marks a directory of Kafka's: no slots, gaps allowed, closed segments trusted until they are read."""
        self._place = place
        self._filesystem = place.filesystem
        self._directory = place.directory
        self._boot = place.boot
        self._foreign = foreign
        self._log_start = log_start
        self._slots: CommitSlotsReader | None = None
        self._assessed: tuple[tuple[object, ...], CommitState] | None = None
        self._known: deque[Known] = deque(maxlen=1)  # a foreign directory's; a thread that goes on from it takes it out

    def state(self) -> CommitState:
        """What is visible. ``CorruptSegment`` for damage that assessment may not pass over."""
        if self._foreign:
            return self._assess(None)
        state = self._slots_reader().read()
        if state is None:
            self._slots = None  # spoiled: the topic may have been deleted, and created anew under its name
            state = self._slots_reader().read()
        return state if state is not None and state.boot == self._boot else self._assess(state)

    def published(self) -> CommitState | None:
        """What is visible, where the slots alone say it."""
        state = None if self._foreign else self._slots_reader().read()
        return state if state is not None and state.boot == self._boot else None

    def look(self) -> tuple[CommitState | None, tuple[object, ...]]:
        """``published`` and ``token``, by one read of the slots."""
        if not self._foreign:
            raw, state = self._slots_reader().look()
            if state is not None and state.boot == self._boot:
                return state, (raw,)
        return None, self.token()

    def token(self) -> tuple[object, ...]:
        """Something that changes with every publication, as cheap as can be."""
        if not self._foreign:
            raw = self._slots_reader().raw()
            if raw:
                return (raw,)
        segments = self._list()
        last = segments.bases[-1] if segments.bases else None
        try:
            return last, self._filesystem.size(file_path(self._directory, last, LOG)) if last is not None else 0
        except own(FileNotFoundError):  # removed meanwhile, or a link that leads nowhere
            return last, -1

    def let_go(self) -> None:
        """Close the slots, when the last thread that reads them is done; who asks again opens what stands there then."""
        self._slots = None

    def look_anew(self) -> None:
        """Read the slots that stand there now: those that are open may have been replaced, or removed, by hand."""
        known, self._slots = self._slots, None
        if known is None:
            return
        try:
            self._slots_reader()
        except own(TopicNotFound):
            pass  # who asks next is told
        except own(StorageError):  # no descriptor is left: those that are open will do
            self._slots = known

    def _slots_reader(self) -> CommitSlotsReader:
        slots = self._slots
        if slots is None:
            try:
                slots = CommitSlotsReader(self._filesystem.open_readable(f"{self._directory}/{COMMIT_SLOTS}"))
            except own(FileNotFoundError):
                return _NothingPublished()
            self._place.check_topic()
            slots.close_when_idle()
            self._slots = slots
        return slots

    def _list(self) -> Segments:
        try:
            return self._place.segments()
        except own(FileNotFoundError) as error:
            raise self._place.gone() from error

    def _assess(self, slots: CommitState | None) -> CommitState:
        for _ in range(_LISTINGS_MAX - 1):
            with suppress(FileNotFoundError):  # removed since it was listed
                return self._assess_listed(slots)
        try:
            return self._assess_listed(slots)
        except own(FileNotFoundError) as error:  # a link that leads nowhere
            raise self._place.missing(error) from error

    def _assess_listed(self, slots: CommitState | None) -> CommitState:
        segments = self._list()
        if not segments.bases:
            if slots is not None and slots.durable_offset > slots.log_start_offset:
                raise CorruptSegment(
                    f"{self._directory} has no segment, but was durable up to offset {slots.durable_offset}; "
                    "restore it from a copy",
                    path=self._directory,
                    position=0,
                    durable_offset=slots.durable_offset,
                )
            start = slots.log_start_offset if slots is not None else self._log_start
            return self._unpublished(start, 0, start, start, start, start, 0)
        last = segments.bases[-1]
        seen = (slots, segments, self._filesystem.size(file_path(self._directory, last, LOG)))
        known = self._assessed
        if known is not None and known[0] == seen:
            return known[1]
        state = self._assess_segments(slots, segments)
        self._assessed = seen, state
        return state

    def _assess_segments(self, slots: CommitState | None, segments: Segments) -> CommitState:
        start = slots.log_start_offset if slots is not None else max(segments.bases[0], self._log_start)
        segments = segments.since(start)
        durable = slots.durable_offset if slots is not None else start
        if self._foreign:
            found, open_offset = self._foreign_end(segments)
        else:
            found, producers = self._end(segments, durable, known_durable=slots is not None)
            open_offset = producers.first_open_offset
        end = found.log_end_offset
        stable = end if open_offset is None else min(open_offset, end)
        version = slots.segments_version if slots is not None else 0
        known_durable = end if self._foreign else min(durable, end)
        start = min(start, end)
        return self._unpublished(
            found.active_base, found.written_end, end, known_durable, max(stable, start), start, version
        )

    def _unpublished(
        self, active_base: int, written_end: int, end: int, durable: int, stable: int, start: int, version: int
    ) -> CommitState:
        """What the segments say, as a state."""
        return CommitState(
            sequence=0,
            boot=self._boot,
            leader_epoch=-1,
            active_base=active_base,
            written_end=written_end,
            log_end_offset=end,
            durable_offset=durable,
            last_stable_offset=stable,
            log_start_offset=start,
            high_watermark=end,
            segments_version=version,
            least_timestamp_ms=INT64_MIN if written_end else INT64_MAX,
        )

    def _end(self, segments: Segments, durable: int, *, known_durable: bool) -> tuple[Assessment, ProducerStates]:
        """Where the log ends, and its producers there."""
        found = assess(
            self._filesystem,
            self._directory,
            segments,
            durable_offset=durable,
            known_durable=known_durable,
            dense=not self._foreign,
        )
        kept = segments.up_to(found.active_base)
        return found, snapshots.load(self._filesystem, self._directory, kept, found.log_end_offset, now_ms=0)

    def _foreign_end(self, segments: Segments) -> tuple[Assessment, int | None]:
        """Where a directory of Kafka's ends, and its first open offset: its last segment is read once, then what comes to it."""
        known: Known | None = None
        with suppress(IndexError):  # nothing is known, or another thread is at it
            before = self._known.pop()
            if before.found.active_base == segments.bases[-1]:
                known = grown(self._filesystem, self._directory, before)
        if known is None:
            found, producers = self._end(segments, segments.bases[-1], known_durable=True)
            known = remembered(self._filesystem, self._directory, found, producers)
        end = known.found, known.producers.first_open_offset
        self._known.append(known)  # from here on they may be another thread's
        return end


class _NothingPublished(CommitSlotsReader):
    """Stands for slots that are not there (yet)."""

    def __init__(self) -> None:
        """There is no file."""

    def read(self) -> None:
        return None

    def look(self) -> tuple[bytes, None]:
        return _NO_SLOTS, None

    def raw(self) -> bytes:
        return _NO_SLOTS
