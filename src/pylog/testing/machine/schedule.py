"""Runs several processes of a machine concurrently; a strategy chooses the order, step by step.

Each program has its own thread, but only one thread runs at a time. Before each step of a process
the strategy chooses the next program. So a run is as deterministic as its programs, and the same
strategy gives the same run. Waiting is virtual: if all programs wait, the clock moves to the
earliest end of a wait.
"""

from __future__ import annotations

import threading  # a program is paused within its calls, so it needs its own thread
from collections.abc import Callable, Sequence
from typing import Protocol

from pylog.testing.machine.machine import Machine
from pylog.testing.machine.process import Killed, Process, Step

STEPS_MAX = 100_000


class Strategy(Protocol):
    """Chooses the next program."""

    def choose(self, able: Sequence[int], current: int | None) -> int:
        """One of ``able``, in ascending order. ``current`` runs; None if it cannot continue."""


class NoEnd(AssertionError):
    """The programs took more steps than they can need."""


class _Program:
    """One program and the thread it runs on."""

    def __init__(self, number: int, process: Process, work: Callable[[], None], ended: Callable[[], None]) -> None:
        self.number = number
        self.process = process
        self.wakes_at = 0.0
        self.has_ended = False
        self.error: BaseException | None = None
        self.turn = threading.Semaphore(0)
        self._work = work
        self._ended = ended
        self.thread = threading.Thread(target=self._run, name=f"program {number}", daemon=True)

    def _run(self) -> None:
        self.turn.acquire()
        try:
            self._work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  (raised again by Schedule.run)
            self.error = error
        self.has_ended = True
        self._ended()


class Schedule:
    """One run of some programs on one machine."""

    def __init__(self, machine: Machine, strategy: Strategy) -> None:
        self._machine = machine
        self._strategy = strategy
        self._programs: list[_Program] = []
        self._current: _Program | None = None
        self._all_ended = threading.Semaphore(0)
        self._aborted = False
        self.choices: list[int] = []
        self.steps = 0

    def add(self, process: Process, work: Callable[[], None]) -> None:
        """Add a program. Several in one process are its threads: see ``mutexes.py``."""
        self._programs.append(_Program(len(self._programs), process, work, self._next))

    def run(self) -> None:
        """Run all programs to their ends. Raises their first error, ``NoEnd`` at ``STEPS_MAX``."""
        self._machine.before_step.insert(0, self._before_step)
        self._machine.sleeper = self.sleep
        for program in self._programs:
            program.thread.start()
        self._next()
        self._all_ended.acquire()
        for program in self._programs:
            program.thread.join()
        self._machine.before_step.remove(self._before_step)
        self._machine.sleeper = None
        errors = [program.error for program in self._programs if program.error is not None]
        if errors:
            raise errors[0]

    def _before_step(self, _process: Process, step: Step) -> None:
        if step.name != "sleep":  # a sleep chooses after this step
            self.pause()

    def pause(self) -> None:
        """Let the strategy choose the next program. No effect outside of the running program."""
        program = self._running()
        if program is None:
            return
        self.steps += 1
        if self.steps > STEPS_MAX or self._aborted:
            self._aborted = True
            raise NoEnd(f"{self.steps} steps and no end; choices: {self.choices}")
        able = [p.number for p in self._programs if self._is_able(p)]
        if len(able) > 1:
            self._hand_over(program, self._choose(able, program.number))

    def _running(self) -> _Program | None:
        """The program of the calling thread."""
        program = self._current
        return program if program is not None and program.thread is threading.current_thread() else None

    def sleep(self, seconds: float) -> None:
        """Let the others run. If they all wait too, move the virtual clock."""
        program = self._running()
        if program is None:
            self._machine.seconds += seconds
            return
        program.wakes_at = self._machine.seconds + seconds
        self._hand_over(program, self._wait())

    def _next(self) -> None:
        """Start the next program, after the current one has ended or before the first."""
        if all(program.has_ended for program in self._programs):
            self._current = None
            self._all_ended.release()
            return
        self._current = self._wait()
        self._current.turn.release()

    def _wait(self) -> _Program:
        """The next program if the current one cannot run. If all wait, time moves to the first."""
        left = [program for program in self._programs if not program.has_ended]
        self._machine.seconds = max(self._machine.seconds, min(program.wakes_at for program in left))
        return self._choose([p.number for p in left if self._is_able(p)], None)

    def _is_able(self, program: _Program) -> bool:
        return not program.has_ended and program.wakes_at <= self._machine.seconds

    def _choose(self, able: list[int], current: int | None) -> _Program:
        chosen = self._strategy.choose(able, current) if len(able) > 1 else able[0]
        if len(able) > 1:
            self.choices.append(chosen)
        return self._programs[chosen]

    def _hand_over(self, program: _Program, to: _Program) -> None:
        if to is not program:
            self._current = to
            to.turn.release()
            program.turn.acquire()
