"""Compaction and retention on the simulated machine, each with other programs: in every order with
two preemptions.

Three closed segments of few keys have tombstones, an aborted transaction, and a committed one that
spans all of them. Whatever the order: every record that is found is the one that was written at its
offset; the newest record of each key is there, a tombstone before its horizon too, also for readers
meanwhile and if the power fails; no deleted key comes back after the horizon; a committed
transaction is there as a whole, an aborted one is not; and nothing is deleted that retention must
keep.

    python -m tests.simulation.cleaner_schedules compaction_and_append --seconds 600
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pylog import Log, Producer, ProducerRecord, TopicPartition
from pylog.checks import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pylog.codec.control import ControlType, build_marker
from pylog.codec.key_map import ENTRY_BYTES
from pylog.errors import OffsetOutOfRange, PylogError
from pylog.log import cleaner_of
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.compact.swap import SegmentsChanged
from pylog.testing.machine import Machine, Process
from pylog.testing.machine.disk import walk
from pylog.testing.machine.images import Image, PowerLoss, pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation import consumed
from tests.simulation.actors import Actor, World
from tests.simulation.compactions import Records, transactional
from tests.simulation.crashes import PROBLEMS_MAX, Found
from tests.simulation.transactions import Application, Ledger
from tests.simulation.transactions_oracle import kill_all, wrong
from tests.simulation.transactions_schedules import Exploration, Work, begun, part_of_all

ROOT = "/log"
TOPIC = "t"
CONFIG = {"segment_bytes": 4096, "index_interval_bytes": 64, "cleanup_policy": "compact,delete"}
HORIZON_MS = 10_000
OPTIONS = CompactionOptions(delete_retention_ms=HORIZON_MS)
CLEANED_IN_PARTS = CompactionOptions(delete_retention_ms=HORIZON_MS, memory_bytes=3 * ENTRY_BYTES)
PARTS = 32


class Race(NamedTuple):
    """Programs that meet. ``wrong`` tells what is, when they have ended; ``told`` is what it
    depends on but for the disk."""

    programs: list[tuple[Process, Work]]
    wrong: Callable[[], list[str]]
    told: Callable[[], object] | None


Start = Callable[[int], tuple[Machine, Race]]


class CleanerExploration(Exploration):
    """Schedules of a race."""

    def __init__(self, start: Start, seed: int, is_over: Callable[[], bool] = bool) -> None:
        def programs(_machine: Machine, race: Any) -> list[tuple[Process, Work]]:
            return race.programs

        programs.__name__ = start.__name__
        super().__init__(programs, seed, is_over)
        self._start = start
        self.different_ends = 0

    def _staged(self) -> tuple[Machine, Any]:
        return self._start(self.seed)

    def _wrong(self, machine: Machine, ledger: Any, found: Found) -> list[str]:
        race: Race = ledger
        mark = None
        if race.told is not None:
            mark = hash((tuple(sorted(machine.disk.contents().items())), _durable(machine), race.told()))
            if mark in self._checked:
                return []
        self.different_ends += 1
        problems = race.wrong()
        if mark is not None and not problems:
            self._checked.add(mark)
        return problems


def _durable(machine: Machine) -> Any:
    return PowerLoss(machine.disk, pending_units(machine.disk, SECTOR_BYTES), machine.seed).left(_nothing(machine))


def _nothing(machine: Machine) -> Image:
    return Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")


# What was written


@dataclass
class History:
    """``written``: every record of partition 0 of which its writer was told, or that is aborted.
    ``aborted``: their offsets."""

    written: Records
    aborted: set[int]
    newest_only: bool = True  # a compaction may drop the others
    start_max: int = 0  # nothing from here on may be deleted
    elsewhere: list[bytes] = field(default_factory=list)  # committed values of partition 1
    seen: list[str] = field(default_factory=list)

    def committed(self) -> Records:
        return {offset: record for offset, record in self.written.items() if offset not in self.aborted}

    def told(self) -> object:
        return (
            tuple(sorted(self.written.items())),
            tuple(sorted(self.aborted)),
            tuple(self.elsewhere),
            tuple(self.seen),
        )

    def problems(self, found: Records, start: int, *, tombstones: bool = True, end: int = 1 << 40) -> Iterator[str]:
        """What is wrong with committed records that were read from ``start`` on; ``end``: what a
        reader has to reach."""
        there = self.committed()
        yield from (
            f"at {at}: {record}, was {there.get(at)}" for at, record in found.items() if there.get(at) != record
        )
        needed = {at: record for at, record in there.items() if start <= at < end}
        if self.newest_only:
            newest = {key: at for at, (key, _) in sorted(there.items())}
            needed = {at: record for at, record in needed.items() if newest[record[0]] == at}
        lost = {
            at: record for at, record in needed.items() if at not in found and (tombstones or record[1] is not None)
        }
        if lost:
            yield f"not there: {lost}; from {start} on are {found}"
        values = dict(found.values())
        expected = {key: value for at, (key, value) in sorted(there.items()) if at >= start}
        back = [key for key, value in values.items() if value is not None and expected.get(key) is None]
        if back:
            yield f"deleted keys came back: {back}"


def read(log: Log, start: int | None = None, isolation_level: str = "read_committed") -> Records:
    found: Records = {}
    before = -1
    for record in log.partition(TOPIC, 0).scan(start, isolation_level=isolation_level):
        if record.offset <= before:
            raise AssertionError(f"offset {record.offset} after {before}")
        before = record.offset
        found[record.offset] = record.key, record.value
    return found


@cache
def _staged(seed: int) -> Machine:
    machine = Machine(seed)
    with machine.process().open_log(ROOT) as log:
        log.create_topic(TOPIC, partitions=2, **CONFIG)
        partition = log.partition(TOPIC, 0)

        def plain(key: bytes, value: bytes | None) -> None:
            partition.append([ProducerRecord(value, key=key, timestamp_ms=1000)], acks=1)

        def of(producer_id: int, key: bytes, value: bytes) -> None:
            partition.log.append_batch(transactional(key, value, producer_id))

        def end(producer_id: int, kind: ControlType) -> None:
            partition.log.append_batch(build_marker(kind, producer_id, 0, 0, 1000))

        plain(b"a", b"0")
        plain(b"b", b"0")
        of(2, b"c", b"committed")
        of(1, b"c", b"aborted")
        partition.log.roll()
        plain(b"b", None)
        end(1, ControlType.ABORT)
        of(2, b"d", b"committed")
        partition.log.roll()
        end(2, ControlType.COMMIT)
        plain(b"a", b"2")
        partition.log.roll()
        plain(b"e", b"active")
        partition.log.sync(partition.latest_offset)
    for _, node in list(walk(machine.disk.root)):  # what a loss of power takes is then of what follows
        node.sync()
    return machine


@cache
def _history(seed: int) -> tuple[Records, frozenset[int]]:
    with _staged(seed).copy().process().open_log(ROOT) as log:
        everything, good = read(log, isolation_level="read_uncommitted"), read(log)
    return everything, frozenset(everything.keys() - good.keys())


def staged(seed: int) -> tuple[Machine, History]:
    """To be used up."""
    everything, aborted = _history(seed)
    return _staged(seed).copy(), History(dict(everything), set(aborted))


# What must hold


def check(machine: Machine, history: History) -> list[str]:
    """What is wrong on a machine whose programs have ended. It is used up."""
    found = [*history.seen, *kill_all(machine)]
    try:
        without_power = machine.after_power_loss(_nothing(machine))
        found += [f"then without power, {text}" for text in _seen_at_once(without_power, history)]
        found += _seen_at_once(machine, history)
        found += _goes_on(machine, history)
        found += [f"going on without power, {text}" for text in _goes_on(without_power, history)]
    except (PylogError, AssertionError) as error:
        found.append(f"{type(error).__name__}: {error}")
    return found


def _seen_at_once(machine: Machine, history: History) -> Iterator[str]:
    with machine.process().open_log(ROOT, read_only=True) as log:
        start = log.partition(TOPIC, 0).earliest_offset
        if start > history.start_max:
            yield f"the log begins at {start}, not at most at {history.start_max}"
        yield from (f"a reader: {text}" for text in history.problems(read(log), start))
        everything = read(log, isolation_level="read_uncommitted")
        strange = {at: record for at, record in everything.items() if history.written.get(at) != record}
        if strange:
            yield f"uncommitted, a reader is shown {strange}"
        values = [record.value for record in log.partition(TOPIC, 1).scan(isolation_level="read_committed")]
        if values != history.elsewhere:
            yield f"partition 1 has {values}, not {history.elsewhere}"
        yield from map(str, log.verify().problems)


def _goes_on(machine: Machine, history: History) -> Iterator[str]:
    """A writer appends and compacts, before the horizon and after it."""
    written = History(dict(history.written), set(history.aborted), history.newest_only)
    with machine.process().open_log(ROOT) as log:
        partition = log.partition(TOPIC, 0)
        start = partition.earliest_offset

        def append(key: bytes) -> None:
            result = partition.append([ProducerRecord(b"more", key=key, timestamp_ms=1000)], acks="all")
            written.written[result.base_offset] = key, b"more"
            written.aborted.discard(result.base_offset)  # it was lost with the power

        append(b"g")
        yield from (f"the next writer: {text}" for text in written.problems(read(log), start))
        written.newest_only = True
        for number, seconds in enumerate((0, 0, HORIZON_MS / 1000 + 1, 0)):
            machine.seconds += seconds
            partition.log.roll()
            append(b"h")
            compact(partition.log, OPTIONS)
            found = read(log)
            for text in written.problems(found, start, tombstones=number < 2):  # later, the horizon is over
                yield f"compacted {number + 1} times, {text}"
        if any(value is None for at, (_, value) in found.items() if at < max(history.written)):
            yield f"tombstones stay forever: {found}"
        yield from map(str, log.verify().problems)
        left = [name for name in partition.log.directory.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        if left:
            yield f"left forever: {left}"


# Programs. Each has a process of its own that has the log open and has read it


Program = Callable[[Log, History], None]


def compacting(log: Log, _history: History) -> None:
    compact(log.partition(TOPIC, 0).log, OPTIONS)


def compacting_what_may_go(log: Log, history: History) -> None:
    with suppress(SegmentsChanged):  # nothing was replaced
        compacting(log, history)


def compacting_in_parts(log: Log, _history: History) -> None:
    compact(log.partition(TOPIC, 0).log, CLEANED_IN_PARTS)


def appending(log: Log, history: History) -> None:
    """A key again that has a tombstone, and a tombstone."""
    partition = log.partition(TOPIC, 0)
    for key, value in ((b"b", b"again"), (b"d", None)):
        result = partition.append([ProducerRecord(value, key=key, timestamp_ms=1000)], acks="all")
        history.written[result.base_offset] = key, value
    partition.log.roll()


def reading_committed(log: Log, history: History) -> None:
    """From the start, from the middle, and at a time."""
    for start in (0, 5):
        history.seen += [f"read meanwhile: {text}" for text in history.problems(read(log, start), start)]
    at = log.partition(TOPIC, 0).offset_for_time(1000)
    newest = {key: offset for offset, (key, _) in sorted(history.committed().items())}
    if at is None or at.offset > min(newest.values()):
        history.seen.append(f"no record of the time 1000, but {at}")


def reading_uncommitted(log: Log, history: History) -> None:
    everything = read(log, isolation_level="read_uncommitted")
    strange = {at: record for at, record in everything.items() if history.written.get(at) != record}
    if strange:
        history.seen.append(f"uncommitted, a reader was shown {strange}")
    good = {at: record for at, record in everything.items() if at not in history.aborted}
    history.seen += [f"read uncommitted meanwhile: {text}" for text in history.problems(good, 0)]


def reading_what_may_go(log: Log, history: History) -> None:
    """Deleted records are left out at the start only, or the reader is told."""
    with suppress(OffsetOutOfRange):
        found = read(log)
        history.seen += [f"read meanwhile: {text}" for text in history.problems(found, min(found))]


def _transaction(log: Log, history: History, *, commits: bool) -> Work:
    producer = Producer(log, transactional_id="x", acks="all", linger_ms=0)
    producer.init_transactions()

    def work() -> None:
        producer.begin_transaction()
        sent = [producer.send(TOPIC, b"x", key=key, partition=0, timestamp_ms=1000) for key in (b"c", b"b")]
        other = producer.send(TOPIC, b"x", key=b"c", partition=1, timestamp_ms=1000)
        other.result()
        for key, future in zip((b"c", b"b"), sent, strict=True):
            offset = future.result().offset
            history.written[offset] = key, b"x"
            history.aborted.add(offset)  # until it is decided
        if commits:
            producer.commit_transaction()
            history.aborted -= {future.result().offset for future in sent}
            history.elsewhere.append(b"x")
        else:
            producer.abort_transaction()

    return work


def retaining(log: Log, history: History) -> None:
    partition = log.partition(TOPIC, 0).log
    config = log.describe_topic(TOPIC).config.with_changes({"retention_bytes": 300})
    done = log.manager.part(cleaner_of).retain(partition, config)
    if done is None or done.error:
        history.seen.append(f"retention failed: {done}")


def deleting_records(log: Log, _history: History) -> None:
    """What is before the middle of the second segment: the first one goes, unless it is one with
    the others."""
    log.delete_records(TopicPartition(TOPIC, 0), 5)


def _race(
    seed: int,
    *programs: Program,
    newest_only: bool = True,
    start_max: int = 0,
    transaction: bool | None = None,
) -> tuple[Machine, Race]:
    machine, history = staged(seed)
    history.newest_only, history.start_max = newest_only, start_max
    working: list[tuple[Process, Work]] = []

    def told(process: Process, work: Work) -> tuple[Process, Work]:
        def guarded() -> None:
            try:
                work()
            except (PylogError, OSError, AssertionError) as error:
                history.seen.append(f"process {process.number}: {type(error).__name__}: {error}")

        return process, guarded

    for program in programs:
        process = machine.process()
        log = process.open_log(ROOT)
        read(log)
        working.append(told(process, lambda program=program, log=log: program(log, history)))
    if transaction is not None:
        process = machine.process()
        working.append(told(process, _transaction(process.open_log(ROOT), history, commits=transaction)))
    return machine, Race(working, lambda: check(machine, history), history.told)


# What meets


def compaction_and_append(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting, appending)


def compaction_and_read_committed(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting, reading_committed)


def compaction_and_read_uncommitted(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting, reading_uncommitted)


def compaction_and_commit(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting, transaction=True)


def compaction_and_abort(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting, transaction=False)


def compaction_and_compaction(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting, compacting)


def compaction_in_parts_and_read(seed: int) -> tuple[Machine, Race]:
    """The keys do not fit into memory at once: each segment is replaced more than once."""
    return _race(seed, compacting_in_parts, reading_committed)


def compaction_and_retention(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting_what_may_go, retaining, start_max=_active(seed))


def compaction_and_delete_records(seed: int) -> tuple[Machine, Race]:
    return _race(seed, compacting_what_may_go, deleting_records, start_max=5)


def retention_and_append(seed: int) -> tuple[Machine, Race]:
    return _race(seed, retaining, appending, newest_only=False, start_max=_active(seed))


def retention_and_read(seed: int) -> tuple[Machine, Race]:
    return _race(seed, retaining, reading_what_may_go, newest_only=False, start_max=_active(seed))


def retention_and_commit(seed: int) -> tuple[Machine, Race]:
    return _race(seed, retaining, newest_only=False, start_max=_active(seed), transaction=True)


def compaction_of_decisions_and_commit(seed: int) -> tuple[Machine, Race]:
    """The compaction is of ``__transaction_state`` and ``__consumer_offsets``; a transaction ends
    meanwhile."""
    machine, ledger = begun(seed)
    producer = Application(machine, ledger, "a")
    producer.start()
    process = machine.process()
    log = process.open_log(ROOT)
    for topic in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
        log.partition(topic, 0).log.roll()
        log.partition(topic, 0).log.sync(log.partition(topic, 0).latest_offset)

    def compacts() -> None:
        try:
            for topic in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
                compact(log.partition(topic, 0).log)
        except PylogError as error:
            ledger.seen.append(f"the compaction failed: {error}")

    return machine, Race(
        [(process, compacts), (producer.process, lambda: producer.transaction("A"))],
        lambda: [*kill_all(machine), *map(str, ledger.errors), *wrong(machine, ledger)],
        lambda: _told(ledger),
    )


def _told(ledger: Ledger) -> object:
    told = [(each.name, tuple(each.values), each.told) for each in ledger.transactions.values()]
    return tuple(told), tuple(ledger.seen), tuple(map(str, ledger.errors))


def consumed_and_commit(_seed: int) -> tuple[Machine, Race]:
    world, member = consumed.staged(1)
    return _consumed(world, [member], lambda: member.poll_and_commit(durable=False))


def consumed_and_join(_seed: int) -> tuple[Machine, Race]:
    world, member = consumed.staged(4)
    other = consumed.Member(world, "b")
    return _consumed(world, [member, other], other.join)


def consumed_and_short_stay(_seed: int) -> tuple[Machine, Race]:
    """A member of a new group joins, commits its first records and leaves: its group is noticed by
    one or the other."""
    world, member = consumed.staged(4)
    other = consumed.Member(world, "b")

    def stays() -> None:
        other.join()
        other.poll_and_commit(durable=False)
        other.leave()

    return _consumed(world, [member, other], stays)


def consumed_and_leave(_seed: int) -> tuple[Machine, Race]:
    """A member that has joined meanwhile begins, and leaves during the last check, which is made
    with the partition's lock."""
    world, member = consumed.staged(4)
    other = consumed.Member(world, "b")
    other.join_without_position()

    def leaves() -> None:
        other.begin()
        other.leave()

    return _consumed(world, [member, other], leaves, consumed.delete_what_is_allowed)


