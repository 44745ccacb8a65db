"""The constants and layouts of Kafka's record batch v2 and its records.

Integers are big-endian. A varint is zig-zag, then seven bits a byte, low group first. Source:
docs/format.md, after Kafka's ``DefaultRecordBatch`` and ``DefaultRecord``.
"""

from __future__ import annotations

import struct

Buffer = bytes | bytearray | memoryview

# The batch header, 61 bytes, never compressed

HEADER_STRUCT = struct.Struct(
    ">"
    "q"  #  0 base offset
    "i"  #  8 batch length: bytes after this field
    "i"  # 12 partition leader epoch, outside the CRC, -1 unknown
    "b"  # 16 magic
    "I"  # 17 CRC-32C of everything from 21 on
    "h"  # 21 attributes
    "i"  # 23 last offset delta
    "q"  # 27 base timestamp, or the delete horizon
    "q"  # 35 max timestamp
    "q"  # 43 producer id
    "h"  # 51 producer epoch
    "i"  # 53 base sequence
    "i"  # 57 records count
)
HEADER_BYTES = 61
BATCH_OVERHEAD = 12  # base offset and length, which the length does not count
MIN_BATCH_LENGTH = HEADER_BYTES - BATCH_OVERHEAD

BASE_OFFSET_POSITION = 0
LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43

BASE_OFFSET_STRUCT = struct.Struct(">q")
LENGTH_STRUCT = struct.Struct(">i")
LEADER_EPOCH_STRUCT = struct.Struct(">i")
CRC_STRUCT = struct.Struct(">I")
ATTRIBUTES_STRUCT = struct.Struct(">h")
TIMESTAMP_STRUCT = struct.Struct(">q")
PRODUCER_STRUCT = struct.Struct(">qhi")  # id, epoch, base sequence

CRC_START = ATTRIBUTES_POSITION  # the log may write the fields before it without changing the CRC

MAGIC = 2
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

# Attributes of the batch

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
KNOWN_ATTRIBUTES = 0x7F

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# A record inside the batch

MIN_RECORD_BYTES = 7  # length, attributes, two deltas, key length, value length, headers count
MAX_RECORD_OVERHEAD = 21  # length 5, attributes 1, timestamp delta 10, offset delta 5
MIN_HEADER_BYTES = 2  # key length, value length
MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10

# Kafka has no limit, but a 128 MiB payload of two-byte headers would become gigabytes of objects.
MAX_HEADERS = 65_536

# more than the framing of the only record of a batch, without headers
MAX_FRAMING_BYTES = 32

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

# Hashes of keys

MURMUR2, MURMUR3 = 2, 3
POSITIVE = 0x7FFFFFFF  # Kafka's Utils.toPositive: the partition of a key is (hash & POSITIVE) % partition_count

# Control records: key, and value of an end-of-transaction marker

CONTROL_KEY_STRUCT = struct.Struct(">hh")  # version, type
MARKER_VALUE_STRUCT = struct.Struct(">hi")  # version, coordinator epoch
CONTROL_KEY_VERSION = 0
MARKER_VALUE_VERSION = 0

# Compressed payloads

LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
LZ4_BLOCK_INDEPENDENT_BIT = 0x20  # in the flag byte after the magic
ZSTD_MAX_BLOCK_BYTES = 128 * 1024
SKIPPABLE_FRAME_MAGIC = range(0x184D2A50, 0x184D2A60)  # little-endian; zstd and lz4 share it

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_STRUCT = struct.Struct(">8sii")  # magic, version, oldest compatible version
XERIAL_VERSION = 1
XERIAL_BLOCK_BYTES = 32 * 1024
XERIAL_SIZE_STRUCT = struct.Struct(">i")
SNAPPY_MAX_RATIO = 22  # a copy of 64 bytes takes three

KEY_ORDINAL_MASK = (1 << 48) - 1
"""In an entry of a key map: an offset less the first one, plus one. 0: the entry is free."""
