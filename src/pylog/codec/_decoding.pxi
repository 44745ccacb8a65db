# Decodes records, as records.py and framing.py do. A part of _records.pyx.


cdef struct Walk:
    const uint8_t *start  # the payload
    const uint8_t *stop
    const uint8_t *at  # the next record
    int64_t index
    int64_t count
    int64_t lowest  # the least offset delta of the next record
    int64_t highest  # the greatest offset delta of any record
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    # the current record
    const uint8_t *body
    const uint8_t *end
    int64_t timestamp
    int64_t delta
    const uint8_t *key
    int64_t key_size
    const uint8_t *value
    int64_t value_size
    const uint8_t *headers
    int64_t headers_count
    # its fault
    int fault
    int field
    const uint8_t *where
    int64_t found


cdef int open_walk(
    Walk *walk,
    Py_buffer *payload,
    int64_t count,
    int64_t base_offset,
    int64_t base_timestamp_ms,
    int64_t append_time_ms,
    int64_t last_offset_delta,
) except -1:
    if not 0 <= count <= payload.len // MIN_RECORD_BYTES:
        raise faults.impossible_count(count, payload.len)
    memset(walk, 0, sizeof(Walk))
    walk.start = <const uint8_t *>payload.buf
    walk.stop = walk.start + payload.len
    walk.at = walk.start
    walk.count = count
    walk.highest = last_offset_delta
    if base_offset > 0 and last_offset_delta > INT64_MAX - base_offset:
        walk.highest = INT64_MAX - base_offset
    walk.base_offset = base_offset
    walk.base_timestamp = base_timestamp_ms
    walk.append_time = append_time_ms
    return 0


cdef inline int wrong(Walk *walk, int fault, int field, const uint8_t *where, int64_t found) noexcept nogil:
    walk.fault = fault
    walk.field = field
    walk.where = where
    walk.found = found
    return fault


cdef int get_long_varint(
    Walk *walk, int field, const uint8_t **at, const uint8_t *end, int64_t *value, int widest, uint8_t top_bits
) noexcept nogil:
    cdef const uint8_t *start = at[0]
    cdef uint64_t bits = 0
    cdef int index
    for index in range(widest):
        if start + index >= end:
            return wrong(walk, TRUNCATED, field, start, end - walk.start)
        if index == widest - 1 and start[index] > top_bits:
            break
        bits |= <uint64_t>(start[index] & 0x7F) << (7 * index)
        if start[index] < 0x80:
            value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            at[0] = start + index + 1
            return 0
    return wrong(walk, OVERLONG, field, start, 0)


cdef inline int get_varint(Walk *walk, int field, const uint8_t **at, const uint8_t *end, int64_t *value) noexcept nogil:
    """A varint of 32 bits; no loop for one or two bytes, the size of nearly all."""
    cdef const uint8_t *start = at[0]
    cdef uint32_t bits
    if start < end and start[0] < 0x80:
        bits = start[0]
        at[0] = start + 1
    elif end - start >= 2 and start[1] < 0x80:
        bits = (start[0] & 0x7F) | <uint32_t>start[1] << 7
        at[0] = start + 2
    else:
        return get_long_varint(walk, field, at, end, value, 5, 0x0F)
    value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
    return 0


cdef inline int get_sized(
    Walk *walk, int field, int64_t least, const uint8_t **at, const uint8_t **data, int64_t *size
) noexcept nogil:
    """A size of at least ``least`` (-1 if null is allowed, else 0), and that number of bytes."""
    if get_varint(walk, field, at, walk.end, size):
        return walk.fault
    if size[0] < least or size[0] > walk.end - at[0]:
        return wrong(walk, WRONG_SIZE, field, at[0], size[0])
    data[0] = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return 0


