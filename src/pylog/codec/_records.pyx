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

from collections.abc import Mapping

from pylog.codec import faults, format
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
cdef int MURMUR3 = format.MURMUR3
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


# One extension: the parts of several could not inline one another's varints.
include "_encoding.pxi"
include "_headers.pxi"
include "_decoding.pxi"
include "_columns.pxi"
include "_by_partition.pxi"
include "_producer_entries.pxi"
include "_key_map.pxi"
