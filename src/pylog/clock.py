"""Time, behind one seam so that tests can move it.

Wall time stamps records and ages segments; it never decides what is safe. Waiting uses the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition  # only named here: a clock that tests move must also decide when a wait is over
from typing import Protocol


class Clock(Protocol):
    """What pylog asks of time."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards; only differences mean something."""

    def sleep(self, seconds: float) -> None:
        """Wait at least ``seconds``."""

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait on ``condition``, which the caller holds, until it is notified or ``seconds`` have passed."""


def nanoseconds_of(clock: Clock) -> Callable[[], int]:
    """A clock's wall time in nanoseconds: for callers that ask so often that a Python call in between counts."""
    return time.time_ns if type(clock) is SystemClock else lambda: clock.now_ms() * 1_000_000


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, condition: Condition, seconds: float) -> None:
        condition.wait(seconds)
