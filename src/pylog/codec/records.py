"""Encodes the records of an open batch and decodes those of a decompressed batch (readable codec).

Format: docs/format.md, "A batch, worked through". framing.py defines which records are correct. No
memory is allocated for a size that was read. ``_encoding.pxi`` and ``_decoding.pxi`` are the
compiled version; the same tests run on both.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from pylog.clock import machine_ns
from pylog.codec import faults
from pylog.codec.columns import Allocate, Columns, ColumnsBuilder, microseconds  # noqa: F401 - as in _records.pyx
from pylog.codec.fields import NO_HEADERS_ENCODED, bytes_of, encode_headers, encode_record
from pylog.codec.format import HEADER_BYTES, INT32_MAX, INT64_MAX, MAX_HEADERS, MIN_RECORD_BYTES, Buffer
from pylog.codec.framing import Payload, read_bounds, read_fields, read_headers
from pylog.codec.least_time import least_timestamp_ms  # noqa: F401 - as in _records.pyx
from pylog.codec.receipt import R, Receipt  # noqa: F401 - as in _records.pyx
from pylog.codec.times import NO_TIMES, Times, times_of
from pylog.codec.varint import SECOND_BYTE, UNZIGZAG, long_varint
from pylog.interrupts import own
from pylog.model import GivenHeaders, Headers, Record

_NO_HEADERS: Headers = ()

# Encoding


class RecordEncoder:
    """The encoded records of an open batch. Threads may call ``try_append`` at once, nothing else.

    ``limit_bytes`` limits the uncompressed batch with its header of 61 bytes. ``size_bytes`` is the
    size of the records. The timestamps are -1 while it is empty. ``now_ms`` is the clock for
    records without a time; None, the machine's clock, is fastest.
    """

    __slots__ = ("_buffer", "_is_closed", "_limit", "_now_ms", "_times", "count")

    def __init__(self, limit_bytes: int, now_ms: Callable[[], int] | None = None) -> None:
        if not isinstance(limit_bytes, int) or not 1 <= limit_bytes <= INT32_MAX:
            raise faults.unusable_limit(limit_bytes)
        self._limit = limit_bytes
        self._now_ms = now_ms
        self._is_closed = False
        self._clear()

    def _clear(self) -> None:
        self._buffer = bytearray(HEADER_BYTES)  # space for the batch header
        self._times = NO_TIMES
        self.count = 0

    @property
    def size_bytes(self) -> int:
        return len(self._buffer) - HEADER_BYTES

    @property
    def first_timestamp_ms(self) -> int:
        return self._times.first_ms

    @property
    def min_timestamp_ms(self) -> int:
        return self._times.min_ms

    @property
    def max_timestamp_ms(self) -> int:
        return self._times.max_ms

    def try_append(
        self,
        kind: type[R],
        batch: object,
        timestamp_ms: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: GivenHeaders,
    ) -> R | None:
        """Append a record, and return a receipt of ``kind``; None if it does not fit, or after
        ``close``.

        The default timestamp is the current time. Other threads, and a signal handler that sends,
        see the whole record or nothing, without a lock. Before any other use, close the encoder.
        """
        if timestamp_ms is None:
            timestamp_ms = machine_ns() // 1_000_000 if self._now_ms is None else self._now_ms()
        if timestamp_ms != self._times.last_ms or type(timestamp_ms) is not int:
            faults.check_timestamp(timestamp_ms)
        if type(key) is not bytes and key is not None:
            key = bytes_of("key", key)
        if type(value) is not bytes and value is not None:
            value = bytes_of("value", value)
        encoded_headers = NO_HEADERS_ENCODED if headers is _NO_HEADERS else encode_headers(headers)
        receipt = kind()
        receipt.batch = batch
        receipt.timestamp_ms = timestamp_ms
        while not self._is_closed:
            buffer, times, count = self._buffer, self._times, self.count
            if timestamp_ms != times.last_ms:
                times = times.then(timestamp_ms)
            record = encode_record(times.encoded, count, key, value, encoded_headers)
            if len(buffer) + len(record) > self._limit:
                if count == 0:
                    raise faults.record_too_large(len(buffer) + len(record), self._limit)
                return None
            receipt.index = count
            # Another thread or a signal handler may have appended first. After this check there is
            # no call and no jump until the end, so neither of them can run in between, and no
            # handler can raise.
            if count == self.count and not self._is_closed:
                buffer += record
                self._times = times
                self.count = count + 1
                return receipt
        return None

    def try_append_many(
        self,
        timestamp_ms: int | array[int],
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        start: int,
        stop: int,
    ) -> tuple[int, int]:
        """Append records of ``values[start:stop]``; returns the first one's index, and the count.

        An ``array("q")`` has a timestamp for each value. Stops before a record that does not fit,
        has another type than ``bytes`` or None or a wrong time of an array, or if another thread
        appends first. ``try_append`` and ``extend`` report the reason. Raises like ``append``; then
        nothing was appended.
        """
        time_of = times_of(timestamp_ms, start, stop)
        buffer, times, first = self._buffer, self._times, self.count
        records, room, index = bytearray(), self._limit - len(buffer), start
        while index < stop and (time_ms := time_of(index)) >= 0:
            key, value = None if keys is None else keys[index], values[index]
            if not ((type(value) is bytes or value is None) and (type(key) is bytes or key is None)):
                break
            then = times if time_ms == times.last_ms else times.then(time_ms)
            record = encode_record(then.encoded, first + index - start, key, value, NO_HEADERS_ENCODED)
            if len(records) + len(record) > room:
                if first + index == start:
                    raise faults.record_too_large(len(buffer) + len(record), self._limit)
                break
            records += record
            times = then
            index += 1
        if index > start and first == self.count and not self._is_closed:  # see try_append
            buffer += records
            self._times = times
            self.count = first + index - start
            return first, index - start
        return first, 0

    def close(self) -> None:
        """Make ``try_append`` return None. The records can still be taken."""
        self._is_closed = True

    def reopen(self) -> None:
        """Undo ``close``."""
        self._is_closed = False

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: GivenHeaders) -> bool:
        """Append a record. False, without a change, if it does not fit.

        ``RecordTooLarge`` if it does not fit an empty encoder, ``SerializationError`` for keys and
        values other than bytes-like or None and headers other than a sequence of pairs of str and
        such a value, or a mapping, ``InvalidTimestamp`` outside 0 .. 2**63 - 1. An error changes
        nothing.
        """
        faults.check_timestamp(timestamp_ms)
        return self._put(self._times.then(timestamp_ms), key, value, headers)

    def _put(self, times: Times, key: bytes | None, value: bytes | None, headers: GivenHeaders) -> bool:
        if type(key) is not bytes and key is not None:
            key = bytes_of("key", key)
        if type(value) is not bytes and value is not None:
            value = bytes_of("value", value)
        encoded_headers = NO_HEADERS_ENCODED if headers is _NO_HEADERS else encode_headers(headers)
        buffer, count = self._buffer, self.count
        record = encode_record(times.encoded, count, key, value, encoded_headers)
        if len(buffer) + len(record) > self._limit:
            if count == 0:
                raise faults.record_too_large(len(buffer) + len(record), self._limit)
            return False
        # no call and no jump from here on: a signal handler's exception would leave it half done
        buffer += record
        self._times = times
        self.count = count + 1
        return True

    def extend(
        self,
        timestamp_ms: int | array[int],
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        start: int,
        stop: int | None = None,
    ) -> int:
        """Append ``values[start:stop]`` with the keys at the same indexes, until one does not fit.

        Returns the index of the first one not appended. Raises like ``append``, with the fact
        ``index``; then no record of this call was appended. Lists and tuples are fastest.
        """
        end = len(values) if stop is None else min(stop, len(values))
        if not 0 <= start <= end or (keys is not None and len(keys) != len(values)):
            raise faults.unusable_slice(end, end if keys is None else len(keys), start)
        time_of = times_of(timestamp_ms, start, end)
        before = len(self._buffer), self._times, self.count
        index = start
        append = self.append
        try:
            while index < end and append(
                time_of(index), None if keys is None else keys[index], values[index], _NO_HEADERS
            ):
                index += 1
        except BaseException as error:
            size, self._times, self.count = before
            del self._buffer[size:]
            faults.locate(error, index)
            raise
        return index

    def take_batch(self) -> bytearray:
        """Remove and return the encoded records, after 61 zero bytes for the batch header."""
        batch = self._buffer
        self._clear()
        return batch


# Decoding


class RecordDecoder:
    """Decodes the records of a decompressed batch in order. Raises ``CorruptRecord``.

    ``append_time_ms`` is the timestamp of all records of a LogAppendTime batch, else -1. Offsets
    must rise and stay within ``last_offset_delta``. ``remaining`` records are not taken yet;
    ``size_bytes`` is the size of the payload.
    """

    __slots__ = ("_base_offset", "_count", "_index", "_lowest_delta", "_partition", "_payload", "_position", "_topic")

    def __init__(
        self,
        payload: Buffer,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_time_ms: int,
        topic: str,
        partition: int,
        last_offset_delta: int = INT32_MAX,
    ) -> None:
        data = payload if type(payload) is bytes else memoryview(payload).tobytes()
        if not 0 <= count <= len(data) // MIN_RECORD_BYTES:
            raise faults.impossible_count(count, len(data))
        highest_delta = min(last_offset_delta, INT64_MAX - base_offset)
        self._payload = Payload(data, base_timestamp_ms, append_time_ms, highest_delta)
        self._count = count
        self._base_offset = base_offset
        self._topic = topic
        self._partition = partition
        self._lowest_delta = 0
        self._index = 0
        self._position = 0

    @property
    def remaining(self) -> int:
        return self._count - self._index

    @property
    def size_bytes(self) -> int:
        return len(self._payload.data)

    def take(self, max_records: int) -> list[Record]:  # noqa: C901 - unrolled: a call costs more than a field
        """The next records, at most ``max_records``, fewer if they have very many headers; [] at
        the end."""
        data, base_timestamp, append_time, highest = self._payload
        topic, partition, base_offset = self._topic, self._partition, self._base_offset
        index, position, lowest = self._index, self._position, self._lowest_delta
        size, stop, headers_left = len(data), min(self._count, index + max_records), MAX_HEADERS
        in_range = append_time >= 0 or abs(base_timestamp) < INT64_MAX >> 1
        second, unzigzag, new = SECOND_BYTE, UNZIGZAG, tuple.__new__
        records: list[Record] = []
        while index < stop and headers_left > 0:
            # The common case: varints of one or two bytes, without a bound check per byte. If the
            # record does not fit, framing.py reads it again with all checks, and raises the error.
            try:
                bits = data[position]
                at = position + 1
                if bits >= 0x80:
                    bits += second[data[at]]
                    at += 1
                end = at + unzigzag[bits]
                bits = data[at + 1]  # after the attributes
                at += 2
                if bits < 0x80:
                    delta = unzigzag[bits]
                else:
                    delta, at = long_varint(data, at - 1)
                timestamp = base_timestamp + delta if append_time < 0 else append_time
                bits = data[at]
                at += 1
                if bits >= 0x80:
                    bits += second[data[at]]
                    at += 1
                delta = unzigzag[bits]
                bits = data[at]
                at += 1
                if bits >= 0x80:
                    bits += second[data[at]]
                    at += 1
                length = unzigzag[bits]
                if length >= 0:
                    start = at
                    at += length
                    key = data[start:at]
                elif length == -1:
                    key = None
                else:
                    raise IndexError
                bits = data[at]
                at += 1
                if bits >= 0x80:
                    bits += second[data[at]]
                    at += 1
                length = unzigzag[bits]
                if length >= 0:
                    start = at
                    at += length
                    value = data[start:at]
                elif length == -1:
                    value = None
                else:
                    raise IndexError
                if not (lowest <= delta <= highest and at < end <= size and in_range):
                    raise IndexError
                if data[at] == 0:
                    headers = _NO_HEADERS
                    at += 1
                else:
                    headers, at = read_headers(data, index, at, end)
                if at != end:
                    raise IndexError
            except own(IndexError):
                bounds = read_bounds(self._payload, index, position, lowest)
                key, value, headers = read_fields(self._payload, index, bounds)
                timestamp, delta, at = bounds.timestamp_ms, bounds.offset_delta, bounds.end
            if headers:
                headers_left -= len(headers)
            records.append(new(Record, (topic, partition, base_offset + delta, timestamp, key, value, headers)))
            position = at
            lowest = delta + 1
            index += 1
        if index == self._count and position != size:
            raise faults.trailing_bytes(index, position, size - position)
        self._index, self._position, self._lowest_delta = index, position, lowest
        return records

    def skip_to(self, offset: int) -> None:
        """Skip the records below ``offset``; reads only their length, time and offset."""
        index, position, lowest = self._index, self._position, self._lowest_delta
        while index < self._count:
            bounds = read_bounds(self._payload, index, position, lowest)
            if self._base_offset + bounds.offset_delta >= offset:
                break
            index, position, lowest = index + 1, bounds.end, bounds.offset_delta + 1
        self._index, self._position, self._lowest_delta = index, position, lowest


# Columns


def decode_columns(
    payload: Buffer,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int,
    with_headers: bool,
    last_offset_delta: int = INT32_MAX,
    allocate: Allocate = bytearray,
) -> Columns:
    """All records of a decompressed batch as columns, in memory from ``allocate``. The other
    arguments and the errors are those of ``RecordDecoder``."""
    if len(payload) > INT32_MAX:
        raise faults.payload_too_large(len(payload), INT32_MAX)
    decoder = RecordDecoder(payload, count, base_offset, base_timestamp_ms, append_time_ms, "", 0, last_offset_delta)
    builder = ColumnsBuilder(with_headers, allocate)
    while records := decoder.take(4096):
        for record in records:
            builder.append(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
    return builder.columns()
