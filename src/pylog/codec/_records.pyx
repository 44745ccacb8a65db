# cython: language_level=3, cdivision=True, auto_pickle=False, binding=False
"""The compiled codec: the same names, values and errors as the readable modules, which explain them.

Each read is preceded by a comparison with the bytes that remain. Memory is allocated for data that
exists (the payload, the given values), never for a size read from a payload. No pointer into the
encoder's buffer is kept while Python code may run. Bytes that were not written are never returned.
"""

cimport cython
from cpython.array cimport array
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_Check
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.number cimport PyNumber_Index
from cpython.ref cimport Py_INCREF, PyObject
from cpython.time cimport time_ns
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pylog.codec import faults, format, key_map
from pylog.codec.checksum import crc32c as _crc32c
from pylog.codec.columns import Columns
from pylog.codec.header import BatchHeader as _BatchHeader
from pylog.codec.header import check_producer
from pylog.errors import ConfigError, SerializationError
from pylog.model import Record as _Record

cdef extern from *:
    """
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Entries are found at random: with small pages nearly each costs a search for its page, too. From 32 MiB on malloc takes
       memory from the system for each call, and frees it, so the advice holds for nothing else. */
    static CYTHON_INLINE void pylog_in_large_pages(void *memory, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const uintptr_t large = 2 << 20;
        uintptr_t start = ((uintptr_t)memory + large - 1) & ~(large - 1), end = ((uintptr_t)memory + size) & ~(large - 1);
        if (size >= 32 << 20) (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
    #endif
    }
    /* Records and headers contain strings, bytes and ints, so they are never part of a cycle, and the collector need
       not visit them. From 3.14 on a tuple caches its hash: -1 means none yet, but tp_alloc fills it with 0. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define pylog_forget_hash(op) (((PyTupleObject *)(op))->ob_hash = -1)
    #else
    #define pylog_forget_hash(op) ((void)0)
    #endif
    static CYTHON_INLINE PyObject *pylog_new_record(PyObject *type, Py_ssize_t size) {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
        if (made != NULL) {
            pylog_forget_hash(made);
            PyObject_GC_UnTrack(made);
        }
        return made;
    }
    static CYTHON_INLINE PyObject *pylog_new_instance(PyObject *type, PyObject *no_arguments) {
        if (!PyType_Check(type) || ((PyTypeObject *)type)->tp_new == NULL) {
            PyErr_SetString(PyExc_TypeError, "expected a kind of Receipt");
            return NULL;
        }
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, no_arguments, NULL);
    }
    static CYTHON_INLINE PyObject *pylog_new_tuple(Py_ssize_t size) {
        PyObject *made = PyTuple_New(size);
        if (made != NULL) PyObject_GC_UnTrack(made);
        return made;
    }
    #if defined(__GNUC__) || defined(__clang__)
    #define pylog_prefetch(address) __builtin_prefetch(address, 1)
    #else
    #define pylog_prefetch(address) ((void)(address))
    #endif
    static CYTHON_INLINE int pylog_add_overflows(int64_t a, int64_t b, int64_t *sum) {
    #if defined(__GNUC__) || defined(__clang__)
        return __builtin_add_overflow(a, b, sum);
    #else
        if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b)) return 1;
        *sum = a + b;
        return 0;
    #endif
    }
    """
    object pylog_new_record(object type, Py_ssize_t size)
    object pylog_new_instance(object type, object no_arguments)
    object pylog_new_tuple(Py_ssize_t size)
    void pylog_in_large_pages(void *memory, size_t size) noexcept nogil
    void pylog_prefetch(const void *address) noexcept nogil
    bint pylog_add_overflows(int64_t a, int64_t b, int64_t *sum) noexcept nogil

cdef extern from "Python.h":
    # PyObject * for new references that are passed on at once
    void PyTuple_SET_ITEM(object tuple, Py_ssize_t index, PyObject *item) noexcept
    PyObject *PyLong_FromLongLong(long long value) except NULL
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL
    PyObject *new_text "PyUnicode_DecodeUTF8"(const char *data, Py_ssize_t size, const char *errors) except NULL
    char *bytes_start "PyBytes_AS_STRING"(PyObject *data) noexcept
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    object PyMemoryView_FromMemory(char *start, Py_ssize_t size, int flags)

