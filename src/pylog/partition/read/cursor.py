"""Where a reader continues, and what one read returns."""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec.batch import BatchView


class Cursor(NamedTuple):
    """Where to read next. ``base`` and ``position`` are the place in the file, -1 if the offset
    must be looked up.

    The position counts only in the file that was open as ``file_number``: compaction may replace it
    by another.
    """

    offset: int
    base: int = -1
    position: int = -1
    file_number: int = -1


class Fetched(NamedTuple):
    """Batches with records for the application, where to continue, and the visible end at that
    time.

    ``token`` is the partition's change token from before the read, None if it is unknown. For
    ``read_committed`` more may become readable while it stays the same, if ``is_blocked``.
    """

    batches: list[BatchView]
    cursor: Cursor
    end_offset: int
    token: object = None
    is_blocked: bool = False  # records follow, of a transaction that is under way
    is_unmarked: bool = False  # a transaction is over, but has no marker yet