def consumed_and_death(seed: int) -> tuple[Machine, Race]:
    """The only member of a new group dies, at a step that the seed draws, when it may have read
    records and committed none."""
    world, member = consumed.staged(4)
    other = consumed.Member(world, "b")
    consumed.dies_within(other, 1 + random.Random(seed).randrange(consumed.STEPS_OF_A_STAY))
    return _consumed(world, [member, other], other.join_and_stay)


def consumed_and_join_and_commit(_seed: int) -> tuple[Machine, Race]:
    """The member of one group commits, and a member of another one joins, reads and commits."""
    world, member = consumed.staged(2)
    other = consumed.Member(world, "b")

    def work() -> None:
        other.join()
        other.poll_and_commit(durable=False)

    return _consumed(
        world, [other, member], lambda: member.poll_and_commit(durable=True), more=[(other.actor.process, work)]
    )


def _consumed(
    world: World,
    members: list[consumed.Member],
    work: Work,
    retains: Callable[[Actor], None] = consumed.maintain,
    more: Sequence[tuple[Process, Work]] = (),
) -> tuple[Machine, Race]:
    cleaner = world.actor()
    assert cleaner.log  # open before they meet
    programs = [(cleaner.process, lambda: retains(cleaner)), (members[-1].actor.process, work), *more]
    return world.machine, Race(programs, lambda: consumed.after(world, members), None)