cdef enum:
    TRUNCATED = 1  # the faults for fail()
    OVERLONG
    WRONG_SIZE
    TIMESTAMP_OVERFLOW
    OUT_OF_ORDER
    IMPOSSIBLE_HEADERS
    WRONG_END

cdef int HEADER_BYTES = format.HEADER_BYTES
cdef int MIN_RECORD_BYTES = format.MIN_RECORD_BYTES
cdef int MIN_HEADER_BYTES = format.MIN_HEADER_BYTES
cdef int MAX_HEADERS = format.MAX_HEADERS
cdef int LENGTH = faults.LENGTH
cdef int ATTRIBUTES = faults.ATTRIBUTES
cdef int TIMESTAMP_DELTA = faults.TIMESTAMP_DELTA
cdef int OFFSET_DELTA = faults.OFFSET_DELTA
cdef int KEY_LENGTH = faults.KEY_LENGTH
cdef int VALUE_LENGTH = faults.VALUE_LENGTH
cdef int HEADERS_COUNT = faults.HEADERS_COUNT
cdef int HEADER_KEY_LENGTH = faults.HEADER_KEY_LENGTH
cdef int HEADER_VALUE_LENGTH = faults.HEADER_VALUE_LENGTH
cdef int MAX_FRAMING_BYTES = format.MAX_FRAMING_BYTES
cdef int MURMUR2 = format.MURMUR2
cdef uint32_t POSITIVE = format.POSITIVE
cdef Py_ssize_t FIRST_ROOM_BYTES = 1024
cdef int BATCH_OVERHEAD = format.BATCH_OVERHEAD
cdef int MAGIC = format.MAGIC
cdef int NO_LEADER_EPOCH = format.NO_LEADER_EPOCH
cdef int LEADER_EPOCH_POSITION = format.LEADER_EPOCH_POSITION
cdef int CRC_POSITION = format.CRC_POSITION
cdef int CRC_START = format.CRC_START
cdef int ATTRIBUTES_POSITION = format.ATTRIBUTES_POSITION
cdef int MAX_TIMESTAMP_POSITION = format.MAX_TIMESTAMP_POSITION
cdef int LOG_APPEND_TIME_BIT = format.LOG_APPEND_TIME_BIT
cdef int TRANSACTIONAL_BIT = format.TRANSACTIONAL_BIT
cdef object crc32c = _crc32c
cdef object BatchHeader = _BatchHeader
cdef object Record = _Record
cdef tuple NO_HEADERS = ()
cdef const uint8_t *NO_HEADERS_ENCODED = b"\x00"


@cython.final
@cython.no_gc
cdef class View:
    """The memory of an object, held until the view is freed."""

    cdef Py_buffer memory
    cdef object source

    def __dealloc__(self):
        PyBuffer_Release(&self.memory)


cdef View view_of(object source, int flags=PyBUF_SIMPLE):
    cdef View view = View.__new__(View)
    PyObject_GetBuffer(source, &view.memory, flags)
    view.source = source
    return view


cdef View space_of(object allocate, Py_ssize_t size):
    """Memory from the caller, to be filled."""
    cdef View space = view_of(allocate(size), PyBUF_WRITABLE)
    if space.memory.len != size:
        raise faults.wrong_space(space.memory.len, size)
    return space


# Encoding


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
        return bytes(value)
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
    cdef object header, name, value
    try:
        listed = list(headers)
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


# Headers


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


cdef inline const uint8_t *start_of(PyObject *item) noexcept:
    if item == <PyObject *>None:
        return NULL
    return <const uint8_t *>bytes_start(item)


cdef inline bint is_plain(PyObject *item) noexcept:
    return item != NULL and (item == <PyObject *>None or PyBytes_CheckExact(<object>item))


cdef inline PyObject *borrow(object sequence, Py_ssize_t index) noexcept:
    """An item of a list or tuple; NULL if it is neither, or has no such item."""
    if PyList_CheckExact(sequence):
        return PyList_GET_ITEM(sequence, index) if 0 <= index < PyList_GET_SIZE(sequence) else NULL
    if PyTuple_CheckExact(sequence):
        return PyTuple_GET_ITEM(sequence, index) if 0 <= index < PyTuple_GET_SIZE(sequence) else NULL
    return NULL


# Decoding


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


# Columns


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


# Many records by partition: see by_partition.py


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


