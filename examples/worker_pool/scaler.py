"""How many workers there should be: one more while the lag is large, one less when it has been
small for a while."""

from __future__ import annotations

SETTLE_S = 1.5  # after a change: a worker has to start and to join before it can help
CALM_S = 3.0


class Scaler:
    """``high`` and ``low`` are lags per worker, in records."""

    def __init__(self, least: int, most: int, high: int, low: int, now_s: float) -> None:
        self._least = least
        self._most = most
        self._high = high
        self._low = low
        self._changed_s = now_s
        self._busy_s = now_s  # when the lag was last not small

    def decide(self, workers: int, lag: int, now_s: float) -> int:
        """One more than ``workers``, one less, or the same."""
        if lag > self._low * workers:
            self._busy_s = now_s
        if now_s - self._changed_s < SETTLE_S:
            return workers
        if lag > self._high * workers and workers < self._most:
            self._changed_s = now_s
            return workers + 1
        if now_s - self._busy_s >= CALM_S and workers > self._least:
            self._changed_s = self._busy_s = now_s
            return workers - 1
        return workers
