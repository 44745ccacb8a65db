"""A partition from which a key is erased on the simulated machine, and what must hold whatever
happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache, partial
from typing import NamedTuple

from pylog import Log, ProducerRecord
from pylog.codec.control import ControlType, build_marker
from pylog.errors import PylogError
from pylog.partition.compact.erasure import ErasedPartition, erase
from pylog.testing.machine import Machine, Schedule, Strategy
from pylog.testing.machine.disk import walk
from tests.simulation.compactions import CONFIG, ROOT, TOPIC, Records, committed, compact_in, transactional
from tests.simulation.orders import Once

KEY, SECRET = b"k1", b"secret"
RETIRED = f"{ROOT}/{TOPIC}-0/{7:020d}.log.deleted"  # its process died before it removed the file


class Known(NamedTuple):
    """What readers of committed records may find. Those at ``optional`` offsets may be gone."""

    records: Records
    optional: set[int]

    def may_lose(self, condition: Callable[[int, tuple[bytes | None, bytes | None]], bool]) -> None:
        self.optional.update(offset for offset, record in self.records.items() if condition(offset, record))


def known_of(machine: Machine) -> Known:
    with machine.process().open_log(ROOT, read_only=True) as log:
        known = Known(committed(log), set())
    known.may_lose(lambda _, record: record[0] == KEY)
    return known


def staged(seed: int) -> Machine:
    """Three closed segments and an active one, with the key in an aborted and a committed
    transaction, and a retired file."""
    machine = Machine(seed, tear_writes=True)
    with machine.process().open_log(ROOT) as log:
        log.create_topic(TOPIC, **CONFIG)
        partition = log.partition(TOPIC, 0)
        for number in range(3):
            for at in range(3):
                value = b"%s %d" % (SECRET if at == 1 else b"of others", number)
                partition.append([ProducerRecord(value, key=b"k%d" % at, timestamp_ms=1000 + at)], acks=1)
            partition.append(
                [ProducerRecord(b"both %d" % at, key=b"k%d" % at, timestamp_ms=1000) for at in range(3)], acks=1
            )
            for producer_id, kind in ((1, ControlType.ABORT), (2, ControlType.COMMIT)):
                if number == producer_id - 1:
                    partition.log.append_batch(transactional(KEY, SECRET + b" of %d" % producer_id, producer_id))
                    partition.log.append_batch(build_marker(kind, producer_id, 0, 0, 1000))
            partition.log.roll()
        partition.append([ProducerRecord(SECRET, key=KEY, timestamp_ms=1000)], acks="all")
        with closing(partition.log.directory.filesystem.open_appendable(RETIRED)) as file:
            file.pwrite(SECRET, 0)
    for _, node in list(walk(machine.disk.root)):  # what a loss of power takes is then of what follows
        node.sync()
    return machine


def erase_in(log: Log, key: bytes = KEY, *, tombstones: bool = False) -> ErasedPartition:
    return erase(log.partition(TOPIC, 0).log, frozenset([key]), tombstones=tombstones, timeout_ms=60_000)


def check(machine: Machine, known: Known, *, erased: bool) -> None:
    """Whether the erasure has returned or was cut: readers find all others, and the next erasure
    leaves no bytes."""
    if erased:
        check_bytes(machine)
    with machine.process().open_log(ROOT, read_only=True) as log:
        _check_records(committed(log), known, erased=erased)
        assert not (found := log.verify().problems), found
    with machine.process().open_log(ROOT) as log:
        partition = log.partition(TOPIC, 0)
        end = partition.append([ProducerRecord(b"more", key=b"k9", timestamp_ms=1000)], acks="all").base_offset
        grown = Known({**known.records, end: (b"k9", b"more")}, known.optional)
        _check_records(committed(log), grown, erased=erased)
        if erased:
            check_bytes(machine)
        erase_in(log)
        check_bytes(machine)
        _check_records(committed(log), grown, erased=True)
        assert not (found := log.verify().problems), found
        names = partition.log.directory.names()
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], names


def check_bytes(machine: Machine) -> None:
    found = [path for path, data in machine.disk.contents().items() if data is not None and SECRET in data]
    assert not found, found


def _check_records(found: Records, known: Known, *, erased: bool) -> None:
    wrong = {
        offset: record for offset, record in found.items() if known.records.get(offset, (KEY, None)) != record
    }  # an unknown one is a tombstone
    assert not wrong, wrong
    missing = known.records.keys() - found.keys() - known.optional
    assert not missing, missing
    if erased:
        assert not [record for record in found.values() if record[0] == KEY and record[1] is not None], found


# What meets an erasure, each in a process of its own that has the log open, and has read it


def erasing(log: Log, _known: Known) -> None:
    erase_in(log)


def erasing_what_others_delete(log: Log, _known: Known) -> None:
    with suppress(PylogError):  # it says that segments are gone; what is left is checked
        erase_in(log)


def erasing_another_key(log: Log, known: Known) -> None:
    known.may_lose(lambda _, record: record[0] == b"k2")
    erase_in(log, b"k2")


def compacting(log: Log, known: Known) -> None:
    """It does nothing while the erasure has the lock."""
    newest = {record[0]: offset for offset, record in sorted(known.records.items())}
    known.may_lose(lambda offset, record: newest[record[0]] != offset)
    compact_in(log)


def reading(log: Log, known: Known) -> None:
    """Committed records, from the start and from the middle. Only those of the key can be
    missing."""
    _check_records(committed(log), known, erased=False)
    for record in log.partition(TOPIC, 0).scan(len(known.records) // 2, isolation_level="read_committed"):
        assert known.records[record.offset] == (record.key, record.value), record


def appending(log: Log, known: Known) -> None:
    partition = log.partition(TOPIC, 0)
    for number in range(2):
        offset = partition.append([ProducerRecord(b"%d" % number, key=b"a", timestamp_ms=1000)], acks="all").base_offset
        known.records[offset] = b"a", b"%d" % number
    partition.log.roll()


def in_a_transaction(log: Log, _known: Known) -> None:
    """Of a producer that has none there so far: it is aborted."""
    partition = log.partition(TOPIC, 0)
    partition.log.append_batch(transactional(b"k3", b"aborted", 7))
    partition.log.append_marker(7, 0, committed=False)


def deleting(log: Log, known: Known) -> None:
    start = 10
    known.may_lose(lambda offset, _: offset < start)
    log.partition(TOPIC, 0).log.delete_before(start)


MEETING = {
    work.__name__: work
    for work in (erasing, erasing_another_key, compacting, reading, appending, in_a_transaction, deleting)
}


def meet(name: str, strategy: Strategy, seed: int, checked: set[int]) -> list[str]:
    """What is wrong after an erasure and another work ran together, in the order of
    ``strategy``."""
    machine = _stage(seed).copy()
    known = known_of(machine.copy())
    schedule = Schedule(machine, strategy)
    first = erasing_what_others_delete if name == "deleting" else erasing
    for work in (first, MEETING[name]):
        process = machine.process()
        log = process.open_log(ROOT)
        committed(log)
        schedule.add(process, partial(work, log, known))
    try:
        schedule.run()
        mark = hash(tuple(sorted(machine.disk.contents().items())))
        if mark not in checked:
            check(machine, known, erased=first is erasing)
            checked.add(mark)
    except Exception as error:  # noqa: BLE001 - told, with the order that led there
        return [f"{name}: {type(error).__name__}: {error}"]
    finally:
        machine.before_step.clear()
    return []


@cache
def _stage(seed: int) -> Machine:
    return staged(seed)


def meeting(name: str, seed: int) -> Once:
    """``meet`` again and again: what was checked once is not checked again."""
    checked = set[int]()
    return lambda strategy: meet(name, strategy, seed, checked)
