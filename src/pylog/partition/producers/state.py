"""What is known of each producer: its epoch, its last batches, its open transaction. A pure fold
over batch headers.

Rules of acceptance: Kafka's ``ProducerAppendInfo``; of named producers (``is_named``), any sequence
after the last one is accepted, and they are never forgotten. The snapshot file keeps the last batch
of each producer, as Kafka's does; the four before it are remembered only in memory.
"""

from __future__ import annotations

from heapq import nsmallest
from struct import Struct
from typing import NamedTuple

from pylog.codec import check_producers
from pylog.codec.batch import BatchHeader
from pylog.codec.checksum import crc32c
from pylog.codec.format import MAX_SEQUENCE, TRANSACTIONAL_BIT, Buffer
from pylog.codec.producer_entries import PRODUCER_ENTRY, PRODUCER_ENTRY_BYTES
from pylog.errors import CorruptSegment, FormatVersionError, OutOfOrderSequence, ProducerFenced
from pylog.index import AbortedTransaction
from pylog.partition.producers.packed import FIRST_NAMED_ID, PackedProducers

REMEMBERED_BATCHES = 5
PRODUCERS_MAX = 100_000  # of one partition: 50 MiB of memory, a snapshot of 5 MB
_FORGOTTEN_AT_ONCE = PRODUCERS_MAX // 10

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hI")
_SNAPSHOT_COUNT = Struct(">i")


def is_named(producer_id: int) -> bool:
    """Whether the producer has a name. Its sequences are its application's: they rise, with
    gaps."""
    return producer_id >= FIRST_NAMED_ID


class BatchTrace(NamedTuple):
    """What is remembered of one batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry:
    """One producer's state in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_sequence", "transaction_start")

    def __init__(self, epoch: int, coordinator_epoch: int = -1, transaction_start: int | None = None) -> None:
        self.epoch = epoch
        self.batches: list[BatchTrace] = []
        self.last_sequence = -1  # of the last batch; -1: none is known
        self.coordinator_epoch = coordinator_epoch
        self.transaction_start = transaction_start

    def next_sequence(self) -> int | None:
        """The sequence that must come next; None if any may, since nothing is known of an earlier
        one."""
        return None if self.last_sequence < 0 else (self.last_sequence + 1) & MAX_SEQUENCE

    @classmethod
    def unpacked(cls, fields: tuple[int, ...]) -> ProducerEntry:
        """A producer from the ``ProducerFields`` of a snapshot."""
        _, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, start = fields
        entry = cls(epoch, coordinator_epoch, None if start < 0 else start)
        if last_offset >= 0:
            entry.last_sequence = last_sequence
            first_sequence = last_sequence if last_sequence < 0 else (last_sequence - delta) & MAX_SEQUENCE
            entry.batches.append(
                BatchTrace(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp_ms)
            )
        return entry

    def packed(self, producer_id: int) -> tuple[int, ...]:
        """The ``ProducerFields`` of a producer for a snapshot."""
        start = -1 if self.transaction_start is None else self.transaction_start
        if not self.batches:
            return producer_id, self.epoch, -1, -1, 0, -1, self.coordinator_epoch, start
        _, last_sequence, first_offset, last_offset, timestamp_ms = self.batches[-1]
        delta = last_offset - first_offset
        return producer_id, self.epoch, last_sequence, last_offset, delta, timestamp_ms, self.coordinator_epoch, start


