"""Transactions on the simulated machine: all of their records are visible, or none, to every reader, whatever happened.

A transaction writes to three partitions of a topic, and to a fourth one of another, which stands for a group's offsets. The
ledger keeps what its producer was told. ``wrong`` opens the log with new processes, after all others have died.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations, islice

from pylog import Log, Producer, ProducerRecord
from pylog.errors import LogLocked, OutcomeUnknown, PylogError
from pylog.partition.read.reader import Cursor
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.segment.naming import UNSYNCED
from pylog.testing.checker import check
from pylog.testing.history import BEGIN, FAIL, INVOKE, OK, POLL, TRANSACTION, Operation
from pylog.testing.machine import Image, Killed, Machine, Process, Schedule, Step, Strategy, for_every_kill
from pylog.testing.machine.images import pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.crashes import PROBLEMS_MAX, Found
from tests.simulation.faults import faults_of, striking

ROOT = "/log"
PARTITIONS = [("t", 0), ("t", 1), ("t", 2), ("offsets", 0)]
FOREVER_MS = 10**9


_MAYBE = OutcomeUnknown, LogLocked, KeyboardInterrupt, MemoryError


class Told(Enum):
    """What the producer knows of its transaction."""

    NOTHING = "not decided, or not told"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    name: str
    values: list[str] = field(default_factory=list)
    told: Told = Told.NOTHING


@dataclass
class Ledger:
    """Of all producers. ``is_made``: the topics are there."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    is_made: bool = False
    errors: list[BaseException] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


