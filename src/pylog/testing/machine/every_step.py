"""Every moment of a program at which a machine may crash, and what is found afterwards checked by the program's own test.

A program runs once. Before each of its steps that changes the disk, and at its end, the machine is copied as the crash would
leave it, and the check looks at the copy; the program goes on, and knows nothing of it. So the check sees what the program
noted down to that moment: what it was told had succeeded.
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
    """Run ``program``; wherever ``machine`` may lose its power on the way, ``check`` the machine that has booted again.

    Of the states that a moment may leave, ``at_most`` so many are checked: with nothing kept of what was not synced, with
    everything, and others chosen by the machine's seed. Returns how many were checked, of all moments. What ``check``
    raises ends the program, and comes as an ``AssertionError`` that says when the power was lost.
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
    """The same for a kill of every process at once: what they wrote is there, nothing is locked, and the machine runs on.

    ``Machine(tear_writes=True)`` kills in the middle of writes, too.
    """
    return _EveryStep(machine, check, lambda _moment: [machine.copy()], "everything was killed").run(program)


class _EveryStep:
    """One run of a program, and how many machines were checked."""

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
            if self._failure is not None:  # raised here, it would meet pylog's own handling of errors
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
