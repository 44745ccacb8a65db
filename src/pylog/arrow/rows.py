"""Tables as rows to send: allowed columns, and their values as lists in bounded pieces."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from pylog.codec.format import INT64_MAX
from pylog.errors import ConfigError
from pylog.model import Header

PIECE_ROWS = 10_000
PIECE_BYTES = 4 << 20
"""The most bytes of a piece, unless it is a single row; ``PIECE_ROWS`` is the most rows."""

IGNORED = ("topic", "offset", "timestampType")
"""Columns of read tables (``to_arrow``, ``poll_arrow``): a record's place, not its content."""

_PER_MS = {"us": 1_000, "ns": 1_000_000}


class Rows(NamedTuple):
    """Rows as lists of equal length. None for a column that is missing or has only nulls.

    The timestamps are an ``array("q")`` if each row has one that a record can have: the encoder
    takes it as it is. Values and keys as bytes take 40 ns a row, Spark's way into Python 600 ns.
    """

    values: list[bytes | None]
    keys: list[bytes | None] | None
    partitions: list[int | None] | None
    timestamps_ms: array[int] | list[int | None] | None
    headers: list[Sequence[Header]] | None


def rows_of(table: object) -> Iterator[Rows]:
    """The rows of a table or record batch, in order. ``ConfigError`` at once for wrong columns."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise ConfigError(f"send_arrow takes a pyarrow.Table or RecordBatch, not {type(table).__name__}", table=table)
    taken: pa.Table = table.select([at for at, name in enumerate(table.schema.names) if name not in IGNORED])
    _check_columns(taken.schema)
    _check_content(taken)
    return (_rows(piece) for batch in taken.to_batches(max_chunksize=PIECE_ROWS) for piece in _pieces(batch))


# Which columns


def _is_bytes(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        types.is_binary, types.is_string, types.is_large_binary, types.is_large_string, types.is_fixed_size_binary,
        types.is_binary_view, types.is_string_view, types.is_null,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _is_integer(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_null(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or _is_integer(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if types.is_null(kind):
        return True
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return (
        kind.value_type.num_fields == 2 and fields.keys() == {"key", "value"} and all(map(_is_bytes, fields.values()))
    )


_ALLOWED: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "value": (_is_bytes, "binary or string"),
    "key": (_is_bytes, "binary or string"),
    "partition": (_is_integer, "an integer"),
    "timestamp": (_is_time, "a timestamp, or an integer of milliseconds"),
    "headers": (_is_headers, "list<struct<key: string, value: binary>>"),
}


def _check_columns(schema: pa.Schema) -> None:
    names = list(schema.names)
    allowed = ", ".join(f"{name} ({kind})" for name, (_, kind) in _ALLOWED.items())
    wrong = [name for name in names if name not in _ALLOWED or names.count(name) > 1]
    if wrong:
        raise ConfigError(
            f"columns {', '.join(sorted(set(wrong)))}: a table to send has the column value, may have the others of "
            f"{allowed}, each once; {', '.join(IGNORED)} are ignored; leave out the rest with table.select([...])",
            columns=wrong, allowed=list(_ALLOWED),
        )  # fmt: skip
    if "value" not in names:
        raise ConfigError(
            f"no column value among {names}: a table to send has the column value, may have the others of {allowed}",
            columns=names, allowed=list(_ALLOWED),
        )  # fmt: skip
    for field in schema:
        is_fit, kind = _ALLOWED[field.name]
        if not is_fit(field.type):
            raise ConfigError(
                f"column {field.name} is {field.type}, expected {kind}",
                columns=[field.name], type=str(field.type), expected=kind,
            )  # fmt: skip


def _check_content(table: pa.Table) -> None:
    """Raises ``ConfigError`` for wrong lengths, or for entries that a dictionary lacks."""
    try:
        table.validate()
        for column in table.columns:
            if types.is_dictionary(column.type):
                column.validate(full=True)
    except pa.ArrowException as error:
        raise ConfigError(f"the table to send is not valid: {error}", columns=list(table.schema.names)) from error


# Size of a piece


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve the batch until each piece is small enough."""
    if batch.num_rows < 2 or sum(map(_size_bytes, batch.columns)) <= PIECE_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _size_bytes(array: pa.Array) -> int:
    """About the size as Python's bytes: not shared, unlike Arrow's views and dictionaries."""
    kind = array.type
    if types.is_dictionary(kind):
        return _sum(_lengths(_plain(array.dictionary)).take(array.indices))
    if types.is_list(kind) or types.is_large_list(kind):
        return sum(_size_bytes(part) for part in array.flatten().flatten())
    if types.is_binary_view(kind) or types.is_string_view(kind):
        # a view is 16 bytes and starts with its length in four bytes
        return sum(memoryview(array.buffers()[1]).cast("i")[4 * array.offset : 4 * (array.offset + len(array)) : 4])
    return _sum(_lengths(array)) if _is_bytes(kind) else 0


