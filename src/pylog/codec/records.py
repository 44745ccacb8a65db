"""Records to bytes and back: Kafka's record framing (docs/format.md, section 3), readable.

Owns the encoding of one open batch's records and the walk over one batch's decompressed records. Knows no batch header,
no compression, no offset but those it is given. What it reads is right where framing.py would read the same; nothing is
allocated from a size that was read. With framing.py this is the specification of ``_records.pyx``, which does the same,
compiled; the same tests run on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pylog.clock import SystemClock
from pylog.codec import faults
from pylog.codec.columns import Allocate, Columns, ColumnsBuilder
from pylog.codec.format import HEADER_BYTES, INT32_MAX, INT64_MAX, MAX_HEADERS, MIN_RECORD_BYTES, Buffer
from pylog.codec.framing import Payload, read_fields, read_headers, read_place
from pylog.codec.receipt import R, Receipt  # noqa: F401 - part of what the compiled module has, too
from pylog.codec.varint import UNZIGZAG, VARINTS, encode_varint, long_varint, varint
from pylog.errors import SerializationError
from pylog.model import Header, Headers, Record

_NULL = encode_varint(-1)
_NO_HEADERS_ENCODED = encode_varint(0)
_NO_HEADERS: Headers = ()
_TABLED = len(VARINTS)

# Encoding


def _check_timestamp(timestamp_ms: int) -> None:
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool) or not 0 <= timestamp_ms <= INT64_MAX:
        raise faults.unusable_timestamp(timestamp_ms)


def _bytes_of(field: str, value: object) -> bytes:
    if type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise faults.not_bytes(field, value)
    try:
        return memoryview(value).tobytes()
    except ValueError as error:  # a released memoryview
        raise SerializationError(f"{field}: {error}", field=field) from error


def _sized(field: str, value: object) -> bytes:
    if value is None:
        return _NULL
    data = _bytes_of(field, value)
    return varint(len(data)) + data


def _encode_headers(headers: Sequence[Header]) -> bytes:
    try:
        listed = list(headers)
    except TypeError:
        raise faults.unusable_headers(headers) from None
    if len(listed) > MAX_HEADERS:
        raise faults.headers_too_many(len(listed))
    parts = [varint(len(listed))]
    for header in listed:
        try:
            name, value = header
        except (TypeError, ValueError):
            raise faults.unusable_header(header, "no pair") from None
        if not isinstance(name, str):
            raise faults.unusable_header(header, f"key is {type(name).__name__}")
        try:
            encoded = str.encode(name)
        except UnicodeEncodeError:
            raise faults.unusable_header(header, "key is not UTF-8") from None
        parts += varint(len(encoded)), encoded, _sized("header value", value)
    return b"".join(parts)


class RecordEncoder:
    """The open batch's records, encoded as they arrive. Not safe for several threads at once.

    ``limit_bytes`` bounds the whole uncompressed batch, its header of 61 bytes included. ``count``, ``size_bytes``
    (records only), ``first_timestamp_ms`` and ``max_timestamp_ms`` (-1 while empty) describe what it holds. ``now_ms``
    is the clock for records entered without a time; None is the machine's, which costs the compiled encoder least.
    """

    __slots__ = ("_buffer", "_is_closed", "_limit", "_now_ms", "count", "first_timestamp_ms", "max_timestamp_ms")

    def __init__(self, limit_bytes: int, now_ms: Callable[[], int] | None = None) -> None:
        if not isinstance(limit_bytes, int) or not 1 <= limit_bytes <= INT32_MAX:
            raise faults.unusable_limit(limit_bytes)
        self._limit = limit_bytes
        self._now_ms = SystemClock().now_ms if now_ms is None else now_ms
        self._is_closed = False
        self._clear()

    def _clear(self) -> None:
        self._buffer = bytearray(HEADER_BYTES)  # the batch header's place stays free in front
        self.count = 0
        self.first_timestamp_ms = -1
        self.max_timestamp_ms = -1

    @property
    def size_bytes(self) -> int:
        return len(self._buffer) - HEADER_BYTES

    def enter(
        self,
        kind: type[R],
        batch: object,
        timestamp_ms: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> R | None:
        """Append a record and make a receipt of ``kind`` for it; None where it does not fit, or after ``close``.

        A record without a timestamp gets the time of now.
        The compiled encoder does so in one step as other threads see it, so that ``enter`` and ``close`` need no lock.
        """
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        if self._is_closed:
            return None
        index = self.count
        if not self.append(timestamp_ms, key, value, headers):
            return None
        receipt = kind()
        receipt.batch = batch
        receipt.index = index
        receipt.timestamp_ms = timestamp_ms
        return receipt

    def close(self) -> None:
        """``enter`` takes no more records. What is there can still be taken."""
        self._is_closed = True

    def reopen(self) -> None:
        """``enter`` takes records again."""
        self._is_closed = False

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bool:
        """Encode one record. False, and nothing is written, where it no longer fits.

        Raises RecordTooLarge where it does not fit an empty encoder, SerializationError for anything but bytes-like
        values and (str, bytes-like) headers, InvalidTimestamp outside 0 .. 2**63 - 1. A failed append changes nothing.
        """
        _check_timestamp(timestamp_ms)
        count = self.count
        delta = timestamp_ms - self.first_timestamp_ms if count else 0
        if key is None:
            key_length, key = _NULL, b""
        else:
            if type(key) is not bytes:
                key = _bytes_of("key", key)
            length = len(key)
            key_length = VARINTS[length] if length < _TABLED else encode_varint(length)
        if value is None:
            value_length, value = _NULL, b""
        else:
            if type(value) is not bytes:
                value = _bytes_of("value", value)
            length = len(value)
            value_length = VARINTS[length] if length < _TABLED else encode_varint(length)
        fields = b"".join(
            (
                b"\x00",  # attributes: none are defined
                VARINTS[delta] if 0 <= delta < _TABLED else encode_varint(delta),
                VARINTS[count] if count < _TABLED else encode_varint(count),
                key_length,
                key,
                value_length,
                value,
                _NO_HEADERS_ENCODED if headers is _NO_HEADERS else _encode_headers(headers),
            )
        )
        length = len(fields)
        prefix = VARINTS[length] if length < _TABLED else encode_varint(length)
        buffer = self._buffer
        batch_bytes = len(buffer) + len(prefix) + length
        if batch_bytes > self._limit:
            if count == 0:
                raise faults.record_too_large(batch_bytes, self._limit)
            return False
        first_ms = self.first_timestamp_ms if count else timestamp_ms
        max_ms = max(self.max_timestamp_ms, timestamp_ms)
        # From here on no call and no jump, where a signal handler's exception could leave half of it done.
        buffer += prefix + fields
        self.first_timestamp_ms = first_ms
        self.max_timestamp_ms = max_ms
        self.count = count + 1
        return True

    def extend(
        self, timestamp_ms: int, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, start: int
    ) -> int:
        """Append ``values[start:]``, each with the key of the same place, until one does not fit.

        Returns the index of the first one not appended. Raises as ``append`` does, with the fact ``index``, and then
        none of this call's records are in the encoder. Lists and tuples are fastest.
        """
        end = len(values)
        if not 0 <= start <= end or (keys is not None and len(keys) != end):
            raise faults.unusable_slice(end, end if keys is None else len(keys), start)
        _check_timestamp(timestamp_ms)
        before = len(self._buffer), self.count, self.first_timestamp_ms, self.max_timestamp_ms
        index = start
        append = self.append
        try:
            while index < end and append(timestamp_ms, None if keys is None else keys[index], values[index], ()):
                index += 1
        except BaseException as error:
            size, self.count, self.first_timestamp_ms, self.max_timestamp_ms = before
            del self._buffer[size:]
            faults.locate(error, index)
            raise
        return index

    def take(self) -> bytes:
        """The encoded records. The encoder is then empty."""
        return bytes(memoryview(self.take_batch())[HEADER_BYTES:])

    def take_batch(self) -> bytearray:
        """61 zero bytes, for the batch header, and the encoded records behind them. The encoder is then empty."""
        batch = self._buffer
        self._clear()
        return batch


# Decoding


class RecordDecoder:
    """Walks the records of one decompressed batch, whole, in order.

    ``append_time_ms`` is the timestamp of every record of a LogAppendTime batch, else -1. Offsets must rise and stay
    within ``last_offset_delta``. ``remaining`` records are not taken yet, ``size_bytes`` are held. All raise CorruptRecord.
    """

    __slots__ = (
        "_base_offset",
        "_count",
        "_index",
        "_lowest_delta",
        "_partition",
        "_payload",
        "_position",
        "_topic",
    )

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
        """The next records, at most so many (fewer where they have very many headers); an empty list at the end."""
        data, base_timestamp, append_time, highest = self._payload
        topic, partition, base_offset = self._topic, self._partition, self._base_offset
        index, position, lowest = self._index, self._position, self._lowest_delta
        size, stop, headers_left = len(data), min(self._count, index + max_records), MAX_HEADERS
        in_range = append_time >= 0 or abs(base_timestamp) < INT64_MAX >> 1
        unzigzag, new = UNZIGZAG, tuple.__new__
        records: list[Record] = []
        while index < stop and headers_left > 0:
            # The common shape first: varints of one or two bytes, and no question at every byte where the record ends.
            # What does not come out even is read again as framing.py does it, which asks, and says what is wrong.
            try:
                bits = data[position]
                at = position + 1
                if bits >= 0x80:
                    bits += (data[at] << 7) - 0x80
                    at += 1
                end = at + unzigzag[bits]
                bits = data[at + 1]  # behind the attributes
                at += 2
                if bits < 0x80:
                    delta = unzigzag[bits]
                else:
                    delta, at = long_varint(data, at - 1)
                timestamp = base_timestamp + delta if append_time < 0 else append_time
                bits = data[at]
                at += 1
                if bits >= 0x80:
                    bits += (data[at] << 7) - 0x80
                    at += 1
                delta = unzigzag[bits]
                bits = data[at]
                at += 1
                if bits >= 0x80:
                    bits += (data[at] << 7) - 0x80
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
                    bits += (data[at] << 7) - 0x80
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
            except IndexError:
                place = read_place(self._payload, index, position, lowest)
                key, value, headers = read_fields(self._payload, index, place)
                timestamp, delta, at = place.timestamp_ms, place.offset_delta, place.end
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
        """Pass over the records below ``offset`` without looking at more of them than length, time and offset."""
        index, position, lowest = self._index, self._position, self._lowest_delta
        while index < self._count:
            place = read_place(self._payload, index, position, lowest)
            if self._base_offset + place.offset_delta >= offset:
                break
            index, position, lowest = index + 1, place.end, place.offset_delta + 1
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
    """All records of one decompressed batch as columns, in memory that ``allocate`` gives. The other arguments and the
    errors are those of RecordDecoder."""
    if len(payload) > INT32_MAX:
        raise faults.payload_too_large(len(payload), INT32_MAX)
    decoder = RecordDecoder(payload, count, base_offset, base_timestamp_ms, append_time_ms, "", 0, last_offset_delta)
    builder = ColumnsBuilder(with_headers, allocate)
    while records := decoder.take(4096):
        for record in records:
            builder.append(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
    return builder.columns()
