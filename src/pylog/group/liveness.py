"""Which members of a group live. Each counts up in a cell of its own, and holds the lock on its own file.

The kernel frees the lock when the member's process ends; the counter shows that the member polls. A counter says nothing by
its value, only by moving: a member that was seen to stand still for ``max_poll_interval_ms``, on the clock of the member that
looks on, has stopped polling. No clock of one process is compared with that of another. Cell 0 counts the rounds in which a
member has looked after the dead, so that one member does it and the others need not.
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

TICK_S = 0.2  # between two looks, and between two signs of life
_SILENCE_MIN_MS = 1.5 * TICK_S * 1000  # who polls all the time is heard once in a tick, by who listens once in a tick

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
        """Every counter, by cell."""
        data = self._file.pread(CELLS_MAX * CELL_BYTES, 0)
        return tuple(count for (count,) in _CELL.iter_unpack(data[: len(data) // CELL_BYTES * CELL_BYTES]))

    def beat(self, cell: int) -> None:
        """Count up."""
        data = self._file.pread(CELL_BYTES, cell * CELL_BYTES)
        count = _CELL.unpack(data)[0] if len(data) == CELL_BYTES else 0
        self._file.pwrite(_CELL.pack((count + 1) % _WRAP), cell * CELL_BYTES)

    def close(self) -> None:
        self._file.close()


class _Seen(NamedTuple):
    counter: int
    since_s: float


class Silence:
    """How long each member has been seen to stand still. Pure: told what is there, and when."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, counters: dict[str, int], now_s: float) -> dict[str, float]:
        """Seconds of silence by member, of all that are there now."""
        seen = self._seen
        self._seen = {
            id_: known if (known := seen.get(id_)) is not None and known.counter == counter else _Seen(counter, now_s)
            for id_, counter in counters.items()
        }
        return {id_: now_s - known.since_s for id_, known in self._seen.items()}


class Absence:
    """For one thread at a time. Nobody finds itself (``me``) gone."""

    def __init__(self, place: GroupDirectory) -> None:
        self._place = place
        self._silence = Silence()
        self._absent_since_s: dict[str, float] = {}

    def look_anew(self) -> None:
        """Nobody was silent before this."""
        self._silence = Silence()

    def silent(self, group: Group, me: str, counters: tuple[int, ...], now_s: float) -> set[str]:
        """Those who did not poll for their ``max_poll_interval_ms``; a poll within a tick of another shows no sign of life."""
        beats = {m.id: counters[m.cell] if m.cell < len(counters) else 0 for m in group.members.values() if m.id != me}
        return {
            id_
            for id_, silent_s in self._silence.look(beats, now_s).items()
            if (silent_s - TICK_S) * 1000 > max(group.members[id_].max_poll_interval_ms, _SILENCE_MIN_MS)
            and not self._is_away(group.members[id_])
        }

    def _is_away(self, member: Member) -> bool:
        """Whether it is one that may come back: it counts by its session."""
        return bool(member.instance_id) and not has_process(self._place, member.id)

    def gone(self, group: Group, me: str, now_s: float) -> set[str]:
        """Those whose processes are gone: the static ones among them for as long as they may be away."""
        dead = dead_members(self._place, group) - {me}
        self._absent_since_s = {id_: self._absent_since_s.get(id_, now_s) for id_ in dead}
        return {
            id_
            for id_ in dead
            if not group.members[id_].instance_id
            or (now_s - self._absent_since_s[id_]) * 1000 > group.members[id_].session_timeout_ms
        }


def dead_members(place: GroupDirectory, group: Group) -> set[str]:
    """The members whose processes are gone: nobody holds the lock on their files."""
    return {id_ for id_ in group.members if not has_process(place, id_)}


def has_process(place: GroupDirectory, id_: str) -> bool:
    """Whether somebody holds the lock on the file of this member. Nobody can if it is no file, but a FIFO or a link."""
    path = place.member(id_)
    try:
        return place.filesystem.is_locked(path)
    except own(StorageError) as error:
        if "kind" not in error.facts:
            raise
        _warn(place.group, str(error))
        return False


@cache
def _warn(group: str, problem: str) -> None:
    logger.warning("group %r: a member's lock is taken for that of a process that is gone: %s", group, problem)
