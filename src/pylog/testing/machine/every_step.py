"""Checks a program's state after a crash at every possible moment.

The program runs once. Before each of its steps that changes the disk, and at its end, the machine
is copied in the state after a crash, and the check inspects the copy; the program continues. So the
check can use what the program has recorded up to that moment, such as its successful calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from pylog.testing.machine.images import Image, images, pending_units
from pylog.testing.machine.machine import SECTOR_BYTES, Machine
from pylog.testing.machine.process import Killed, Process, Step

Program = Callable[[], object]
Check = Callable[[Machine], object]


def for_every_power_loss(
    machine: Machine, program: Program, check: Check, *, at_most: int = 20, sector_bytes: int = SECTOR_BYTES
) -> int:
    """Run ``program`` and ``check`` the rebooted machine after a power failure at each moment.

    It checks up to ``at_most`` states of a moment: without all unsynced changes, with all of them,
    and others chosen by the machine's seed. Returns the number of checked states. An exception of
    ``check`` ends the program as an ``AssertionError`` that names the moment.
    """

    def left(moment: int) -> Iterable[Machine]:
        random = Random(f"{machine.seed} {moment}")
        units = pending_units(machine.disk, sector_bytes)
        possible = list(images(units, random, at_most))
        if len(possible) > at_most:
            everything = Image(tuple(len(unit.changes) for unit in units), "natural")
            others = [image for image in possible[1:] if image != everything]
            possible = [possible[0], everything, *random.sample(others, max(at_most - 2, 0))][:at_most]
        return (machine.after_power_loss(image, sector_bytes=sector_bytes) for image in possible)

    return _EveryStep(machine, check, left, "the power was lost").run(program)


def for_every_kill(machine: Machine, program: Program, check: Check) -> int:
    """Run ``program`` and ``check`` the machine after a kill of all processes at each moment.

    The machine keeps running and has all writes, but no locks. ``Machine(tear_writes=True)`` also
    kills in the middle of writes.
    """
    return _EveryStep(machine, check, lambda _moment: [machine.copy()], "everything was killed").run(program)


class _EveryStep:
    """One run of a program, and the number of checked machines."""

    def __init__(self, machine: Machine, check: Check, left: Callable[[int], Iterable[Machine]], crash: str) -> None:
        self._machine = machine
        self._check = check
        self._left = left
        self._crash = crash
        self._moments = 0
        self._checked = 0
        self._failure: tuple[str, BaseException] | None = None

    def run(self, program: Program) -> int:
        self._machine.before_step.append(self._before)
        try:
            program()
        except Killed:
            if self._failure is None:
                raise
        finally:
            self._machine.before_step.remove(self._before)
        if self._failure is None:
            self._crash_here("at the end of the program")
        if self._failure is not None:
            where, error = self._failure
            if not isinstance(error, Exception):
                raise error
            raise AssertionError(f"{self._crash} {where}: {type(error).__name__}: {error}") from error
        return self._checked

    def _before(self, process: Process, step: Step) -> None:
        if step.changes:
            self._crash_here(f"before step {process.steps} of process {process.number}, {step.name} {step.path}")
            if self._failure is not None:  # pylog would handle an exception raised here
                process.kill()

    def _crash_here(self, where: str) -> None:
        self._moments += 1
        seen: list[dict[str, bytes | None]] = []
        for machine in self._left(self._moments):
            contents = machine.disk.contents()
            if contents not in seen:
                seen.append(contents)
                self._checked += 1
                try:
                    self._check(machine)
                except BaseException as error:  # noqa: BLE001  (raised again when the program has ended)
                    self._failure = f"{where} (what is left: number {len(seen)})", error
                    return
