"""Removes what a crash left in a partition directory and nothing reads: it only takes room.

The lock excludes those who rename and copy, but not a process that writes a seal at this moment. It does so under a name
that nobody else uses: if that file is taken from it, it cannot put its seal in place, and the segment is sealed another time.
"""

from __future__ import annotations

import logging

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.partition.directory import PartitionDirectory
from pylog.segment.naming import is_leftover

logger = logging.getLogger("pylog.partition")


def sweep(directory: PartitionDirectory) -> list[str]:
    """Remove unfinished copies and files on their way out; the names of those removed. The caller holds the lock.

    What the system refuses to remove stays, with a warning: it harms nobody. Nothing is synced, for what a loss of power
    brings back is swept by the next writer that recovers.
    """
    removed = []
    for name in filter(is_leftover, directory.names()):
        try:
            directory.filesystem.remove(f"{directory.path}/{name}")
            removed.append(name)
        except own(StorageError) as error:
            logger.warning("a leftover of a crash stays: %s", error)
    return removed
