"""Compaction and retention keep their promises whatever the order of their steps and another
program's.

Here all orders with one preemption, and some of those with two, others with each seed;
``scripts/soak cleaner-schedules`` tries all, and ``python -m tests.simulation.cleaner_schedules``
those of some races.
"""

from __future__ import annotations

import pytest

from pylog.partition.compact.engine import compact
from tests.simulation.cleaner_schedules import (
    CLEANED_IN_PARTS,
    ROOT,
    STARTS,
    TOPIC,
    CleanerExploration,
    History,
    Start,
    check,
    staged,
)
from tests.simulation.transactions_schedules import a_share, part_of_all

pytestmark = [pytest.mark.slow, pytest.mark.one_in(16)]

OF_THREE = {"consumed_and_join_and_commit"}
"""Programs: there are many more orders, for the engines' run alone."""

ORDERS_MIN = {"consumed_and_death": 2}
"""A program that dies at its first step meets nothing: then there are two orders. Every other race
has at least 20."""

RACES = [
    pytest.param(start, id=name, marks=[pytest.mark.engine] if name in OF_THREE else [])
    for name, start in STARTS.items()
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("start", RACES)
def test_a_race_ends_well_in_every_order_with_one_preemption(start: Start, seed: int) -> None:
    found = CleanerExploration(start, seed).explore(part_of_all(0, 1), 1)
    assert found.problems == []
    assert found.crashes >= ORDERS_MIN.get(start.__name__, 20)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("start", RACES)
def test_a_race_ends_well_in_some_orders_with_two_preemptions(start: Start, seed: int) -> None:
    found = CleanerExploration(start, seed).explore(a_share(seed, 0.05, 0.03))
    assert found.problems == []
    assert found.crashes > 1


def test_a_compaction_in_parts_has_several() -> None:
    machine, _ = staged(0)
    with machine.process().open_log(ROOT) as log:
        assert compact(log.partition(TOPIC, 0).log, CLEANED_IN_PARTS).passes > 1


def _lost(history: History) -> None:
    history.written[1] = b"z", b"0"


def _lost_tombstone(history: History) -> None:
    history.written[1] = b"z", None


def _moved(history: History) -> None:
    history.written[7], history.written[8] = history.written[8], history.written[7]


def _torn(history: History) -> None:
    history.aborted.add(max(at for at, (_, value) in history.written.items() if value == b"committed"))


def _kept_longer(history: History) -> None:
    history.start_max = -1


@pytest.mark.parametrize("damage", [_lost, _lost_tombstone, _moved, _torn, _kept_longer])
def test_what_is_wrong_is_found(damage: object) -> None:
    machine, history = staged(0)
    assert check(machine, history) == []
    machine, history = staged(0)
    damage(history)  # type: ignore[operator]
    assert check(machine, history) != []
