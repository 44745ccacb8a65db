"""Reads all batches of one segment, for compaction and erasures."""

from __future__ import annotations

import errno
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from pylog.codec.batch import BatchView
from pylog.errors import CorruptSegment
from pylog.interrupts import own
from pylog.limits import FETCH_BYTES
from pylog.partition.directory import PartitionDirectory
from pylog.segment import SegmentReader


def batches_of(
    directory: PartitionDirectory, base: int, end: int, size_bytes: int, *, closed: bool = True
) -> Generator[Sequence[BatchView], None, None]:
    """The batches, checked, some at a time. The segment ends before the offset ``end``, and at
    ``size_bytes`` of its file.

    A loop that leaves early closes it. ``CorruptRecord``, also if it has fewer offsets;
    ``FileNotFoundError`` if it was deleted.
    """
    reader = SegmentReader(
        directory.filesystem, directory.path, base, closed=closed, home=directory.home, end_offset=end,
        batch_limit_bytes=lambda: directory.settings().max_message_bytes,
    )  # fmt: skip
    with closing(reader):
        try:
            yield from _read(reader, end, size_bytes)
        except own(CorruptSegment) as damage:
            if not directory.filesystem.exists(reader.path):  # so may be its seal, without which gaps look like damage
                raise FileNotFoundError(errno.ENOENT, "was deleted while it was read", reader.path) from damage
            raise


def _read(reader: SegmentReader, end: int, size_bytes: int) -> Iterator[Sequence[BatchView]]:
    position, offset = 0, reader.base_offset
    while views := reader.read(position, size_bytes, max_bytes=FETCH_BYTES, next_offset=offset):
        yield views
        position += sum(view.header.size_bytes for view in views)
        offset = views[-1].last_offset + 1
    if reader.gap_end(offset) != end:
        raise CorruptSegment(
            f"{reader.path} ends at offset {offset}, but the next segment begins at {end}; restore it",
            path=reader.path, position=position, offset=offset, next_offset=end,
        )  # fmt: skip
