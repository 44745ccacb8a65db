"""Scripts of what processes do to a log, one step of the machine after the other. Each is short, so
that all of it can be tried.

Segments are as small as a topic may have, so that a few records roll one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.actors import Actor, World

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


def retention_takes_turns(world: World) -> None:
    """Two processes apply retention by size and by time, also to the active segment, while records
    are appended."""
    a, b = world.actor(), world.actor()
    a.create("t", **SMALL)
    for _ in range(3):
        a.append("t", 2, 300)
    a.append("t", 1, acks="all")
    b.retain("t", retention_bytes=700)
    a.append("t", 2, 300)
    a.retain("t", retention_ms=1)
    b.append("t", 1, 300)
    a.retain("t", retention_bytes=0)
    a.append("t", 1, acks="all")
    b.close()
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


def producers_take_turns(world: World) -> None:
    """Two idempotent producers, one of which wants all durable; producer state is snapshotted as
    segments roll."""
    a, b = world.actor(), world.actor()
    a.create("t", **SMALL)
    a.send("t", 3, 100)
    b.send("t", 2, 200, acks="all")
    a.send("t", 2, 300)
    b.send("t", 1, 400, acks="all")
    a.send("t", 1, 50)
    b.read("t")
    a.close()
    b.close()


def topics_are_altered(world: World) -> None:
    """A topic grows and gets other settings, under the hands of who appends to it."""
    a, b = world.actor(), world.actor()
    a.create("t", **SMALL)
    a.append("t", 1, acks="all")
    b.add_partition("t")
    a.alter("t", 9_000)
    b.append("t", 1)
    a.add_partition("t")
    b.alter("t", 8_000)
    b.append("t", 1, acks="all")
    a.close()
    b.close()


def what_others_leave(world: World) -> None:
    """One process makes topics, deletes records and a topic; another opens the log afterwards."""
    a = world.actor()
    a.create("t", **SMALL)
    a.append("t", 2, 300, acks="all")
    a.delete_before("t", 1)
    a.delete("t")
    a.create("t", **SMALL)
    a.append("t", 2, 600)
    a.roll("t")
    b = world.actor()
    b.create("u", **SMALL)
    b.append("u", 1, acks="all")
    b.append("t", 1, acks="all")
    b.delete_before("t", 1)
    b.roll("t")
    b.append("t", 1, acks="all")
    b.close()


def members_take_turns(world: World) -> None:
    """A group of one, then two; who leaves, or dies, is followed by the other. Some commits are
    durable, some are not yet."""
    a, b = world.actor(), world.actor()
    a.create("t", **SMALL)
    a.append("t", 4, 100)
    a.join("g", "t")
    a.poll()
    a.commit("g")
    a.poll()
    b.join("g", "t")
    a.commit("g", durable=False)
    b.append("t", 3, 100)
    for _ in range(2):
        a.poll()
        b.poll()
    a.commit("g")
    a.leave()
    for _ in range(3):
        b.poll()
        b.commit("g")
    b.close()
    a.close()


def a_group_is_reset(world: World) -> None:
    """A group that reads, has left, and is moved to the end."""
    a, b = world.actor(), world.actor()
    a.create("t", **SMALL)
    a.append("t", 2, 100, acks="all")
    a.join("g", "t")
    a.poll()
    a.commit("g", durable=False)
    a.leave()
    b.append("t", 3, 200)
    b.reset("g", "t")
    a.join("g", "t")
    a.append("t", 1)
    a.poll()
    a.commit("g")
    a.close()
    b.close()


def commits_that_wait_for_no_disk(world: World) -> None:
    """Neither the records nor what a group commits of them is synced by anybody, but for the
    first."""
    a = world.actor()
    a.create("t", **SMALL)
    a.append("t", 1, acks="all")
    a.join("g", "t")
    a.poll()
    a.commit("g")
    a.append("t", 4, 60)
    for _ in range(2):
        a.poll()
        a.commit("g", durable=False)
    a.append("t", 1)
    a.close()


def drawn(seed: int, length: int = 14) -> Workload:
    """A script of ``length`` calls of two or three processes, drawn at random."""

    def workload(world: World) -> None:
        random = Random(seed)
        actors = [world.actor() for _ in range(random.choice((2, 3)))]
        actors[0].create("t", **SMALL)
        for _ in range(length):
            _call(random.choice(actors), random)
        for actor in actors:
            actor.close()

    workload.__name__ = f"drawn({seed})"
    return workload


def _call(actor: Actor, random: Random) -> None:
    count, size = random.choice((1, 1, 2, 3)), random.choice((10, 100, 300, 700))
    acks = random.choice((1, 1, "all"))
    draw = random.random()
    if draw < 0.4:
        actor.append("t", count, size, acks=acks)
    elif draw < 0.6:
        actor.send("t", count, size, acks=acks)
    elif draw < 0.7:
        actor.sync("t")
    elif draw < 0.76:
        actor.roll("t")
    elif draw < 0.84:
        actor.read("t")
    elif draw < 0.9:
        actor.delete_before("t", random.randrange(6))
    elif draw < 0.92:
        actor.reopen()
    elif draw < 0.94:
        actor.add_partition("t")
    elif draw < 0.96:
        actor.alter("t", random.randrange(5_000, 50_000))
    else:
        actor.delete("t")
        actor.create("t", **SMALL)


WORKLOADS: dict[str, Workload] = {
    work.__name__: work
    for work in (
        durable_appends, rolls, group_commit, topics_come_and_go, records_are_deleted, retention_takes_turns,
        a_process_follows_another,
        producers_take_turns, topics_are_altered, what_others_leave, members_take_turns, a_group_is_reset,
        commits_that_wait_for_no_disk,
    )
}  # fmt: skip
OF_SEVERAL = [
    group_commit, a_process_follows_another, producers_take_turns, topics_are_altered, what_others_leave,
    members_take_turns,
]  # fmt: skip
