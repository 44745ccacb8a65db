"""How far a partition that somebody else writes has grown since it was assessed: only what is new is read.

For Kafka's directories, where no commit slots say what is published and a reader looks again and again. Kafka appends to the
last segment; a follower may cut it, too, and write on. So what was assessed counts only while its last batch stands where it
stood. Else, and where something is wrong with what is new, everything is to be assessed again.
"""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from pylog.codec.format import HEADER_BYTES
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.read.assessment import Assessment
from pylog.segment import SegmentScan
from pylog.segment.naming import LOG, file_path
from pylog.storage import FileSystem, ReadableFile


class Known(NamedTuple):
    """What was assessed: where the log ends, and its producers there. ``last_header`` is of its last batch, as bytes.

    ``producers`` change as it goes on, so it is for one thread, which takes it away from all others.
    """

    found: Assessment
    producers: ProducerStates
    last_header: bytes


def remembered(filesystem: FileSystem, directory: str, found: Assessment, producers: ProducerStates) -> Known:
    """What to go on from later."""
    with closing(filesystem.open_readable(file_path(directory, found.active_base, LOG))) as file:
        return Known(found, producers, _header(file, found.last_position))


def grown(filesystem: FileSystem, directory: str, known: Known) -> Known | None:
    """The same with all that has come to its last segment; None where that can't be said."""
    found = known.found
    with closing(filesystem.open_readable(file_path(directory, found.active_base, LOG))) as file:
        size = file.size()
        if size < found.written_end or _header(file, found.last_position) != known.last_header:
            return None
        scan = SegmentScan(file, found.written_end, size, next_offset=found.log_end_offset, dense=False)
        last = found.last_position
        for last, header in scan:
            snapshots.fold(known.producers, header, last, file)
        if scan.problem is not None:
            return None
        ahead = found._replace(written_end=size, log_end_offset=scan.next_offset, cut_bytes=0, last_position=last)
        return Known(ahead, known.producers, _header(file, last))


def _header(file: ReadableFile, position: int) -> bytes:
    """Nothing where there is no batch yet."""
    return file.pread(HEADER_BYTES, position) if position >= 0 else b""
