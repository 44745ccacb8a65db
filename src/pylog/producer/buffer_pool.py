"""Bookkeeping of buffered bytes: how much of ``buffer_bytes`` the batches have reserved.

Every batch reserves its limit before it is opened. So the sum is a bound, not a measurement, and a
record needs no counting. If full batches do not fit for all partitions, all get equal shares.
"""

from __future__ import annotations

import threading  # several threads open batches
from collections.abc import Callable

_SMALLEST_SHARE_BYTES = 4096
_SPARED = 8  # one part in 8 of the memory belongs to no share


class BufferPool:
    """``reserved_bytes`` changes under ``lock``, in one straight line with the batch's state:
    ``PartitionBuffer.make_current`` adds, ``ProducerBatch.settle`` subtracts.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._shared_bytes = limit_bytes - limit_bytes // _SPARED
        self.forget_parent()

    def forget_parent(self) -> None:
        """Nothing is reserved: at the start, and in a forked child."""
        self.lock = lock = threading.RLock()
        self.is_locked_here: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]  # see turn.py
        # Under ``lock``; any thread reads it:
        self.reserved_bytes = 0

    def share_bytes(self, batch_bytes: int, partitions: int) -> int:
        """How much the next batch should reserve if ``partitions`` are in use.

        Earlier batches may have larger shares. Without a spare part, the sender would write a batch
        that is not full to open the next one, and that batch's partition would soon open another.
        """
        shared_bytes = self._shared_bytes if partitions > 1 else self.limit_bytes
        if batch_bytes * partitions <= shared_bytes:
            return batch_bytes
        return min(batch_bytes, max(shared_bytes // partitions, _SMALLEST_SHARE_BYTES))
