"""Checks the times of a segment's batches in its seal or the commit slots: wrong ones would hide
records. Reads nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pylog.codec.batch import BatchHeader
from pylog.codec.format import INT64_MIN
from pylog.partition.verify.findings import Finding, FirstFinding
from pylog.segment import Seal
from pylog.segment.seal import LEAST_EVERY_BYTES, TIMES_EVERY


class KnownTimesCheck:
    """Gets every batch in order."""

    def __init__(self, seal: Seal | None, seal_path: str, slots_least_ms: int, slots_path: str) -> None:
        """The commit slots record that no record is before ``slots_least_ms``; INT64_MIN if it is
        unknown."""
        self._of_seal = FirstFinding("seal", seal_path)
        self._of_slots = FirstFinding("slots", slots_path)
        self._seal = seal
        self._slots_least_ms = slots_least_ms

    @property
    def has_least(self) -> bool:
        """Whether a least time is recorded that a record may contradict."""
        return self._slots_least_ms != INT64_MIN or (self._seal is not None and bool(self._seal.least_ms))

    def batch(self, position: int, header: BatchHeader, least_ms: int) -> None:
        """A good batch, whose records have ``least_ms`` or later."""
        if least_ms < self._slots_least_ms:
            problem = (
                f"say that no record of the active segment is before {self._slots_least_ms}, one has {least_ms} (ms)"
            )
            self._of_slots.add(0, header.base_offset, header.last_offset + 1, problem)
        seal = self._seal
        number = seal.number_at(position) if seal is not None else None
        if seal is None or number is None:
            return
        block = position // LEAST_EVERY_BYTES
        said_ms = seal.least_ms[block] if seal.least_ms else least_ms
        if least_ms < said_ms:
            self._wrong_seal(header, f"says that no record of block {block} is before {said_ms}, one has {least_ms}")
        if header.is_control or not seal.greatest_ms:
            return
        if header.max_timestamp_ms > (said_ms := seal.greatest_ms[number // TIMES_EVERY]):
            problem = f"says that the first {number + 1} batches reach {said_ms}, one has {header.max_timestamp_ms}"
            self._wrong_seal(header, problem)

    def _wrong_seal(self, header: BatchHeader, problem: str) -> None:
        self._of_seal.add(0, header.base_offset, header.last_offset + 1, f"{problem} (ms)")

    def result(self) -> Iterator[Finding]:
        yield from self._of_slots.result()
        yield from self._of_seal.result()
