"""What a check reports."""

from __future__ import annotations

from typing import NamedTuple


class Anomaly(NamedTuple):
    """One thing that a right log does not do. ``partition`` is "" and ``offset`` -1 where it is of none."""

    kind: str
    text: str
    partition: str = ""
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.kind}: {f'{self.partition}: ' if self.partition else ''}{self.text}"
