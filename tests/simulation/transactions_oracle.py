"""Whether every transaction is visible as a whole, or not at all: to every reader, after a repair,
and without power.

``wrong`` opens the log with new processes, after all others have died: first with one that may not
write, then with one that may, then with one that may not. It goes on with appends, a commit and a
transaction. It looks at the machine as a loss of power leaves it, before that and after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylog import Consumer, Log, ProducerRecord, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import PylogError
from pylog.group.admin import GroupAdmin
from pylog.partition.read.cursor import Cursor
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.segment.naming import UNSYNCED
from pylog.testing.machine import Image, Machine
from pylog.testing.machine.images import PowerLoss, pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.transactions import (
    GROUPS,
    PARTITIONS,
    ROOT,
    SOURCE,
    SOURCES,
    Application,
    Ledger,
    Told,
    Transaction,
)

OFFSETS = OFFSETS_TOPIC, 0
Seen = dict[tuple[str, int], list[str]]


class Blocked(Exception):
    """Records are hidden, although no owner lives."""


def visible(log: Log, *, live: bool = False) -> Seen:
    """All values that ``read_committed`` sees, by partition, and the committed offsets by their
    metadata.

    ``Blocked``, unless an owner may be ``live``.
    """
    found: Seen = {}
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
    found[OFFSETS] = _offsets(log, live=live)
    return found


def _offsets(log: Log, *, live: bool) -> list[str]:
    values: list[str] = []
    for group in GROUPS:
        offsets, undecided = log.manager.part(GroupAdmin).offsets.look(group)
        if undecided and not live:
            raise Blocked(f"offsets of {group!r} are undecided: {sorted(undecided)}")
        values += [committed.metadata for committed in offsets.values()]
    return sorted(values)


def torn(found: Seen, ledger: Ledger) -> Iterator[str]:
    """Transactions of which only some records are visible, or against what was told, and values
    twice."""
    everything = [value for values in found.values() for value in values]
    yield from (f"{value!r} is there twice" for value in set(everything) if everything.count(value) > 1)
    for transaction in ledger.transactions.values():
        there = [value for value in transaction.values if value in everything]
        if there and len(there) < len(transaction.values):
            yield f"{transaction.name} is torn: {there} of {transaction.values}"
        if transaction.told is Told.COMMITTED and len(there) < len(transaction.values):
            yield f"{transaction.name} is lost: {there} of {transaction.values}"
        if transaction.told is Told.ABORTED and there:
            yield f"{transaction.name} was aborted, and shows {there}"


def wrong(machine: Machine, ledger: Ledger) -> list[str]:
    """What is wrong on a machine whose processes are all dead. The machine is used up."""
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
        yield from (f"{name}: {text}" for text in torn(seen[name], ledger) if not needs_writer or name != "a reader")
    if (seen["a reader"] != seen["a writer"] and not needs_writer) or seen["a writer"] != seen["a later reader"]:
        yield f"they saw different transactions: {seen}"
    yield from _without_power(machine, ledger, seen["a writer"])
    yield from _goes_on(machine, ledger, seen["a writer"])
    yield from (f"after a repair, {text}" for text in _without_power(machine, ledger, seen["a writer"]))


def _without_power(machine: Machine, ledger: Ledger, before: Seen) -> Iterator[str]:
    """The machine is rebooted, with nothing that was not durable."""
    rebooted = machine.after_power_loss(_nothing(machine))
    with rebooted.process().open_log(ROOT, read_only=True) as log:
        left = visible(log)
    yield from (f"then without power: {text}" for text in torn(left, ledger))
    # One batch is visible before its sync, as any batch is. All others that a reader was shown must
    # stay.
    whole = [each for each in ledger.transactions.values() if len(each.values) > 1 and _shows(before, each)]
    yield from (f"then without power: {each.name} is gone" for each in whole if not _shows(left, each))


def _nothing(machine: Machine) -> Image:
    return Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")


def _shows(found: Seen, transaction: Transaction) -> bool:
    return bool(transaction.values) and any(transaction.values[0] in values for values in found.values())


def _goes_on(machine: Machine, ledger: Ledger, before: Seen) -> Iterator[str]:
    """After one append to each partition, no transaction is open; and new ones can be made."""
    with machine.process().open_log(ROOT) as log:
        for topic, number in PARTITIONS:
            log.partition(topic, number).append([ProducerRecord(b"plain %d" % number)], acks=1)
        log.reset_offsets("plain", [TopicPartition(SOURCE, 0)], to="earliest")
        for topic, number in (*PARTITIONS, OFFSETS):
            left = log.manager.partition(topic, number).open_transactions()
            if left:
                yield f"{topic}-{number}: {left} stay open"
        yield from _a_successor_is_wrong(log, before)
    later = Application(machine, ledger, "a")
    later.transaction("later")
    if ledger.transactions["later"].told is not Told.COMMITTED:
        yield f"a later transaction is {ledger.transactions['later'].told}: {ledger.errors[-3:]}"
    later.close()
    del ledger.transactions["later"]
    with machine.process().open_log(ROOT, read_only=True) as log:
        after = visible(log)
        yield from map(str, log.verify().problems)
    for name, values in after.items():
        kept = [value for value in values if not value.startswith(("plain", "later"))]
        if kept != before[name] and not _was_taken_in(kept, before[name], ledger):
            yield f"{name}: after a repair {kept}, before {before[name]}"


def _a_successor_is_wrong(log: Log, before: Seen) -> Iterator[str]:
    """The next member of ``m`` continues after what was committed there."""
    there = log.manager.part(GroupAdmin).committed("m")
    if not there:
        return
    with Consumer(log, group_id="m") as successor:
        successor.subscribe(SOURCE)
        for name, number in SOURCES.items():
            at = successor.committed(TopicPartition(SOURCE, number))
            if (at is not None) != (f"{name} offset m" in before[OFFSETS]):
                yield f"the next member finds {at} committed for {name}"


def _was_taken_in(values: list[str], before: list[str], ledger: Ledger) -> bool:
    """Whether the next writer has only published the one batch of a transaction, whose writer died
    before it did."""
    return any(values == before + each.values for each in ledger.transactions.values() if each.told is Told.NOTHING)


def kill_all(machine: Machine) -> list[str]:
    """Let all processes die. Returns the locks that are still held, but for those of living
    owners."""
    names = {machine.disk.look(path).number: path for path in machine.disk.contents()}  # type: ignore[union-attr]
    held = [names.get(number, "") for number in machine.locks]
    for process in machine.processes:
        process.kill()
    return [f"lock {name} was never freed" for name in held if not name.endswith(LIVE)]


LIVE = ".owner", ".alive"
"""The ends of the names of lock files that are held as long as something lives."""


def mark_of(machine: Machine, ledger: Ledger) -> int:
    """Equal if the same bytes are there, the same is durable, and the same was told."""
    units = pending_units(machine.disk, SECTOR_BYTES)
    durable = PowerLoss(machine.disk, units, machine.seed).left(_nothing(machine))
    told = [(each.name, tuple(each.values), each.told) for each in ledger.transactions.values()]
    return hash((tuple(sorted(machine.disk.contents().items())), durable, tuple(told), tuple(ledger.seen)))
