# Decodes records as columns, and finds a batch's least timestamp, as columns.py and least_time.py do. A part of _records.pyx.


def decode_columns(
    payload,
    int64_t count,
    int64_t base_offset,
    int64_t base_timestamp_ms,
    int64_t append_time_ms,
    bint with_headers,
    int64_t last_offset_delta=INT32_MAX,
    allocate=bytearray,
):
    cdef View view = view_of(payload)
    cdef Walk walk
    if view.memory.len > INT32_MAX:
        raise faults.payload_too_large(view.memory.len, INT32_MAX)
    open_walk(&walk, &view.memory, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta)
    return columns_of(&walk, with_headers, allocate)


def least_timestamp_ms(payload, int64_t count, int64_t base_timestamp_ms):
    cdef View view = view_of(payload)
    cdef Walk walk
    if not 0 <= count <= view.memory.len // MIN_RECORD_BYTES:
        return INT64_MIN
    open_walk(&walk, &view.memory, count, 0, base_timestamp_ms, -1, INT32_MAX)
    return least_of(&walk)


cdef int64_t least_of(Walk *walk) noexcept nogil:
    cdef const uint8_t *at = walk.start
    cdef int64_t length, delta, index, least = INT64_MAX
    for index in range(walk.count):
        if get_varint(walk, LENGTH, &at, walk.stop, &length) or not 2 <= length <= walk.stop - at:
            return INT64_MIN
        walk.end = at + length
        at += 1  # after the attributes
        if at[0] < 0x80:
            delta = (at[0] >> 1) ^ -<int64_t>(at[0] & 1)
        elif get_long_varint(walk, TIMESTAMP_DELTA, &at, walk.end, &delta, 10, 0x01):
            return INT64_MIN
        if delta < least:
            least = delta
        at = walk.end
    if at != walk.stop or pylog_add_overflows(walk.base_timestamp, least, &least):
        return INT64_MIN
    return least


