"""Programs on the simulated machine, of which at least one has transactions: in every order with
two preemptions.

Of equivalent schedules only one is tried. Two steps depend on each other if they reach the same
file, or the same name in a directory, and one of them changes it; an attempt to take a lock, and a
sync, count as changes. A release of a lock is no step: so all steps of its holder depend on an
attempt to take it.

- A program is interrupted only before a step that depends on some step of the other program.
  Interrupted before another one, it takes that step later, with the same effect, than if it is
  interrupted before its next step.
- For the same reason the second interruption lets the first program go on only after another one
  has taken a step on which that one depends that the first interruption delayed. Else the schedule
  in which the first interruption came later is the same.

What programs depend on is learned from the runs themselves; if one shows more than was known, all
are run again. A machine is checked once: not again if the same bytes are there, the same of them
are durable, and the same was told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple

from pylog import Log
from pylog.errors import LogLocked
from pylog.testing.machine import Killed, Machine, Process, Replay, Schedule, Step, Strategy
from tests.simulation.crashes import PROBLEMS_MAX, Found
from tests.simulation.races import shortened
from tests.simulation.transactions import ROOT, Application, Ledger, Told, snapshot, stage
from tests.simulation.transactions_oracle import LIVE, kill_all, mark_of, visible, wrong

Work = Callable[[], None]
Programs = Callable[[Machine, Any], list[tuple[Process, Work]]]
"""What runs on a staged machine, with its ledger."""


# What runs


class Reader:
    """Reads everything twice. What the first look has shown of a transaction, the second one shows
    all of."""

    def __init__(self, machine: Machine, ledger: Ledger, *, read_only: bool) -> None:
        self.process = machine.process()
        self._ledger = ledger
        self._log: Log = self.process.open_log(ROOT, read_only=read_only)

    def read(self) -> None:
        ledger = self._ledger
        told = [each for each in ledger.transactions.values() if each.told is Told.COMMITTED]
        first = visible(self._log, live=True)
        shown = [
            each for each in ledger.transactions.values() if any(v in w for v in each.values for w in first.values())
        ]
        everything = [value for values in visible(self._log, live=True).values() for value in values]
        for each in [*told, *shown]:
            missing = [value for value in each.values if value not in everything]
            if missing:
                ledger.seen.append(f"a reader misses {missing} of {each.name}")
        ledger.seen += [
            f"a reader was shown {each.name}, which was aborted" for each in shown if each.told is Told.ABORTED
        ]


def _two(
    machine: Machine, ledger: Ledger, first: str, second: str, *, aborts: bool = False
) -> list[tuple[Process, Work]]:
    a, b = Application(machine, ledger, "a", first), Application(machine, ledger, "b", second)
    a.start()
    b.start()
    return [
        (a.process, lambda: a.transaction("A")),
        (b.process, lambda: b.transaction("B", aborts=aborts, rounds=1 + aborts)),
    ]


def of_one_group(machine: Machine, ledger: Ledger) -> list[tuple[Process, Work]]:
    """Two producers commit records to the same three partitions, and offsets of one group."""
    return _two(machine, ledger, "g", "g")


def of_two_groups(machine: Machine, ledger: Ledger) -> list[tuple[Process, Work]]:
    """Both commit offsets of both groups, which are in one partition of the offsets topic, and send
    them in different order."""
    return _two(machine, ledger, "gh", "hg")


def one_aborts(machine: Machine, ledger: Ledger) -> list[tuple[Process, Work]]:
    return _two(machine, ledger, "g", "h", aborts=True)


def of_one_id(machine: Machine, ledger: Ledger) -> list[tuple[Process, Work]]:
    """The second one takes the id over from the first one."""
    a, b = Application(machine, ledger, "a"), Application(machine, ledger, "a", "h")
    a.start()
    assert b.log()  # open before they meet
    return [(a.process, lambda: a.transaction("A")), (b.process, lambda: b.transaction("B"))]


def a_writer_and_a_reader(machine: Machine, ledger: Ledger, *, read_only: bool = True) -> list[tuple[Process, Work]]:
    a, reader = Application(machine, ledger, "a"), Reader(machine, ledger, read_only=read_only)
    a.start()

    def work() -> None:
        a.transaction("A")
        a.transaction("B", aborts=not read_only, rounds=1 + (not read_only))

    return [(a.process, work), (reader.process, reader.read)]


def a_writer_and_a_writing_reader(machine: Machine, ledger: Ledger) -> list[tuple[Process, Work]]:
    return a_writer_and_a_reader(machine, ledger, read_only=False)


RACES: dict[str, Programs] = {
    work.__name__: work
    for work in (
        of_one_group, of_two_groups, one_aborts, of_one_id, a_writer_and_a_reader, a_writer_and_a_writing_reader,
    )
}  # fmt: skip


@cache
def _begun(seed: int) -> tuple[Machine, Ledger]:
    machine, ledger = stage(seed).copy(), Ledger()
    first = Application(machine, ledger, "a")
    first.transaction("before")
    first.close()
    assert ledger.transactions["before"].told is Told.COMMITTED
    return machine.copy(), ledger


def begun(seed: int) -> tuple[Machine, Ledger]:
    """A machine where a transaction was committed, and its ledger."""
    machine, ledger = _begun(seed)
    return machine.copy(), snapshot(ledger)


# Which steps depend on each other

_BY_NAME = frozenset(
    {"open", "create", "exists", "is_directory", "size", "modified", "names", "remove", "rmdir", "mkdir", "is_locked"}
)
_OF_NAMES = frozenset({"create", "mkdir", "replace", "remove", "rmdir", "sync_directory"})
_CHANGES = frozenset({"pwrite", "truncate", "sync", "lock", "create", "mkdir", "remove", "rmdir"})


@cache
def reached(name: str, path: str) -> dict[str, bool]:
    """What a step reaches, and whether it changes it. A rename may change any name in its
    directory."""
    above = path.rpartition("/")[0]
    found = {f"{above}/*" if path.endswith(".owner") else path: name in _CHANGES}  # owners draw their names
    if name in _BY_NAME or name == "replace":
        found[f"{above}/*"] = found.get(f"{above}/*", False) or name == "replace"
    if name in _OF_NAMES:
        found[f"{path if name == 'sync_directory' else above}/"] = True
    elif name == "names":
        found[f"{path}/"] = False
    return found


class Dependences:
    """What each program was seen to reach, and to change; and which of its steps are known to
    depend on the other one."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str, str]] = set()
        self._reached: dict[str, set[int]] = defaultdict(set)
        self._changed: dict[str, set[int]] = defaultdict(set)
        self._known: set[tuple[int, str, bool]] = set()
        self._is_dependent: dict[tuple[int, str, str], bool] = {}

    def is_dependent(self, step: tuple[int, str, str]) -> bool:
        """Of a step of a program, by its name and path."""
        if step not in self._seen:
            self._seen.add(step)
            for name, changes in reached(*step[1:]).items():
                self._reached[name].add(step[0])
                if changes:
                    self._changed[name].add(step[0])
        found = self._is_dependent.get(step)
        if found is None:
            names = reached(*step[1:]).items()
            found = self._is_dependent[step] = any((step[0], *name) in self._known for name in names)
        return found

    def learn(self) -> bool:
        """Know what was seen. Returns whether it is more than before."""
        known = {
            (program, name, changes)
            for name, programs in self._reached.items()
            for program in programs
            for changes in (False, True)
            if (programs if changes else self._changed[name]) - {program}
        }
        has_more = known != self._known
        self._known = known
        self._is_dependent.clear()
        return has_more


