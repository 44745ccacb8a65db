"""Another process swaps files and directories of a log for links while this one opens, rolls and
deletes.

Nothing outside of the log is written, cut or deleted, whenever the swap happens.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pylog.errors import PylogError
from pylog.log import Log
from tests.partition.logs import ManualClock, many, snapshot_of

pytestmark = pytest.mark.processes

FILES = [
    *(
        f"{0:020d}{kind}"
        for kind in (".log", ".index", ".timeindex", ".seal", ".snapshot", ".log.deleted", ".unsynced")
    ),
    *(".lock", ".commit", "partition.metadata", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp"),
    *("manifest.json", "producer-ids", "producer-ids.tmp", "catalog.lock", "catalog.lock.probe"),
    *("t.json", "t.json.tmp", ".changed"),
]
PLACES = ("t-0", ".pylog", ".pylog/topics")


def lay_out(outside: Path) -> dict[str, bytes]:
    """A directory with files of every name that pylog writes or deletes, and what is in it."""
    (outside / "topics").mkdir(parents=True)
    for directory in (outside, outside / "topics"):
        for name in FILES:
            (directory / name).write_bytes(b"precious" * 40)
    return snapshot_of(outside)


@contextmanager
def attacked(root: Path, outside: Path, seed: int) -> Iterator[None]:
    """While the block runs, another process swaps what it finds below ``root``, and puts it
    back."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            attack(root, outside, random.Random(seed))
        os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def attack(root: Path, outside: Path, draw: random.Random) -> None:
    while True:
        place = root / draw.choice(PLACES)
        kind = draw.randrange(3)
        if kind == 0:
            victim, bait = place, outside
        else:
            with suppress(OSError):
                place = place / draw.choice([*os.listdir(place), *FILES])
            victim, bait = place, outside / place.name
        with suppress(OSError):
            aside = f"{root}/aside"
            os.rename(victim, aside)
            (os.link if kind == 1 else os.symlink)(bait, victim)
            for _ in range(draw.randrange(50)):
                os.stat(aside)
        with suppress(OSError):
            if os.path.islink(victim) or os.stat(victim).st_nlink > 1:
                os.unlink(victim)
        with suppress(OSError):
            os.rename(aside, victim)
        for _ in range(draw.choice((0, 0, 0, 10, 100, 2_000))):  # so that some rounds come to their end
            os.path.lexists(victim)


def use(root: Path, draw: random.Random) -> int:
    """One thing that a user might do; 1 if it came to its end."""
    try:
        with Log(root, clock=ManualClock()) as log:  # who waits for a lock that was swapped away gives up at once
            with suppress(PylogError):
                log.create_topic("t")
            partition = log.partition("t", 0)
            partition.append(many("a", "b"), acks=draw.choice([1, "all"]))
            partition.log.roll()
            partition.append(many("c"), acks=1)
            if draw.random() < 0.5:
                partition.log.delete_before(partition.latest_offset)
            if draw.random() < 0.2:
                log.manager.next_producer_id()
            if draw.random() < 0.3:
                log.delete_topic("t")
    except (PylogError, FileNotFoundError):
        return 0
    return 1


def race(root: Path, outside: Path, rounds: int, seed: int) -> int:
    """How many of so many rounds came to their end under attack."""
    precious, draw, done, failed = lay_out(outside), random.Random(seed), 0, 0
    with attacked(root, outside, seed):
        for number in range(rounds):
            failed = 0 if use(root, draw) else failed + 1
            done += not failed
            if failed > 5:  # the attack broke the log itself, which is not what is tested
                shutil.rmtree(root, ignore_errors=True)
            if number % 100 == 0:
                assert snapshot_of(outside) == precious
    assert snapshot_of(outside) == precious
    return done


@pytest.mark.slow
def test_swapped_links_lead_no_write_and_no_deletion_out_of_the_log(tmpfs_dir: Path, seed: int) -> None:
    assert race(tmpfs_dir / "log", tmpfs_dir / "outside", 1_000, seed)


@pytest.mark.soak
def test_swapped_links_lead_nothing_out_a_hundred_thousand_times(tmpfs_dir: Path, seed: int) -> None:
    done = race(tmpfs_dir / "log", tmpfs_dir / "outside", 100_000, seed)
    print(f"{done} of 100,000 rounds came to their end", file=sys.stderr)
