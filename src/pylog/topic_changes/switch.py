"""The moment in which a topic changes: no process appends to it, or commits for a group, until it
is decided.

The locks of all its partitions and of all groups are held, and the one without which no group
appears; no transaction is open in the topic. After the decision, writers that get a lock read the
topic's settings again, and find that it has changed; a commit of its old positions is refused. A
kill before the decision frees the locks, and changes nothing; after it, the next process completes
the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from pylog.catalog import TopicDescription
from pylog.catalog.changes import TopicChange
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import DeliveryTimeout, InvalidPartition, LogLocked, TopicChanged
from pylog.group.admin import GroupAdmin
from pylog.interrupts import own
from pylog.manager.changes import changes_of, complete_changes
from pylog.manager.manager import LogManager
from pylog.partition.directory import PartitionDirectory
from pylog.partition.partition_log import PartitionLog
from pylog.segment.naming import LOCK
from pylog.storage import acquire, while_holding
from pylog.transaction.outcomes import Outcomes

_TIMEOUT_S = 30.0  # for transactions to end
_LOCK_TIMEOUT_S = 10.0  # for each lock, while others wait for those that are held
_AGAIN_S = 0.02

MakeChange = Callable[[TopicDescription], "TopicChange | None"]
"""The change of the topic as it is now; None if too much is left to do with all locks, with which
it is called."""


def alone(manager: LogManager, work: Callable[[], object]) -> None:
    """Call ``work`` while no other process changes a topic, after what a dead one has left.
    ``LogLocked``."""

    def begin() -> None:
        changes = changes_of(manager, _TIMEOUT_S)
        catalog = manager.writable_catalog()
        complete_changes(manager, _TIMEOUT_S)
        changes.drop_drafts()
        try:
            work()
        except own(InvalidPartition) as error:  # the topic has fewer now
            raise TopicChanged(f"{error}: another process has changed the topic: call again", **error.facts) from error
        finally:
            if not catalog.being_changed():  # else the next one needs the copies
                changes.drop_drafts()

    manager.require_writable()
    while_holding(manager.filesystem, manager.clock, manager.layout.changes_lock, begin, _LOCK_TIMEOUT_S)


def switch(
    manager: LogManager,
    before: TopicDescription,
    prepare: Callable[[], object],
    check: Callable[[], object],
    make: MakeChange,
) -> None:
    """Decide the change that ``make`` returns, and complete it. ``prepare`` is called before each
    attempt without a lock, ``check`` with the catalog's lock.

    ``LogLocked`` if a transaction stays open in the topic for 30 s, or a lock is not free in 10 s.
    """
    catalog, changes, clock = manager.writable_catalog(), changes_of(manager, _TIMEOUT_S), manager.clock
    groups = manager.part(GroupAdmin)
    partitions = [manager.partition(before.name, number) for number in before.numbers]
    waited_s = 0.0  # without the time that ``prepare`` takes

    def attempt() -> bool:
        now = catalog.describe(before.name)
        if _placing(now) != _placing(before):
            raise TopicChanged(f"{before.name!r} has been changed by another process: call again", topic=before.name)
        check()
        with ExitStack() as locks:
            for partition in partitions:
                _hold(locks, manager, f"{partition.directory.path}/{LOCK}")
            if any(partition.reader.open_transactions() for partition in partitions):
                return False
            if not _hold_groups(locks, manager):
                return False
            if groups.in_files() and OFFSETS_TOPIC not in catalog.names():
                return False
            change = make(now)
            if change is None:
                return False
            for partition in partitions:  # the next holder of the lock reads the settings
                PartitionDirectory.announce_settings(manager.filesystem, partition.directory.path)
            changes.decide(change)
        changes.finish()
        return True

    while True:
        prepare()
        _settle(manager, partitions)
        begun_s = clock.monotonic()
        if catalog.locked(attempt):
            break
        if waited_s >= _TIMEOUT_S:
            raise _open_for_too_long(partitions)
        clock.sleep(_AGAIN_S)
        waited_s += clock.monotonic() - begun_s
    manager.close_partitions(before.name)


def _settle(manager: LogManager, partitions: Sequence[PartitionLog]) -> None:
    """Complete what a dead writer has left, and markers. ``LogLocked``."""
    groups = manager.part(GroupAdmin)
    if groups.in_files():
        groups.offsets.create_topic()  # where a member has begun becomes a commit
    for partition in partitions:
        try:
            partition.settle(int(_LOCK_TIMEOUT_S * 1000))
            manager.part(Outcomes).settle(partition)
        except own(DeliveryTimeout) as error:
            raise LogLocked(str(error), **error.facts) from error


def _placing(topic: TopicDescription) -> tuple[str, int, str]:
    """What decides where a key is."""
    return topic.id, topic.partitions, topic.config.partitioner


def _hold(locks: ExitStack, manager: LogManager, path: str) -> None:
    lock = manager.filesystem.lock(path)
    locks.callback(lock.close)
    if not acquire(lock, manager.clock, _LOCK_TIMEOUT_S) or not lock.is_in_place():
        raise LogLocked(
            f"{path} stayed locked for {_LOCK_TIMEOUT_S:g} s, or was replaced: find out which process holds it, and whether it "
            "is stopped; nothing was changed, call again",
            path=path, timeout_s=_LOCK_TIMEOUT_S,
        )  # fmt: skip


def _hold_groups(locks: ExitStack, manager: LogManager) -> bool:
    """Hold the locks of all groups, and the one without which none appears. False if one that has
    just appeared is in use: its holder may be waiting for that lock."""
    groups = manager.part(GroupAdmin)
    held = groups.in_files()
    for group in held:
        _hold(locks, manager, groups.directory(group).lock)
    _hold(locks, manager, manager.layout.groups_lock)
    for group in set(groups.in_files()).difference(held):
        lock = manager.filesystem.lock(groups.directory(group).lock)
        locks.callback(lock.close)
        if not lock.try_acquire():
            return False
    return True


def _open_for_too_long(partitions: Sequence[PartitionLog]) -> LogLocked:
    for partition in partitions:
        for found in partition.reader.open_transactions():
            return LogLocked(
                f"a transaction is open in {partition.topic}-{partition.number} from offset {found.first_offset} on, and did "
                f"not end for {_TIMEOUT_S:g} s: let its producer end it, or abort it (pylog transactions abort), and call again",
                topic=partition.topic, partition=partition.number, first_offset=found.first_offset,
            )  # fmt: skip
    return LogLocked(f"transactions were open in {partitions[0].topic!r} for {_TIMEOUT_S:g} s: call again")
