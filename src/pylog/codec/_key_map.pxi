# The newest offset of each key, as in key_map.py, with another hash. A part of _records.pyx.


cdef struct KeyEntry:
    uint64_t hash
    uint64_t more  # 16 bits of the hash, then the offset less the first one, plus one; 0: the entry is free


cdef enum:
    KEYS_AT_ONCE = 32  # whose entries are brought into the cache while others are looked at
    ENTRIES_IN_A_LINE = 4


cdef uint64_t ORDINAL_MASK = format.KEY_ORDINAL_MASK


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
