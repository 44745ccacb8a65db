"""An exception wherever a signal handler's can come: what a member has read of the group is then
the group."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pylog import Consumer, Log, TopicPartition
from pylog.consumer.thread_guard import SingleThreadGuard
from pylog.errors import WrongThread
from pylog.group import offsets as offsets_module
from pylog.group.offset_records import Committed
from pylog.group.offsets import OffsetStore
from pylog.group.state import Group
from pylog.group.state_file import StateFile
from pylog.storage import OsFileSystem
from tests.consumer.interrupts import Interrupt, interrupt_at
from tests.group.consumers import checkpoint, fill, member, membership_of, place, settle

ROOMS = re.compile("/pylog/(consumer|group)/")
STRIDE = 5  # of the places where an exception can come, how many are left out from one to the next


def interrupted(step: int, call: Callable[[], object]) -> bool:
    """Whether the call had so many places."""
    try:
        with interrupt_at(step, ROOMS) as passed:
            call()
    except Interrupt:
        return True
    return passed[0] >= step


def test_a_state_that_was_being_read_is_read_again(tmp_path: Path) -> None:
    def opened() -> StateFile:
        return StateFile(OsFileSystem().open_appendable(str(tmp_path / "state")), 7)

    for step in count(1):
        writer, reader = opened(), opened()
        writer.read()
        writer.publish(Group(5, "range"))
        assert reader.read().generation == 5
        (tmp_path / "state").write_bytes(b"")
        if not interrupted(step, reader.read):
            break
        assert reader.read() == Group()
    assert step > 3


def test_offsets_that_were_being_loaded_are_loaded_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 5)
    monkeypatch.setattr(offsets_module, "_FAR_RECORDS", 5)

    def store() -> OffsetStore:
        return OffsetStore(log.manager)

    writer, name = store(), TopicPartition("t", 0)
    for step in count(1, STRIDE):
        behind = store()
        for number in range(3):
            writer.append(f"h{number}", {name: Committed(7, 0, "", 0, "")}, None)
        known = behind.committed("h0")
        for offset in range(12):
            writer.append("g", {name: Committed(offset, 0, "", 0, "")}, None)
        checkpoint(writer)
        went_on = interrupted(step, lambda store=behind: store.committed("h0"))
        assert behind.committed("h0") == known != {}
        assert behind.committed("g")[name].offset == 11
        if not went_on:
            break
    assert step > 20


@pytest.mark.slow
def test_a_poll_that_takes_gives_up_and_commits_may_end_anywhere(tmpfs_dir: Path) -> None:
    """Everything is read by those who are left, nobody reads what another does, and no commit is
    behind what was returned."""
    for step in count(1, 4 * STRIDE):
        with Log(tmpfs_dir / f"log{step}") as log:
            log.create_topic("t", partitions=4)
            fill(log, 2)
            read: dict[TopicPartition, set[int]] = {place(number): set() for number in range(4)}

            def poll(consumer: Consumer) -> None:
                for record in consumer.poll(0):
                    read[TopicPartition(record.topic, record.partition)].add(record.offset)  # noqa: B023

            one = member(log, enable_auto_commit=True, auto_commit_interval_ms=1)
            poll(one)
            other = member(log, enable_auto_commit=True, auto_commit_interval_ms=1)
            fill(log, 2)
            went_on = interrupted(step, lambda: poll(one))  # noqa: B023
            settle(one, other)
            assert sorted([*one.assignment(), *other.assignment()]) == [place(number) for number in range(4)]
            committed = {partition: 4 - behind for partition, behind in log.lag("g").items()}
            assert all(set(range(offset)) <= read[name] for name, offset in committed.items())
            for _ in range(3):
                poll(one)
                poll(other)
            assert set(map(len, read.values())) == {4}
            one.close()
            other.close()
            assert set(log.lag("g").values()) == {0}
        if not went_on:
            break
    assert step > 100


class InterruptedLeave:
    """Once, before anything is done."""

    def __init__(self, consumer: Consumer) -> None:
        self._membership = membership_of(consumer)
        self._leave = self._membership.leave
        self._membership.leave = self

    def __call__(self, timeout_s: float = 0.0) -> None:
        self._membership.leave = self._leave
        raise KeyboardInterrupt


def test_a_close_that_was_interrupted_goes_on_when_called_again(log: Log) -> None:
    """The consumer was closed, and kept its lock and its partitions for as long as anybody held
    it."""
    one, other = member(log), member(log)
    assert [len(share) for share in settle(one, other)] == [2, 2]
    InterruptedLeave(one)
    with pytest.raises(KeyboardInterrupt):
        one.close()
    one.close()
    settle(other)
    assert len(other.assignment()) == 4
    other.close()


def test_a_close_that_fails_is_one(log: Log) -> None:
    def refuse(_: object) -> None:
        raise ValueError("no")

    one, other = member(log, on_revoked=refuse), member(log)
    with pytest.raises(ValueError, match="no"):
        one.close()
    one.close()
    settle(other)
    assert len(other.assignment()) == 4
    other.close()


def test_a_callbacks_leave_to_call_ends_with_the_call_it_runs_in() -> None:
    """Interrupted before it took that back, a consumer refused everything as if called in a
    callback, for ever."""
    guard = SingleThreadGuard()
    with guard.exclusive_call():
        callback = guard.callback()
        callback.__enter__()
        with guard.call(), pytest.raises(WrongThread, match="callback"):
            guard.exclusive_call()
    with guard.exclusive_call():
        pass
    callback.__exit__(None, None, None)
