"""Copies a segment to a new, synced file in its place: the answer to a sync that failed.

After a failed sync the system may count the lost pages as clean, so syncing the same file again proves nothing; but the
page cache still has them. Every batch is checked on the way. A crash leaves the old file or the new one, and perhaps a
``.rewrite`` file, which nothing reads and ``sweep`` removes.
"""

from __future__ import annotations

from pylog.errors import StorageError
from pylog.partition.grant import Grant
from pylog.segment import SegmentScan
from pylog.segment.naming import LOG, REWRITE

_PIECE_BYTES = 1 << 20


def rewrite(grant: Grant, base: int, end: int, next_offset: int) -> None:
    """Replace the segment's log by a copy of its first ``end`` bytes, which reach up to ``next_offset``.

    Durable on return. ``StorageError`` if the page cache has not kept them either, as on btrfs.
    """
    directory = grant.directory
    path = directory.file_path(base, LOG)
    source = directory.filesystem.open_readable(path)
    target = directory.filesystem.open_appendable(path + REWRITE)
    try:
        target.truncate(0)
        scan = SegmentScan(source, 0, end, next_offset=base)
        for position, header in scan:
            for at in range(position, position + header.size_bytes, _PIECE_BYTES):
                target.pwrite(source.pread(min(_PIECE_BYTES, position + header.size_bytes - at), at), at)
        if scan.problem is not None or scan.next_offset != next_offset:
            problem = scan.problem or f"it ends at offset {scan.next_offset}, expected {next_offset}"
            raise StorageError(
                f"{path} could not be copied after a failed sync: damaged at position {scan.position}: {problem}",
                path=path,
                position=scan.position,
                next_offset=scan.next_offset,
                expected=next_offset,
            )
        target.sync()
    finally:
        source.close()
        target.close()
    grant.check()
    directory.filesystem.replace(path + REWRITE, path)
    directory.filesystem.sync_directory(directory.path)
