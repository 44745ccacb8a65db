"""A partition whose closed segments are compacted on the simulated machine, and what must hold
whatever happens meanwhile."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from itertools import pairwise

from pylog import Log, ProducerRecord
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.control import ControlType, build_marker
from pylog.errors import PylogError
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions, CompactionReport
from pylog.segment.naming import LOG, SEAL
from pylog.testing.machine import Machine, Process, Schedule, Step, Strategy
from pylog.testing.machine.disk import walk
from tests.simulation.orders import Once

ROOT = "/log"
TOPIC = "t"
CONFIG = {"segment_bytes": 4096, "index_interval_bytes": 64}
Records = dict[int, tuple[bytes | None, bytes | None]]
OPTIONS = CompactionOptions(delete_retention_ms=1000, memory_bytes=16 * 64)


def transactional(key: bytes, value: bytes, producer_id: int) -> bytearray:
    encoder = RecordEncoder(1 << 16)
    encoder.append(1000, key, value, ())
    return build_batch(encoder, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def staged(seed: int) -> Machine:
    """Three closed segments of few keys, with tombstones, an aborted and a committed transaction;
    all durable."""
    machine = Machine(seed, tear_writes=True)
    with machine.process().open_log(ROOT) as log:
        log.create_topic(TOPIC, **CONFIG)
        partition = log.partition(TOPIC, 0)
        for number in range(3):
            for at in range(4):
                value = None if (number, at) == (1, 2) else b"%d-%d" % (number, at)
                partition.append([ProducerRecord(value, key=b"k%d" % at, timestamp_ms=1000 + at)], acks=1)
            for producer_id, kind in ((1, ControlType.ABORT), (2, ControlType.COMMIT)):
                if number == producer_id - 1:
                    partition.log.append_batch(transactional(b"k1", b"of %d" % producer_id, producer_id))
                    partition.log.append_batch(build_marker(kind, producer_id, 0, 0, 1000))
            partition.append([ProducerRecord(b"x" * 100, key=b"long", timestamp_ms=1000)], acks=1)
            partition.log.roll()
            machine.sleep(1)  # so each file has another time
        partition.append([ProducerRecord(b"last", key=b"k0", timestamp_ms=1000)], acks="all")
    for _, node in list(walk(machine.disk.root)):  # what a loss of power takes is then of what follows
        node.sync()
    return machine


def committed(log: Log) -> Records:
    """What a reader of the topic sees, by offset. Fails if offsets do not rise."""
    found: Records = {}
    before = -1
    for record in log.partition(TOPIC, 0).scan(isolation_level="read_committed"):
        assert record.offset > before, f"offset {record.offset} after {before}"
        before = record.offset
        found[record.offset] = record.key, record.value
    return found


def table(records: Records) -> dict[bytes | None, bytes]:
    made: dict[bytes | None, bytes] = {}
    for _, (key, value) in sorted(records.items()):
        made.pop(key, None)
        if value is not None:
            made[key] = value
    return made


def compact_in(log: Log) -> CompactionReport:
    return compact(log.partition(TOPIC, 0).log, OPTIONS)


def check(machine: Machine, original: Records) -> None:
    """A reader without write permission, and then the next writer, find all newest records, at
    their offsets."""
    with machine.process().open_log(ROOT, read_only=True) as log:
        _check_records(committed(log), original)
        assert not (problems := log.verify().problems), problems
    with machine.process().open_log(ROOT) as log:
        partition = log.partition(TOPIC, 0)
        end = partition.append([ProducerRecord(b"more", key=b"k9", timestamp_ms=1000)], acks="all").base_offset
        grown = {**original, end: (b"k9", b"more")}
        _check_records(committed(log), grown)
        assert not (problems := log.verify().problems), problems
        compact_in(log)
        _check_records(committed(log), grown)
        assert not (problems := log.verify().problems), problems
        names = partition.log.directory.names()
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], names
        assert len(committed(log)) <= 8, committed(log)


def append_times(log: Log) -> dict[int, int]:
    """When closed segments were last appended to, by their ends."""
    directory = log.partition(TOPIC, 0).log.directory
    bases = directory.segments().bases
    return {end: directory.filesystem.modified_ns(directory.file_path(base, LOG)) for base, end in pairwise(bases)}


def check_maintained(machine: Machine, original: Records, times: dict[int, int]) -> None:
    """Maintenance alone removes all that the compaction has left, and nothing else. Files keep the
    times of their appends."""
    with machine.process().open_log(ROOT) as log:
        assert not (found := log.maintain().problems), found
        names = log.partition(TOPIC, 0).log.directory.names()
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], names
        _check_records(committed(log), original)
        assert not (problems := log.verify().problems), problems
        left = append_times(log)
        assert left == {end: times[end] for end in left}, (left, times)


def _check_records(found: Records, original: Records) -> None:
    wrong = {offset: record for offset, record in found.items() if original.get(offset) != record}
    assert not wrong, wrong
    assert table(found) == table(original), (found, original)


# What meets a compaction, each in a process of its own that has the log open, and has read it


def compacting(log: Log, _original: Records) -> None:
    compact_in(log)


def compacting_what_others_delete(log: Log, _original: Records) -> None:
    with suppress(PylogError):  # it says that segments are gone; what is left is checked
        compact_in(log)


def reading(log: Log, original: Records) -> None:
    """Committed records, from the start and from the middle. Nothing is missing, whatever is
    superseded meanwhile."""
    _check_records(committed(log), original)
    middle = len(original) // 2
    partition = log.partition(TOPIC, 0)
    for record in partition.scan(middle, isolation_level="read_committed"):
        assert original.get(record.offset) == (record.key, record.value), record
    found = partition.offset_for_time(1003)
    assert found is not None


def appending(log: Log, original: Records) -> None:
    for number in range(2):
        partition = log.partition(TOPIC, 0)
        offset = partition.append([ProducerRecord(b"%d" % number, key=b"a", timestamp_ms=1000)], acks="all").base_offset
        original[offset] = b"a", b"%d" % number
    partition.log.roll()


def ending_a_transaction(log: Log, original: Records) -> None:
    """Of a producer that has none there so far: it is aborted."""
    partition = log.partition(TOPIC, 0)
    partition.log.append_batch(transactional(b"k3", b"aborted", 7))
    partition.log.append_marker(7, 0, committed=False)


def compact_while_sealing(seed: int, step: int) -> str | None:
    """A process makes the first segment's seal again; before its ``step``-th step another one
    compacts the partition.

    Returns what the sealer was about to do; None if it has fewer steps.
    """
    machine = _stage(seed).copy()
    sealing, compacting_one = machine.process(), machine.process()
    log, other = sealing.open_log(ROOT), compacting_one.open_log(ROOT)
    original, met, steps = dict(_original(seed)), list[str](), 0
    partition = log.partition(TOPIC, 0)
    sealing.filesystem.remove(partition.log.directory.file_path(0, SEAL))

    def before(process: Process, coming: Step) -> None:
        nonlocal steps
        if process is sealing and not met and not machine.locks:
            steps += 1
            if steps > step:
                met.append(f"{coming.name} {coming.path}")
                compact_in(other)

    machine.before_step.append(before)
    partition.log.roll()
    machine.before_step.clear()
    with machine.process().open_log(ROOT, read_only=True) as reader:
        assert not (found := reader.verify().problems), (met, found)
    check(machine, original)
    return met[0] if met else None


def deleting(log: Log, original: Records) -> None:
    """What is before the middle of the second segment: the first one goes, unless both have become
    one."""
    start = 10
    log.partition(TOPIC, 0).log.delete_before(start)
    for offset in [offset for offset in original if offset < start]:
        del original[offset]


def maintaining(log: Log, _original: Records) -> None:
    """It removes nothing that a living compaction still needs."""
    log.maintain()


MEETING = {
    work.__name__: work for work in (compacting, reading, appending, ending_a_transaction, deleting, maintaining)
}


def meet(name: str, strategy: Strategy, seed: int, checked: set[int]) -> list[str]:
    """What is wrong after a compaction and another work ran together, in the order of
    ``strategy``."""
    machine = _stage(seed).copy()
    original = dict(_original(seed))
    schedule = Schedule(machine, strategy)
    first = compacting_what_others_delete if name == "deleting" else compacting
    for work in (first, MEETING[name]):
        process = machine.process()
        log = process.open_log(ROOT)
        committed(log)
        schedule.add(process, partial(work, log, original))
    try:
        schedule.run()
        mark = hash(tuple(sorted(machine.disk.contents().items())))
        if mark not in checked:
            check(machine, original)
            checked.add(mark)
    except Exception as error:  # noqa: BLE001 - told, with the order that led there
        return [f"{name}: {type(error).__name__}: {error}"]
    finally:
        machine.before_step.clear()
    return []


@cache
def _stage(seed: int) -> Machine:
    return staged(seed)


@cache
def _original(seed: int) -> Records:
    with _stage(seed).copy().process().open_log(ROOT) as log:
        return committed(log)


def meeting(name: str, seed: int) -> Once:
    """``meet`` again and again: what was checked once is not checked again."""
    checked = set[int]()
    return lambda strategy: meet(name, strategy, seed, checked)
