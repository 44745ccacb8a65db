"""What compaction has done to a partition: two numbers in a small file, like entries of Kafka's
``cleaner-offset-checkpoint``.

Kafka keeps one file for all partitions; here each partition has its own, so that compactions do not
wait for one another.

``first_dirty`` is written after the swaps: a crash in between costs time and no record. Without it
everything counts as dirty. A greater number than the right one would bring deleted keys back: a
tombstone goes after its horizon, and an older record of its key would stay.

``dropped_to`` is written before the swap that drops tombstones. So a reader that asks after it has
read learns of each that it could not find. A lower number than the right one would leave deleted
keys in tables.

So each has a checksum, over the topic's id too.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from pylog.codec.checksum import crc32c
from pylog.codec.format import INT64_MAX
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.partition.directory import PartitionDirectory
from pylog.segment.kafka_checkpoint import number_of, read_checkpoint, write_checkpoint
from pylog.segment.naming import CLEANER_CHECKPOINT

logger = logging.getLogger("pylog.partition")


class CleanerCheckpoint(NamedTuple):
    """What compaction has done."""

    first_dirty: int
    """Before it no tombstone has an older record of its key; from it on nothing was compacted. 0 if
    it is unknown."""
    dropped_to: int
    """No tombstone from here on was dropped because its horizon had come. The greatest number if it
    is unknown."""


def read_cleaned(directory: PartitionDirectory) -> CleanerCheckpoint:
    path = f"{directory.path}/{CLEANER_CHECKPOINT}"
    try:
        entries = read_checkpoint(directory.filesystem, path, 4)
        if not entries:
            was_compacted = directory.filesystem.exists(path)
            return CleanerCheckpoint(0, INT64_MAX if was_compacted else 0)
        first_dirty = _number(directory, path, entries[0])
        # Earlier builds wrote one number.
        dropped_to = _number(directory, path, entries[1], first_dirty) if len(entries) > 1 else INT64_MAX
        return CleanerCheckpoint(first_dirty, dropped_to)
    except own(CorruptSegment, FormatVersionError) as damage:
        logger.warning("%s; compacting everything again", damage)
    return CleanerCheckpoint(0, INT64_MAX)


def write_cleaned(directory: PartitionDirectory, cleaned: CleanerCheckpoint) -> None:
    """Durable on return."""
    path, place = f"{directory.path}/{CLEANER_CHECKPOINT}", directory.topic_partition
    entries = [
        (*place, cleaned.first_dirty, _checksum(directory, cleaned.first_dirty)),
        (*place, cleaned.dropped_to, _checksum(directory, *cleaned)),
    ]
    write_checkpoint(directory.filesystem, path, entries)


def _number(directory: PartitionDirectory, path: str, entry: list[str], *before: int) -> int:
    """The number of an entry whose checksum is right. The topic's name may be one from before it
    was renamed."""
    number = number_of(entry[2], INT64_MAX, path)
    if entry[3] != _checksum(directory, *before, number):
        raise CorruptSegment(f"{path} is damaged: {entry[3][:8]!r} is not its checksum", path=path, position=0)
    return number


def _checksum(directory: PartitionDirectory, *numbers: int) -> str:
    return f"{crc32c(' '.join([directory.home, *map(str, numbers)]).encode()):08x}"
