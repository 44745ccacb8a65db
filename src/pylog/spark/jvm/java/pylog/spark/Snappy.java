package pylog.spark;

import java.io.IOException;
import org.xerial.snappy.SnappyError;

/** Raw snappy blocks in the framing of xerial's snappy-java; a bare block is read, too. */
final class Snappy {
  private static final long XERIAL_MAGIC = 0x82534e4150505900L; // "\x82SNAPPY\0"
  private static final int XERIAL_HEADER_BYTES = 16;
  private static final int SIZE_BYTES = 4;
  /** A copy of 64 bytes takes three. */
  private static final int RATIO_MAX = 22;

  private Snappy() {}

  static void append(byte[] source, int from, int to, Decompressor target) throws Damage {
    if (!isXerial(source, from, to)) {
      block(source, from, from, to, target);
      return;
    }
    int position = from;
    while (position < to) {
      if (isXerial(source, position, to)) { // at the start, and between streams
        if (to - position < XERIAL_HEADER_BYTES) {
          throw Decompressor.invalid(position - from, "xerial header cut off at " + (to - from));
        }
        int version = Bytes.int32(source, position + 8);
        if (version < 1) { // a larger one may be 1 in the wrong byte order, which was seen
          throw Decompressor.invalid(position - from, "xerial version " + version + ", expected 1");
        }
        position += XERIAL_HEADER_BYTES;
        continue;
      }
      if (to - position < SIZE_BYTES) {
        throw Decompressor.invalid(position - from, "cut off at " + (to - from));
      }
      int size = Bytes.int32(source, position);
      position += SIZE_BYTES;
      if (size <= 0 || size > to - position) {
        throw Decompressor.invalid(position - from, "block of " + size + " bytes, but " + (to - position) + " remain");
      }
      block(source, from, position, position + size, target);
      position += size;
    }
  }

  private static boolean isXerial(byte[] source, int at, int to) {
    return to - at >= 8 && Bytes.int64(source, at) == XERIAL_MAGIC;
  }

  private static void block(byte[] source, int from, int start, int to, Decompressor target) throws Damage {
    try {
      int size = start == to ? -1 : org.xerial.snappy.Snappy.uncompressedLength(source, start, to - start);
      if (size > target.room()) {
        throw new Decompressor.BeyondLimit();
      }
      if (size < 0 || size > (long) (to - start) * RATIO_MAX) {
        throw Decompressor.invalid(start - from, "claims " + size + " bytes in a block of " + (to - start));
      }
      byte[] space = target.space(size);
      target.written(org.xerial.snappy.Snappy.uncompress(source, start, to - start, space, target.end()));
    } catch (IOException | SnappyError error) {
      throw Decompressor.invalid(start - from, String.valueOf(error.getMessage()));
    }
  }
}
