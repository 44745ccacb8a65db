package pylog.spark;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/**
 * The records of one decompressed batch, decoded into {@link Rows} piece by piece.
 *
 * <p>A record is read twice over only if it is unusual: {@link #fillFast} reads records without headers
 * with few checks, and leaves whatever does not fit to {@link #readOne}, which checks every bound before
 * the byte and knows the reason. Both accept the same records.
 */
final class Records {
  private static final int MIN_HEADER_BYTES = 2;
  private static final int MAX_HEADERS = 65_536;

  private byte[] data;
  private int start;
  private int stop;
  private int count;
  private int highest;
  private long baseOffset;
  private long baseTimestamp;
  private long appendTime;
  private int timestampType;
  private long fromOffset;
  private long toOffset;
  // the next record
  private int at;
  private int index;
  private long lowest;
  // the record that readOne has read
  private int end;
  private int delta;
  private long timestamp;
  private int key;
  private int keySize;
  private int value;
  private int valueSize;
  private int headers;
  private int headersCount;

  /** Begin with the records in {@code data[from:to]}. All of them are wanted. */
  void open(byte[] data, int from, int to, BatchHeader header) throws Damage {
    open(data, from, to, header, 0, Long.MAX_VALUE);
  }

  /** The same; only those from offset {@code fromOffset} to {@code toOffset} (exclusive) become rows. */
  void open(byte[] data, int from, int to, BatchHeader header, long fromOffset, long toOffset) throws Damage {
    if (header.count() > (to - from) / BatchHeader.MIN_RECORD_BYTES) {
      throw new Damage(
          "records count " + header.count() + ", but a payload of " + (to - from) + " bytes holds 0 to "
              + (to - from) / BatchHeader.MIN_RECORD_BYTES);
    }
    this.data = data;
    start = from;
    at = from;
    stop = to;
    count = header.count();
    highest = header.lastOffsetDelta(); // the header's check: base offset + this is an offset
    baseOffset = header.baseOffset();
    baseTimestamp = header.baseTimestamp();
    appendTime = header.appendTime();
    timestampType = header.isLogAppendTime() ? 1 : 0;
    this.fromOffset = fromOffset;
    this.toOffset = toOffset;
    index = 0;
    lowest = 0;
  }

  boolean hasMore() {
    return index < count;
  }

  byte[] data() {
    return data;
  }

  long offset() {
    return baseOffset + delta;
  }

  int key() {
    return key;
  }

  int keySize() {
    return keySize;
  }

  int value() {
    return value;
  }

  int valueSize() {
    return valueSize;
  }

  /** Add records to the rows, until these are full or the batch ends. */
  void fill(Rows rows) throws Damage {
    while (index < count && !rows.isFull()) {
      fillFast(rows);
      if (index < count && !rows.isFull()) {
        readOne();
        if (isInRange()) {
          put(rows);
        }
      }
    }
  }

  private boolean isInRange() {
    return offset() >= fromOffset && offset() < toOffset;
  }

