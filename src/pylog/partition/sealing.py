"""Writes the seals of closed segments, from the segments themselves, each batch checked on the way.

Runs outside the lock: a closed segment doesn't change. A crash before or in the middle leaves a segment without a seal,
which reads as well; the next roll seals it.
"""

from __future__ import annotations

from pylog.errors import CorruptSegment, FormatVersionError
from pylog.partition.segments import Segments
from pylog.segment import SealBuilder, SegmentScan, read_seal, write_seal
from pylog.segment.naming import LOG, SEAL, file_path
from pylog.segment.seal import Seal
from pylog.storage import FileSystem

LEFTOVERS_MAX = 8  # sealed at one roll, so that no append pays for a long history


def seal_closed_segments(filesystem: FileSystem, directory: str, bases: list[int]) -> None:
    """Seal these segments if they have none. ``CorruptSegment`` where one is damaged already."""
    for base in bases:
        try:
            if not is_sealed(filesystem, directory, base):
                write_seal(filesystem, directory, base, build_seal(filesystem, directory, base))
        except FileNotFoundError:
            continue  # deleted meanwhile


def unsealed_behind(filesystem: FileSystem, directory: str, segments: Segments) -> list[int]:
    """Closed segments without a seal that follow the last one with: left by a roller that died, or by a loss of power."""
    found: list[int] = []
    for base in reversed(segments.bases[:-1]):
        if len(found) == LEFTOVERS_MAX or filesystem.exists(file_path(directory, base, SEAL)):
            break
        found.append(base)
    return found


def is_sealed(filesystem: FileSystem, directory: str, base: int) -> bool:
    """Whether the segment has a seal that can be read."""
    try:
        size = filesystem.size(file_path(directory, base, LOG))
        return read_seal(filesystem, directory, base, size) is not None
    except (CorruptSegment, FormatVersionError):
        return False


def build_seal(filesystem: FileSystem, directory: str, base: int, *, dense: bool = True) -> Seal:
    """The seal of a closed segment as it stands, every batch checked."""
    path = file_path(directory, base, LOG)
    file = filesystem.open_readable(path)
    try:
        builder = SealBuilder()
        scan = SegmentScan(file, 0, file.size(), next_offset=base, dense=dense)
        for position, header in scan:
            builder.add(position, header, scan.front(position))
        if scan.problem is not None:
            raise CorruptSegment(
                f"{path} is damaged at position {scan.position}, offset {scan.next_offset}: {scan.problem}",
                path=path,
                position=scan.position,
                offset=scan.next_offset,
                problem=scan.problem,
            )
        return builder.build()
    finally:
        file.close()
