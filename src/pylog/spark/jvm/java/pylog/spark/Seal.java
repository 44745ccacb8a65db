package pylog.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.zip.CRC32C;

/**
 * What the bytes of a closed segment must be: where each batch begins, and the CRC-32C of its first 21
 * bytes, which the batch's own CRC leaves out. So a flipped length can't hide the batches after it.
 */
final class Seal {
  private static final long MAGIC = 0x50594c475345414cL; // "PYLGSEAL"
  private static final int VERSION = 1;
  private static final int HAS_TIMES = 1;
  private static final int HAS_HOME = 2;
  private static final int HAS_LEAST = 4;
  private static final int RISING = 8;
  private static final int HAS_ABORTED = 16;
  private static final int KNOWN_FLAGS = 31;
  private static final int HEAD_BYTES = 48;
  private static final int BODY_START = HEAD_BYTES + 4;
  private static final int ENTRY_BYTES = 8;
  private static final int TIME_BYTES = 8;
  private static final int TIMES_EVERY = 64;
  private static final int LEAST_EVERY_BYTES = 64 << 10;
  private static final int DIGEST_BYTES = 12;
  private static final int HOME_LIMIT_BYTES = 80;

  final long lastOffset;
  /** The next segment begins at this offset, and offsets may have gaps; -1 if they have none. */
  final long nextBase;
  /** The partition that it belongs to; may be empty. */
  final String home;
  private final long[] positions;
  private final long[] crcs;

  private Seal(long lastOffset, long nextBase, String home, long[] positions, long[] crcs) {
    this.lastOffset = lastOffset;
    this.nextBase = nextBase;
    this.home = home;
    this.positions = positions;
    this.crcs = crcs;
  }

  /** The seal in a file, that of a segment of that many bytes. {@code Damage} also if it is a newer one. */
  static Seal read(FileChannel file, long segmentBytes) throws IOException, Damage {
    long segment = Math.min(segmentBytes, Integer.MAX_VALUE);
    long limit = homeStart(segment / BatchHeader.BYTES + 1, segment, KNOWN_FLAGS) + HOME_LIMIT_BYTES;
    long size = file.size();
    if (size > limit) { // a sparse file claims any size
      throw new Damage("a seal of " + size + " bytes, one of a segment of " + segment + " bytes has at most " + limit);
    }
    byte[] front = front(file, BODY_START); // a file that cannot be a seal is not read whole
    if (front.length < BODY_START || Bytes.int64(front, 0) != MAGIC) {
      throw new Damage("not a seal: " + front.length + " bytes without its magic");
    }
    return decode(front(file, (int) size));
  }

  boolean isDense() {
    return nextBase < 0;
  }

  /** The offset before which nothing is missing, if no batch here reaches {@code offset}. */
  long gapEnd(long offset) {
    return offset > lastOffset ? Math.max(offset, nextBase) : offset;
  }

  int count() {
    return positions.length;
  }

  long position(int number) {
    return positions[number];
  }

  /** The ordinal of the batch that begins at a position; negative if none does. */
  int numberAt(long position) {
    return Arrays.binarySearch(positions, position);
  }

  /** Whether the bytes at {@code at} begin as the batch of this ordinal must. */
  boolean matches(int number, byte[] data, int at) {
    return number >= 0 && Bytes.crc32c(data, at, at + BatchHeader.CRC_START) == crcs[number];
  }

  /** Its first bytes, fewer if it ends before. */
  private static byte[] front(FileChannel file, int bytes) throws IOException {
    ByteBuffer data = ByteBuffer.allocate(bytes);
    while (data.hasRemaining() && file.read(data, data.position()) >= 0) {
      continue;
    }
    return data.hasRemaining() ? Arrays.copyOf(data.array(), data.position()) : data.array();
  }