cdef inline int read_bounds(Walk *walk, const uint8_t **at) noexcept nogil:
    """Read the record's end, timestamp and offset delta, and set ``at`` to its key."""
    cdef int64_t length
    cdef const uint8_t *field_start
    at[0] = walk.at
    walk.end = walk.stop
    if get_varint(walk, LENGTH, at, walk.stop, &length):
        return walk.fault
    if length < 0 or length > walk.stop - at[0]:
        return wrong(walk, WRONG_SIZE, LENGTH, at[0], length)
    walk.body = at[0]
    walk.end = at[0] + length
    if length == 0:
        return wrong(walk, TRUNCATED, ATTRIBUTES, at[0], walk.end - walk.start)
    at[0] += 1
    field_start = at[0]
    if field_start < walk.end and field_start[0] < 0x80:
        walk.delta = (field_start[0] >> 1) ^ -<int64_t>(field_start[0] & 1)
        at[0] += 1
    elif get_long_varint(walk, TIMESTAMP_DELTA, at, walk.end, &walk.delta, 10, 0x01):
        return walk.fault
    if walk.append_time >= 0:
        walk.timestamp = walk.append_time
    elif pylog_add_overflows(walk.base_timestamp, walk.delta, &walk.timestamp):
        return wrong(walk, TIMESTAMP_OVERFLOW, TIMESTAMP_DELTA, field_start, walk.delta)
    field_start = at[0]
    if get_varint(walk, OFFSET_DELTA, at, walk.end, &walk.delta):
        return walk.fault
    if walk.delta < walk.lowest or walk.delta > walk.highest:
        return wrong(walk, OUT_OF_ORDER, OFFSET_DELTA, field_start, walk.delta)
    return 0


cdef inline int read_fields(Walk *walk) noexcept nogil:
    """Read the next record up to its headers."""
    cdef const uint8_t *at = NULL
    if read_bounds(walk, &at):
        return walk.fault
    if get_sized(walk, KEY_LENGTH, -1, &at, &walk.key, &walk.key_size):
        return walk.fault
    if get_sized(walk, VALUE_LENGTH, -1, &at, &walk.value, &walk.value_size):
        return walk.fault
    if get_varint(walk, HEADERS_COUNT, &at, walk.end, &walk.headers_count):
        return walk.fault
    if (
        walk.headers_count < 0
        or walk.headers_count > (walk.end - at) // MIN_HEADER_BYTES
        or walk.headers_count > MAX_HEADERS
    ):
        return wrong(walk, IMPOSSIBLE_HEADERS, HEADERS_COUNT, at, walk.headers_count)
    walk.headers = at
    return 0


cdef inline int end_record(Walk *walk, const uint8_t *at) noexcept nogil:
    """Check that the last field ended (``at``) at the record's end; continue with the next record."""
    if at != walk.end:
        return wrong(walk, WRONG_END, LENGTH, at, at - walk.body)
    walk.at = at
    walk.lowest = walk.delta + 1
    walk.index += 1
    return 0


cdef int fail(Walk *walk) except -1:
    cdef int64_t position = walk.where - walk.start
    cdef int64_t remaining = walk.end - walk.where
    if walk.fault == TRUNCATED:
        raise faults.truncated(walk.index, walk.field, position, walk.found)
    if walk.fault == OVERLONG:
        raise faults.overlong(walk.index, walk.field, position)
    if walk.fault == WRONG_SIZE:
        raise faults.wrong_size(walk.index, walk.field, position, walk.found, remaining)
    if walk.fault == TIMESTAMP_OVERFLOW:
        raise faults.timestamp_overflow(walk.index, position, walk.base_timestamp, walk.found)
    if walk.fault == OUT_OF_ORDER:
        raise faults.offset_out_of_order(walk.index, position, walk.found, walk.lowest, walk.highest)
    if walk.fault == IMPOSSIBLE_HEADERS:
        raise faults.impossible_headers(walk.index, position, walk.found, remaining)
    raise faults.wrong_end(walk.index, position, walk.end - walk.body, walk.found)


cdef int check_end(Walk *walk) except -1:
    if walk.index == walk.count and walk.at != walk.stop:
        raise faults.trailing_bytes(walk.count, walk.at - walk.start, walk.stop - walk.at)
    return 0


