"""A simulated machine: one disk, some processes, one clock, and no power where a test cuts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from pylog.testing.machine.disk import Disk
from pylog.testing.machine.filesystem import SimulatedFileSystem
from pylog.testing.machine.images import Image, Left, PowerLoss, disk_of, images, pending_units
from pylog.testing.machine.process import Process, SimulatedLock, Step

Hook = Callable[[Process, Step], None]
SECTOR_BYTES = 512
_TICK_NS = 4_000_000  # how coarse file times are on Linux with 250 ticks a second


class Machine:
    """Give the ``filesystem`` and ``clock`` of a ``process()`` to ``Log``, and everything happens in here.

    The same seed and the same calls give the same bytes, names and ids.
    """

    def __init__(self, seed: int = 0, *, disk: Disk | None = None, boot: int = 1, tear_writes: bool = False) -> None:
        """``tear_writes``: every write is two steps, so that others see it half done."""
        self.seed = seed
        self.random = Random(f"{seed} {boot}")
        self.disk = disk or Disk()
        self.boot = boot
        self.tear_writes = tear_writes
        self.seconds = 0.0
        self.wall_offset_ms = 0
        self.before_step: list[Hook] = []
        self.sleeper: Callable[[float], None] | None = None  # a schedule's; else sleeping moves the clock
        self.processes: list[Process] = []
        self.locks: dict[int, tuple[Process, SimulatedLock]] = {}

    def process(self) -> Process:
        """A new process."""
        made = Process(self, len(self.processes) + 1, SimulatedFileSystem)
        self.processes.append(made)
        return made

    # For processes

    def sleep(self, seconds: float) -> None:
        if self.sleeper is not None:
            self.sleeper(seconds)
        else:
            self.seconds += seconds

    def free_locks(self, process: Process) -> None:
        self.locks = {number: held for number, held in self.locks.items() if held[0] is not process}

    def file_time_ns(self) -> int:
        """The time that a file changed now gets: as coarse as the kernel's tick."""
        return int(self.seconds * 1e9) // _TICK_NS * _TICK_NS + self.boot * 10**15

    def torn(self, size: int) -> Iterable[tuple[int, int]]:
        """The parts in which a write of ``size`` bytes is done."""
        if not self.tear_writes or size < 2:
            return ((0, size),)
        middle = 1 + (size * 7) // 11
        return ((0, middle), (middle, size))

    # Disasters

    def copy(self) -> Machine:
        """The machine as it stands, with its page cache and none of its processes: as if all were killed now."""
        made = Machine(self.seed, disk=self.disk.copy(), boot=self.boot, tear_writes=self.tear_writes)
        made.random.setstate(self.random.getstate())  # what it draws from here on was not drawn before
        made.seconds, made.wall_offset_ms = self.seconds, self.wall_offset_ms
        return made

    def power_losses(
        self, *, samples: int = 20, sector_bytes: int = SECTOR_BYTES, seed: int | None = None
    ) -> Iterator[Machine]:
        """The machine after each loss of power that may happen now: see ``images.py``. It has booted again.

        Where more than 4,096 combinations are possible, a choice of them, ``samples`` of which are random. Those that leave
        the same bytes are given once.
        """
        for left in self.what_power_losses_leave(samples=samples, sector_bytes=sector_bytes, seed=seed):
            yield self.rebooted(left)

    def what_power_losses_leave(
        self, *, samples: int = 20, sector_bytes: int = SECTOR_BYTES, seed: int | None = None
    ) -> Iterator[Left]:
        """The disks of ``power_losses``, for who makes a machine of few of them only: with ``rebooted``."""
        random = Random(self.seed if seed is None else seed)
        units = pending_units(self.disk, sector_bytes)
        loss = PowerLoss(self.disk, units, self.seed)
        seen: set[Left] = set()
        for image in images(units, random, samples):
            left = loss.left(image)
            if left not in seen:
                seen.add(left)
                yield left

    def after_power_loss(self, image: Image, *, sector_bytes: int = SECTOR_BYTES) -> Machine:
        """The machine after one of them."""
        units = pending_units(self.disk, sector_bytes)
        return self.rebooted(PowerLoss(self.disk, units, self.seed).left(image))

    def rebooted(self, left: Left) -> Machine:
        """The machine with this disk, when the power is back."""
        made = Machine(
            self.seed, disk=disk_of(left, self.disk.numbers), boot=self.boot + 1, tear_writes=self.tear_writes
        )
        made.seconds, made.wall_offset_ms = self.seconds + 1.0, self.wall_offset_ms
        return made