@cache
def _active(seed: int) -> int:
    with _staged(seed).copy().process().open_log(ROOT) as log:
        return log.partition(TOPIC, 0).log.current().active_base


STARTS: dict[str, Start] = {
    start.__name__: start
    for start in (
        compaction_and_append, compaction_and_read_committed, compaction_and_read_uncommitted, compaction_and_commit,
        compaction_and_abort, compaction_and_compaction, compaction_in_parts_and_read, compaction_and_retention,
        compaction_and_delete_records, compaction_of_decisions_and_commit, retention_and_append, retention_and_read,
        retention_and_commit, consumed_and_commit, consumed_and_join, consumed_and_short_stay, consumed_and_leave,
        consumed_and_death, consumed_and_join_and_commit,
    )
}  # fmt: skip


# All of them


class Progress(NamedTuple):
    """Of all schedules with two preemptions, the share whose first one is in ``finished`` of
    ``parts``."""

    finished: int
    parts: int
    found: Found


def in_parts(start: Start, seed: int, is_over: Callable[[], bool], parts: int = PARTS) -> Iterator[Progress]:
    """All schedules of a race, in parts in an order that the seed draws. Yields after each part.

    First all with one preemption, which shows what the programs depend on. If a later part shows
    more, all begins again.
    """
    race, total = CleanerExploration(start, seed, is_over), Found()

    def explore(takes: Callable[[int, int], bool], preemptions: int) -> None:
        found = race.explore(takes, preemptions)
        total.crashes += found.crashes
        total.images = race.different_ends
        total.problems += found.problems

    explore(part_of_all(0, 1), 1)
    order = random.Random(seed).sample(range(parts), parts)
    left, learned = list(order), race.times_learned
    yield Progress(0, parts, total)
    while left and not is_over() and len(total.problems) < PROBLEMS_MAX:
        explore(part_of_all(left.pop(), parts), 2)
        if race.times_learned != learned:
            left, learned = list(order), race.times_learned
        yield Progress(parts - len(left) - is_over(), parts, total)


def main() -> int:
    parser = argparse.ArgumentParser(description="All schedules with two preemptions of these races.")
    parser.add_argument("names", nargs="*", choices=[*STARTS, []], metavar="RACE", help=f"of {', '.join(STARTS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="for each race")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed = False
    for name in options.names or STARTS:
        begin_s, cpu_s = time.monotonic(), time.process_time()
        end_s = begin_s + options.seconds
        for done in in_parts(STARTS[name], options.seed, lambda end_s=end_s: time.monotonic() >= end_s):
            print(
                f"{time.strftime('%H:%M:%S')} {name}: {done.finished}/{done.parts} parts, {done.found.crashes:,} schedules, "
                f"{done.found.images:,} different ends, {len(done.found.problems)} problems, "
                f"{time.process_time() - cpu_s:.0f} s of processor time",
                flush=True,
            )
            for problem in done.found.problems:
                print(f"  {problem}", flush=True)
            failed |= bool(done.found.problems)
    return failed


if __name__ == "__main__":
    sys.exit(main())