class Taken(NamedTuple):
    """A step that a program was about to take, and the locks that it held."""

    program: int
    name: str
    path: str
    held: tuple[str, ...]

    def depends_on(self, other: Taken) -> bool:
        """Whether the order of the two matters. A release of a lock is no step: so its holder
        depends on who tries it."""
        if other.name == "lock" and other.path in self.held:
            return True
        mine, others = reached(self.name, self.path), reached(other.name, other.path)
        return any(mine[name] or others[name] for name in mine.keys() & others.keys())


class Delay(NamedTuple):
    """A step of ``program`` that was delayed by a preemption: as positions of the trace.

    Before ``matters_from`` the others have done nothing on which the step depends. After
    ``gone_on`` the program has taken its next step, and they have done nothing of the kind before.
    """

    program: int
    matters_from: int
    gone_on: int

    def is_in_vain(self, position: int, other: int, is_preemption: bool) -> bool:
        """Whether a preemption of the program at its next step, and the choice of ``other`` here,
        give the same schedule."""
        return position > self.gone_on or (other == self.program and position - is_preemption < self.matters_from)


class Preemptible(Schedule):
    """Lets the other program go first only before a step that depends on it, or while this one has
    a lock of both."""

    def __init__(self, machine: Machine, strategy: Strategy, dependences: Dependences) -> None:
        super().__init__(machine, strategy)
        self._dependences = dependences
        self.trace: list[Taken] = []
        self.positions: list[int] = []  # how many steps were in the trace at each choice

    def _before_step(self, process: Process, step: Step) -> None:
        program = self._running()
        if step.name == "sleep" or program is None:
            return
        number, dependences = program.number, self._dependences
        held = tuple(
            lock.path
            for holder, lock in self._machine.locks.values()
            if holder is process and not lock.path.endswith(LIVE)
        )
        self.trace.append(Taken(number, step.name, step.path, held))
        if dependences.is_dependent((number, step.name, step.path)) or any(
            dependences.is_dependent((number, "lock", path)) for path in held
        ):
            self.pause()

    def _choose(self, able: list[int], current: int | None) -> Any:
        if len(able) > 1:
            self.positions.append(len(self.trace))
        return super()._choose(able, current)

    def delay(self, point: int) -> Delay:
        """What the preemption at this point has delayed."""
        start, never = self.positions[point], len(self.trace) + 1
        preempted = self.trace[start - 1]
        for position in range(start, len(self.trace)):
            taken = self.trace[position]
            if taken.program == preempted.program:
                return Delay(preempted.program, never, position)
            if preempted.depends_on(taken):
                return Delay(preempted.program, position + 1, never)
        return Delay(preempted.program, never, never)