class ProducerStates:
    """The state of every producer of a partition up to ``end_offset``."""

    def __init__(self) -> None:
        self._packed = PackedProducers()  # as of the last snapshot
        self._entries: dict[int, ProducerEntry] = {}  # those asked for or changed; all of them, if none is packed
        self._changed: set[int] = set()  # of these, what is otherwise than in ``_packed``
        self._added: set[int] = set()  # or is not there
        self._open: set[int] = set()  # the producers with an open transaction, all of them in ``_entries``
        self.greatest_offset = -1  # that the snapshot these were read from has named
        self.batches_since_snapshot = 0  # taken in, of any producer or none

    def __len__(self) -> int:
        packed = self._packed.count
        return packed + len(self._added) if packed else len(self._entries)

    @property
    def entries(self) -> dict[int, ProducerEntry]:
        """All of them by producer id, to be read and changed. Slow with very many producers."""
        packed, self._packed = self._packed, PackedProducers()
        for fields in packed:
            if fields.producer_id not in self._entries:
                self._entries[fields.producer_id] = ProducerEntry.unpacked(fields)
        return self._entries

    def _get(self, producer_id: int) -> ProducerEntry | None:
        entry = self._entries.get(producer_id)
        if entry is None and self._packed.count:
            fields = self._packed.get(producer_id)
            if fields is not None:
                entry = self._entries[producer_id] = ProducerEntry.unpacked(fields)
        return entry

    def _begin(self, producer_id: int, earlier: ProducerEntry | None, entry: ProducerEntry) -> ProducerEntry:
        """Put ``entry`` in the place of an earlier one, if there was one."""
        self._entries[producer_id] = entry
        if earlier is None:
            self._added.add(producer_id)
        return entry

    def duplicate_of(self, header: BatchHeader) -> BatchTrace | None:
        """The earlier appearance of this batch among the producer's last five; None if it is the
        producer's next.

        Any other batch is refused: ``ProducerFenced`` or ``OutOfOrderSequence``.
        """
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        entry = self._entries.get(producer_id) or self._get(producer_id)
        if entry is None:
            return None
        if epoch < entry.epoch:
            raise ProducerFenced(
                f"producer {producer_id} has epoch {epoch}, but epoch {entry.epoch} has written since",
                producer_id=producer_id, producer_epoch=epoch, current_epoch=entry.epoch,
            )  # fmt: skip
        if first < 0:
            return None
        expected: int | None = 0
        if epoch == entry.epoch:
            expected = entry.next_sequence()
            if first > entry.last_sequence if is_named(producer_id) else first == expected:
                return None
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                    return batch
        if expected is not None and first != expected:
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequence {first}, expected {expected}",
                producer_id=producer_id, producer_epoch=epoch, sequence=first, expected=expected,
            )  # fmt: skip
        return None

    def next_sequence(self, producer_id: int) -> int | None:
        """The sequence that a producer must send next; None if it is unknown, and any may come."""
        entry = self._entries.get(producer_id) or self._get(producer_id)
        return None if entry is None else entry.next_sequence()

    def last_batches(self, producer_id: int) -> tuple[BatchTrace, ...]:
        """What is remembered of a producer's last batches, oldest first."""
        entry = self._entries.get(producer_id) or self._get(producer_id)
        return () if entry is None else tuple(entry.batches)

    def add(self, header: BatchHeader) -> None:
        """Take in a data batch of any producer or none, and forget some of very many producers."""
        self.batches_since_snapshot += 1
        if header.producer_id >= 0:
            self.update(header)
            if len(self._entries) + self._packed.count > PRODUCERS_MAX:  # it counts some twice, and is quick
                self._forget_some()

    def update(self, header: BatchHeader) -> None:
        """Take in a data batch that is in the log, offsets stamped."""
        base, _, _, _, _, attributes, delta, _, max_timestamp_ms, producer_id, epoch, sequence, _ = header[:]
        entry = self._entries.get(producer_id) or self._get(producer_id)
        if entry is None or entry.epoch != epoch:
            known = entry.transaction_start if entry is not None else None
            entry = self._begin(producer_id, entry, ProducerEntry(epoch, -1, known))
        self._changed.add(producer_id)
        batches = entry.batches
        entry.last_sequence = last_sequence = sequence if sequence < 0 else (sequence + delta) & MAX_SEQUENCE
        # half as long as BatchTrace(...)
        batches.append(tuple.__new__(BatchTrace, (sequence, last_sequence, base, base + delta, max_timestamp_ms)))
        if len(batches) > REMEMBERED_BATCHES:
            del batches[0]
        if attributes & TRANSACTIONAL_BIT and entry.transaction_start is None:
            entry.transaction_start = base
            self._open.add(producer_id)

    def end_transaction(
        self, header: BatchHeader, *, committed: bool, coordinator_epoch: int
    ) -> AbortedTransaction | None:
        """Take in a commit or abort marker; the aborted transaction, if it ended one."""
        entry = self._entries.get(header.producer_id) or self._get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            start = entry.transaction_start if entry is not None else None
            entry = self._begin(
                header.producer_id, entry, ProducerEntry(header.producer_epoch, coordinator_epoch, start)
            )
        self._changed.add(header.producer_id)
        start, entry.transaction_start = entry.transaction_start, None
        self._open.discard(header.producer_id)
        entry.coordinator_epoch = coordinator_epoch
        if committed or start is None:
            return None
        stable = self.first_open_offset()
        return AbortedTransaction(
            header.producer_id, start, header.base_offset, header.last_offset + 1 if stable is None else stable
        )

    def first_open_offset(self) -> int | None:
        """Where the earliest open transaction began: the last stable offset, if there is one."""
        if not self._open:
            return None
        starts = (self._entries[producer_id].transaction_start for producer_id in self._open)
        return min(start for start in starts if start is not None)

    def open_transactions(self) -> list[tuple[int, int, int]]:
        """Producer id, epoch and first offset of every open transaction."""
        entries = ((producer_id, self._entries[producer_id]) for producer_id in self._open)
        return [(id_, entry.epoch, start) for id_, entry in entries if (start := entry.transaction_start) is not None]

    def expire(self, before_ms: int, before_offset: int) -> None:
        """Forget producers of the snapshot without an open transaction whose last batch is older
        than both.

        Records that are sent now may be of any time: a backfill repeats batches, too. So the offset
        counts as well. Kafka goes by time alone.
        """
        self._packed.expire(before_ms, before_offset)

    def _forget_some(self) -> None:
        """Forget the longest idle tenth of very many producers, which bounds memory and snapshots:
        a command that runs for each event takes a new id every time.

        Those with an open transaction and named ones are kept. Acts once in ``_FORGOTTEN_AT_ONCE``
        producers.
        """
        count = len(self)
        if count <= PRODUCERS_MAX or count % _FORGOTTEN_AT_ONCE:
            return
        idle = [
            (e.batches[-1].last_offset if e.batches else -1, p)
            for p, e in self.entries.items()
            if e.transaction_start is None and not is_named(p)
        ]
        for _, producer_id in nsmallest(count - PRODUCERS_MAX + _FORGOTTEN_AT_ONCE, idle):
            del self.entries[producer_id]

    # Snapshots: Kafka's ``<offset>.snapshot`` (docs/format.md, "Checkpoints and snapshots")

    def encode(self) -> bytes:
        changed = sorted(self._changed if self._packed.count else self._entries)
        if len(changed) == len(self):  # all of them
            self._packed = PackedProducers()
        self._packed.merge([self._entries[producer_id].packed(producer_id) for producer_id in changed])
        self._changed.clear()
        self._added.clear()
        count, entries = _SNAPSHOT_COUNT.pack(self._packed.count), self._packed.data
        return b"".join((_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(entries, crc32c(count))), count, entries))

    @staticmethod
    def snapshot_bytes(front: bytes) -> int:
        """The size of a snapshot that begins like this."""
        least = _SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size
        if len(front) < least:
            return least
        count: int = _SNAPSHOT_COUNT.unpack_from(front, _SNAPSHOT_HEAD.size)[0]
        return least + max(count, 0) * PRODUCER_ENTRY_BYTES

    @classmethod
    def decode(cls, data: bytes, path: str) -> ProducerStates:
        if len(data) < _SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size:
            raise CorruptSegment(f"{path} has {len(data)} bytes, too few for a snapshot", path=path, position=0)
        version, crc = _SNAPSHOT_HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise FormatVersionError(
                f"{path} has snapshot version {version}, expected {_SNAPSHOT_VERSION}",
                path=path,
                version=version,
                expected=_SNAPSHOT_VERSION,
            )
        body = memoryview(data)[_SNAPSHOT_HEAD.size :]
        count = _SNAPSHOT_COUNT.unpack_from(body)[0]
        if crc != crc32c(body) or len(body) != _SNAPSHOT_COUNT.size + count * PRODUCER_ENTRY_BYTES:
            raise CorruptSegment(f"{path} is damaged: {count} entries in {len(data)} bytes", path=path, position=0)
        return cls._unpacked(body[_SNAPSHOT_COUNT.size :], path)

    @classmethod
    def _unpacked(cls, entries: Buffer, path: str) -> ProducerStates:
        states = cls()
        wrong, ids_rise, states.greatest_offset, with_transaction = check_producers(entries)
        if wrong >= 0:
            fields = PRODUCER_ENTRY.unpack_from(entries, wrong * PRODUCER_ENTRY_BYTES)
            raise CorruptSegment(f"{path} says what cannot be of producer {fields[0]}: {fields}", path=path, position=0)
        if not ids_rise:  # Kafka sorts them by nothing
            by_id = {fields[0]: fields for fields in PRODUCER_ENTRY.iter_unpack(entries)}
            entries = b"".join(PRODUCER_ENTRY.pack(*fields) for _, fields in sorted(by_id.items()))
        states._packed = PackedProducers(entries)
        states._open = {producer_id for producer_id in with_transaction if states._is_open(producer_id)}
        return states

    def _is_open(self, producer_id: int) -> bool:
        entry = self._get(producer_id)
        return entry is not None and entry.transaction_start is not None
