"""Signs of life of a group's members: each counts up in a cell of its own, and who looks on watches the counters.

A counter says nothing by its value, only by moving: a member that was seen to stand still for ``max_poll_interval_ms``, on the
clock of who looks on, has stopped polling. No clock of one process is compared with that of another. Cell 0 counts the
rounds in which somebody has looked after the dead, so that one member does it and the others need not.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pylog.storage import AppendableFile

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