# Schedules


class Exploration:
    """Schedules of two programs, and what was found wrong."""

    def __init__(self, programs: Programs, seed: int, is_over: Callable[[], bool] = bool) -> None:
        self.programs = programs
        self.seed = seed
        self.is_over = is_over
        self.times_learned = 0  # more that steps depend on: what was explored before may lack schedules
        self._checked: set[int] = set()
        self._dependences = Dependences()

    def explore(self, takes: Callable[[int, int], bool], preemptions: int = 2) -> Found:
        """All schedules with so many preemptions of which ``takes(level, number)`` takes each point
        of a preemption.

        The level is that of the first preemption, or of the second. All again if another dependence
        was seen meanwhile.
        """
        while True:
            found = Found()
            for first in range(len(self.programs(*self._staged()))):
                self._below([first], preemptions, 0, takes, found)
            if not self._dependences.learn():
                return found
            self.times_learned += 1

    def _below(
        self, choices: list[int], left: int, level: int, takes: Callable[[int, int], bool], found: Found
    ) -> None:
        """The schedule with these choices, and those that differ from it after them."""
        if len(found.problems) >= PROBLEMS_MAX or self.is_over():
            return
        strategy = Replay(choices)
        schedule = self._once(strategy, found)
        points, last = strategy.points, len(choices) - 1
        is_preempted = level > 0 and points[last].is_preemption(choices[last])
        delay = schedule.delay(last) if is_preempted else None
        for number in range(len(choices), len(points)):
            for other in points[number].others():
                is_preemption = points[number].is_preemption(other)
                if is_preemption > left:
                    continue
                if delay is not None and delay.is_in_vain(schedule.positions[number], other, is_preemption):
                    continue
                if not is_preemption or takes(level, number):
                    following = [*(point.chosen for point in points[:number]), other]
                    self._below(following, left - is_preemption, level + is_preemption, takes, found)

    def _staged(self) -> tuple[Machine, Any]:
        return begun(self.seed)

    def _once(self, strategy: Replay, found: Found) -> Preemptible:
        machine, ledger = self._staged()
        schedule = Preemptible(machine, strategy, self._dependences)
        for process, work in self.programs(machine, ledger):
            schedule.add(process, work)
        schedule.run()
        where = f"{self.programs.__name__}, seed {self.seed}, {shortened(schedule.choices)}"
        found.problems += [f"{where}: {text}" for text in self._wrong(machine, ledger, found)]
        found.crashes += 1
        return schedule

    def _wrong(self, machine: Machine, ledger: Any, found: Found) -> list[str]:
        """What is wrong after one schedule."""
        held = kill_all(machine)
        held += [f"nobody was stopped, and yet: {error}" for error in ledger.errors if isinstance(error, LogLocked)]
        mark = mark_of(machine, ledger)
        if mark in self._checked:
            return held
        found.images += 1
        problems = held + wrong(machine, ledger)
        if not problems:
            self._checked.add(mark)
        return problems


