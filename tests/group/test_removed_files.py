"""Members whose group's files, or whose log, are removed, replaced or refused meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog import Consumer, Log
from pylog.errors import PylogError, StorageError
from pylog.group.admin import GroupAdmin
from pylog.group.liveness import TICK_S
from pylog.group.lock import read_group
from pylog.group.state import Group
from pylog.group.state_file import SLOTS_BYTES
from pylog.testing import ManualClock
from tests.group.consumers import lock_of, member, membership_of, settle
from tests.storage.filesystems import Faulty, io_error, nothing


@pytest.mark.parametrize("call", ["poll", "close"])
def test_a_group_may_be_deleted_before_a_member_finds_out_that_it_was_expelled(
    timed_log: Log, clock: ManualClock, call: str
) -> None:
    timed_log.create_topic("t", partitions=4)
    one, other = member(timed_log, max_poll_interval_ms=1_000), member(timed_log)
    for _ in range(20):
        clock.advance(TICK_S)
        other.poll()
    assert len(timed_log.describe_group("g").members) == 1
    other.commit(dict.fromkeys(other.assignment(), 0))
    other.close()
    timed_log.delete_group("g")
    getattr(one, call)()
    assert len(timed_log.groups()) == (call == "poll")
    one.close()


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:SLOTS_BYTES] + bytes(byte ^ 1 for byte in data[SLOTS_BYTES:]))


@pytest.mark.parametrize(
    "damage", [flip, lambda path: os.truncate(path, SLOTS_BYTES), lambda path: os.truncate(path, 0)]
)
def test_members_join_again_if_the_groups_state_is_damaged(
    timed_log: Log, clock: ManualClock, damage: Callable[[Path], None]
) -> None:
    timed_log.create_topic("t", partitions=4)
    members = [member(timed_log), member(timed_log)]
    settle(*members)
    directory = timed_log.manager.part(GroupAdmin).directory("g")
    before = set(read_group(directory).members)
    damage(timed_log.path / ".pylog" / "groups" / "g" / "state")
    assert not read_group(directory).members
    for _ in range(2 * len(members)):
        clock.advance(TICK_S)
        assert all(one.poll(0) == [] for one in members)
    after = read_group(directory)
    assert after.members.keys().isdisjoint(before)
    assert (len(after.members), after.is_settled) == (2, True)
    assert [len(some) for some in settle(*members)] == [2, 2]
    for one in members:
        one.close()


def test_a_group_whose_files_go_while_one_joins_is_told_of_and_joined_later(log: Log) -> None:
    one = Consumer(log, group_id="g")
    sweep = membership_of(one)._sweep

    def removing(group: Group) -> None:
        sweep(group)
        shutil.rmtree(log.path / ".pylog" / "groups" / "g")

    membership_of(one)._sweep = removing
    with pytest.raises(StorageError, match="were removed"):
        one.subscribe("t")
    membership_of(one)._sweep = sweep
    one.poll()
    assert len(one.assignment()) == 4
    one.close()


def exchange(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


@pytest.mark.parametrize("change", [Path.unlink, exchange])
def test_a_lock_of_a_group_that_was_removed_or_replaced_parts_nobody(
    timed_log: Log, clock: ManualClock, change: Callable[[Path], None]
) -> None:
    """A member that holds the old one would publish what another one publishes, too."""
    timed_log.create_topic("t", partitions=4)
    one = member(timed_log)
    change(timed_log.path / ".pylog" / "groups" / "g" / "lock")
    other = member(timed_log, max_poll_interval_ms=3_000)
    for _ in range(40):
        clock.advance(TICK_S)
        shares = settle(one, other)
    assert [len(share) for share in shares] == [2, 2]
    assert not one.assignment() & other.assignment()
    generation = timed_log.describe_group("g").generation
    for _ in range(40):
        clock.advance(TICK_S)
        settle(one, other)
    assert timed_log.describe_group("g").generation == generation
    one.close()
    other.close()


@pytest.mark.parametrize("name", ["heartbeats", "state", "members"])
def test_who_could_not_join_to_the_end_joins_with_the_next_poll(tmpfs_dir: Path, name: str) -> None:
    """It was a member that showed no life, and never looked after the others."""
    clock, filesystem = ManualClock(), Faulty()

    def refuse(operation: str, path: str) -> None:
        if operation in ("open", "pwrite", "lock") and f"/{name}" in path:
            raise io_error(path)

    with Log(tmpfs_dir / "log", clock=clock, filesystem=filesystem) as log:
        log.create_topic("t", partitions=4)
        one = Consumer(log, group_id="g", auto_offset_reset="earliest")
        filesystem.hook = refuse
        with pytest.raises(StorageError):
            one.subscribe("t")
        filesystem.hook = nothing
        other = member(log)
        assert [len(share) for share in settle(one, other)] == [2, 2]
        lock_of(other).abandon()
        for _ in range(3):
            clock.advance(TICK_S)
            one.poll()
        assert len(one.assignment()) == 4
        one.close()


def test_a_consumer_whose_log_was_removed_can_be_closed(tmpfs_dir: Path) -> None:
    log = Log(tmpfs_dir / "log")
    log.create_topic("t")
    one = member(log)
    shutil.rmtree(log.path)
    with pytest.raises(PylogError):
        one.poll()
    one.close()
    assert not log.path.exists()
    log.close()