  private static Seal decode(byte[] data) throws Damage {
    if (data.length < BODY_START) {
      throw new Damage("not a seal: " + data.length + " bytes");
    }
    CRC32C crc = new CRC32C();
    crc.update(data, 0, HEAD_BYTES);
    crc.update(data, BODY_START, data.length - BODY_START);
    if (crc.getValue() != Bytes.uint32(data, HEAD_BYTES)) {
      throw new Damage("the seal is damaged: its checksum differs");
    }
    int flags = Bytes.int16(data, 10);
    if (Bytes.int16(data, 8) != VERSION || (flags & ~KNOWN_FLAGS) != 0) {
      throw new Damage("a seal of version " + Bytes.int16(data, 8) + ", flags " + flags + ", which this reader does not know");
    }
    long count = Bytes.uint32(data, 12);
    long size = Bytes.int64(data, 16);
    long homeStart = homeStart(count, Math.max(size, 0), flags);
    long homeBytes = data.length - homeStart;
    if ((flags & HAS_HOME) != 0 ? homeBytes < 1 || homeBytes > HOME_LIMIT_BYTES : homeBytes != 0) {
      throw new Damage("the seal has " + data.length + " bytes for " + count + " batches");
    }
    int entriesStart = entriesStart(flags);
    long[] positions = new long[(int) count];
    long[] crcs = new long[(int) count];
    for (int number = 0; number < count; number++) {
      positions[number] = Bytes.uint32(data, entriesStart + number * ENTRY_BYTES);
      crcs[number] = Bytes.uint32(data, entriesStart + number * ENTRY_BYTES + 4);
    }
    long nextBase = (flags & RISING) != 0 ? Bytes.int64(data, (int) homeStart - 8) : -1;
    String home = new String(data, (int) homeStart, (int) homeBytes, StandardCharsets.ISO_8859_1);
    long first = Bytes.int64(data, 24);
    long last = Bytes.int64(data, 32);
    if ((flags & HAS_ABORTED) != 0) {
      checkAborted(data, (int) homeStart, count);
    }
    if (!isPossible(positions, size, first, last)
        || !timesRise(data, entriesStart + (int) count * ENTRY_BYTES, flags, count)
        || !home.chars().allMatch(each -> each < 0x80)
        || ((flags & RISING) != 0 && !canPrecede(count, first, last, nextBase))) {
      throw new Damage("the seal says what no segment of " + size + " bytes can be");
    }
    return new Seal(last, nextBase, home, positions, crcs);
  }

  private static boolean isPossible(long[] positions, long size, long first, long last) {
    if (positions.length == 0) {
      return size == 0;
    }
    for (int number = 1; number < positions.length; number++) {
      if (positions[number] <= positions[number - 1]) {
        return false;
      }
    }
    return positions[0] == 0
        && positions[positions.length - 1] <= size - BatchHeader.BYTES
        && first >= 0
        && first <= last;
  }

  private static boolean timesRise(byte[] data, int start, int flags, long count) {
    long times = (flags & HAS_TIMES) != 0 ? (count + TIMES_EVERY - 1) / TIMES_EVERY : 0;
    for (int number = 1; number < times; number++) {
      if (Bytes.int64(data, start + number * TIME_BYTES) < Bytes.int64(data, start + (number - 1) * TIME_BYTES)) {
        return false;
      }
    }
    return true;
  }

  private static boolean canPrecede(long count, long first, long last, long nextBase) {
    return last < nextBase && (count == 0 || nextBase <= first + Integer.MAX_VALUE + 1L);
  }

  private static void checkAborted(byte[] data, int homeStart, long count) throws Damage {
    CRC32C crc = new CRC32C();
    crc.update(data, 0, HEAD_BYTES);
    crc.update(data, BODY_START, DIGEST_BYTES - 4);
    crc.update(data, homeStart, data.length - homeStart);
    if (crc.getValue() != Bytes.uint32(data, BODY_START + DIGEST_BYTES - 4)) {
      throw new Damage("the seal is damaged: its part on aborted transactions");
    }
    if (count > 0 && Bytes.uint32(data, BODY_START) > count) {
      throw new Damage("the seal records more aborted transactions than batches");
    }
  }

  private static int entriesStart(int flags) {
    return BODY_START + ((flags & HAS_ABORTED) != 0 ? DIGEST_BYTES : 0);
  }

  /** Where the home begins. Neither count nor size makes it overflow: both are below 2^63 / 8. */
  private static long homeStart(long count, long segmentBytes, int flags) {
    long times = (flags & HAS_TIMES) != 0 ? (count + TIMES_EVERY - 1) / TIMES_EVERY : 0;
    long least = (flags & HAS_LEAST) != 0 ? segmentBytes / LEAST_EVERY_BYTES + (segmentBytes % LEAST_EVERY_BYTES > 0 ? 1 : 0) : 0;
    return entriesStart(flags) + count * ENTRY_BYTES + (times + least) * TIME_BYTES + ((flags & RISING) != 0 ? 8 : 0);
  }
}