# Entries of producer snapshots: see producer_entries.py


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


# The newest offset of each key: see key_map.py


cdef struct KeyEntry:
    uint64_t hash
    uint64_t more  # 16 bits of the hash, then the offset less the first one, plus one; 0: the entry is free


cdef enum:
    KEYS_AT_ONCE = 32  # whose entries are brought into the cache while others are looked at
    ENTRIES_IN_A_LINE = 4


cdef uint64_t ORDINAL_MASK = key_map.ORDINAL_MASK


cdef struct KeyedRecord:
    const uint8_t *start
    const uint8_t *end
    int64_t delta
    int64_t timestamp
    bint has_key
    bint has_value
    uint64_t hash
    uint64_t tag  # in the place that it has in an entry
    uint64_t slot


cdef inline uint64_t rotated_64(uint64_t value, int bits) noexcept nogil:
    return value << bits | value >> (64 - bits)


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotated_64(v[1], 13) ^ v[0]
    v[0] = rotated_64(v[0], 32)
    v[2] += v[3]
    v[3] = rotated_64(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotated_64(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotated_64(v[1], 17) ^ v[2]
    v[2] = rotated_64(v[2], 32)


cdef void siphash(const uint8_t *at, int64_t size, const uint64_t *secret, uint64_t *high, uint64_t *low) noexcept nogil:
    """SipHash-2-4 with 128 bits (Aumasson and Bernstein), of numbers in the machine's byte order."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t left = size
    cdef int number
    v[0] = secret[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = secret[1] ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = secret[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = secret[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        memcpy(&word, at, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        at += 8
        left -= 8
    word = <uint64_t>size << 56
    for number in range(left):
        word |= <uint64_t>at[number] << (8 * number)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for number in range(4):
        sip_round(v)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for number in range(4):
        sip_round(v)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


@cython.final
cdef class KeyMap:
    cdef void *memory
    cdef KeyEntry *entries
    cdef uint64_t slots
    cdef uint64_t most
    cdef uint64_t used
    cdef int64_t first
    cdef uint64_t secret[2]

    def __cinit__(self, int64_t memory_bytes, secret, int64_t first_offset=0):
        cdef bytes given = bytes(secret)
        if len(given) != sizeof(self.secret):
            raise ValueError(f"a secret of {len(given)} bytes, expected {sizeof(self.secret)}")
        memcpy(self.secret, PyBytes_AS_STRING(given), sizeof(self.secret))
        self.slots = min(max(memory_bytes // <int64_t>sizeof(KeyEntry), 2), <int64_t>1 << 32)
        self.most = self.slots * 9 // 10
        self.first = first_offset
        self.memory = calloc(self.slots + ENTRIES_IN_A_LINE, sizeof(KeyEntry))
        if self.memory == NULL:
            raise MemoryError()
        pylog_in_large_pages(self.memory, self.slots * sizeof(KeyEntry))
        self.entries = <KeyEntry *>((<uintptr_t>self.memory + 63) & ~<uintptr_t>63)  # a line of the cache

    def __dealloc__(self):
        free(self.memory)

    @property
    def count(self):
        return self.used

    cdef inline void look_at(self, KeyedRecord *record, const uint8_t *key, int64_t size) noexcept nogil:
        """Hash the key, and have its entry fetched from memory."""
        cdef uint64_t low = 0
        siphash(key, size, self.secret, &record.hash, &low)
        record.tag = low << 48
        record.slot = ((low >> 32) * self.slots >> 32) & ~<uint64_t>(ENTRIES_IN_A_LINE - 1)
        pylog_prefetch(self.entries + record.slot)

    cdef inline KeyEntry *find(self, const KeyedRecord *record) noexcept nogil:
        """The entry of the key that was looked at, or the free one where it belongs."""
        cdef uint64_t slot = record.slot
        cdef KeyEntry *entry
        while True:
            entry = self.entries + slot
            if entry.more == 0 or (entry.hash == record.hash and ((entry.more ^ record.tag) & ~ORDINAL_MASK) == 0):
                return entry
            slot += 1
            if slot == self.slots:
                slot = 0

    cdef inline bint take(self, const KeyedRecord *record, int64_t offset) noexcept nogil:
        cdef KeyEntry *entry = self.find(record)
        cdef uint64_t ordinal = <uint64_t>(offset - self.first) + 1
        if ordinal > ORDINAL_MASK:
            return False
        if entry.more == 0:
            if self.used >= self.most:
                return False
            self.used += 1
            entry.hash = record.hash
            entry.more = record.tag
        if ordinal > (entry.more & ORDINAL_MASK):
            entry.more = record.tag | ordinal
        return True

    cdef inline bint has_later(self, const KeyedRecord *record, int64_t offset) noexcept nogil:
        cdef KeyEntry *entry = self.find(record)
        return entry.more != 0 and <int64_t>(entry.more & ORDINAL_MASK) - 1 > offset - self.first

    def put(self, bytes key not None, int64_t offset):
        cdef KeyedRecord record
        if offset < self.first:
            raise ValueError(f"offset {offset}, the first is {self.first}")
        self.look_at(&record, <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        return self.take(&record, offset)

    def is_superseded(self, bytes key not None, int64_t offset):
        cdef KeyedRecord record
        self.look_at(&record, <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        return self.has_later(&record, offset)

    cdef inline int read_some(self, Walk *walk, KeyedRecord *records, int64_t least_delta) noexcept nogil:
        """Read the next records, and look at the keys of those from ``least_delta`` on. How many; -1 at a fault."""
        cdef int count = 0
        cdef KeyedRecord *record
        while count < KEYS_AT_ONCE and walk.index < walk.count:
            record = records + count
            record.start = walk.at
            if read_fields(walk) or end_record(walk, walk.end):
                return -1
            record.end = walk.end
            record.delta = walk.delta
            record.timestamp = walk.timestamp
            record.has_key = walk.key_size >= 0 and walk.delta >= least_delta
            record.has_value = walk.value_size >= 0
            if record.has_key:
                self.look_at(record, walk.key, walk.key_size)
            count += 1
        return count

    def put_records(self, payload, int64_t count, int64_t base_offset, int64_t last_offset_delta):
        cdef View view = view_of(payload)
        cdef Walk walk
        cdef KeyedRecord[KEYS_AT_ONCE] records
        cdef int read, index
        open_walk(&walk, &view.memory, count, base_offset, 0, 0, last_offset_delta)
        while walk.index < count:
            read = self.read_some(&walk, records, self.first - base_offset)
            if read < 0:
                fail(&walk)
            for index in range(read):
                if records[index].has_key and not self.take(&records[index], base_offset + records[index].delta):
                    return base_offset + records[index].delta
        check_end(&walk)
        return base_offset + last_offset_delta + 1

    def newest(
        self, payload, int64_t count, int64_t base_offset, int64_t base_timestamp_ms, int64_t append_time_ms,
        int64_t last_offset_delta, int64_t end_offset, bint drops_tombstones,
    ):
        cdef View view = view_of(payload)
        cdef Walk walk
        cdef KeyedRecord[KEYS_AT_ONCE] records
        cdef KeyedRecord *record
        cdef bytearray left = None
        cdef const uint8_t *copied  # up to here; from here on all stays
        cdef uint8_t *to = NULL
        cdef int64_t kept = 0, latest_ms = INT64_MIN
        cdef bint has_tombstones = False, stays
        cdef int read, index
        open_walk(&walk, &view.memory, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta)
        copied = walk.start
        while walk.index < count:
            read = self.read_some(&walk, records, INT64_MIN)
            if read < 0:
                fail(&walk)
            for index in range(read):
                record = records + index
                stays = base_offset + record.delta >= end_offset
                if not stays and record.has_key and (record.has_value or not drops_tombstones):
                    stays = not self.has_later(record, base_offset + record.delta)
                if stays:
                    kept += 1
                    has_tombstones |= not record.has_value and base_offset + record.delta < end_offset
                    if record.timestamp > latest_ms:
                        latest_ms = record.timestamp
                    continue
                if left is None:
                    left = PyByteArray_FromStringAndSize(NULL, view.memory.len)
                    to = <uint8_t *>PyByteArray_AS_STRING(left)
                memcpy(to, copied, record.start - copied)
                to += record.start - copied
                copied = record.end
        check_end(&walk)
        if left is not None:
            memcpy(to, copied, walk.stop - copied)
            to += walk.stop - copied
            PyByteArray_Resize(left, to - <uint8_t *>PyByteArray_AS_STRING(left))
        return kept, bool(has_tombstones), latest_ms, left
