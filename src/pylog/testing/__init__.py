"""For tests of programs that use pylog: a fixture, helpers and a simulated machine.

The pytest fixture is a fresh log. The helpers fill, read and compare it. A test can cut the power
of the machine. If pylog is installed, pytest finds the fixtures in ``pytest_plugin``; otherwise
pass ``-p pylog.testing.pytest_plugin``.
"""

from typing import TYPE_CHECKING, Any

from pylog.testing.helpers import assert_records, consume_all, produce_all
from pylog.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pylog.testing.machine import Killed, Machine, for_every_kill, for_every_power_loss

__all__ = [
    "Killed",
    "Machine",
    "ManualClock",
    "assert_records",
    "consume_all",
    "for_every_kill",
    "for_every_power_loss",
    "produce_all",
]


def __getattr__(name: str) -> Any:
    """Load the machine on first use: if pylog is installed, every pytest run loads this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pylog.testing import machine

    return getattr(machine, name)
