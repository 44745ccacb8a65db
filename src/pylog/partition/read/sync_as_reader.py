"""Makes records durable through files that are open for reading: without permission to write.

A reader must not act on a decision that a power failure may take back. Its writer may be dead, and
no other writer may come. The system syncs a file for every process that can open it.
"""

from __future__ import annotations

import logging
from contextlib import closing

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.read.aborted import is_assessed
from pylog.segment.naming import LOG, UNSYNCED

logger = logging.getLogger("pylog.partition")


def sync_as_reader(directory: PartitionDirectory, state: CommitState) -> bool:
    """Sync all that the segments contain after the durable end of ``state``. Publishes nothing.

    False if that proves nothing: a sync of a segment has failed, now or before, and its bytes may
    be in the page cache only. Then a writer must copy it. A mark of an earlier boot says nothing of
    this page cache.
    """
    filesystem = directory.filesystem
    segments = directory.segments()
    first = segments.floor(state.durable_offset)
    try:
        for base in segments.bases:
            if first is None or base >= first:
                with closing(filesystem.open_readable(directory.file_path(base, LOG))) as file:
                    file.sync()
                if not is_assessed(directory, state) and filesystem.exists(directory.file_path(base, UNSYNCED)):
                    return False
        filesystem.sync_directory(directory.path)
    except own(StorageError, FileNotFoundError) as error:
        logger.warning("%r: not synced by a reader: %s", directory.path, error)
        return False
    return True
