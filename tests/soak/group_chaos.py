"""Chaos among the members of one group: they are killed, stopped until they are expelled, forked
and closed, and others come.

Beside what the history must not show (two owners, commits of who is no member, commits that go
back), at the end those who are left get to the end of every partition, and everything was read by
somebody of the group.

    python -m tests.soak chaos-groups --seconds 60 [--seed N] [--directory DIR]
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pylog.group.admin import GroupAdmin
from pylog.testing.history import COMMIT, CONTINUE, CRASH, FAIL, INFO, OK, POLL, read_history
from tests.soak import chaos
from tests.soak.chaos import Controller, Settings
from tests.soak.members import GROUP
from tests.soak.part import Outcome
from tests.soak.workers import TOPIC

MEMBER = "member"
ROLES = ("producer", "appender", MEMBER, MEMBER, MEMBER, MEMBER, MEMBER)
DRAIN_S = 60.0

CI = Settings(
    life_s=0.7,
    stop_s=(0.3, 1.5),
    stops=0.4,
    revivals=0.9,
    partitions=5,
    roles=ROLES,
    max_poll_interval_ms=500,
    pause_s=0.05,
)
SOAK = CI._replace(
    roles=("producer", *ROLES),
    life_s=4.0,
    stop_s=(0.5, 4.0),
    stops=0.7,
    max_poll_interval_ms=700,
    timeout_ms=1_000,
    stuck_s=5.0,
)


class GroupController(Controller):
    """Its workers are members of one group, and those who write what they read."""

    def __init__(self, directory: Path, seed: int, settings: Settings) -> None:
        super().__init__(directory, seed, settings)
        self.ends: dict[int, int] = {}

    def heed(self, message: str) -> None:
        if message in ("left", "lost"):
            self.figures[f"members that {message}" if message == "left" else "members expelled"] += 1
        else:
            super().heed(message)

    def wind_down(self) -> None:
        """End those who write; let those who read get to the end, with nobody stopped or killed any
        more."""
        for slot in self.slots:
            if slot.role != MEMBER:
                os.kill(slot.pid, signal.SIGKILL)
                os.waitpid(slot.pid, 0)
                self.take_all()
                self.tell(slot.number, INFO, CRASH)
            elif slot.goes_on_at:
                self.tell(slot.number, INFO, CONTINUE)
                os.kill(slot.pid, signal.SIGCONT)
                slot.goes_on_at = 0.0
        readers = [slot for slot in self.slots if slot.role == MEMBER]
        self.ends = {n: self.log.partition(TOPIC, n).latest_offset for n in range(self.settings.partitions)}
        until = time.monotonic() + DRAIN_S
        while any(self.lag().values()):
            self.listen(0.02)
            for slot in readers:  # some have a failpoint before them still
                slot.dies_at = until
                self.look_after(slot)
            if time.monotonic() > until:
                self.problems.append(f"{DRAIN_S} s later the group is behind by {self.lag()}")
                break

    def lag(self) -> dict[int, int]:
        committed = self.log.manager.part(GroupAdmin).committed(GROUP)
        offsets = {name.partition: at.offset for name, at in committed.items() if name.topic == TOPIC}
        return {number: max(end - offsets.get(number, 0), 0) for number, end in self.ends.items()}

    def finish(self) -> None:
        super().finish()
        seen: dict[str, set[int]] = {f"{TOPIC}-{number}": set() for number in self.ends}
        generations = {0}
        for operation in read_history(self.directory / "history.jsonl"):
            generations.add(operation.generation)
            if operation.f == COMMIT:
                self.figures["commits"] += operation.type == OK
                self.figures["commits refused"] += operation.type == FAIL
            if operation.f == POLL and operation.process and operation.type == OK:
                for name, pairs in operation.polled.items():
                    seen[name].update(offset for offset, _ in pairs if offset is not None)
        self.figures["generations"] = max(generations)
        for number, end in self.ends.items():
            missing = sorted(set(range(end)) - seen[f"{TOPIC}-{number}"])
            if missing:
                self.problems.append(f"nobody of the group read {len(missing)} records of {number}: {missing[:20]}")


def run(seconds: float, seed: int, directory: Path, *, kills: int | None = None, settings: Settings = SOAK) -> Outcome:
    """One run in an empty directory. Call it in a process of its own."""
    return chaos.run_controller(GroupController(directory, seed, settings), seconds, kills)
