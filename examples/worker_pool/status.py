"""What the group looks like from outside: all of it comes from ``Log.describe_group``, which joins
nothing and takes no lock."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from orders import GROUP, TOPIC

from pylog import Log
from pylog.errors import GroupNotFound

WINDOW_S = 2.0  # over which rates are taken


class Member(NamedTuple):
    """``reads`` are numbers of partitions; ``awaits`` those it gets once others have given them
    up."""

    name: str
    pid: int
    reads: list[int]
    awaits: list[int]


class Progress(NamedTuple):
    """Of one partition. ``owner`` is "" while no member reads it."""

    number: int
    owner: str
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return self.end - self.committed


class Status(NamedTuple):
    elapsed_s: float
    members: list[Member]
    partitions: list[Progress]
    rebalances: int
    sent_per_s: float
    handled_per_s: float

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def sent(self) -> int:
        return sum(partition.end for partition in self.partitions)

    @property
    def handled(self) -> int:
        """Up to the last commits."""
        return sum(partition.committed for partition in self.partitions)


class Watch:
    """Looks at the group again and again, and knows from that how fast it goes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._began_s = time.monotonic()
        self._seen: deque[tuple[float, int, int]] = deque()

    def look(self) -> Status:
        now_s = time.monotonic() - self._began_s
        status = self._look(now_s)
        self._seen.append((now_s, status.sent, status.handled))
        while self._seen[0][0] < now_s - WINDOW_S:
            self._seen.popleft()
        then_s, sent, handled = self._seen[0]
        passed_s = max(now_s - then_s, 1e-3)
        return status._replace(
            sent_per_s=(status.sent - sent) / passed_s, handled_per_s=(status.handled - handled) / passed_s
        )

    def _look(self, now_s: float) -> Status:
        ends = self._log_ends()
        try:
            group = self._log.describe_group(GROUP)
        except GroupNotFound:  # no member has joined yet
            return Status(now_s, [], [Progress(number, "", 0, end) for number, end in ends.items()], 0, 0.0, 0.0)
        names = {member.member_id: member.client_id for member in group.members}
        members = [
            Member(
                member.client_id,
                member.pid,
                sorted(partition.partition for partition in member.assigned),
                sorted(partition.partition for partition in set(member.target) - set(member.assigned)),
            )
            for member in sorted(group.members, key=lambda member: member.joined_ms)
        ]
        told = {partition.partition: progress for partition, progress in group.partitions.items()}
        partitions = []
        for number, end in ends.items():
            progress = told.get(number)
            committed = progress.committed.offset if progress and progress.committed else 0
            owner = names.get(progress.member_id, "") if progress else ""
            partitions.append(Progress(number, owner, committed, max(end, committed)))
        return Status(now_s, members, partitions, group.generation, 0.0, 0.0)

    def _log_ends(self) -> dict[int, int]:
        return {
            number: self._log.partition(TOPIC, number).latest_offset
            for number in self._log.describe_topic(TOPIC).numbers
        }
