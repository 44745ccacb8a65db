"""Which members of a group live: each counts up in its own cell and locks its own file.

The kernel frees the lock when the member's process ends. The counter shows that the member polls;
only its changes matter. A member whose counter stands still for ``max_poll_interval_ms``, on the
clock of the observing member, has stopped polling: clocks of two processes are never compared. Cell
0 counts the rounds of looking for dead members, so that one member does it for all.
"""

from __future__ import annotations

import logging
from functools import cache
from struct import Struct
from typing import NamedTuple

from pylog.errors import StorageError
from pylog.group.directory import GroupDirectory
from pylog.group.state import Group, Member
from pylog.interrupts import own
from pylog.storage import AppendableFile

logger = logging.getLogger("pylog.group")

TICK_S = 0.2  # between two checks, and between two heartbeats
_SILENCE_MIN_MS = 1.5 * TICK_S * 1000  # a member that always polls beats once per tick, and is checked once per tick

CELL_BYTES = 8
CELLS_MAX = 1 << 16
ROUNDS = 0

_CELL = Struct(">Q")
_WRAP = 1 << 64


class Heartbeats:
    """The ``heartbeats`` file of a group."""

    def __init__(self, file: AppendableFile) -> None:
        self._file = file

    def all(self) -> tuple[int, ...]:
        """Return every counter, by cell."""
        data = self._file.pread(CELLS_MAX * CELL_BYTES, 0)
        return tuple(count for (count,) in _CELL.iter_unpack(data[: len(data) // CELL_BYTES * CELL_BYTES]))

    def beat(self, cell: int) -> None:
        """Increment the counter of this cell."""
        data = self._file.pread(CELL_BYTES, cell * CELL_BYTES)
        count = _CELL.unpack(data)[0] if len(data) == CELL_BYTES else 0
        self._file.pwrite(_CELL.pack((count + 1) % _WRAP), cell * CELL_BYTES)

    def close(self) -> None:
        self._file.close()


class _Seen(NamedTuple):
    counter: int
    since_s: float


class Silence:
    """Measures how long each counter has stood still. Pure: counters and times are arguments."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, counters: dict[str, int], now_s: float) -> dict[str, float]:
        """Return seconds of silence by member, for all members in ``counters``."""
        seen = self._seen
        self._seen = {
            id_: known if (known := seen.get(id_)) is not None and known.counter == counter else _Seen(counter, now_s)
            for id_, counter in counters.items()
        }
        return {id_: now_s - known.since_s for id_, known in self._seen.items()}


class Absence:
    """For one thread at a time. A member (``me``) never finds itself absent."""

    def __init__(self, directory: GroupDirectory) -> None:
        self._directory = directory
        self._silence = Silence()
        self._absent_since_s: dict[str, float] = {}

    def restart(self) -> None:
        """Measure silence from now on only."""
        self._silence = Silence()

    def silent(self, group: Group, me: str, counters: tuple[int, ...], now_s: float) -> set[str]:
        """Members without a poll for their ``max_poll_interval_ms``, plus a tick: a poll within a
        tick of another one sends no heartbeat."""
        beats = {m.id: counters[m.cell] if m.cell < len(counters) else 0 for m in group.members.values() if m.id != me}
        return {
            id_
            for id_, silent_s in self._silence.look(beats, now_s).items()
            if (silent_s - TICK_S) * 1000 > max(group.members[id_].max_poll_interval_ms, _SILENCE_MIN_MS)
            and not self._is_away(group.members[id_])
        }

    def _is_away(self, member: Member) -> bool:
        """Whether it is a static member that may return: its session decides."""
        return bool(member.instance_id) and not has_process(self._directory, member.id)

    def gone(self, group: Group, me: str, now_s: float) -> set[str]:
        """Return members whose processes have ended, static ones after their session timeout."""
        dead = dead_members(self._directory, group) - {me}
        self._absent_since_s = {id_: self._absent_since_s.get(id_, now_s) for id_ in dead}
        return {
            id_
            for id_ in dead
            if not group.members[id_].instance_id
            or (now_s - self._absent_since_s[id_]) * 1000 > group.members[id_].session_timeout_ms
        }


def dead_members(directory: GroupDirectory, group: Group) -> set[str]:
    """Return the members that were closed, or whose processes have ended: no process locks their
    files."""
    return {id_ for id_ in group.members if not has_process(directory, id_)}


def has_process(directory: GroupDirectory, id_: str) -> bool:
    """Whether a process locks this member's file; False for a FIFO or a link."""
    path = directory.member(id_)
    try:
        return directory.filesystem.is_locked(path)
    except own(StorageError) as error:
        if "kind" not in error.facts:
            raise
        _warn(directory.group, str(error))
        return False


@cache
def _warn(group: str, problem: str) -> None:
    logger.warning("group %r: a member's lock is taken for that of a process that is gone: %s", group, problem)
