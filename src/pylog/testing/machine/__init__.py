"""A simulated machine to run pylog on: disk with page cache, processes, locks, clock, kills and losses of power."""

from pylog.testing.machine.every_step import for_every_kill, for_every_power_loss
from pylog.testing.machine.images import Image
from pylog.testing.machine.machine import Machine
from pylog.testing.machine.process import Interrupted, Killed, Process, Step, SyncFailure

__all__ = [
    "Image",
    "Interrupted",
    "Killed",
    "Machine",
    "Process",
    "Step",
    "SyncFailure",
    "for_every_kill",
    "for_every_power_loss",
]
