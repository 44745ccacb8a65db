"""Records as columns, from batch to table without a ``Record`` in between. Needs pyarrow.

A batch is decoded at once, and its memory counts as held while some of its rows are not taken.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING

from pylog import arrow
from pylog.codec.batch import BatchView
from pylog.codec.format import INT32_MAX
from pylog.errors import InvalidTimestamp
from pylog.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowChunk:
    """Parts of decoded batches, in order."""

    __slots__ = ("_count", "parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: list[tuple[TopicPartition, arrow.Part]] = []
        self.size_bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, of: TopicPartition, part: arrow.Part) -> None:
        self.parts.append((of, part))
        self.size_bytes += part.size_bytes()
        self._count += part.length()

    def extend(self, more: ArrowChunk) -> None:
        self.parts += more.parts
        self.size_bytes += more.size_bytes
        self._count += len(more)


class ColumnsDecoder:
    """One decoded batch; ``take`` returns slices of it."""

    __slots__ = ("_columns", "_end", "_index", "_of", "_unfit", "_view")

    def __init__(self, view: BatchView, of: TopicPartition, limit_bytes: int, with_headers: bool) -> None:
        self._view = view
        self._of = of
        self._columns = view.columns(limit_bytes, with_headers, arrow.allocate)
        self._begin_at(0)

    def _begin_at(self, index: int) -> None:
        self._index = index
        self._end, self._unfit = arrow.check_times(self._columns, index, self._of)

    @property
    def remaining(self) -> int:
        return self._columns.count - self._index

    @property
    def size_bytes(self) -> int:
        return sum(len(buffer) for buffer in self._columns[1:] if buffer is not None)

    def skip_to(self, offset: int) -> None:
        self._begin_at(bisect_left(memoryview(self._columns.offsets).cast("q"), offset))

    def take(self, max_records: int) -> ArrowChunk:
        """The next rows. Raises ``InvalidTimestamp`` if Arrow cannot hold the first one's time."""
        low, high = self._index, min(self._index + max_records, self._end)
        rows = ArrowChunk()
        if low < high:
            rows.add(self._of, arrow.Part.of(self._view, self._columns, low, high))
            self._index = high
        elif self._unfit is not None:
            raise _with_remedy(self._unfit)
        return rows


class ArrowFormat:
    """A table with the columns of ``Partition.to_arrow``, of about ``limit_bytes`` at most."""

    decode_records_max = INT32_MAX
    transform = None

    def __init__(self, with_headers: bool, limit_bytes: int) -> None:
        self._schema = arrow.schema(headers=with_headers)
        self._with_headers = with_headers
        self._limit_bytes = limit_bytes

    def nothing(self) -> ArrowChunk:
        return ArrowChunk()

    def decoder(self, view: BatchView, of: TopicPartition, limit_bytes: int) -> tuple[ColumnsDecoder, int]:
        decoder = ColumnsDecoder(view, of, limit_bytes, self._with_headers)
        return decoder, decoder.size_bytes

    def next_offset(self, chunk: ArrowChunk) -> int:
        _, part = chunk.parts[-1]
        return memoryview(part.columns.offsets).cast("q")[part.high - 1] + 1

    def is_full(self, chunk: ArrowChunk) -> bool:
        return chunk.size_bytes >= self._limit_bytes

    def table(self, rows: ArrowChunk) -> pa.Table:
        """The rows as a table. Raises no ``PylogError``: the positions are past the rows
        already."""
        return arrow.table_of_parts(rows.parts, self._schema)


@lru_cache(maxsize=16)
def arrow_format(with_headers: bool, limit_bytes: int) -> ArrowFormat:
    """The same object for the same arguments: a new one would make partitions read again."""
    return ArrowFormat(with_headers, limit_bytes)


def _with_remedy(unfit: InvalidTimestamp) -> InvalidTimestamp:
    return InvalidTimestamp(
        f"{unfit}; seek to {unfit.offset + 1} to continue after this record, or read it with poll()", **unfit.facts
    )
