"""Up to which offset a partition is clean: one number in a small file, like an entry of Kafka's ``cleaner-offset-checkpoint``.

Kafka keeps one file for all partitions; here each partition has its own, so that compactions do not wait for one another. If it
is lost or damaged, everything counts as dirty, which costs time and no record. It is written after the swap: a crash in between
has the same cost. A greater number than the right one would bring deleted keys back: a tombstone goes after its horizon, and an
older record of its key would stay. So a checksum protects it, over the topic's id too, and a recovery that cuts the log below
it lowers it.
"""

from __future__ import annotations

import logging

from pylog.codec.checksum import crc32c
from pylog.codec.format import INT64_MAX
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.partition.directory import PartitionDirectory
from pylog.segment.kafka_checkpoint import number_of, read_checkpoint, write_checkpoint
from pylog.segment.naming import CLEANER_CHECKPOINT

logger = logging.getLogger("pylog.partition")


def read_first_dirty(directory: PartitionDirectory) -> int:
    """The offset from which on nothing was compacted; -1 if it is unknown."""
    path = f"{directory.path}/{CLEANER_CHECKPOINT}"
    try:
        for topic, partition, word, checksum in read_checkpoint(directory.filesystem, path, 4):
            if (topic, partition) == (directory.topic_partition.topic, str(directory.topic_partition.partition)):
                offset = number_of(word, INT64_MAX, path)
                if checksum != _checksum(directory, offset):
                    raise CorruptSegment(
                        f"{path} is damaged: {checksum[:8]!r} is not its checksum", path=path, position=0
                    )
                return offset
    except own(CorruptSegment, FormatVersionError) as damage:
        logger.warning("%s; compacting everything again", damage)
    return -1


def write_first_dirty(directory: PartitionDirectory, offset: int) -> None:
    """Durable on return."""
    path = f"{directory.path}/{CLEANER_CHECKPOINT}"
    write_checkpoint(directory.filesystem, path, [(*directory.topic_partition, offset, _checksum(directory, offset))])


def _checksum(directory: PartitionDirectory, offset: int) -> str:
    return f"{crc32c(f'{directory.home} {offset}'.encode()):08x}"
