package pylog.spark;

import java.util.zip.CRC32;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

/** gzip members of RFC 1952. */
final class Gzip implements AutoCloseable {
  private static final int MAGIC = 0x1f8b;
  private static final int DEFLATED = 8;
  private static final int HEADER_CRC = 2;
  private static final int EXTRA = 4;
  private static final int NAME = 8;
  private static final int COMMENT = 16;
  private static final int RESERVED = 0xE0;
  private static final int HEADER_BYTES = 10;
  private static final int TRAILER_BYTES = 8;
  private static final int LEAST_SPACE_BYTES = 16 << 10;

  private Inflater inflater;

  void append(byte[] source, int from, int to, Decompressor target) throws Damage {
    if (inflater == null) {
      inflater = new Inflater(true);
    }
    int position = from;
    do {
      position = member(source, from, position, to, target);
    } while (position < to);
  }

  private int member(byte[] source, int from, int start, int to, Decompressor target) throws Damage {
    int position = header(source, from, start, to);
    int first = target.end();
    inflater.reset();
    inflater.setInput(source, position, to - position);
    try {
      while (!inflater.finished()) {
        if (target.free() <= 0) {
          target.space(Math.max(1, Math.min(Math.max(LEAST_SPACE_BYTES, to - position), target.room())));
        }
        int written = inflater.inflate(target.data(), target.end(), target.free());
        target.written(written);
        if (written == 0 && !inflater.finished() && target.free() > 0) {
          throw Decompressor.invalid(start - from, "cut off at " + (to - from));
        }
      }
    } catch (DataFormatException error) {
      throw Decompressor.invalid(start - from, String.valueOf(error.getMessage()));
    }
    position = to - inflater.getRemaining();
    if (to - position < TRAILER_BYTES) {
      throw Decompressor.invalid(start - from, "cut off at " + (to - from));
    }
    CRC32 crc = new CRC32();
    crc.update(target.data(), first, target.end() - first);
    if ((int) crc.getValue() != Bytes.littleInt32(source, position)
        || target.end() - first != Bytes.littleInt32(source, position + 4)) {
      throw Decompressor.invalid(start - from, "checksum or length differs");
    }
    return position + TRAILER_BYTES;
  }

  private static int header(byte[] source, int from, int start, int to) throws Damage {
    if (to - start < HEADER_BYTES) {
      throw Decompressor.invalid(start - from, "cut off at " + (to - from));
    }
    int flags = source[start + 3];
    if ((Bytes.int16(source, start) & 0xFFFF) != MAGIC || source[start + 2] != DEFLATED || (flags & RESERVED) != 0) {
      throw Decompressor.invalid(start - from, "not a gzip member");
    }
    int position = start + HEADER_BYTES;
    if ((flags & EXTRA) != 0) {
      int size = position + 2 > to ? 0 : (source[position] & 0xFF) | (source[position + 1] & 0xFF) << 8;
      position += 2 + size;
    }
    for (int text = flags & (NAME | COMMENT); text != 0; text &= text - 1) {
      while (position < to && source[position] != 0) {
        position++;
      }
      position++;
    }
    int end = (flags & HEADER_CRC) != 0 ? position + 2 : position;
    if (end > to) {
      throw Decompressor.invalid(start - from, "cut off at " + (to - from));
    }
    if (end > position) {
      CRC32 crc = new CRC32();
      crc.update(source, start, position - start);
      if ((crc.getValue() & 0xFFFF) != ((source[position] & 0xFF) | (source[position + 1] & 0xFF) << 8)) {
        throw Decompressor.invalid(start - from, "header crc mismatch");
      }
    }
    return end;
  }

  @Override
  public void close() {
    if (inflater != null) {
      inflater.end();
      inflater = null;
    }
  }
}