cdef tuple read_headers(Walk *walk, const uint8_t **at):
    cdef Py_ssize_t count = walk.headers_count
    cdef Py_ssize_t index
    cdef const uint8_t *data = NULL
    cdef int64_t size = 0
    cdef object header
    cdef tuple headers = pylog_new_tuple(count)
    for index in range(count):
        header = pylog_new_tuple(2)
        if get_sized(walk, HEADER_KEY_LENGTH, 0, at, &data, &size):
            fail(walk)
        try:
            PyTuple_SET_ITEM(header, 0, new_text(<const char *>data, size, NULL))
        except UnicodeDecodeError:
            raise faults.not_utf8(walk.index, data - walk.start) from None
        if get_sized(walk, HEADER_VALUE_LENGTH, -1, at, &data, &size):
            fail(walk)
        set_bytes(header, 1, data, size)
        Py_INCREF(header)
        PyTuple_SET_ITEM(headers, index, <PyObject *>header)
    return headers


cdef inline int set_bytes(object record, Py_ssize_t index, const uint8_t *data, int64_t size) except -1:
    if size < 0:
        set_shared(record, index, None)
    else:
        PyTuple_SET_ITEM(record, index, new_bytes(<const char *>data, size))
    return 0


cdef inline void set_shared(object record, Py_ssize_t index, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(record, index, <PyObject *>item)


@cython.final
@cython.no_gc
cdef class RecordDecoder:
    cdef Py_buffer payload
    cdef Walk walk
    cdef object topic
    cdef object partition

    def __cinit__(
        self,
        payload,
        int64_t count,
        int64_t base_offset,
        int64_t base_timestamp_ms,
        int64_t append_time_ms,
        topic,
        partition,
        int64_t last_offset_delta=INT32_MAX,
    ):
        PyObject_GetBuffer(payload, &self.payload, PyBUF_SIMPLE)
        open_walk(
            &self.walk, &self.payload, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta
        )
        self.topic = topic
        self.partition = partition

    def __dealloc__(self):
        PyBuffer_Release(&self.payload)

    @property
    def remaining(self):
        return self.walk.count - self.walk.index

    @property
    def size_bytes(self):
        return self.payload.len

    def take(self, Py_ssize_t max_records):
        cdef Walk walk = self.walk  # stored only on success
        cdef int64_t stop = walk.index + max(0, min(max_records, walk.count - walk.index))
        cdef Py_ssize_t headers_left = MAX_HEADERS
        cdef const uint8_t *at
        cdef list records = []
        cdef object record, headers, timestamp = None
        cdef int64_t last_timestamp = 0
        while walk.index < stop and headers_left > 0:
            if read_fields(&walk):
                fail(&walk)
            at = walk.headers
            headers = NO_HEADERS if walk.headers_count == 0 else read_headers(&walk, &at)
            headers_left -= walk.headers_count
            if timestamp is None or walk.timestamp != last_timestamp:
                last_timestamp = walk.timestamp
                timestamp = last_timestamp
            record = pylog_new_record(Record, 7)
            set_shared(record, 0, self.topic)
            set_shared(record, 1, self.partition)
            PyTuple_SET_ITEM(record, 2, PyLong_FromLongLong(walk.base_offset + walk.delta))
            set_shared(record, 3, timestamp)
            set_bytes(record, 4, walk.key, walk.key_size)
            set_bytes(record, 5, walk.value, walk.value_size)
            set_shared(record, 6, headers)
            if end_record(&walk, at):
                fail(&walk)
            records.append(record)
        check_end(&walk)
        self.walk = walk
        return records

    def skip_to(self, int64_t offset):
        cdef Walk walk = self.walk
        cdef const uint8_t *at = NULL
        cdef const uint8_t *next_at = walk.at
        cdef int64_t next_index = walk.index, next_lowest = walk.lowest
        while walk.index < walk.count:
            if read_bounds(&walk, &at):
                fail(&walk)
            if walk.base_offset + walk.delta >= offset:
                break
            end_record(&walk, walk.end)
            next_at, next_index, next_lowest = walk.at, walk.index, walk.lowest
        self.walk.at, self.walk.index, self.walk.lowest = next_at, next_index, next_lowest
