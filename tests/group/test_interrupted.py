"""A signal handler raises in the midst of what a member does, as Ctrl-C would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Consumer, Log
from pylog.consumer.sole_use import SoleUse
from pylog.errors import WrongThread
from tests.group.consumers import member, settle


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=4)
        yield opened


class InterruptedLeave:
    """Once, before anything is done."""

    def __init__(self, consumer: Consumer) -> None:
        self._membership = consumer._assignment.membership  # type: ignore[attr-defined]
        self._leave = self._membership.leave
        self._membership.leave = self

    def __call__(self) -> None:
        self._membership.leave = self._leave
        raise KeyboardInterrupt


def test_a_close_that_was_interrupted_goes_on_when_called_again(log: Log) -> None:
    """The consumer was closed, and kept its lock and its partitions for as long as anybody held it."""
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


def test_what_was_lent_to_a_callback_is_void_when_its_call_is_over() -> None:
    """Interrupted before it took that back, a consumer refused everything as if called in a callback, for ever."""
    use = SoleUse()
    with use.begin():
        lent = use.lent()
        lent.__enter__()
        with use.begin_in_callback(), pytest.raises(WrongThread, match="callback"):
            use.begin()
    with use.begin():
        pass
    lent.__exit__(None, None, None)