def a_share(seed: int, *shares: float) -> Callable[[int, int], bool]:
    """Takes these shares of the points on each level, one in every so many; the seed says where it
    begins."""
    random = Random(seed)
    owed = [random.random() for _ in shares]

    def takes(level: int, _: int) -> bool:
        owed[level] += shares[level]
        is_taken = owed[level] >= 1
        owed[level] -= is_taken
        return is_taken

    return takes


def part_of_all(number: int, parts: int) -> Callable[[int, int], bool]:
    """Takes one of ``parts`` of all schedules: all of them together are all."""
    return lambda level, point: level > 0 or point % parts == number


# Take-overs


def take_over(seed: int, at: int, *, first_dies: bool, second_dies: bool) -> tuple[list[str], bool]:
    """A second producer takes the id over before step ``at`` of the first one's commit, and commits
    a transaction.

    The first one goes on with its commit afterwards, or is dead by then. The second one may die
    after it has taken over. Returns what is wrong, and whether the commit had so many steps.
    """
    machine, ledger = begun(seed)
    first, second = Application(machine, ledger, "a"), Application(machine, ledger, "a", "h")
    first.start()
    taken = 0

    def before(process: Process, _: Step) -> None:
        nonlocal taken
        if process is first.process:
            taken += 1
            if taken == at and first_dies:
                process.kill()
                raise Killed

    def takes_over() -> None:
        second.start()
        if second_dies:
            second.process.kill()
        else:
            second.transaction("B")

    schedule = Schedule(machine, Replay([0] * at + [1]))
    schedule.add(first.process, lambda: first.transaction("A"))
    schedule.add(second.process, takes_over)
    machine.before_step.append(before)
    schedule.run()
    machine.before_step.clear()
    problems = kill_all(machine) + wrong(machine, ledger)
    where = f"seed {seed}, a take-over before step {at}, first_dies={first_dies}, second_dies={second_dies}"
    return [f"{where}: {text}" for text in problems], taken >= at


def take_overs(seed: int, *, every: int = 1, share: int = 0, is_over: Callable[[], bool] = bool) -> Found:
    """Before every step of a transaction, or one in ``every``."""
    found, number, is_within = Found(), 0, True
    while is_within and len(found.problems) < PROBLEMS_MAX and not is_over():
        for dies in range(4):
            number += 1
            if number % every == share % every:
                problems, is_within = take_over(seed, number // 4 + 1, first_dies=dies % 2 > 0, second_dies=dies > 1)
                found.crashes += 1
                found.problems += problems
    return found
