"""A process is killed before its n-th change of the disk, for every n: the catalog is as it was
before, or as it was to be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from pylog import Log
from pylog.errors import ConfigError, TopicExists, TopicNotFound
from tests.storage.filesystems import Faulty, Killed, Nth

CHANGES = {
    *("open", "pwrite", "wrote", "truncate", "sync", "replace", "replaced", "remove", "sync_directory"),
    *("make_directory", "remove_directory"),
}
BEFORE = {"t": (1, 2048)}
ROWS: list[tuple[Callable[[Log], object], dict[str, tuple[int, int]]]] = [
    (lambda log: log.create_topic("new", partitions=2, segment_bytes=4096), {"new": (2, 4096), "t": (1, 2048)}),
    (lambda log: log.alter_topic("t", segment_bytes=4096), {"t": (1, 4096)}),
    (lambda log: log.add_partitions("t", 3), {"t": (3, 2048)}),
    (lambda log: log.delete_topic("t"), {}),
]


def seen(root: Path) -> dict[str, tuple[int, int]]:
    with Log(root) as log:
        topics = [log.describe_topic(name) for name in log.topics()]
        return {topic.name: (topic.partitions, topic.config.segment_bytes) for topic in topics}


class KilledAt:
    """A hook: the process dies before its n-th change, and what runs while the exception rises
    reaches the disk no more."""

    def __init__(self, n: int) -> None:
        self._nth = Nth(n, CHANGES, lambda path: Killed())
        self.is_dead = False

    def __call__(self, operation: str, path: str) -> None:
        if self.is_dead:
            raise Killed
        try:
            self._nth(operation, path)
        except Killed:
            self.is_dead = True
            raise


@pytest.mark.slow
@pytest.mark.parametrize(("change", "wanted"), ROWS, ids=["create", "alter", "grow", "delete"])
def test_a_change_of_the_catalog_that_is_killed_anywhere_is_made_or_not_made(
    tmpfs_dir: Path, change: Callable[[Log], object], wanted: dict[str, tuple[int, int]]
) -> None:
    found = []
    for n in count():
        root = tmpfs_dir / f"{n}"
        with Log(root) as log:
            log.create_topic("t", segment_bytes=2048)
        filesystem, hook = Faulty(), KilledAt(n)
        victim = Log(root, filesystem=filesystem)
        filesystem.hook = hook
        with suppress(Killed):
            change(victim)
        if not hook.is_dead:
            break
        found.append(seen(root))
        with Log(root) as log, suppress(TopicExists, TopicNotFound, ConfigError):  # it was made
            change(log)
        assert seen(root) == wanted, f"killed before change {n}, and made again"
    assert [left for left in found if left not in (BEFORE, wanted)] == []
    assert BEFORE in found
    assert wanted in found