  /** Read the next record, with all checks. */
  void readOne() throws Damage {
    int position = at;
    long found = number(position, stop, "length");
    position = (int) found;
    int length = (int) (found >> 32);
    if (length < 0 || length > stop - position) {
      throw wrongSize("length", position, length, stop - position);
    }
    int body = position;
    end = position + length;
    if (length == 0) {
      throw fault(position, "attributes", " runs past the end at " + (end - start));
    }
    position++;
    int field = position;
    position = longNumber(position);
    if (appendTime >= 0) {
      timestamp = appendTime;
    } else {
      long sum = baseTimestamp + timestamp;
      if (((baseTimestamp ^ sum) & (timestamp ^ sum)) < 0) {
        throw fault(field, "timestampDelta " + timestamp, " from base timestamp " + baseTimestamp + " does not fit 64 bits");
      }
      timestamp = sum;
    }
    field = position;
    found = number(position, end, "offsetDelta");
    position = (int) found;
    delta = (int) (found >> 32);
    if (delta < lowest || delta > highest) {
      throw fault(field, "offsetDelta " + delta, ", expected " + lowest + " to " + highest);
    }
    found = number(position, end, "keyLength");
    key = (int) found;
    keySize = (int) (found >> 32);
    checkSize("keyLength", key, keySize, -1);
    found = number(key + Math.max(keySize, 0), end, "valueLength");
    value = (int) found;
    valueSize = (int) (found >> 32);
    checkSize("valueLength", value, valueSize, -1);
    found = number(value + Math.max(valueSize, 0), end, "headersCount");
    headers = (int) found;
    headersCount = (int) (found >> 32);
    if (headersCount < 0 || headersCount > Math.min((end - headers) / MIN_HEADER_BYTES, MAX_HEADERS)) {
      throw fault(
          headers,
          "headersCount " + headersCount,
          ", but " + (end - headers) + " bytes remain and " + MAX_HEADERS + " headers are the limit");
    }
    position = headersCount == 0 ? headers : readHeaders(null);
    if (position != end) {
      throw fault(position, "length " + (end - body), ", but its fields take " + (position - body) + " bytes and end");
    }
    at = end;
    lowest = delta + 1L;
    index++;
    checkEnd();
  }

  private void put(Rows rows) {
    int row = rows.count;
    rows.offsets[row] = offset();
    rows.timestamps[row] = timestamp;
    rows.timestampTypes[row] = timestampType;
    rows.keys[row] = key;
    rows.keySizes[row] = keySize;
    rows.values[row] = value;
    rows.valueSizes[row] = valueSize;
    if (rows.hasHeaders()) {
      try {
        rows.beginHeaders(headersCount);
        readHeaders(rows);
      } catch (Damage impossible) { // they were checked
        throw new IllegalStateException(impossible.getMessage());
      }
    }
    rows.count = row + 1;
  }

  /** Check the current record's headers, and add them to the rows, if there are any. Their end. */
  private int readHeaders(Rows rows) throws Damage {
    int position = headers;
    for (int number = 0; number < headersCount; number++) {
      long found = number(position, end, "headerKeyLength");
      int name = (int) found;
      int nameSize = (int) (found >> 32);
      checkSize("headerKeyLength", name, nameSize, 0);
      if (rows == null) {
        checkText(name, nameSize);
      }
      found = number(name + nameSize, end, "headerValueLength");
      int content = (int) found;
      int contentSize = (int) (found >> 32);
      checkSize("headerValueLength", content, contentSize, -1);
      position = content + Math.max(contentSize, 0);
      if (rows != null) {
        rows.addHeader(name, nameSize, content, contentSize);
      }
    }
    return position;
  }

