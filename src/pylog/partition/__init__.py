"""One partition: an append-only log in segments, shared by any number of processes."""

from pylog.partition.partition import Partition
from pylog.partition.read.reader import Cursor, Fetched
from pylog.partition.segments import SegmentInfo

__all__ = ["Cursor", "Fetched", "Partition", "SegmentInfo"]
