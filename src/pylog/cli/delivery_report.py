"""The outcome of the lines that ``pylog produce`` sent: counts, offsets, and refused lines.

Lines are sent in batches, in order per partition. When a batch is refused, the next one or another
partition's may already be on its way. To continue from the refused line, the caller must leave out
the later lines that are in the log.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pylog.cli.exits import InputError
from pylog.cli.output import count_text, print_answer
from pylog.errors import OutcomeUnknown, PylogError
from pylog.model import RecordMetadata

if TYPE_CHECKING:
    from pylog.producer import Delivery

_UNDECIDED_RECORDS_MAX = 65_536  # asking for a result writes its batch, so ask late


class DeliveryReport:
    """The outcome of the records sent. Stores only undecided ones."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records = 0
        self.ranges: dict[int, tuple[int, int]] = {}
        self.refused_line: int | None = None
        self._error: Exception | None = None
        self._later = _Lines()
        self._unknown = _Lines()
        self._undecided: deque[tuple[int, Delivery]] = deque()

    def add(self, line: int, delivery: Delivery) -> None:
        """Count one more sent line."""
        self._undecided.append((line, delivery))

    def collect(self) -> bool:
        """Count known outcomes. False after a refused line: send nothing more."""
        while len(self._undecided) > _UNDECIDED_RECORDS_MAX or (self._undecided and self._undecided[0][1].done()):
            self._decide(*self._undecided.popleft())
        return self._error is None

    def finish(self) -> None:
        """Wait for all undecided outcomes and count them."""
        while self._undecided:
            self._decide(*self._undecided.popleft())

    def refuse(self, line: int, error: Exception) -> None:
        """Note a line that did not become a record. The first such line counts."""
        if self.refused_line is None or line < self.refused_line:
            self.refused_line, self._error = line, error

    def failure(self) -> InputError | None:
        """The first refused line, its error, and the lines to leave out when continuing there."""
        if self._error is None:
            return None
        message = f"line {self.refused_line}: {self._error}"
        if self._later.runs:
            message += f" (but {self._later} after it {'is' if self._later.is_one() else 'are'} in the log)"
        if self._unknown.runs and not (self._unknown.is_one() and self._unknown.runs[0][0] == self.refused_line):
            message += f" (whether {self._unknown} {'is' if self._unknown.is_one() else 'are'} in the log is unknown)"
        located = InputError(message)
        located.__cause__ = self._error
        return located

    def _decide(self, line: int, delivery: Delivery) -> None:
        try:
            self._count(delivery.result())
        except PylogError as error:
            if isinstance(error, OutcomeUnknown):
                self._unknown.add(line)
            self.refuse(line, error)
        else:
            if self.refused_line is not None and line > self.refused_line:
                self._later.add(line)

    def _count(self, metadata: RecordMetadata) -> None:
        self.records += 1
        if metadata.offset >= 0:
            first, last = self.ranges.get(metadata.partition, (metadata.offset, metadata.offset))
            self.ranges[metadata.partition] = min(first, metadata.offset), max(last, metadata.offset)

    def print(self, as_json: bool) -> None:
        ranges = sorted(self.ranges.items())
        answer: dict[str, Any] = {"topic": self.topic, "records": self.records}
        answer["partitions"] = [
            {"partition": n, "first_offset": first, "last_offset": last} for n, (first, last) in ranges
        ]
        if self.refused_line is not None:
            answer["refused_line"] = self.refused_line
            answer["later_lines"], answer["unknown_lines"] = self._later.runs, self._unknown.runs
        offsets = ", ".join([f"partition {number}: {first}-{last}" for number, (first, last) in ranges])
        text = f"{count_text(self.records, 'record')} to {self.topic}" + (f" ({offsets})" if offsets else "")
        print_answer(as_json, answer, text)


class _Lines:
    """Ascending line numbers, stored as runs."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []

    def add(self, line: int) -> None:
        if self.runs and self.runs[-1][1] == line - 1:
            self.runs[-1][1] = line
        else:
            self.runs.append([line, line])

    def is_one(self) -> bool:
        return len(self.runs) == 1 and self.runs[0][0] == self.runs[0][1]

    def __str__(self) -> str:
        shown = ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in self.runs)
        return f"line{'' if self.is_one() else 's'} {shown}"
