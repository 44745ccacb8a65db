"""A step of maintenance: it removes what a compaction or an erasure that died has left, which
could stay for years, and counts against the log's bound. It also ends the transactions of dead and
late producers: in a partition without writers and waiting readers they would hold segments."""

from __future__ import annotations

from collections.abc import Iterable

from pylog.cleaner.report import PartitionMaintenance
from pylog.cleaner.step import Target
from pylog.errors import PylogError, StorageError
from pylog.interrupts import own, suppress
from pylog.partition.write.leftovers import are_left, leftover_bytes, remove_leftovers

LEFTOVERS = "leftovers"
BY_CRASH = "left by a crash"


def free_leftovers(target: Target) -> PartitionMaintenance | None:
    """None if there are none, as nearly always."""
    partition, directory = target.partition, target.partition.directory
    try:
        end_transactions([target])
        if not are_left(directory):
            return None
        if target.dry_run:
            size_bytes = leftover_bytes(directory)
        else:
            partition.settle(target.timeout_ms)  # finishes a swap that was decided
            size_bytes = remove_leftovers(directory)
    except own(FileNotFoundError) as error:
        raise directory.missing(error) from error
    except own(StorageError):
        if not target.dry_run:
            raise
        return None  # only writers may ask for the lock, and so tell whether it is under way
    log_start = partition.current().log_start_offset
    return target.report(LEFTOVERS, log_start)._replace(deleted_bytes=size_bytes, rules=(BY_CRASH,))


def end_transactions(targets: Iterable[Target]) -> None:
    """Those that dead and late producers have left in these partitions."""
    for target in targets:
        with suppress(PylogError, FileNotFoundError):  # a damaged or deleted partition: the other steps report it
            state = target.partition.current()
            if state.last_stable_offset < state.high_watermark and not target.dry_run:
                target.partition.settle_transactions()
