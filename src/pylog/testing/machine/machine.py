"""A simulated machine: one disk, some processes, one clock, and power failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from pylog.testing.machine.disk import Disk
from pylog.testing.machine.filesystem import SimulatedFileSystem
from pylog.testing.machine.images import Image, Left, PowerLoss, disk_of, images, pending_units
from pylog.testing.machine.process import Process, SimulatedLock, Step

Hook = Callable[[Process, Step], None]
SECTOR_BYTES = 512
_TICK_NS = 4_000_000  # the unit of file times on Linux at 250 ticks a second


class Machine:
    """A machine for ``Log``: give it the ``filesystem`` and ``clock`` of a ``process()``.

    The same seed and the same calls give the same bytes, names and ids.
    """

    def __init__(self, seed: int = 0, *, disk: Disk | None = None, boot: int = 1, tear_writes: bool = False) -> None:
        """``tear_writes``: every write is two steps, so that other processes can see half of it."""
        self.seed = seed
        self.random = Random(f"{seed} {boot}")
        self.disk = disk or Disk()
        self.boot = boot
        self.tear_writes = tear_writes
        self.seconds = 0.0
        self.wall_offset_ms = 0
        self.before_step: list[Hook] = []
        self.sleeper: Callable[[float], None] | None = None  # a schedule's; None: move the clock
        self.processes: list[Process] = []
        self.locks: dict[int, tuple[Process, SimulatedLock]] = {}

    def process(self) -> Process:
        """Start a process."""
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
        """The modification time of a file changed now, in units of the kernel's tick."""
        return int(self.seconds * 1e9) // _TICK_NS * _TICK_NS + self.boot * 10**15

    def torn(self, size: int) -> Iterable[tuple[int, int]]:
        """The parts of a write of ``size`` bytes."""
        if not self.tear_writes or size < 2:
            return ((0, size),)
        middle = 1 + (size * 7) // 11
        return ((0, middle), (middle, size))

    # Disasters

    def copy(self) -> Machine:
        """A copy with the page cache but without processes: as if all were killed now."""
        made = Machine(self.seed, disk=self.disk.copy(), boot=self.boot, tear_writes=self.tear_writes)
        made.random.setstate(self.random.getstate())  # it does not repeat earlier draws
        made.seconds, made.wall_offset_ms = self.seconds, self.wall_offset_ms
        return made

    def power_losses(
        self, *, samples: int = 20, sector_bytes: int = SECTOR_BYTES, seed: int | None = None
    ) -> Iterator[Machine]:
        """The rebooted machine after each power failure that is possible now: see ``images.py``.

        If more than 4,096 combinations are possible, it is a selection with ``samples`` random
        ones. Combinations with the same bytes are yielded once.
        """
        for left in self.what_power_losses_leave(samples=samples, sector_bytes=sector_bytes, seed=seed):
            yield self.rebooted(left)

    def what_power_losses_leave(
        self, *, samples: int = 20, sector_bytes: int = SECTOR_BYTES, seed: int | None = None
    ) -> Iterator[Left]:
        """The disks of ``power_losses``. Call ``rebooted`` only for those that need a machine."""
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
        """The rebooted machine after a power failure with this image."""
        units = pending_units(self.disk, sector_bytes)
        return self.rebooted(PowerLoss(self.disk, units, self.seed).left(image))

    def rebooted(self, left: Left) -> Machine:
        """The machine after a restart with this disk."""
        made = Machine(
            self.seed, disk=disk_of(left, self.disk.numbers), boot=self.boot + 1, tear_writes=self.tear_writes
        )
        made.seconds, made.wall_offset_ms = self.seconds + 1.0, self.wall_offset_ms
        return made
