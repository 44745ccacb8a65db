"""Committed offsets after a loss of power that takes all it may take."""

from __future__ import annotations

from pylog import TopicPartition
from pylog.testing.machine import Image, Machine
from pylog.testing.machine.images import pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.actors import World


def test_offsets_that_were_reset_to_the_end_are_not_beyond_it_when_the_power_was_lost() -> None:
    """The commit was durable, and the records before it were not: others that got their offsets were passed over."""
    world = World(Machine())
    actor = world.actor()
    actor.create("t")
    actor.append("t", 3)
    actor.reset("g", "t")
    assert world.errors == []
    machine = world.machine
    nothing_kept = Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")
    with machine.after_power_loss(nothing_kept).process().open_log(world.root) as log:
        assert log.group_access().committed("g")[TopicPartition("t", 0)].offset == 3
        assert log.partition("t", 0).latest_offset == 3
