# Checks and finds the entries of producer snapshots, as producer_entries.py does. A part of _records.pyx.


cdef enum:
    ENTRY_BYTES = 46
    EPOCH_AT = 8
    LAST_SEQUENCE_AT = 10
    LAST_OFFSET_AT = 14
    OFFSET_DELTA_AT = 22
    TIMESTAMP_AT = 26
    TRANSACTION_AT = 38


cdef inline uint64_t big_endian(const uint8_t *at, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | at[index]
    return value


cdef inline int64_t int64_at(const uint8_t *at) noexcept nogil:
    return <int64_t>big_endian(at, 8)


cdef inline int32_t int32_at(const uint8_t *at) noexcept nogil:
    return <int32_t><uint32_t>big_endian(at, 4)


cdef inline bint is_possible_entry(const uint8_t *at) noexcept nogil:
    cdef int64_t last_offset = int64_at(at + LAST_OFFSET_AT)
    return (
        int64_at(at) >= 0
        and <int16_t><uint16_t>big_endian(at + EPOCH_AT, 2) >= -1
        and int32_at(at + LAST_SEQUENCE_AT) >= -1
        and last_offset >= -1
        and int64_at(at + TRANSACTION_AT) >= -1
        and 0 <= int32_at(at + OFFSET_DELTA_AT) <= max(last_offset, 0)
    )


def check_producers(entries):
    cdef View view = view_of(entries)
    cdef const uint8_t *at
    cdef Py_ssize_t index
    cdef int64_t producer_id, last_offset, start, before = -1, greatest = -1
    cdef bint rise = True
    cdef list with_transaction = []
    at = <const uint8_t *>view.memory.buf
    for index in range(view.memory.len // ENTRY_BYTES):
        if not is_possible_entry(at):
            return index, rise, greatest, with_transaction
        producer_id, start = int64_at(at), int64_at(at + TRANSACTION_AT)
        rise = rise and producer_id > before
        before = producer_id
        last_offset = int64_at(at + LAST_OFFSET_AT)
        greatest = max(greatest, last_offset, start)
        if start >= 0:
            with_transaction.append(producer_id)
        at += ENTRY_BYTES
    return -1, rise, greatest, with_transaction


def find_producer(entries, int64_t producer_id):
    cdef View view = view_of(entries)
    cdef const uint8_t *start
    cdef Py_ssize_t low = 0, high, middle
    start, high = <const uint8_t *>view.memory.buf, view.memory.len // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if int64_at(start + middle * ENTRY_BYTES) < producer_id:
            low = middle + 1
        else:
            high = middle
    if low * ENTRY_BYTES + ENTRY_BYTES <= view.memory.len and int64_at(start + low * ENTRY_BYTES) == producer_id:
        return low
    return ~low


def without_expired(entries, int64_t before_ms, int64_t before_offset):
    cdef View view = view_of(entries)
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Py_ssize_t gone = 0
    cdef bytearray left
    cdef uint8_t *to
    at = <const uint8_t *>view.memory.buf
    end = at + view.memory.len // ENTRY_BYTES * ENTRY_BYTES
    while at < end and not is_expired(at, before_ms, before_offset):
        at += ENTRY_BYTES
    if at == end:
        return entries
    left = PyByteArray_FromStringAndSize(<const char *>view.memory.buf, view.memory.len)
    to = <uint8_t *>PyByteArray_AS_STRING(left) + (at - <const uint8_t *>view.memory.buf)
    while at < end:
        if is_expired(at, before_ms, before_offset):
            gone += ENTRY_BYTES
        else:
            memcpy(to, at, ENTRY_BYTES)
            to += ENTRY_BYTES
        at += ENTRY_BYTES
    PyByteArray_Resize(left, view.memory.len - gone)
    return left


cdef inline bint is_expired(const uint8_t *at, int64_t before_ms, int64_t before_offset) noexcept nogil:
    cdef int64_t last_offset = int64_at(at + LAST_OFFSET_AT)
    return int64_at(at + TRANSACTION_AT) < 0 and (
        last_offset < 0 or (int64_at(at + TIMESTAMP_AT) < before_ms and last_offset < before_offset)
    )
