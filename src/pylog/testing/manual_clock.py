"""Time that stands still until it is moved."""

from __future__ import annotations

from threading import Condition  # only named here: waiting on one is a matter of the clock

_START_MS = 1_700_000_000_000


class ManualClock:
    """A ``Clock`` for tests: waiting moves it, ``advance`` moves it, nothing else does. For one thread.

    Whatever waits ends at once and moves the clock by as long as it would have waited: ``consumer.poll(5.0)`` without a
    record returns [] and 5 seconds have passed, for timestamps and ``max_poll_interval_ms`` as well. ``poll()`` waits for
    nothing and moves nothing.
    """

    def __init__(self, start_ms: int = _START_MS) -> None:
        """Wall time begins at ``start_ms``, milliseconds since 1970-01-01 UTC; the monotonic clock at 0 seconds."""
        self.start_ms = start_ms
        self.seconds = 0.0

    def now_ms(self) -> int:
        return self.start_ms + round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self.seconds += seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def wait(self, condition: Condition, seconds: float) -> None:
        self.seconds += seconds
