package pylog.spark;

/**
 * The 61 bytes before the records of a batch, as Kafka's format version 2 has them. The fields are
 * unchecked until {@link #problem} has returned null.
 */
record BatchHeader(
    long baseOffset,
    int length,
    int leaderEpoch,
    byte magic,
    long crc,
    short attributes,
    int lastOffsetDelta,
    long baseTimestamp,
    long maxTimestamp,
    long producerId,
    short producerEpoch,
    int baseSequence,
    int count) {

  static final int BYTES = 61;
  /** The base offset and the length itself, which the length does not count. */
  static final int OVERHEAD = 12;
  /** The CRC covers what follows. */
  static final int CRC_START = 21;

  static final int MIN_RECORD_BYTES = 7;
  static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};

  private static final int MAGIC = 2;
  private static final int CODEC_MASK = 0x07;
  private static final int LOG_APPEND_TIME = 0x08;
  private static final int TRANSACTIONAL = 0x10;
  private static final int CONTROL = 0x20;
  private static final int KNOWN_ATTRIBUTES = 0x7F;

  static BatchHeader read(byte[] data, int at) {
    return new BatchHeader(
        Bytes.int64(data, at),
        Bytes.int32(data, at + 8),
        Bytes.int32(data, at + 12),
        data[at + 16],
        Bytes.uint32(data, at + 17),
        Bytes.int16(data, at + 21),
        Bytes.int32(data, at + 23),
        Bytes.int64(data, at + 27),
        Bytes.int64(data, at + 35),
        Bytes.int64(data, at + 43),
        Bytes.int16(data, at + 51),
        Bytes.int32(data, at + 53),
        Bytes.int32(data, at + 57));
  }

  long sizeBytes() {
    return (long) OVERHEAD + length;
  }

  long lastOffset() {
    return baseOffset + lastOffsetDelta;
  }

  int codec() {
    return attributes & CODEC_MASK;
  }

  boolean isLogAppendTime() {
    return (attributes & LOG_APPEND_TIME) != 0;
  }

  boolean isTransactional() {
    return (attributes & TRANSACTIONAL) != 0;
  }

  boolean isControl() {
    return (attributes & CONTROL) != 0;
  }

  /** Whether no offset of the batch lacks its record. */
  boolean isDense() {
    return count == lastOffsetDelta + 1L;
  }

  /** Whether the payload may hold this number of records: a compressed one is not decompressed to see it. */
  boolean isCountPossible() {
    return (long) count * MIN_RECORD_BYTES <= Decompressor.LIMIT_BYTES;
  }

  /** The timestamp of all records, if the log gave it; negative if each record has its own. */
  long appendTime() {
    return isLogAppendTime() ? maxTimestamp : -1;
  }

  /** Why this can't be a batch header, or null. A batch that passes may still fail its CRC. */
  String problem() {
    long payload = (long) length - (BYTES - OVERHEAD);
    if (magic != MAGIC) {
      return "magic " + magic + ", expected " + MAGIC;
    }
    if (payload < 0) {
      return "batch length " + length + ", expected " + (BYTES - OVERHEAD) + " or more";
    }
    if (baseOffset < 0 || lastOffsetDelta < 0 || baseOffset > Long.MAX_VALUE - lastOffsetDelta) {
      return "base offset " + baseOffset + " and last offset delta " + lastOffsetDelta + " are not a range of offsets";
    }
    if ((attributes & ~KNOWN_ATTRIBUTES) != 0) {
      return String.format("attributes %#x, but only the bits %#x are defined", attributes, KNOWN_ATTRIBUTES);
    }
    if (codec() >= CODECS.length) {
      return "compression codec " + codec() + ", expected 0 to " + (CODECS.length - 1);
    }
    String problem = countProblem(payload);
    if (problem == null) {
      problem = producerProblem();
    }
    return problem == null && leaderEpoch < -1 ? "leader epoch " + leaderEpoch : problem;
  }

  private String countProblem(long payload) {
    if (count < 0 || count > lastOffsetDelta + 1L) {
      return "records count " + count + ", but the batch has " + (lastOffsetDelta + 1L) + " offsets";
    }
    if (codec() != 0) {
      return count > 0 && payload == 0 ? count + " compressed records in no bytes" : null;
    }
    if ((long) count * MIN_RECORD_BYTES > payload) {
      return "records count " + count + ", but " + payload + " bytes hold at most " + payload / MIN_RECORD_BYTES;
    }
    return payload > 0 && count == 0 ? "records count 0, but " + payload + " bytes of records" : null;
  }

  private String producerProblem() {
    if (producerId < -1 || producerEpoch < -1 || baseSequence < -1) {
      return "producer id " + producerId + ", epoch " + producerEpoch + ", base sequence " + baseSequence
          + ": below -1, which means none";
    }
    if (producerId != -1 && producerEpoch == -1) {
      return "producer id " + producerId + " without an epoch";
    }
    if (!isTransactional()) {
      return null;
    }
    if (producerId == -1) {
      return "a transactional batch without a producer id";
    }
    return isControl() && count > 1 ? "an end-of-transaction marker with " + count + " records, expected 1" : null;
  }
}
