"""For tests of programs that use pylog: a fresh log as a pytest fixture, helpers to fill it, read it and compare, and a
machine whose power a test cuts.

The fixtures are in ``pytest_plugin``, which pytest finds by itself where pylog is installed; elsewhere
``-p pylog.testing.pytest_plugin`` names it.
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
    """The machine is loaded when a test asks for it: every run of pytest loads this package, where pylog is installed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pylog.testing import machine

    return getattr(machine, name)
