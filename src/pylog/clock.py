"""Time, behind one seam so that tests can move it.

Wall time stamps records and ages segments; it never decides what is safe. Waiting uses the monotonic clock.
"""

from __future__ import annotations

import time
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


machine_ns = time.time_ns
"""Wall time of the machine, for the codec, which asks for every record: a method of a clock takes as long as the answer."""


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