class Application:
    """A process with a transactional producer. It goes on after every error as the documentation says."""

    def __init__(self, machine: Machine, ledger: Ledger, transactional_id: str, timeout_ms: int = FOREVER_MS) -> None:
        self.process = machine.process()
        self.ledger = ledger
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._log: Log | None = None
        self._producer: Producer | None = None

    def log(self) -> Log:
        if self._log is None:
            self._log = self.process.open_log(ROOT)
        return self._log

    def make_topics(self) -> None:
        def work() -> None:
            self.log().create_topic("t", partitions=3, segment_bytes=1024)
            self.log().create_topic("offsets")
            self.ledger.is_made = True

        self._attempt(work)

    def transaction(self, name: str, *, aborts: bool = False, rounds: int = 1, partitions: int = 4) -> None:
        """Records to every partition, several times; each time they are written at once."""
        if self.ledger.is_made and self.process.is_alive:
            self._attempt(lambda: self._transaction(name, aborts, rounds, PARTITIONS[:partitions]))

    def _transaction(self, name: str, aborts: bool, rounds: int, partitions: list[tuple[str, int]]) -> None:
        transaction = self.ledger.transactions[name] = Transaction(name)
        if self._producer is None:
            producer = Producer(self.log(), transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)
            producer.init_transactions()
            self._producer = producer
        producer = self._producer
        producer.begin_transaction()
        try:
            for number in range(rounds):
                for topic, partition in partitions:
                    transaction.values.append(f"{name} {number} {topic}-{partition}")
                    producer.send(topic, transaction.values[-1].encode(), partition=partition)
                if rounds > 1:
                    producer.flush()
            if not aborts:
                self._commit(producer)
                transaction.told = Told.COMMITTED
                return
        except _MAYBE:
            raise  # nothing is decided for it
        except PylogError as error:
            self.ledger.errors.append(error)
        producer.abort_transaction()
        transaction.told = Told.ABORTED

    def _commit(self, producer: Producer) -> None:
        """Once more after an error that leaves the outcome open."""
        try:
            producer.commit_transaction()
        except _MAYBE as error:
            self.ledger.errors.append(error)
            producer.commit_transaction()

    def _give_up(self) -> None:
        """After an error that the documentation has no answer for: another producer, in the same process."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._attempt(producer.close)

    def close(self) -> None:
        def work() -> None:
            if self._producer is not None:
                self._producer.close()
            if self._log is not None:
                self._log.close()

        self._attempt(work)

    def _attempt(self, work: Callable[[], None]) -> None:
        if not self.process.is_alive:
            return
        try:
            work()
        except Killed:
            self.process.kill()
        except (PylogError, KeyboardInterrupt, MemoryError) as error:
            self.ledger.errors.append(error)
            self._give_up()
        except BaseException as error:  # noqa: BLE001  (told to whoever looks)
            self.ledger.seen.append(f"process {self.process.number}: {type(error).__name__}: {error}")


# Workloads


def three_in_a_row(machine: Machine, ledger: Ledger) -> None:
    """One commits, one aborts, one commits; then one of a single batch."""
    a = Application(machine, ledger, "a")
    a.make_topics()
    a.transaction("T1")
    a.transaction("T2", aborts=True, rounds=2)
    a.transaction("T3", rounds=2)
    a.transaction("T4", partitions=1)
    a.close()


def one_after_another_dies(machine: Machine, ledger: Ledger) -> None:
    """A second producer with the same id takes over in the middle of a transaction; the first one goes on, and is fenced."""
    a, b = Application(machine, ledger, "a"), Application(machine, ledger, "a")
    a.make_topics()
    a.transaction("T1")
    b.transaction("T2")
    a.transaction("T3", rounds=2)
    b.transaction("T4")
    b.close()
    a.close()


def two_side_by_side(machine: Machine, ledger: Ledger) -> None:
    """Two producers with ids of their own."""
    a, b = Application(machine, ledger, "a"), Application(machine, ledger, "b")
    a.make_topics()
    a.transaction("T1")
    b.transaction("T2", rounds=2)
    a.transaction("T3", aborts=True, rounds=2)
    b.close()
    a.transaction("T4", rounds=2)
    a.close()


Workload = Callable[[Machine, Ledger], None]
WORKLOADS: dict[str, Workload] = {
    work.__name__: work for work in (three_in_a_row, one_after_another_dies, two_side_by_side)
}


# What must hold


class Blocked(Exception):
    """Records are hidden, although no owner lives."""


def visible(log: Log, *, live: bool = False) -> dict[tuple[str, int], list[str]]:
    """All values that ``read_committed`` sees, by partition. ``Blocked``, unless an owner may be ``live``."""
    found: dict[tuple[str, int], list[str]] = {}
    for topic, number in PARTITIONS:
        values = found[topic, number] = []
        reader, cursor = log.manager.partition(topic, number).reader, Cursor(0)
        while True:
            fetched = reader.fetch(cursor, max_bytes=1 << 20, isolation_level=READ_COMMITTED, visibility=WRITTEN)
            for view in fetched.batches:
                decoder = view.decoder(topic, number)
                while records := decoder.take(1000):
                    values += [record.value.decode() for record in records]
            if fetched.is_blocked and not live:
                raise Blocked(f"{topic}-{number} is blocked at {fetched.cursor.offset}")
            if fetched.cursor.offset <= cursor.offset:
                break
            cursor = fetched.cursor
    return found


def anomalies(found: dict[tuple[str, int], list[str]], ledger: Ledger) -> list[str]:
    """What ``pylog.testing.checker`` finds in the history of the ledger, of which these are the final reads."""
    verdict = check(_history(found, ledger))
    told = {name: each.told.value for name, each in ledger.transactions.items()}
    return [] if verdict.ok else [*map(str, verdict.shown), f"they were {told}, and there is {found}"]


def _history(found: dict[tuple[str, int], list[str]], ledger: Ledger) -> Iterator[Operation]:
    """Each transaction is of a process of its own. A value is the place of its name among all, an offset its place."""
    numbers = {value: number for number, value in enumerate(v for t in ledger.transactions.values() for v in t.values)}
    for process, each in enumerate(ledger.transactions.values(), 1):
        sent: dict[str, list[list[int | None]]] = {}
        for value in each.values:
            sent.setdefault(value.rpartition(" ")[2], []).append([None, numbers[value]])
        yield Operation(process, INVOKE, BEGIN, sent=sent)
        if each.told is not Told.ABORTED:
            yield Operation(process, INVOKE, TRANSACTION)
        if each.told is not Told.NOTHING:
            yield Operation(process, OK if each.told is Told.COMMITTED else FAIL, TRANSACTION, sent=sent)
    polled = {
        f"{topic}-{number}": [[at, numbers.get(value)] for at, value in enumerate(values)]
        for (topic, number), values in found.items()
    }
    yield Operation(0, OK, POLL, polled=polled, final=True)


def wrong(machine: Machine, ledger: Ledger) -> list[str]:
    """What is wrong on a machine whose processes are all dead. The machine is used up."""
    if not ledger.is_made:
        return []
    try:
        return [*ledger.seen, *_wrong(machine, ledger)]
    except (PylogError, Blocked) as error:
        return [*ledger.seen, f"{type(error).__name__}: {error}"]


def _wrong(machine: Machine, ledger: Ledger) -> Iterator[str]:
    seen = {}
    # A commit whose sync has failed is undecided until a writer has copied its segment.
    needs_writer = any(path.endswith(UNSYNCED) for path in machine.disk.contents())
    for name, read_only in (("a reader", True), ("a writer", False), ("a later reader", True)):
        with machine.process().open_log(ROOT, read_only=read_only) as log:
            seen[name] = visible(log, live=needs_writer and name == "a reader")
        yield from (
            f"{name}: {text}" for text in anomalies(seen[name], ledger) if not needs_writer or name != "a reader"
        )
    if (seen["a reader"] != seen["a writer"] and not needs_writer) or seen["a writer"] != seen["a later reader"]:
        yield f"they saw different transactions: {seen}"
    seen["a reader"] = seen["a writer"]
    without = machine.after_power_loss(Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural"))
    yield from _goes_on(machine, ledger, seen["a reader"])
    with without.process().open_log(ROOT, read_only=True) as log:
        left = visible(log)
    yield from (f"then without power: {text}" for text in anomalies(left, ledger))
    # One batch is visible before its sync, as any batch is. All others that a reader was shown must stay.
    whole = [each for each in ledger.transactions.values() if len(each.values) > 1 and _shows(seen["a reader"], each)]
    yield from (f"then without power: {each.name} is gone" for each in whole if not _shows(left, each))


def _shows(found: dict[tuple[str, int], list[str]], transaction: Transaction) -> bool:
    return bool(transaction.values) and any(transaction.values[0] in values for values in found.values())


def _goes_on(machine: Machine, ledger: Ledger, before: dict[tuple[str, int], list[str]]) -> Iterator[str]:
    """After one append to each partition, no transaction is open; and new ones can be made."""
    with machine.process().open_log(ROOT) as log:
        for topic, number in PARTITIONS:
            log.partition(topic, number).append([ProducerRecord(b"plain")], acks=1)
            left = log.manager.partition(topic, number).open_transactions()
            if left:
                yield f"{topic}-{number}: {left} stay open"
    later = Application(machine, ledger, "a")
    later.transaction("later")
    if ledger.transactions["later"].told is not Told.COMMITTED:
        yield f"a later transaction is {ledger.transactions['later'].told}: {ledger.errors[-3:]}"
    later.close()
    del ledger.transactions["later"]
    with machine.process().open_log(ROOT, read_only=True) as log:
        after = visible(log)
    for name, values in after.items():
        kept = [value for value in values if value != "plain" and not value.startswith("later")]
        if kept != before[name] and not _was_taken_in(kept, before[name], ledger):
            yield f"{name}: after a repair {kept}, before {before[name]}"


def _was_taken_in(values: list[str], before: list[str], ledger: Ledger) -> bool:
    """Whether the next writer has only published the one batch of a transaction, whose writer died before it did."""
    return any(values == before + each.values for each in ledger.transactions.values() if each.told is Told.NOTHING)


def kill_all(machine: Machine) -> list[str]:
    """Let all processes die. Returns the locks that are still held, but for those of living owners."""
    names = {machine.disk.look(path).number: path for path in machine.disk.contents()}  # type: ignore[union-attr]
    held = [names.get(number, "") for number in machine.locks]
    for process in machine.processes:
        process.kill()
    return [f"lock {name} was never freed" for name in held if not name.endswith(".owner")]


# Crashes and faults


def for_every_crash(
    workload: Workload, seed: int, for_every: Callable[..., int], *, every: int = 1, **options: int
) -> Found:
    """A crash before every step that changes the disk, or before one in ``every``."""
    found, number = Found(), 0
    machine, ledger = Machine(seed, tear_writes=for_every is for_every_kill), Ledger()

    def check(left: Machine) -> None:
        nonlocal number
        number += 1
        if number % every == seed % every and len(found.problems) < PROBLEMS_MAX:
            found.crashes += 1
            where = f"{workload.__name__}, seed {seed}, {for_every.__name__}, crash {number}"
            found.problems += [f"{where}: {problem}" for problem in wrong(left, deepcopy(ledger))]

    for_every(machine, lambda: workload(machine, ledger), check, **options)
    assert all(each.told is not Told.NOTHING for each in ledger.transactions.values()) or ledger.errors
    return found


def steps_of(workload: Workload, seed: int) -> list[Step]:
    steps: list[Step] = []
    machine = Machine(seed)
    machine.before_step.append(lambda _process, step: steps.append(step))
    workload(machine, Ledger())
    return steps


def sweep(workload: Workload, seed: int, *, every: int = 1, is_over: Callable[[], bool] = bool) -> Found:
    """Every fault at every step, or one in ``every``. Not those with which a disk takes back what it has given."""
    found = Found()
    faults = [fault for fault in faults_of(steps_of(workload, seed)) if fault.kind != "lost"]
    for fault in faults[seed % every :: every]:
        if len(found.problems) >= PROBLEMS_MAX or is_over():
            break
        found.crashes += 1
        machine, ledger = Machine(seed), Ledger()
        hook = striking(fault, [0, 0])
        machine.before_step.append(hook)
        workload(machine, ledger)
        machine.before_step.clear()
        problems = kill_all(machine) + wrong(machine, ledger)
        found.problems += [f"{workload.__name__}, seed {seed}, {fault}: {problem}" for problem in problems]
    return found


# Schedules


class Reader:
    """Reads everything twice. What the first look has shown of a transaction, the second one shows all of."""

    def __init__(self, machine: Machine, ledger: Ledger, *, read_only: bool) -> None:
        self.process = machine.process()
        self._ledger = ledger
        self._log = self.process.open_log(ROOT, read_only=read_only)

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


class Preempting:
    """The program that runs goes on, but for the choices with these numbers: then another one does."""

    def __init__(self, first: int, points: Collection[int]) -> None:
        self._first = first
        self._points = points
        self.taken = 0

    def choose(self, able: Sequence[int], current: int | None) -> int:
        self.taken += 1
        if current is None:
            return self._first if self.taken == 1 and self._first in able else able[0]
        if self.taken in self._points:
            return able[(able.index(current) + 1) % len(able)] if current in able else able[0]
        return current if current in able else able[0]


Programs = Callable[[Machine, Ledger], list[tuple[Process, Callable[[], None]]]]


def two_writers(machine: Machine, ledger: Ledger) -> list[tuple[Process, Callable[[], None]]]:
    a, b = Application(machine, ledger, "a"), Application(machine, ledger, "b")
    return [
        (a.process, lambda: a.transaction("A", rounds=2)),
        (b.process, lambda: b.transaction("B", rounds=2)),
    ]


def two_of_one_id(machine: Machine, ledger: Ledger) -> list[tuple[Process, Callable[[], None]]]:
    a, b = Application(machine, ledger, "a"), Application(machine, ledger, "a")
    return [
        (a.process, lambda: a.transaction("A", rounds=2)),
        (b.process, lambda: b.transaction("B", rounds=2)),
    ]


def writer_and_reader(machine: Machine, ledger: Ledger) -> list[tuple[Process, Callable[[], None]]]:
    a, reader = Application(machine, ledger, "a"), Reader(machine, ledger, read_only=True)

    def work() -> None:
        a.transaction("A", rounds=2)
        a.transaction("B")

    return [(a.process, work), (reader.process, reader.read)]


def writer_and_writing_reader(machine: Machine, ledger: Ledger) -> list[tuple[Process, Callable[[], None]]]:
    a, reader = Application(machine, ledger, "a"), Reader(machine, ledger, read_only=False)

    def work() -> None:
        a.transaction("A", rounds=2)
        a.transaction("B", aborts=True, rounds=2)

    return [(a.process, work), (reader.process, reader.read)]


RACES: dict[str, Programs] = {
    work.__name__: work for work in (two_writers, two_of_one_id, writer_and_reader, writer_and_writing_reader)
}


def run(programs: Programs, strategy: Strategy, seed: int) -> list[str]:
    """What is wrong during and after one schedule."""
    machine, ledger = Machine(seed), Ledger()
    first = Application(machine, ledger, "a")
    first.make_topics()
    first.transaction("before")
    first.close()
    schedule = Schedule(machine, strategy)
    for process, work in programs(machine, ledger):
        schedule.add(process, work)
    schedule.run()
    return kill_all(machine) + wrong(machine, ledger)


def schedules(
    programs: Programs, seed: int, *, every: int = 1, preemptions: int = 2, is_over: Callable[[], bool] = bool
) -> Found:
    """Every schedule with so many preemptions, or one in ``every``."""
    found = Found()
    for first in (0, 1):
        strategy = Preempting(first, ())
        found.problems += run(programs, strategy, seed)
        points = combinations(range(2, strategy.taken + 1), preemptions)
        for chosen in islice(points, seed % every, None, every):
            if len(found.problems) >= PROBLEMS_MAX or is_over():
                return found
            found.crashes += 1
            problems = run(programs, Preempting(first, chosen), seed)
            where = f"{programs.__name__}, seed {seed}, first {first}, preempted at {chosen}"
            found.problems += [f"{where}: {problem}" for problem in problems]
    return found
