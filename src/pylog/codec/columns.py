"""A batch as columns: plain buffers in Arrow's layout, so that an Arrow table is made of them without a copy.

Owns the names of the buffers and the readable way to fill them. Never imports pyarrow. All integers are in the machine's
byte order.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from pylog.model import Headers


class Columns(NamedTuple):
    """The records of one batch. Offsets of bytes are int32, one more than there are values; validity is a bitmap, least
    significant bit first, 1 where the value is there. The header columns are None where they were not asked for."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    offsets: bytes
    timestamps_ms: bytes
    key_offsets: bytes
    key_validity: bytes
    key_data: bytes
    value_offsets: bytes
    value_validity: bytes
    value_data: bytes
    header_list_offsets: bytes | None
    header_key_offsets: bytes | None
    header_key_data: bytes | None
    header_value_offsets: bytes | None
    header_value_validity: bytes | None
    header_value_data: bytes | None


class ColumnsBuilder:
    """Fills columns record by record."""

    def __init__(self, with_headers: bool) -> None:
        self._with_headers = with_headers
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
            (column.offsets.tobytes(), bytes(column.validity), bytes(column.data))
            for column in (self._keys, self._values, self._header_keys, self._header_values)
        )
        records = len(self._offsets), self._offsets.tobytes(), self._timestamps.tobytes(), *keys, *values
        if not self._with_headers:
            return Columns(*records, None, None, None, None, None, None)
        return Columns(*records, self._lists.tobytes(), header_keys[0], header_keys[2], *header_values)


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