def _lengths(array: pa.Array) -> pa.Array:
    return pa.nulls(len(array), pa.int32()) if types.is_null(array.type) else pc.binary_length(array)


def _sum(lengths: pa.Array) -> int:
    return pc.sum(lengths).as_py() or 0


# As lists


def _rows(batch: pa.RecordBatch) -> Rows:
    """The rows of a piece. No ``array`` outlives this call: only Python's own values remain."""
    there = {
        name: batch.column(at) for at, name in enumerate(batch.schema.names) if batch.column(at).null_count < len(batch)
    }
    headers = there.get("headers")
    return Rows(
        _bytes(there["value"]) if "value" in there else [None] * len(batch),
        _bytes(there["key"]) if "key" in there else None,
        there["partition"].to_pylist() if "partition" in there else None,
        _milliseconds(there["timestamp"]) if "timestamp" in there else None,
        None if headers is None else _headers(headers),
    )


def _plain(array: pa.Array) -> pa.Array:
    """Views as plain bytes, which more of Arrow's functions take."""
    kind = array.type
    return array.cast(pa.large_binary()) if types.is_binary_view(kind) or types.is_string_view(kind) else array


def _bytes(array: pa.Array) -> list[bytes | None]:
    if types.is_dictionary(array.type):
        array = _plain(array.dictionary).take(array.indices)
    kind = array.type
    if types.is_string(kind):
        array = array.cast(pa.binary())
    elif types.is_large_string(kind) or types.is_string_view(kind):
        array = array.cast(pa.large_binary())
    found: list[bytes | None] = array.to_pylist()
    return found


def _milliseconds(column: pa.Array) -> array[int] | list[int | None]:
    """Finer units are truncated."""
    kind = column.type
    numbers = column.view(pa.int64()) if types.is_timestamp(kind) else column
    unit = kind.unit if types.is_timestamp(kind) else "ms"
    factor, divisor = (1_000 if unit == "s" else 1), _PER_MS.get(unit, 1)
    bounds = pc.min_max(numbers).as_py()
    if numbers.null_count or bounds["min"] < 0 or bounds["max"] > INT64_MAX // factor:
        return [None if time is None else time * factor // divisor for time in numbers.to_pylist()]
    whole = pc.divide(pc.multiply(numbers.cast(pa.int64()), factor), divisor)
    found = array("q")
    found.frombytes(memoryview(whole.buffers()[1])[8 * whole.offset : 8 * (whole.offset + len(whole))])
    return found


def _headers(array: pa.Array) -> list[Sequence[Header]]:
    """Pairs of name and value for each row; an empty tuple for null."""
    flat = array.flatten()
    fields = dict(zip([field.name for field in flat.type], flat.flatten(), strict=True))
    names = [name if name is None else name.decode(errors="surrogateescape") for name in _bytes(fields["key"])]
    pairs: list[Any] = list(zip(names, _bytes(fields["value"]), strict=True))
    found: list[Sequence[Header]] = []
    end = 0
    for length in pc.list_value_length(array).to_pylist():
        start, end = end, end + (length or 0)
        found.append(tuple(pairs[start:end]))
    return found
