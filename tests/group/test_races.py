"""Consumers of a group and its deletion, in every order of the steps they take in the group's directory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylog.errors import GroupNotEmpty, GroupNotFound
from pylog.testing.machine import Machine, Process, Schedule, Step, Strategy, all_schedules
from tests.simulation.actors import Actor, World


class InGroups(Schedule):
    """Lets others go first before steps in the directories of groups only."""

    def _before_step(self, process: Process, step: Step) -> None:
        if "/groups" in step.path:
            super()._before_step(process, step)


def joins(actor: Actor) -> None:
    actor.join("g", "t")
    actor.poll()
    actor.poll()
    actor.commit("g")


def joins_and_leaves(actor: Actor) -> None:
    actor.join("g", "t")
    actor.leave()


def deletes(actor: Actor) -> None:
    actor.attempt(lambda: actor.log.delete_group("g"))


def run(programs: tuple[Callable[[Actor], None], ...], strategy: Strategy) -> list[str]:
    world = World(Machine())
    first = world.actor()
    first.create("t")
    first.append("t", 3)
    first.join("g", "t")
    first.poll()
    first.commit("g")
    first.leave()
    assert world.errors == []
    schedule = InGroups(world.machine, strategy)
    for program in programs:
        actor = world.actor()
        assert actor.log
        schedule.add(actor.process, lambda program=program, actor=actor: program(actor))  # type: ignore[misc]
    schedule.run()
    if any(name.startswith(".") for name in world.machine.processes[0].filesystem.names("/log/.pylog/groups")):
        world.seen.append("something is left of the group that was deleted")
    return world.seen + [repr(e) for e in world.errors if not isinstance(e, GroupNotEmpty | GroupNotFound)]


@pytest.mark.parametrize("preemptions", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("programs", [(deletes, joins), (deletes, joins_and_leaves), (deletes, deletes)])
def test_a_group_that_is_deleted_while_somebody_joins_is_there_or_new(
    programs: tuple[Callable[[Actor], None], ...], preemptions: int
) -> None:
    """The files were removed one by one, under the hands of who was opening them."""
    wrong: list[str] = []
    runs = 0
    for choices in all_schedules(lambda strategy: wrong.extend(run(programs, strategy)), preemptions):
        assert wrong == [], choices
        runs += 1
    assert runs > 10
