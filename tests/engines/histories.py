"""Random histories of compacted partitions: tombstones, headers, all codecs, idempotent producers,
transactions."""

from __future__ import annotations

import random

from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.control import ControlType, build_marker
from pylog.codec.format import CODEC_NAMES
from pylog.partition import Partition

# Kafka and pylog forget a producer a day after its last record: those of the future never, those of
# the past at once.
PAST_MS, FUTURE_MS = 1_700_000_000_000, 4_000_000_000_000
SEGMENTS = range(1, 4)
STEPS = range(3, 10)
IDEMPOTENT, TRANSACTIONAL = (1000, 1001), (2000, 2001, 2002)
HEADERS = (("trace", b"x"), ("", b""), ("ünïcode", None), ("trace", b"y" * 40))


class History:
    """What one partition gets, part after part. Each part ends with a new segment, so that all of
    it can be compacted."""

    def __init__(self, seed: int, partition: Partition) -> None:
        self._random = random.Random(seed)
        self.partition = partition
        self.end = 0  # of the parts so far
        self._start_ms = self._random.choice((PAST_MS, FUTURE_MS, FUTURE_MS))
        self._keys = [b"", *(b"key %d" % number for number in range(self._random.choice((1, 3, 10, 30))))]
        self._tombstones = self._random.choice((0.1, 0.3, 0.8))
        self._next = dict.fromkeys((*IDEMPOTENT, *TRANSACTIONAL), (0, 0))  # epoch and sequence
        self._has_new_epochs = self._random.random() < 0.5  # of each transaction
        self._open: set[int] = set()

    def write_part(self, *, ends_all: bool) -> None:
        """Unless it ``ends_all`` transactions, some may go on in the next part."""
        plain, transactional = (self._plain, self._idempotent), (self._in_transaction, self._end)
        steps = (*plain, *plain, *transactional, *transactional)
        for _ in range(self._random.choice(SEGMENTS)):
            for _ in range(self._random.choice(STEPS)):
                self._random.choice(steps)()
            self.partition.log.roll()
        if ends_all or self._random.random() < 0.6:
            while self._open:
                self._end()
            self.partition.log.roll()
        self.end = self.partition.latest_offset
        self.partition.log.sync(self.end)

    def _plain(self) -> None:
        self.partition.log.append_batch(build_batch(self._records(), codec=self._codec()))

    def _idempotent(self) -> None:
        producer_id = self._random.choice(IDEMPOTENT)
        if self._random.random() < 0.2:
            self._next[producer_id] = self._next[producer_id][0] + 1, 0
        self._append(producer_id)

    def _in_transaction(self) -> None:
        producer_id = self._random.choice(TRANSACTIONAL)
        self._open.add(producer_id)
        self._append(producer_id, transactional=True)

    def _append(self, producer_id: int, *, transactional: bool = False) -> None:
        records = self._records()
        epoch, sequence = self._next[producer_id]
        self._next[producer_id] = epoch, sequence + records.count
        batch = build_batch(
            records, codec=self._codec(), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
            transactional=transactional,
        )  # fmt: skip
        self.partition.log.append_batch(batch)

    def _end(self) -> None:
        if self._open:
            producer_id = self._random.choice(sorted(self._open))
            self._open.remove(producer_id)
            epoch, _ = self._next[producer_id]
            kind = self._random.choice((ControlType.ABORT, ControlType.COMMIT))
            self.partition.log.append_batch(build_marker(kind, producer_id, epoch, 0, self._start_ms))
            if self._has_new_epochs:
                self._next[producer_id] = epoch + 1, 0

    def _codec(self) -> int:
        return self._random.randrange(len(CODEC_NAMES))

    def _records(self) -> RecordEncoder:
        encoder = RecordEncoder(1 << 20)
        for _ in range(self._random.randrange(1, 9)):
            key = None if self._random.random() < 0.03 else self._random.choice(self._keys)
            value = None if self._random.random() < self._tombstones else self._value()
            headers = tuple(self._random.sample(HEADERS, self._random.choice((0, 0, 1, 4))))
            encoder.append(self._start_ms + self._random.randrange(-1000, 1000), key, value, headers)
        return encoder

    def _value(self) -> bytes:
        size = self._random.choice((0, 1, 20, 300))
        return self._random.randbytes(size) if self._random.random() < 0.5 else bytes(size)
