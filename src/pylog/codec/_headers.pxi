# Reads, writes and stamps the headers of batches, as header.py does. A part of _records.pyx.


cdef inline uint8_t *put_number(uint8_t *at, uint64_t number, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        at[index] = <uint8_t>(number >> (8 * (size - 1 - index)))
    return at + size


cdef inline uint64_t get_number(const uint8_t **at, int size) noexcept nogil:
    cdef uint64_t number = 0
    cdef int index
    for index in range(size):
        number = number << 8 | at[0][index]
    at[0] += size
    return number


cdef object header_at(const uint8_t *at):
    cdef object header = pylog_new_record(BatchHeader, 13)
    PyTuple_SET_ITEM(header, 0, PyLong_FromLongLong(<int64_t>get_number(&at, 8)))  # base offset
    PyTuple_SET_ITEM(header, 1, PyLong_FromLongLong(<int32_t>get_number(&at, 4)))  # length
    PyTuple_SET_ITEM(header, 2, PyLong_FromLongLong(<int32_t>get_number(&at, 4)))  # leader epoch
    PyTuple_SET_ITEM(header, 3, PyLong_FromLongLong(<int8_t>get_number(&at, 1)))  # magic
    PyTuple_SET_ITEM(header, 4, PyLong_FromLongLong(<uint32_t>get_number(&at, 4)))  # CRC
    PyTuple_SET_ITEM(header, 5, PyLong_FromLongLong(<int16_t>get_number(&at, 2)))  # attributes
    PyTuple_SET_ITEM(header, 6, PyLong_FromLongLong(<int32_t>get_number(&at, 4)))  # last offset delta
    PyTuple_SET_ITEM(header, 7, PyLong_FromLongLong(<int64_t>get_number(&at, 8)))  # base timestamp
    PyTuple_SET_ITEM(header, 8, PyLong_FromLongLong(<int64_t>get_number(&at, 8)))  # max timestamp
    PyTuple_SET_ITEM(header, 9, PyLong_FromLongLong(<int64_t>get_number(&at, 8)))  # producer id
    PyTuple_SET_ITEM(header, 10, PyLong_FromLongLong(<int16_t>get_number(&at, 2)))  # producer epoch
    PyTuple_SET_ITEM(header, 11, PyLong_FromLongLong(<int32_t>get_number(&at, 4)))  # base sequence
    PyTuple_SET_ITEM(header, 12, PyLong_FromLongLong(<int32_t>get_number(&at, 4)))  # records count
    return header


def read_header(buffer, Py_ssize_t position=0):
    cdef Py_buffer memory
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= memory.len - HEADER_BYTES:
            raise faults.header_cut_off(position, memory.len)
        return header_at(<const uint8_t *>memory.buf + position)
    finally:
        PyBuffer_Release(&memory)


def write_header(
    bytearray batch not None,
    object attributes,
    object count,
    object first_timestamp_ms,
    object max_timestamp_ms,
    object producer_id,
    object producer_epoch,
    object base_sequence,
):
    # PyNumber_Index: a conversion to a C type truncates floats
    write_header_of(
        batch, PyNumber_Index(attributes), PyNumber_Index(count), PyNumber_Index(first_timestamp_ms),
        PyNumber_Index(max_timestamp_ms), PyNumber_Index(producer_id), PyNumber_Index(producer_epoch),
        PyNumber_Index(base_sequence),
    )


cdef int write_header_of(
    bytearray batch,
    int16_t attributes,
    int32_t count,
    int64_t first_timestamp_ms,
    int64_t max_timestamp_ms,
    int64_t producer_id,
    int16_t producer_epoch,
    int32_t base_sequence,
) except -1:
    cdef View view
    cdef uint8_t *at
    if attributes & TRANSACTIONAL_BIT or producer_id < 0 or producer_epoch < 0 or base_sequence < 0:
        reason = check_producer(attributes, producer_id, producer_epoch, base_sequence, count)
        if reason is not None:
            raise ConfigError(reason)
    view = view_of_batch(batch)
    at = put_number(<uint8_t *>view.memory.buf, 0, 8)  # base offset
    at = put_number(at, view.memory.len - BATCH_OVERHEAD, 4)
    at = put_number(at, NO_LEADER_EPOCH, 4)
    at = put_number(at, MAGIC, 1)
    at = put_number(at, 0, 4)  # the CRC, below
    at = put_number(at, attributes, 2)
    at = put_number(at, count - 1, 4)  # last offset delta
    at = put_number(at, first_timestamp_ms, 8)
    at = put_number(at, max_timestamp_ms, 8)
    at = put_number(at, producer_id, 8)
    at = put_number(at, producer_epoch, 2)
    at = put_number(at, base_sequence, 4)
    put_number(at, count, 4)
    put_crc(view)
    return 0


def stamp(bytearray batch not None, base_offset, leader_epoch, append_time_ms=None):
    cdef int64_t offset = PyNumber_Index(base_offset), time_ms = 0
    cdef int32_t epoch = PyNumber_Index(leader_epoch)
    cdef View view
    cdef uint8_t *start
    if append_time_ms is not None:
        time_ms = PyNumber_Index(append_time_ms)
    view = view_of_batch(batch)
    start = <uint8_t *>view.memory.buf
    put_number(start, offset, 8)
    put_number(start + LEADER_EPOCH_POSITION, epoch, 4)
    if append_time_ms is not None:
        put_number(start + MAX_TIMESTAMP_POSITION, time_ms, 8)
        start[ATTRIBUTES_POSITION + 1] |= LOG_APPEND_TIME_BIT
        put_crc(view)
    return header_at(start)


cdef View view_of_batch(bytearray batch):
    """The memory of a batch, which has at least a header."""
    cdef View view = view_of(batch, PyBUF_WRITABLE)
    if view.memory.len < HEADER_BYTES:
        raise faults.header_cut_off(0, view.memory.len)
    return view


cdef int put_crc(View view) except -1:
    cdef char *start = <char *>view.memory.buf
    cdef uint32_t crc = crc32c(PyMemoryView_FromMemory(start + CRC_START, view.memory.len - CRC_START, PyBUF_READ))
    put_number(<uint8_t *>start + CRC_POSITION, crc, 4)
    return 0
