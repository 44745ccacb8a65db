"""Time, behind one interface so that tests can move it.

Wall time stamps records and ages segments; it never decides what is safe. Waits use monotonic time.
"""

from __future__ import annotations

import time
from threading import Condition  # only named here: a test's clock must also decide when a wait ends
from typing import Protocol


class Clock(Protocol):
    """The time functions that pylog needs."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards; only differences have a meaning."""

    def sleep(self, seconds: float) -> None:
        """Wait at least ``seconds``."""

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait on ``condition``, held by the caller, until it is notified or ``seconds`` passed."""


machine_ns = time.time_ns
"""The machine's wall time for the codec, which reads it for every record: a method is slower."""


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def wait(self, condition: Condition, seconds: float) -> None:
        condition.wait(seconds)
