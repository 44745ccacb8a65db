"""Bookkeeping of buffered bytes: how much of ``buffer_bytes`` the batches have reserved.

Every batch reserves its limit before it is opened, so the sum is a bound, not a measurement, and a record costs no
counting. If more partitions are in use than full batches fit, each gets an equal share.
"""

from __future__ import annotations

import threading  # batches are opened by several threads
from collections.abc import Callable

_SMALLEST_SHARE_BYTES = 4096
_SPARED = 8  # the part of the memory that is in no share


class BufferPool:
    """``reserved_bytes`` changes under ``lock``, in one straight line with the state of the batch that it is for:
    ``PartitionBuffer.make_current`` adds, ``ProducerBatch.settle`` gives back."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.forget_parent()

    def forget_parent(self) -> None:
        """Nothing is reserved: at the start, and in a forked child."""
        self.lock = lock = threading.RLock()
        self.is_locked_here: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]  # see turn.py
        # Under ``lock``, and read without it:
        self.reserved_bytes = 0

    def share_bytes(self, batch_bytes: int, partitions: int) -> int:
        """How much the next batch should reserve, if so many partitions are in use.

        Earlier batches may have larger shares. Without something to spare, each batch would then be opened by writing
        one that is not full, whose partition soon opens another one.
        """
        spare_bytes = self.limit_bytes // _SPARED if partitions > 1 else 0
        return min(batch_bytes, max((self.limit_bytes - spare_bytes) // partitions, _SMALLEST_SHARE_BYTES))

    def has_room(self, size_bytes: int) -> bool:
        return self.reserved_bytes + size_bytes <= self.limit_bytes
