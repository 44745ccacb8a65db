"""What maintenance did, what it left, and why: values for callers."""

from __future__ import annotations

from typing import NamedTuple

_DAY_MS = 86_400_000
OVERDUE_MS = _DAY_MS
"""What is due for longer is a problem: no process maintains the log, or something holds what should
go."""


class PartitionMaintenance(NamedTuple):
    """One step on one partition. With ``dry_run`` it says what would be done.

    ``rules``: by which segments went, or why they were compacted. ``kept``: why the oldest segment
    that is left stays, or why not all was compacted; ``detail`` is more about that, for people.
    ``overdue_ms``: how long the oldest segment that went had been due. ``held_ms``: how long what
    is ``kept`` has been due by ``held_rule``; 0 if it is not due. ``error``: why the step failed;
    the next maintenance tries again. ``bytes_before`` and ``bytes_after``: of the log files that
    were compacted, and of what is left of them, with ``records_kept``.
    """

    topic: str
    partition: int
    step: str
    log_start_offset: int
    deleted_segments: int = 0
    deleted_bytes: int = 0
    rules: tuple[str, ...] = ()
    kept: str = ""
    detail: str = ""
    overdue_ms: int = 0
    error: str = ""
    bytes_before: int = 0
    bytes_after: int = 0
    records_kept: int = 0
    records_dropped: int = 0
    held_rule: str = ""
    held_ms: int = 0


class LogMaintenance(NamedTuple):
    """The bound of the whole log. ``size_bytes``: of all files of all partitions afterwards, at
    most; 0 without a bound.

    ``excess_bytes`` are above ``max_bytes`` and can't go: ``kept`` tells why, with the bytes of
    each reason.
    """

    max_bytes: int
    size_bytes: int = 0
    excess_bytes: int = 0
    kept: tuple[tuple[str, int], ...] = ()


class MaintenanceReport(NamedTuple):
    """``unlimited`` partitions have no policy that deletes or compacts; the others are in
    ``partitions``, and those with leftovers of a crash. ``unreadable`` has an error for each topic
    whose file is damaged: nothing was done there, and ``log`` does not count its bytes."""

    dry_run: bool
    partitions: tuple[PartitionMaintenance, ...]
    unlimited: int
    log: LogMaintenance
    unreadable: tuple[str, ...] = ()

    @property
    def deleted_segments(self) -> int:
        """Of all partitions."""
        return sum(done.deleted_segments for done in self.partitions)

    @property
    def deleted_bytes(self) -> int:
        """Of all partitions."""
        return sum(done.deleted_bytes for done in self.partitions)

    @property
    def failures(self) -> list[str]:
        """The topics that can't be read, and the steps that failed, and why."""
        return [*self.unreadable] + [
            f"{done.topic}-{done.partition}: {done.step} failed: {done.error}" for done in self.partitions if done.error
        ]

    @property
    def problems(self) -> list[str]:
        """``failures``; what has been overdue for a day, or held for a day though it was due (an
        open transaction could fill the disk); a bound that can't be kept."""
        found = self.failures
        found += [
            f"{done.topic}-{done.partition}: {done.step} has been due for {done.overdue_ms // _DAY_MS} d "
            f"({done.deleted_bytes or done.bytes_before} bytes, by {', '.join(done.rules)})"
            for done in self.partitions
            if self.dry_run and not done.error and done.overdue_ms >= OVERDUE_MS
        ]
        found += [
            f"{done.topic}-{done.partition}: {done.step} has been due for {done.held_ms // _DAY_MS} d by {done.held_rule}, "
            f"but is held: {done.kept}{f' ({done.detail})' if done.detail else ''}"
            for done in self.partitions
            if done.held_ms >= OVERDUE_MS
        ]
        if self.log.excess_bytes:
            reasons = ", ".join(f"{reason}: {size} bytes" for reason, size in self.log.kept)
            found.append(
                f"the log is {self.log.excess_bytes} bytes above max_bytes={self.log.max_bytes}, and nothing more can go "
                f"({reasons})"
            )
        return found
