"""What holds when two operations meet, in every order of their steps; here with one preemption, and
others at random.

``scripts/soak`` tries all orders with two, and more at random.
"""

from __future__ import annotations

import pytest

from pylog.testing.machine import Replay
from tests.simulation import races
from tests.simulation.races import (
    OF_THREADS,
    OPERATIONS,
    PAIRS,
    PAIRS_OF_THREADS,
    at_random,
    lengthened,
    shortened,
    systematically,
)

pytestmark = [pytest.mark.slow, pytest.mark.one_in(16)]


@pytest.mark.parametrize("first", OPERATIONS)
def test_two_operations_meet_in_every_order_with_one_preemption(first: str, seed: int) -> None:
    """After a loss of power, or without: each run has half of the pairs in one of the two, another
    seed the rest."""
    for number, pair in enumerate(PAIRS):
        if pair[0] == first and (number + seed // 2) % 2 == 0:
            found = systematically(pair, preemptions=1, rebooted=seed % 2 == 0)
            assert found.problems == []
            assert found.crashes > 10


@pytest.mark.parametrize("first", OF_THREADS)
def test_two_threads_of_one_process_meet_in_every_order_with_one_preemption(first: str, seed: int) -> None:
    for number, pair in enumerate(PAIRS_OF_THREADS):
        if pair[0] == first and (number + seed) % 2 == 0:
            found = systematically(pair, preemptions=1, as_threads=True)
            assert found.problems == []
            assert found.crashes > 10


def test_three_and_four_operations_meet_in_any_order_and_may_be_killed(seed: int) -> None:
    assert at_random(seed, 400).problems == []


def test_a_deletion_that_another_process_finishes_is_noticed() -> None:
    """Its deleter was killed before it told others: they took the missing directory for damage."""
    assert at_random(1131946806, 24).problems == []


def test_a_schedule_can_be_replayed() -> None:
    steps: list[list[int]] = []
    for _ in range(2):
        strategy = Replay([1, 0, 1])
        assert races.run(("append", "append_and_roll"), strategy) == []
        steps.append([point.chosen for point in strategy.points])
    assert steps[0] == steps[1]
    assert steps[0][:3] == [1, 0, 1]
    assert lengthened(shortened(steps[0])) == steps[0]
