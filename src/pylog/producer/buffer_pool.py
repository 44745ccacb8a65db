"""The account of what one producer holds: which buffers wait, which batches are undecided, how many bytes are reserved.

Every batch reserves its limit before it is opened, so the sum is a bound, not a measurement, and a record costs no
counting. Where more partitions are in use than full batches fit, each gets an equal share.
"""

from __future__ import annotations

import threading  # batches are opened by several threads
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylog.producer.buffer import PartitionBuffer
    from pylog.producer.delivery import ProducerBatch

_SMALLEST_SHARE_BYTES = 4096
_PERIOD_S = 1.0
_SPARED = 8  # the part of the memory that is in no share


class Memory:
    """``waiting``: buffers that somebody must look after; ``unsettled``: batches until their callbacks have run.

    Both are roughly in order of age. Single operations on them need no lock.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.forget_parent()

    def forget_parent(self) -> None:
        """Nothing is held: at the start, and in a forked child."""
        self.waiting: dict[PartitionBuffer, None] = {}
        self.unsettled: dict[ProducerBatch, None] = {}
        self.lock = threading.RLock()
        self.reserved_bytes = 0
        self._period = 0  # partitions in use are counted anew in every period
        self._used_now = self._used_before = 0

    def share_bytes(self, buffer: PartitionBuffer, now_s: float) -> int:
        """How much the next batch of ``buffer`` should reserve.

        A partition that the sticky partitioner is on counts only while it waits: it is one at a time, of however many.
        """
        if buffer.topic.choice.stays_on(buffer.number):
            return self._share_of(buffer, len(self.waiting) + 1)
        period = int(now_s / _PERIOD_S) + 1
        if period != self._period:
            self._used_before = self._used_now if period == self._period + 1 else 0
            self._period, self._used_now = period, 0
        if buffer.used_in_period != period:
            buffer.used_in_period = period
            self._used_now += 1
        used = max(self._used_before, self._used_now, len(self.waiting) + 1)
        return self._share_of(buffer, used)

    def _share_of(self, buffer: PartitionBuffer, used: int) -> int:
        # Earlier batches may have larger shares. Without something to spare, each batch would then be opened by writing one
        # that is not full, whose partition soon opens another one.
        spare_bytes = self.limit_bytes // _SPARED if used > 1 else 0
        return min(buffer.topic.batch_bytes, max((self.limit_bytes - spare_bytes) // used, _SMALLEST_SHARE_BYTES))

    def has_room(self, size_bytes: int) -> bool:
        return self.reserved_bytes + size_bytes <= self.limit_bytes

    def release(self, batch: ProducerBatch) -> None:
        """Give back what the batch has reserved. Doing it twice changes nothing."""
        with self.lock:
            self.reserved_bytes -= batch.reserved_bytes
            batch.reserved_bytes = 0

    def buffered_bytes(self) -> int:
        """Encoded records not in the log yet."""
        return sum(batch.raw_bytes or batch.encoder.size_bytes for batch in list(self.unsettled) if not batch.written)
