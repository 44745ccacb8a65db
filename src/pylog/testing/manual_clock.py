"""A clock that moves only when a test moves it."""

from __future__ import annotations

from threading import Condition  # only as a type

_START_MS = 1_700_000_000_000


class ManualClock:
    """A ``Clock`` for tests of one thread. Only waiting and ``advance`` move it.

    A wait ends at once and moves the clock by its timeout: if ``consumer.poll(5.0)`` finds no
    record, it returns [] and 5 seconds have passed, also for timestamps and
    ``max_poll_interval_ms``. ``poll()`` does not wait and does not move the clock.
    """

    def __init__(self, start_ms: int = _START_MS) -> None:
        """Wall time begins at ``start_ms`` (since 1970-01-01 UTC), the monotonic clock at 0 s."""
        self.start_ms = start_ms
        self.seconds = 0.0

    def now_ms(self) -> int:
        return self.start_ms + round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        self.seconds += seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def wait(self, condition: Condition, seconds: float) -> None:
        self.seconds += seconds
