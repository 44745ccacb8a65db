"""One partition: an append-only log in segments, shared by any number of processes.

``Partition`` is loaded when it is first asked for: a process that only reads loads no part that
writes.
"""

from typing import TYPE_CHECKING

from pylog.partition.read.cursor import Cursor, Fetched
from pylog.partition.segments import SegmentInfo

if TYPE_CHECKING:
    from pylog.partition.partition import Partition
else:

    def __getattr__(name: str) -> object:
        if name != "Partition":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from pylog.partition.partition import Partition

        return Partition


__all__ = ["Cursor", "Fetched", "Partition", "SegmentInfo"]
