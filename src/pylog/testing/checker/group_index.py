"""Consumer groups in a history: owners, commits and errors, collected in one pass.

A process is a member of a group from its first ``assign`` that names the group. It owns a partition
until its next ``assign`` without that partition: ``ok`` if it gave the partition up, ``info`` if it
lost it. A commit counts if it is answered ``ok``, and is compared with the state at its invocation.
A member that gets a partition begins at what the group has committed; where it goes later is its
own matter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

NOTHING = -1
Positions = Mapping[str, "int | None"]


class Commit(NamedTuple):
    """A commit that contradicts its group, or the start of a member. ``kind`` defines
    ``against``."""

    kind: str
    process: int
    group: str
    partition: str
    offset: int
    against: int


class Overlap(NamedTuple):
    """Two processes that own one partition in one generation, or at the same time."""

    group: str
    partition: str
    generation: int
    processes: tuple[int, int]


class Known(NamedTuple):
    """A group's state for a partition at one moment."""

    generation: int = NOTHING  # the newest that was assigned, or committed
    committed: int = NOTHING
    reach: int = NOTHING  # the greatest next offset of a member


class GroupIndex:
    """The actions of the groups in a history, collected in one pass."""

    def __init__(self) -> None:
        self.wrong: list[Commit] = []
        self.overlaps: list[Overlap] = []
        self._group_of: dict[int, str] = {}
        self._owners: dict[tuple[str, str, int], int] = {}
        self._owned: dict[int, set[tuple[str, str, int]]] = {}
        self._latest: dict[tuple[str, str], tuple[int, int]] = {}  # owner and generation
        self._was_stopped: set[int] = set()  # since its last report
        self._known: defaultdict[tuple[str, str], Known] = defaultdict(Known)
        self._asked: dict[tuple[int, str], Known] = {}
        self._may_be: Counter[tuple[str, str, int]] = Counter()  # commits that were asked for, and did not fail
        self._failed: set[tuple[str, str, int]] = set()  # offsets of which no commit may be there

    def _learn(self, group: str, partition: str, reach: int, generation: int = NOTHING) -> None:
        known = self._known[group, partition]
        self._known[group, partition] = Known(
            max(known.generation, generation), known.committed, max(known.reach, reach)
        )

    def stop(self, process: int) -> None:
        """Record a stop: the group may expel the process before it continues."""
        self._was_stopped.add(process)

    def assign(self, process: int, group: str, generation: int, positions: Positions, *, lost: bool) -> None:
        """Record what a process owns from now on. ``lost``: others may already own the rest."""
        self._group_of[process] = group
        owned = self._owned.setdefault(process, set())
        for key in [key for key in owned if key[0] == group and key[1] not in positions]:
            owned.remove(key)
            del self._owners[key]
            owner, taken = self._latest[key[:2]]
            if owner != process and not lost and process not in self._was_stopped:
                self.overlaps.append(Overlap(group, key[1], taken, (process, owner)))
        self._was_stopped.discard(process)
        for partition, position in positions.items():
            key = group, partition, generation
            if generation >= self._latest.get((group, partition), (process, NOTHING))[1]:
                # otherwise the process was stopped before it reported an older generation
                self._latest[group, partition] = process, generation
            owner = self._owners.setdefault(key, process)
            if owner == process:
                if position is not None and not self._has(owned, group, partition):
                    self._begin(Commit("", process, group, partition, position, 0), generation)
                owned.add(key)
            else:
                self.overlaps.append(Overlap(group, partition, generation, (owner, process)))
            self._learn(group, partition, NOTHING if position is None else position, generation)

    @staticmethod
    def _has(owned: set[tuple[str, str, int]], group: str, partition: str) -> bool:
        return any(key[:2] == (group, partition) for key in owned)

    def _begin(self, start: Commit, generation: int) -> None:
        known = self._known[start.group, start.partition]
        if generation < known.generation:
            return  # the process was stopped before it reported it
        if start.offset < known.committed:
            self.wrong.append(start._replace(kind="lost-commit", against=known.committed))
        if (start.group, start.partition, start.offset) in self._failed:
            self.wrong.append(start._replace(kind="aborted-commit"))

    def poll(self, process: int, partition: str, last_offset: int) -> None:
        self._was_stopped.discard(process)
        group = self._group_of.get(process)
        if group is not None:
            self._learn(group, partition, last_offset + 1)

    def ask(self, process: int, group: str, positions: Positions) -> None:
        for partition, position in positions.items():
            self._asked[process, partition] = self._known[group, partition]
            key = group, partition, position or 0
            self._may_be[key] += 1
            self._failed.discard(key)

    def refuse(self, process: int, group: str, positions: Positions) -> None:
        """A commit failed, with or without an invocation."""
        for partition, position in positions.items():
            key = group, partition, position or 0
            if self._asked.pop((process, partition), None) is not None:
                self._may_be[key] -= 1
            if self._may_be[key] == 0 and position != self._known[group, partition].committed:
                self._failed.add(key)

    def commit(self, process: int, group: str, generation: int, positions: Positions) -> None:
        for partition, position in positions.items():
            offset = position or 0
            self._failed.discard((group, partition, offset))
            known = self._asked.pop((process, partition), self._known[group, partition])
            if generation:
                self._compare(Commit("", process, group, partition, offset, 0), generation, known)
            self._learn(group, partition, offset, generation)
            self._known[group, partition] = self._known[group, partition]._replace(committed=offset)

    def _compare(self, commit: Commit, generation: int, known: Known) -> None:
        if generation < known.generation:
            self.wrong.append(commit._replace(kind="zombie-commit", against=known.generation))
        elif commit.offset < known.committed:
            self.wrong.append(commit._replace(kind="commit-regression", against=known.committed))
        if NOTHING < known.reach < commit.offset:
            self.wrong.append(commit._replace(kind="commit-ahead", against=known.reach))