  private void checkText(int from, int size) throws Damage {
    byte seen = 0;
    for (int position = from; position < from + size; position++) {
      seen |= data[position];
    }
    if (seen < 0) {
      try {
        StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(data, from, size));
      } catch (CharacterCodingException error) {
        throw fault(from, "header key", " is not UTF-8");
      }
    }
  }

  // Most records

  /** Add records of the usual kind to the rows. Stops at the first one that is not, or is in doubt. */
  private void fillFast(Rows rows) throws Damage {
    final byte[] data = this.data;
    final int stop = this.stop;
    final int highest = this.highest;
    final int capacity = Rows.CAPACITY;
    final long lowDelta = fromOffset - baseOffset;
    final long highDelta = toOffset - baseOffset;
    final boolean hasAppendTime = appendTime >= 0;
    final boolean hasHeaders = rows.hasHeaders();
    int at = this.at;
    int index = this.index;
    long lowest = this.lowest;
    int row = rows.count;
    try {
      while (index < count && row < capacity) {
        int position = at;
        long found = Varints.unchecked(data, position);
        position = (int) found;
        int length = (int) (found >> 32);
        if (length <= 0 || length > stop - position) {
          break;
        }
        int end = position + length;
        position++;
        long time = data[position];
        if (time >= 0) {
          position++;
          time = (time >>> 1) ^ -(time & 1);
        } else {
          int groups = 1;
          time &= 0x7F;
          byte next;
          do {
            next = data[position + groups];
            time |= (long) (next & 0x7F) << 7 * groups;
            groups++;
          } while (next < 0 && groups < 9);
          if (next < 0) {
            break; // ten bytes
          }
          position += groups;
          time = (time >>> 1) ^ -(time & 1);
        }
        if (hasAppendTime) {
          time = appendTime;
        } else {
          long sum = baseTimestamp + time;
          if (((baseTimestamp ^ sum) & (time ^ sum)) < 0) {
            break;
          }
          time = sum;
        }
        found = Varints.unchecked(data, position);
        position = (int) found;
        int delta = (int) (found >> 32);
        if (delta < lowest || delta > highest) {
          break;
        }
        found = Varints.unchecked(data, position);
        int key = (int) found;
        int keySize = (int) (found >> 32);
        if (keySize < -1 || keySize > end - key) {
          break;
        }
        found = Varints.unchecked(data, key + Math.max(keySize, 0));
        int value = (int) found;
        int valueSize = (int) (found >> 32);
        if (valueSize < -1 || valueSize > end - value) {
          break;
        }
        position = value + Math.max(valueSize, 0);
        if (position != end - 1 || data[position] != 0) {
          break; // headers
        }
        if (delta >= lowDelta && delta < highDelta) {
          rows.offsets[row] = baseOffset + delta;
          rows.timestamps[row] = time;
          rows.timestampTypes[row] = timestampType;
          rows.keys[row] = key;
          rows.keySizes[row] = keySize;
          rows.values[row] = value;
          rows.valueSizes[row] = valueSize;
          if (hasHeaders) {
            rows.noHeaders(row);
          }
          row++;
        }
        at = end;
        lowest = delta + 1L;
        index++;
      }
    } catch (Damage | IndexOutOfBoundsException doubt) {
      // readOne says what it is
    }
    this.at = at;
    this.index = index;
    this.lowest = lowest;
    rows.count = row;
    checkEnd();
  }

  private void checkEnd() throws Damage {
    if (index == count && at != stop) {
      throw new Damage(
          (stop - at) + " bytes remain at payload position " + (at - start) + " after the last of " + count + " records");
    }
  }

  // With all checks

  private long number(int position, int end, String field) throws Damage {
    int bits = 0;
    for (int group = 0; group < 5; group++) {
      if (position + group >= end) {
        throw fault(position, field, " runs past the end at " + (end - start));
      }
      int next = data[position + group];
      if (group == 4 && (next & 0xFF) > 0x0F) {
        break;
      }
      bits |= (next & 0x7F) << 7 * group;
      if (next >= 0) {
        return Varints.packed(bits, position + group + 1);
      }
    }
    throw fault(position, field, " does not fit 32 bits");
  }

  /** Reads a timestamp delta into {@code timestamp}. */
  private int longNumber(int position) throws Damage {
    long bits = 0;
    for (int group = 0; group < 10; group++) {
      if (position + group >= end) {
        throw fault(position, "timestampDelta", " runs past the end at " + (end - start));
      }
      int next = data[position + group];
      if (group == 9 && (next & 0xFF) > 0x01) {
        break;
      }
      bits |= (long) (next & 0x7F) << 7 * group;
      if (next >= 0) {
        timestamp = (bits >>> 1) ^ -(bits & 1);
        return position + group + 1;
      }
    }
    throw fault(position, "timestampDelta", " does not fit 64 bits");
  }

  private void checkSize(String field, int position, int size, int least) throws Damage {
    if (size < least || size > end - position) {
      throw wrongSize(field, position, size, end - position);
    }
  }

  private Damage wrongSize(String field, int position, int size, int remaining) {
    return fault(position, field + " " + size + ", but " + remaining + " bytes remain", "");
  }

  private Damage fault(int position, String what, String problem) {
    return new Damage("record " + index + ": " + what + " at payload position " + (position - start) + problem);
  }
}
