"""A simulated machine: one disk, some processes, one clock, and power failures."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from pylog.testing.machine.filesystem import SimulatedFileSystem
from pylog.testing.machine.images import Image, Left, PowerLoss, disk_of, images, pending_units
from pylog.testing.machine.process import Hardware, Process

SECTOR_BYTES = 512


class Machine(Hardware):
    """A machine for ``Log``: give it the ``filesystem`` and ``clock`` of a ``process()``.

    The same seed and the same calls give the same bytes, names and ids.
    """

    def process(self) -> Process:
        """Start a process."""
        made = Process(self, len(self.processes) + 1, SimulatedFileSystem)
        self.processes.append(made)
        return made

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
