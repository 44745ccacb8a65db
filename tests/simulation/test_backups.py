"""A kill, or a loss of power, at each step of a backup leaves the earlier copy or the new one, and
nothing in the way."""

from __future__ import annotations

from random import Random

import pytest

from pylog import Log
from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss
from tests.simulation.backups import COPY, ROOT, Contents, check_goes_on, contents, copied, staged, sync_all, write

pytestmark = [pytest.mark.slow, pytest.mark.one_in(8)]
UNFINISHED = f"{COPY}.unfinished-backup"


class Crashes:
    """A second backup of a log, which has changed since the first one."""

    def __init__(self, seed: int, *, is_first: bool, rounds: int = 2, next_every: int = 1) -> None:
        """Of ``next_every`` states one is backed up again."""
        self.random, self.next_every = Random(seed), next_every
        self.known: dict[frozenset[tuple[str, bytes | None]], Contents | None] = {}
        self.machine = machine = staged(seed, rounds)
        with machine.process().open_log(ROOT) as log:
            self.allowed: list[Contents | None] = [None]
            if not is_first:
                log.backup(COPY)
                self.allowed = [contents(log)]
                write(log, 5)
                log.maintain()
            self.log_contents = contents(log)
        sync_all(machine)
        self.allowed.append(self.log_contents)
        self.log: Log = machine.process().open_log(ROOT)
        self.seen: set[int] = set()

    def backup(self) -> None:
        self.log.backup(COPY)

    def check(self, left: Machine) -> None:
        assert self.found(left, COPY, goes_on=True) in self.allowed
        assert self.found(left, UNFINISHED) in [None, *self.allowed]
        self.seen.add(self.allowed.index(self.found(left, COPY)))
        if self.random.randrange(self.next_every):
            return
        with left.process().open_log(ROOT) as log:
            assert contents(log) == self.log_contents
            log.backup(COPY)
        assert copied(left) == self.log_contents
        names = {path for path in left.disk.contents() if path.startswith("/copies/") and path.count("/") == 2}
        assert names == {COPY}

    def found(self, left: Machine, path: str, *, goes_on: bool = False) -> Contents | None:
        """What the copy at ``path`` holds. The same bytes are looked at once."""
        files = frozenset((at, data) for at, data in left.disk.contents().items() if at.startswith(f"{path}/"))
        if files not in self.known:
            self.known[files] = found = copied(left, path)
            if goes_on and found is not None:
                check_goes_on(left.copy(), found)
        return self.known[files]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_kill_at_any_step(seed: int, is_first: bool) -> None:
    crashes = Crashes(seed, is_first=is_first)
    assert for_every_kill(crashes.machine, crashes.backup, crashes.check) > 100
    assert crashes.seen == {0, 1}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_loss_of_power_at_any_step(seed: int, is_first: bool) -> None:
    crashes = Crashes(seed, is_first=is_first, rounds=1, next_every=8)
    assert for_every_power_loss(crashes.machine, crashes.backup, crashes.check, at_most=4) > 200
    assert crashes.seen == {0, 1}
