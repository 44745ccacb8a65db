"""The report of a check."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One anomaly of the kind that was looked for."""

    text: str
    partition: str = ""
    offset: int = -1


class Anomaly(NamedTuple):
    """A violation by the log. ``partition`` is "" and ``offset`` -1 if it has none."""

    kind: str
    text: str
    partition: str = ""
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.kind}: {f'{self.partition}: ' if self.partition else ''}{self.text}"
