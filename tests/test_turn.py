"""Turns, waiters and conditions: one thread at a time, and none is left locked or asleep."""

from __future__ import annotations

import sys
import threading
from itertools import count
from types import FrameType
from typing import Any, SupportsIndex

import pytest

from pylog import turn as turn_module
from pylog.turn import NOT_MINE, Condition, Turn, Waiters, seconds_to_wait
from tests.producer.fakes import call_in_thread
from tests.system import fail


def test_a_turn_is_one_threads_at_a_time() -> None:
    turn = Turn()
    assert turn.take(timeout=0)
    assert turn.is_mine()
    seen: list[object] = []
    call_in_thread(lambda: seen.extend([turn.take(timeout=0), turn.is_mine()])).join()
    assert seen == [False, False]
    turn.leave()
    assert not turn.is_mine()


def test_a_thread_that_waits_gets_the_turn_when_it_is_left() -> None:
    turn = Turn()
    assert turn.take(timeout=0)
    waiting, got = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        if turn.take(timeout=seconds_to_wait(float("inf"))):
            got.set()
            turn.leave()

    thread = call_in_thread(wait)
    waiting.wait()
    assert not got.is_set()
    turn.leave()
    thread.join()
    assert got.is_set()
    assert turn.take(timeout=0)


def test_leaving_without_having_taken_is_an_error_that_a_finally_can_pass_over() -> None:
    turn = Turn()
    with pytest.raises(NOT_MINE):
        turn.leave()
    assert turn.take(timeout=0)


@pytest.mark.parametrize(("timeout_s", "waits_s"), [(-5, 0), (0, 0), (1.5, 1.5), (float("inf"), threading.TIMEOUT_MAX)])
def test_any_timeout_is_one_that_a_lock_takes(timeout_s: float, waits_s: float) -> None:
    assert seconds_to_wait(timeout_s) == waits_s
    assert Turn().take(timeout=seconds_to_wait(timeout_s))


def test_all_who_wait_are_woken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "_WAIT_S_MAX", 60.0)
    waiters, is_over, looks = Waiters(), threading.Event(), threading.Semaphore(0)

    def look() -> bool:
        looks.release()
        return is_over.is_set()

    ended: list[bool] = []
    threads = [call_in_thread(lambda: ended.append(waiters.wait(look))) for _ in range(4)]
    for _ in threads:
        looks.acquire()
    assert ended == []
    is_over.set()
    waiters.wake()
    for thread in threads:
        thread.join()
    assert ended == [True] * 4


def test_who_finds_that_it_is_over_does_not_wait_and_a_lost_wake_costs_a_moment() -> None:
    waiters = Waiters()
    assert waiters.wait(lambda: True)
    assert not waiters.wait(lambda: False)  # by itself, after a while
    waiters.wake()
    waiters.wake()


def test_a_wake_between_the_look_and_the_wait_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "_WAIT_S_MAX", 60.0)
    waiters, looked = Waiters(), []

    def look() -> bool:
        looked.append(True)
        waiters.wake()
        return len(looked) == 2

    assert waiters.wait(look)


def test_two_who_wake_at_once_wake_everybody_once() -> None:
    waiters = Waiters()

    class Raced(list[threading.Lock]):
        def pop(self, index: SupportsIndex = -1) -> threading.Lock:
            super().pop(index).release()
            fail(IndexError())  # another thread took the last one
            raise AssertionError

    waiters.locks = Raced()
    assert waiters.wait(lambda: waiters.wake() is None)


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, KeyError])
@pytest.mark.parametrize("call", ["wait", "notify_all"])
def test_an_exception_at_any_line_of_a_condition_passes(call: str, kind: type[Exception]) -> None:
    """As of a signal handler, which runs between two bytecodes."""
    for line in count():
        condition = Condition(threading.RLock())
        other = threading.Lock()
        other.acquire()
        condition._waiting[other] = None
        left = line

        def strike(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if event == "line" and frame.f_code.co_filename != __file__:
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise kind("of a handler")
            return strike

        before = sys.gettrace()
        caught = None
        condition.acquire()
        sys.settrace(strike)
        try:
            condition.wait(0.0) if call == "wait" else condition.notify_all()
        except kind as error:
            caught = error
        finally:
            sys.settrace(before)
        if left >= 0:
            assert line >= 4
            return
        assert caught is not None, f"it was swallowed at line {line}"
        assert caught.args == ("of a handler",)
        if not condition._is_owned():  # type: ignore[attr-defined]  # it came while the lock was released
            condition.acquire()
        condition.notify_all()
        assert not condition.wait(0.0)
        condition.release()


def test_a_condition_wakes_all_that_wait() -> None:
    condition = Condition(threading.RLock())
    woken: list[bool] = []

    def wait() -> None:
        with condition:
            woken.append(condition.wait(60))

    threads = [call_in_thread(wait) for _ in range(3)]
    while len(condition._waiting) < len(threads):
        pass
    with condition:
        condition.notify_all()
    for thread in threads:
        thread.join()
    assert woken == [True] * 3
