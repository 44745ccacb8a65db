"""Scripts of what processes do to a log, one step of the machine after the other. Each is short, so that all of it can be tried.

Segments are as small as a topic may have, so that a few records roll one.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.actors import World

Workload = Callable[[World], None]
SMALL = {"segment_bytes": 1024, "index_interval_bytes": 64}


def durable_appends(world: World) -> None:
    """Records of a few sizes, some acknowledged when written, some when durable."""
    a = world.actor()
    a.create("t", **SMALL)
    a.append("t", 1)
    a.append("t", 2, acks="all")
    a.append("t", 1, 600)
    a.append("t", 1, acks="all")
    a.close()


def rolls(world: World) -> None:
    """Segments fill up, are rolled and sealed; now and then all is made durable."""
    a = world.actor()
    a.create("t", **SMALL)
    for number in range(9):
        a.append("t", 1 + number % 3, 200, acks="all" if number in (2, 7) else 1)
    a.roll("t")
    a.append("t", 1, acks="all")
    a.close()


def group_commit(world: World) -> None:
    """Two processes append in turn; one sync covers what both published."""
    a, b = world.actor(), world.actor()
    a.create("t", **SMALL)
    a.append("t", 1)
    b.append("t", 2)
    a.append("t", 1, 300)
    b.sync("t")
    b.append("t", 1, 300)
    a.append("t", 1, acks="all")
    b.append("t", 1)
    a.sync("t")
    b.close()
    a.close()


def topics_come_and_go(world: World) -> None:
    """Topics are created, filled, deleted, and created again under the same name."""
    a = world.actor()
    a.create("t", **SMALL)
    a.append("t", 1, acks="all")
    a.delete("t")
    a.create("t", **SMALL)
    a.append("t", 1, acks="all")
    a.create("u", **SMALL)
    a.append("u", 1)
    a.close()


def records_are_deleted(world: World) -> None:
    """The log's start moves on over whole segments and into the middle of one."""
    a = world.actor()
    a.create("t", **SMALL)
    for _ in range(6):
        a.append("t", 2, 200)
    a.sync("t")
    a.delete_before("t", 5)
    a.append("t", 1, acks="all")
    a.delete_before("t", 9)
    a.append("t", 1)
    a.close()


def a_process_follows_another(world: World) -> None:
    """One process ends in the middle of a segment, the next one goes on, a third reads."""
    a, b, c = world.actor(), world.actor(), world.actor()
    a.create("t", **SMALL)
    a.append("t", 3, 100)
    b.append("t", 1, 500)
    a.append("t", 1, 300)
    c.read("t")
    b.append("t", 2, 100, acks="all")
    a.close()
    b.append("t", 1, 400)
    c.read("t")
    b.close()
    c.close()


WORKLOADS: dict[str, Workload] = {
    work.__name__: work
    for work in (
        durable_appends, rolls, group_commit, topics_come_and_go, records_are_deleted, a_process_follows_another,
    )
}  # fmt: skip
