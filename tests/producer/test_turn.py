from __future__ import annotations

import threading

from pylog.producer.turn import Turn
from tests.producer.fakes import call_in_thread


def test_a_turn_is_one_threads_at_a_time() -> None:
    turn = Turn()
    assert turn.take(0)
    assert turn.is_mine()
    assert turn.is_taken()
    seen: list[object] = []
    call_in_thread(lambda: seen.extend([turn.take(0), turn.is_mine(), turn.leave(), turn.is_taken()])).join()
    assert seen == [False, False, None, True]
    turn.leave()
    assert not turn.is_taken()


def test_a_thread_that_waits_gets_the_turn_when_it_is_left() -> None:
    turn = Turn()
    assert turn.take(0)
    waiting, got = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        if turn.take(float("inf")):
            got.set()
            turn.leave()

    thread = call_in_thread(wait)
    waiting.wait()
    assert not got.is_set()
    turn.leave()
    thread.join()
    assert got.is_set()
    assert turn.take(0)


def test_leaving_without_having_taken_changes_nothing() -> None:
    turn = Turn()
    turn.leave()
    assert turn.take(0)
