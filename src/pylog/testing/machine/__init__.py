"""A simulated machine: disk, page cache, processes, locks, clock, kills, power cuts, schedules."""

from pylog.testing.machine.every_step import for_every_kill, for_every_power_loss
from pylog.testing.machine.images import Image
from pylog.testing.machine.machine import Machine
from pylog.testing.machine.mutexes import simulated_mutexes
from pylog.testing.machine.process import Interrupted, Killed, Process, Step, SyncFailure
from pylog.testing.machine.schedule import NoEnd, Schedule, Strategy
from pylog.testing.machine.strategies import Priorities, RandomWalk, Replay, all_schedules

__all__ = [
    "Image",
    "Interrupted",
    "Killed",
    "Machine",
    "NoEnd",
    "Priorities",
    "Process",
    "RandomWalk",
    "Replay",
    "Schedule",
    "Step",
    "Strategy",
    "SyncFailure",
    "all_schedules",
    "for_every_kill",
    "for_every_power_loss",
    "simulated_mutexes",
]
