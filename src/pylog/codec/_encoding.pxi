# Encodes records, as records.py does. A part of _records.pyx.


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t varint_size(uint64_t bits) noexcept nogil:
    cdef Py_ssize_t size = 1
    if bits < 0x4000:  # nearly all
        return 1 + (bits >= 0x80)
    while bits >= 0x80:
        bits >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *at, uint64_t bits) noexcept nogil:
    if 0x80 <= bits < 0x4000:
        at[0] = <uint8_t>(bits | 0x80)
        at[1] = <uint8_t>(bits >> 7)
        return at + 2
    while bits >= 0x80:
        at[0] = <uint8_t>(bits | 0x80)
        bits >>= 7
        at += 1
    at[0] = <uint8_t>bits
    return at + 1


cdef inline Py_ssize_t sized_size(Py_ssize_t size) noexcept nogil:
    """The size of a nullable value with its varint; null has size -1."""
    return varint_size(zigzag(size)) + (size if size > 0 else 0)


cdef inline uint8_t *put_sized(uint8_t *at, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    at = put_varint(at, zigzag(size))
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


cdef inline bytes as_bytes(str field, object value):
    """Bytes or None, from bytes-like or None."""
    if value is None or PyBytes_Check(value):
        return <bytes>value
    return bytes_of(field, value)


cdef bytes bytes_of(str field, object value):
    if not isinstance(value, (bytearray, memoryview)):
        raise faults.not_bytes(field, value)
    try:
        return memoryview(value).tobytes()
    except ValueError as error:  # a released memoryview
        raise SerializationError(f"{field}: {error}", field=field) from error


cdef int64_t as_timestamp(object timestamp_ms) except -1:
    cdef int overflow = 1
    cdef int64_t value = 0
    if PyLong_Check(timestamp_ms) and timestamp_ms is not True and timestamp_ms is not False:
        value = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    if overflow or value < 0:
        raise faults.unusable_timestamp(timestamp_ms)
    return value


cdef View times_of(object timestamp_ms, Py_ssize_t start, Py_ssize_t stop):
    """The memory of an array of timestamps; None if all records have the same one."""
    if type(timestamp_ms) is not array:
        return None
    if timestamp_ms.typecode != "q" or not 0 <= start <= stop <= len(timestamp_ms):
        raise faults.unusable_times(timestamp_ms.typecode, len(timestamp_ms), start, stop)
    return view_of(timestamp_ms)


cdef bytes encode_headers(object headers):
    cdef Py_ssize_t size, name_size
    cdef uint8_t *at
    cdef const uint8_t *name_data
    cdef list listed, names = [], values = []
    cdef bytes encoded
    cdef object pairs = headers.items() if isinstance(headers, Mapping) else headers
    cdef object header, name, value
    try:
        len(pairs)  # what has none may be read only once, and a record that a full batch did not take is encoded again
        listed = list(pairs)
    except TypeError:
        raise faults.unusable_headers(headers) from None
    if len(listed) > MAX_HEADERS:
        raise faults.headers_too_many(len(listed))
    size = varint_size(zigzag(len(listed)))
    for header in listed:
        try:
            name, value = header
        except (TypeError, ValueError):
            raise faults.unusable_header(header, "not a pair") from None
        if not PyUnicode_Check(name):
            raise faults.unusable_header(header, f"key is {type(name).__name__}")
        try:
            PyUnicode_AsUTF8AndSize(name, &name_size)
        except UnicodeEncodeError:
            raise faults.unusable_header(header, "key is not UTF-8") from None
        value = as_bytes("header value", value)
        names.append(name)
        values.append(value)
        size += sized_size(name_size) + sized_size(-1 if value is None else PyBytes_GET_SIZE(value))
    encoded = PyBytes_FromStringAndSize(NULL, size)
    at = put_varint(<uint8_t *>PyBytes_AS_STRING(encoded), zigzag(len(listed)))
    for name, value in zip(names, values):  # own lists: unchanged since they were measured
        name_data = <const uint8_t *>PyUnicode_AsUTF8AndSize(name, &name_size)
        at = put_sized(at, name_data, name_size)
        if value is None:
            at = put_sized(at, NULL, -1)
        else:
            at = put_sized(at, <const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return encoded


cdef class Receipt:
    cdef public object batch
    cdef public Py_ssize_t index
    cdef public int64_t timestamp_ms

    def __eq__(self, other):
        if not isinstance(other, Receipt):
            return NotImplemented
        return self.batch is (<Receipt>other).batch and self.index == (<Receipt>other).index

    def __hash__(self):
        return <Py_hash_t>((<uintptr_t><PyObject *>self.batch >> 4) + <uintptr_t>self.index * <uintptr_t>1000003)


cdef struct Mark:
    Py_ssize_t size
    Py_ssize_t count
    int64_t first
    int64_t least
    int64_t latest


@cython.final
@cython.no_gc_clear  # a cycle through ``now_ms`` is broken at another object
cdef class RecordEncoder:
    cdef bytearray buffer  # batch header, records, free room; None while there are no records
    cdef uint8_t *data  # its first byte
    cdef Py_ssize_t size  # used bytes
    cdef Py_ssize_t room
    cdef Py_ssize_t next_room
    cdef Py_ssize_t limit
    cdef object now_ms
    cdef uint64_t generation  # how often the records were taken
    cdef bint closed
    cdef readonly Py_ssize_t count
    cdef readonly int64_t first_timestamp_ms
    cdef readonly int64_t min_timestamp_ms
    cdef readonly int64_t max_timestamp_ms

    def __cinit__(self, limit_bytes, now_ms=None):
        if not PyLong_Check(limit_bytes) or not 1 <= limit_bytes <= INT32_MAX:
            raise faults.unusable_limit(limit_bytes)
        self.limit = limit_bytes
        self.now_ms = now_ms
        self.next_room = FIRST_ROOM_BYTES
        self.clear()

    cdef void clear(self) noexcept:
        self.buffer = None
        self.data = NULL
        self.size = HEADER_BYTES
        self.room = 0
        self.count = 0
        self.first_timestamp_ms = -1
        self.min_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.generation += 1

    @property
    def size_bytes(self):
        return self.size - HEADER_BYTES

    def append(self, timestamp_ms, key, value, headers):
        cdef int64_t timestamp = as_timestamp(timestamp_ms)
        key, value = as_bytes("key", key), as_bytes("value", value)
        return self.put_with(None if headers is NO_HEADERS else encode_headers(headers), timestamp, key, value) == 1

    def try_append(self, kind, batch, timestamp_ms, key, value, headers):
        cdef int64_t timestamp = self.now() if timestamp_ms is None else as_timestamp(timestamp_ms)
        cdef bytes encoded
        cdef Receipt receipt
        key, value = as_bytes("key", key), as_bytes("value", value)
        encoded = None if headers is NO_HEADERS else encode_headers(headers)
        receipt = <Receipt?>pylog_new_instance(kind, NO_HEADERS)
        # No Python code runs from here on, so no other thread can run, and no lock is needed.
        if self.closed:
            return None
        receipt.index = self.count
        if not self.put_with(encoded, timestamp, key, value):
            return None
        receipt.batch = batch
        receipt.timestamp_ms = timestamp
        return receipt

    cdef inline int64_t now(self) except -1:
        cdef int64_t nanoseconds
        if self.now_ms is not None:
            return as_timestamp(self.now_ms())
        nanoseconds = time_ns()
        if nanoseconds < 0:
            raise faults.unusable_timestamp(nanoseconds // 1_000_000)
        return nanoseconds // 1_000_000

    def close(self):
        self.closed = True

    def reopen(self):
        self.closed = False

    def try_append_many(self, timestamp_ms, values, keys, Py_ssize_t start, Py_ssize_t stop):
        cdef View times = times_of(timestamp_ms, start, stop)
        cdef int64_t timestamp = as_timestamp(timestamp_ms) if times is None else 0
        cdef Py_ssize_t index = start
        cdef Mark mark = self.mark()
        cdef PyObject *key = <PyObject *>None
        cdef PyObject *value
        # As in ``try_append``, no other thread can run.
        if self.closed:
            return mark.count, 0
        try:
            while index < stop:
                if times is not None:
                    timestamp = (<const int64_t *>times.memory.buf)[index]
                    if timestamp < 0:
                        break
                value = borrow(values, index)
                if keys is not None:
                    key = borrow(keys, index)
                if not (is_plain(value) and is_plain(key) and self.put(timestamp, key, value, NO_HEADERS_ENCODED, 1)):
                    break
                index += 1
        except BaseException:
            self.back_to(mark)
            raise
        return mark.count, index - start

    cdef inline Mark mark(self) noexcept:
        return Mark(self.size, self.count, self.first_timestamp_ms, self.min_timestamp_ms, self.max_timestamp_ms)

    cdef inline void back_to(self, Mark mark) noexcept:
        self.size, self.count = mark.size, mark.count
        self.first_timestamp_ms, self.min_timestamp_ms, self.max_timestamp_ms = mark.first, mark.least, mark.latest

    def extend(self, timestamp_ms, values, keys, Py_ssize_t start, stop=None):
        cdef Py_ssize_t end = len(values) if stop is None else min(stop, len(values))
        cdef Py_ssize_t index = start
        cdef int64_t timestamp = 0
        cdef View times
        cdef Mark mark = self.mark()
        cdef uint64_t generation = self.generation
        if not 0 <= start <= end or (keys is not None and len(keys) != len(values)):
            raise faults.unusable_slice(end, end if keys is None else len(keys), start)
        times = times_of(timestamp_ms, start, end)
        if times is None:
            timestamp = as_timestamp(timestamp_ms)
        try:
            while index < end:
                if times is not None:
                    timestamp = (<const int64_t *>times.memory.buf)[index]
                    if timestamp < 0:
                        raise faults.unusable_timestamp(timestamp)
                if not self.put_item(timestamp, values, keys, index):
                    break
                index += 1
        except BaseException as error:
            if self.generation == generation:  # else the records were taken in between
                self.back_to(mark)
            faults.locate(error, index)
            raise
        return index

    cdef inline int put_item(self, int64_t timestamp, object values, object keys, Py_ssize_t index) except -1:
        """Append a record of ``extend``. Borrows from lists and tuples: no code can change them meanwhile."""
        cdef PyObject *value = borrow(values, index)
        cdef PyObject *key = <PyObject *>None if keys is None else borrow(keys, index)
        if is_plain(value) and is_plain(key):
            return self.put(timestamp, key, value, NO_HEADERS_ENCODED, 1)
        return self.put_other(timestamp, None if keys is None else keys[index], values[index])

    cdef int put_other(self, int64_t timestamp, object key, object value) except -1:
        return self.put_with(None, timestamp, as_bytes("key", key), as_bytes("value", value))

    cdef int put_with(self, bytes headers, int64_t timestamp, object key, object value) except -1:
        """``put`` with encoded headers, or None."""
        if headers is None:
            return self.put(timestamp, <PyObject *>key, <PyObject *>value, NO_HEADERS_ENCODED, 1)
        return self.put(
            timestamp, <PyObject *>key, <PyObject *>value, <const uint8_t *>PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers)
        )

    cdef inline int put(
        self, int64_t timestamp, PyObject *key, PyObject *value, const uint8_t *headers, Py_ssize_t headers_size
    ) except -1:
        """Append a record of bytes or None: 1, or 0 if it does not fit."""
        cdef Py_ssize_t key_size = -1 if key == <PyObject *>None else PyBytes_GET_SIZE(<object>key)
        cdef Py_ssize_t value_size = -1 if value == <PyObject *>None else PyBytes_GET_SIZE(<object>value)
        cdef uint64_t delta = zigzag(timestamp - self.first_timestamp_ms) if self.count else 0
        cdef uint64_t offset_delta = zigzag(self.count)
        cdef Py_ssize_t length = 1 + varint_size(delta) + varint_size(offset_delta) + headers_size
        cdef Py_ssize_t after
        cdef uint8_t *at
        length += sized_size(key_size) + sized_size(value_size)
        after = self.size + varint_size(zigzag(length)) + length
        if after > self.room:
            if after > self.limit:
                if self.count:
                    return 0
                raise faults.record_too_large(after, self.limit)
            self.grow(after)
        at = put_varint(self.data + self.size, zigzag(length))
        at[0] = 0  # attributes
        at = put_varint(at + 1, delta)
        at = put_varint(at, offset_delta)
        at = put_sized(at, start_of(key), key_size)
        at = put_sized(at, start_of(value), value_size)
        if headers_size == 1:  # no headers
            at[0] = headers[0]
        else:
            memcpy(at, headers, headers_size)
        if self.count == 0:
            self.first_timestamp_ms = self.min_timestamp_ms = timestamp
        elif timestamp < self.min_timestamp_ms:
            self.min_timestamp_ms = timestamp
        if timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp
        self.size = after
        self.count += 1
        return 1

    cdef int grow(self, Py_ssize_t needed) except -1:
        """Double the room up to the limit; at least ``needed`` bytes, which the limit allows."""
        cdef Py_ssize_t room = max(min(max(2 * self.room, self.next_room), self.limit), needed)
        if self.buffer is None:
            self.buffer = PyByteArray_FromStringAndSize(NULL, room)
            memset(PyByteArray_AS_STRING(self.buffer), 0, HEADER_BYTES)
        else:
            PyByteArray_Resize(self.buffer, room)
        self.data = <uint8_t *>PyByteArray_AS_STRING(self.buffer)
        self.room = room
        return 0

    def take_batch(self):
        cdef bytearray batch = self.buffer
        if batch is None:
            batch = bytearray(HEADER_BYTES)
        else:
            PyByteArray_Resize(batch, self.size)
            self.next_room = self.size + self.size // 8  # the next batch is probably similar
        self.clear()
        return batch


@cython.final
cdef class TakenRecords:
    cdef RecordEncoder encoder
    cdef bytearray batch  # None until it is taken
    cdef readonly Py_ssize_t count
    cdef readonly int64_t first_timestamp_ms
    cdef readonly int64_t max_timestamp_ms

    def __cinit__(self, RecordEncoder encoder not None):
        self.encoder = encoder
        self.count = encoder.count
        self.first_timestamp_ms = encoder.first_timestamp_ms
        self.max_timestamp_ms = encoder.max_timestamp_ms

    def take_batch(self):
        if self.batch is None:
            self.batch = self.encoder.take_batch()
        return self.batch
