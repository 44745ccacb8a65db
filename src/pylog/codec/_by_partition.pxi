# Places many records by partition, as by_partition.py does. A part of _records.pyx.


cdef uint32_t little_endian(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t value = 0
    while size > 0:
        size -= 1
        value = value << 8 | at[size]
    return value


cdef uint32_t murmur2_of(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size, k
    cdef const uint8_t *end = at + size // 4 * 4
    while at < end:
        k = little_endian(at, 4) * <uint32_t>0x5BD1E995
        h = h * <uint32_t>0x5BD1E995 ^ (k ^ k >> 24) * <uint32_t>0x5BD1E995
        at += 4
    if size & 3:
        h = (h ^ little_endian(at, size & 3)) * <uint32_t>0x5BD1E995
    h = (h ^ h >> 13) * <uint32_t>0x5BD1E995
    return h ^ h >> 15


cdef inline uint32_t rotated(uint32_t value, int bits) noexcept nogil:
    return value << bits | value >> (32 - bits)


cdef inline uint32_t mixed(uint32_t k) noexcept nogil:
    return rotated(k * <uint32_t>0xCC9E2D51, 15) * <uint32_t>0x1B873593


cdef uint32_t murmur3_of(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 0
    cdef const uint8_t *end = at + size // 4 * 4
    while at < end:
        h = rotated(h ^ mixed(little_endian(at, 4)), 13) * 5 + <uint32_t>0xE6546B64
        at += 4
    h ^= mixed(little_endian(at, size & 3)) ^ <uint32_t>size
    h = (h ^ h >> 16) * <uint32_t>0x85EBCA6B
    h = (h ^ h >> 13) * <uint32_t>0xC2B2AE35
    return h ^ h >> 16


def murmur2(key):
    cdef Py_buffer view
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return murmur2_of(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def choose_partitions(int kind, keys, Py_ssize_t start, partitions, int32_t count, int32_t keyless):
    cdef View view = view_of(partitions, PyBUF_WRITABLE)
    cdef int32_t *chosen
    cdef uint32_t key_hash
    cdef Py_ssize_t index
    cdef PyObject *key
    if kind not in (MURMUR2, MURMUR3):
        raise KeyError(kind)
    if count < 1:
        raise ZeroDivisionError
    chosen = <int32_t *>view.memory.buf
    for index in range(start, min(<Py_ssize_t>len(keys), view.memory.len // 4)):
        key = borrow(keys, index)
        if key == <PyObject *>None and keyless >= 0:
            chosen[index] = keyless
        elif key != NULL and PyBytes_CheckExact(<object>key):
            key_hash = (murmur2_of if kind == MURMUR2 else murmur3_of)(start_of(key), PyBytes_GET_SIZE(<object>key))
            chosen[index] = <int32_t>((key_hash & POSITIVE) % <uint32_t>count)
        else:
            return index
    return len(keys)


def group_by_partition(partitions, int32_t count):
    """A counting sort."""
    cdef View view = view_of(partitions)
    cdef const int32_t *chosen = <const int32_t *>view.memory.buf
    cdef Py_ssize_t index, stop, start = 0, records = view.memory.len // 4
    cdef bytearray counts = bytearray(max(count, 0) * sizeof(Py_ssize_t))
    cdef Py_ssize_t *at = <Py_ssize_t *>PyByteArray_AS_STRING(counts)  # minus the count; then the next index
    cdef int32_t partition
    cdef list groups = []
    cdef View space = view_of(partitions[:], PyBUF_WRITABLE)
    cdef int32_t *order = <int32_t *>space.memory.buf
    for index in range(records):
        if not 0 <= chosen[index] < count:
            raise IndexError(chosen[index])
        at[chosen[index]] -= 1
    for index in range(records):
        partition = chosen[index]
        if at[partition] < 0:
            stop = start - at[partition]
            groups.append((partition, start, stop))
            at[partition] = start
            start = stop
        order[at[partition]] = <int32_t>index
        at[partition] += 1
    return space.source, groups


def pick(items, order):
    cdef View view = view_of(order)
    cdef Py_ssize_t index
    cdef PyObject *item
    cdef list picked = []
    for index in range(view.memory.len // 4):
        item = borrow(items, (<const int32_t *>view.memory.buf)[index])
        picked.append(items[(<const int32_t *>view.memory.buf)[index]] if item == NULL else <object>item)
    return picked


def pick_times(times, order):
    cdef View view = view_of(order), source = times_of(times, 0, len(times)), space
    cdef Py_ssize_t index, count = view.memory.len // 4
    cdef int32_t place
    picked = array("q", bytes(8 * count))
    space = view_of(picked, PyBUF_WRITABLE)
    for index in range(count):
        place = (<const int32_t *>view.memory.buf)[index]
        if not 0 <= place < source.memory.len // 8:
            raise IndexError(place)
        (<int64_t *>space.memory.buf)[index] = (<const int64_t *>source.memory.buf)[place]
    return picked


def count_plain(values, keys, Py_ssize_t limit_bytes):
    cdef Py_ssize_t most = limit_bytes - HEADER_BYTES - MAX_FRAMING_BYTES, index
    cdef PyObject *key = <PyObject *>None
    cdef PyObject *value
    for index in range(len(values)):
        value = borrow(values, index)
        if keys is not None:
            key = borrow(keys, index)
        if not (is_plain(value) and is_plain(key)) or size_of(value) + size_of(key) > most:
            return index
    return len(values)


cdef inline Py_ssize_t size_of(PyObject *item) noexcept:
    return 0 if item == <PyObject *>None else PyBytes_GET_SIZE(<object>item)
