"""A batch as columns: buffers in Arrow's layout, from which Arrow tables are made without a copy.

Never imports pyarrow. Integers are in the machine's byte order. The caller's ``allocate`` returns a
writable buffer of exactly the requested size.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from pylog.codec import faults
from pylog.codec.format import INT64_MAX, Buffer
from pylog.model import Headers

Allocate = Callable[[int], Any]  # returns any object with the buffer protocol


class Columns(NamedTuple):
    """The records of one batch. Byte offsets are int32, one more than there are values.

    Validity is a bitmap, least significant bit first; 1 means not null. The header columns are None
    if they were not requested.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count
    offsets: Buffer
    timestamps_ms: Buffer
    key_offsets: Buffer
    key_validity: Buffer
    key_data: Buffer
    value_offsets: Buffer
    value_validity: Buffer
    value_data: Buffer
    header_list_offsets: Buffer | None
    header_key_offsets: Buffer | None
    header_key_data: Buffer | None
    header_value_offsets: Buffer | None
    header_value_validity: Buffer | None
    header_value_data: Buffer | None


class ColumnsBuilder:
    def __init__(self, with_headers: bool, allocate: Allocate) -> None:
        self._with_headers = with_headers
        self._allocate = allocate
        self._offsets, self._timestamps, self._lists = array("q"), array("q"), array("i", [0])
        self._keys, self._values = _BytesColumn(), _BytesColumn()
        self._header_keys, self._header_values = _BytesColumn(), _BytesColumn()

    def append(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        self._offsets.append(offset)
        self._timestamps.append(timestamp_ms)
        self._keys.append(key)
        self._values.append(value)
        if self._with_headers:
            for header_key, header_value in headers:
                self._header_keys.append(header_key.encode())
                self._header_values.append(header_value)
            self._lists.append(len(self._header_keys.offsets) - 1)

    def columns(self) -> Columns:
        keys, values, header_keys, header_values = (
            (self._copied(column.offsets), self._copied(column.validity), self._copied(column.data))
            for column in (self._keys, self._values, self._header_keys, self._header_values)
        )
        records = len(self._offsets), self._copied(self._offsets), self._copied(self._timestamps), *keys, *values
        if not self._with_headers:
            return Columns(*records, None, None, None, None, None, None)
        return Columns(*records, self._copied(self._lists), header_keys[0], header_keys[2], *header_values)

    def _copied(self, data: array[int] | bytearray) -> Any:
        return copied(data, self._allocate)


def copied(data: array[int] | bytearray, allocate: Allocate) -> Any:
    source = memoryview(data).cast("B")
    space = allocate(len(source))
    with memoryview(space) as target:
        if target.nbytes != len(source):
            raise faults.wrong_space(target.nbytes, len(source))
        target.cast("B")[:] = source
    return space


def microseconds(timestamps_ms: Buffer, allocate: Allocate) -> Any | None:
    """Converts the times of ``Columns`` to microseconds; None if one of them is out of range."""
    times = memoryview(timestamps_ms).cast("B").cast("q")
    if any(abs(time) > INT64_MAX // 1000 for time in times):
        return None
    return copied(array("q", [1000 * time for time in times]), allocate)


class _BytesColumn:
    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.validity = bytearray()
        self.data = bytearray()

    def append(self, value: bytes | None) -> None:
        index = len(self.offsets) - 1
        if index % 8 == 0:
            self.validity.append(0)
        if value is not None:
            self.validity[-1] |= 1 << index % 8
            self.data += value
        self.offsets.append(len(self.data))