def microseconds(timestamps_ms, allocate):
    cdef View view = view_of(timestamps_ms)
    cdef View space = space_of(allocate, view.memory.len // 8 * 8)
    if multiply(<const int64_t *>view.memory.buf, <int64_t *>space.memory.buf, view.memory.len // 8, 1000):
        return None
    return space.source


cdef bint multiply(const int64_t *values, int64_t *products, Py_ssize_t count, int64_t factor) noexcept nogil:
    """Whether a product overflows."""
    cdef int64_t greatest = INT64_MAX // factor
    cdef bint is_outside = False
    cdef Py_ssize_t index
    for index in range(count):
        is_outside |= (values[index] < -greatest) | (values[index] > greatest)
        products[index] = <int64_t>(<uint64_t>values[index] * <uint64_t>factor)
    return is_outside


@cython.final
cdef class BytesColumn:
    """``room`` values: the start of each in the payload, its end in the column, and its validity bit.

    ``close`` copies the data into memory of exactly the right size."""

    cdef object allocate
    cdef View offsets
    cdef View bits
    cdef uint32_t *starts
    cdef int32_t *ends
    cdef uint8_t *valid
    cdef Py_ssize_t count
    cdef Py_ssize_t room

    def __cinit__(self, allocate, Py_ssize_t room):
        self.allocate = allocate
        self.room = room
        self.offsets = space_of(allocate, (room + 1) * sizeof(int32_t))
        self.bits = space_of(allocate, (room + 7) // 8)
        self.ends = <int32_t *>self.offsets.memory.buf
        self.valid = <uint8_t *>self.bits.memory.buf
        memset(self.valid, 0, self.bits.memory.len)
        self.ends[0] = 0
        self.starts = <uint32_t *>PyMem_Malloc(room * sizeof(uint32_t))
        if self.starts == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.starts)

    cdef inline void put(self, Py_ssize_t start, int64_t size) noexcept:
        cdef int32_t end = self.ends[self.count]
        if size >= 0:
            self.valid[self.count >> 3] |= <uint8_t>(1 << (self.count & 7))
            end += <int32_t>size
        self.starts[self.count] = <uint32_t>start
        self.count += 1
        self.ends[self.count] = end

    cdef tuple close(self, const uint8_t *payload):
        """Offsets, validity and data."""
        cdef View data
        cdef uint8_t *to
        cdef Py_ssize_t index
        if self.count != self.room:
            raise faults.changed_meanwhile(self.count)
        data = space_of(self.allocate, self.ends[self.count])
        to = <uint8_t *>data.memory.buf
        for index in range(self.count):
            memcpy(to + self.ends[index], payload + self.starts[index], self.ends[index + 1] - self.ends[index])
        return self.offsets.source, self.bits.source, data.source


cdef object columns_of(Walk *walk, bint with_headers, object allocate):
    cdef Py_ssize_t headers_count = count_headers(walk[0]) if with_headers else 0
    cdef View offsets = space_of(allocate, walk.count * sizeof(int64_t))
    cdef View timestamps = space_of(allocate, walk.count * sizeof(int64_t))
    cdef View lists = space_of(allocate, (walk.count + 1) * sizeof(int32_t)) if with_headers else None
    cdef int64_t *offset_at = <int64_t *>offsets.memory.buf
    cdef int64_t *timestamp_at = <int64_t *>timestamps.memory.buf
    cdef int32_t *list_at = <int32_t *>lists.memory.buf if with_headers else NULL
    cdef BytesColumn keys = BytesColumn(allocate, walk.count)
    cdef BytesColumn values = BytesColumn(allocate, walk.count)
    cdef BytesColumn names = BytesColumn(allocate, headers_count) if with_headers else None
    cdef BytesColumn header_values = BytesColumn(allocate, headers_count) if with_headers else None
    cdef const uint8_t *at
    if with_headers:
        list_at[0] = 0
    while walk.index < walk.count:
        if read_fields(walk):
            fail(walk)
        at = walk.headers
        if walk.headers_count:
            put_headers(walk, &at, names, header_values)
        offset_at[walk.index] = walk.base_offset + walk.delta
        timestamp_at[walk.index] = walk.timestamp
        keys.put(walk.key - walk.start, walk.key_size)
        values.put(walk.value - walk.start, walk.value_size)
        if with_headers:
            list_at[walk.index + 1] = <int32_t>names.count
        if end_record(walk, at):
            fail(walk)
    check_end(walk)
    columns = walk.count, offsets.source, timestamps.source, *keys.close(walk.start), *values.close(walk.start)
    if not with_headers:
        return Columns(*columns, None, None, None, None, None, None)
    name_offsets, _, name_data = names.close(walk.start)
    return Columns(*columns, lists.source, name_offsets, name_data, *header_values.close(walk.start))


cdef Py_ssize_t count_headers(Walk walk) noexcept:
    """The headers up to the first faulty record, which the second reading reports."""
    cdef Py_ssize_t count = 0
    while walk.index < walk.count and not read_fields(&walk):
        count += walk.headers_count
        end_record(&walk, walk.end)
    return count


cdef int put_headers(Walk *walk, const uint8_t **at, BytesColumn names, BytesColumn values) except -1:
    """Check the record's headers, and put them into the columns, if there are any."""
    cdef const uint8_t *data = NULL
    cdef int64_t size = 0
    cdef int64_t index
    if names is not None and walk.headers_count > names.room - names.count:
        raise faults.changed_meanwhile(walk.index)
    for index in range(walk.headers_count):
        if get_sized(walk, HEADER_KEY_LENGTH, 0, at, &data, &size):
            fail(walk)
        if not is_ascii(data, size):
            try:
                PyUnicode_DecodeUTF8(<char *>data, size, NULL)
            except UnicodeDecodeError:
                raise faults.not_utf8(walk.index, data - walk.start) from None
        if names is not None:
            names.put(data - walk.start, size)
        if get_sized(walk, HEADER_VALUE_LENGTH, -1, at, &data, &size):
            fail(walk)
        if names is not None:
            values.put(data - walk.start, size)
    return 0


cdef inline bint is_ascii(const uint8_t *data, int64_t size) noexcept nogil:
    cdef uint8_t seen = 0
    cdef int64_t index
    for index in range(size):
        seen |= data[index]
    return seen < 0x80
