package pylog.spark;

import com.github.luben.zstd.ZstdDecompressCtx;
import com.github.luben.zstd.ZstdException;

/** zstd frames of RFC 8878. */
final class Zstd implements AutoCloseable {
  private static final int MAGIC = 0xFD2FB528;
  private static final int CHECKSUM = 0x04;
  private static final int RESERVED = 0x08;
  private static final int SINGLE_SEGMENT = 0x20;
  private static final int BLOCK_BYTES = 128 << 10;
  private static final int UNKNOWN = -1;
  /** libzstd refuses more if the content's size is unknown. */
  private static final long WINDOW_MAX_BYTES = 1L << 27;

  private ZstdDecompressCtx context;

  void append(byte[] source, int from, int to, Decompressor target) throws Damage {
    int position = from;
    do {
      position = Lz4.isSkippable(source, position, to)
          ? Lz4.skipped(source, from, position, to)
          : frame(source, from, position, to, target);
    } while (position < to);
  }

  private int frame(byte[] source, int from, int start, int to, Decompressor target) throws Damage {
    if (to - start < 6 || Bytes.littleInt32(source, start) != MAGIC) {
      throw Decompressor.invalid(start - from, "not a zstd frame");
    }
    int flags = source[start + 4];
    boolean isSingle = (flags & SINGLE_SEGMENT) != 0;
    int dictionaryBytes = new int[] {0, 1, 2, 4}[flags & 3];
    int sizeBytes = new int[] {isSingle ? 1 : 0, 2, 4, 8}[flags >> 6 & 3];
    int headerBytes = 5 + (isSingle ? 0 : 1) + dictionaryBytes + sizeBytes;
    if ((flags & RESERVED) != 0 || to - start < headerBytes) {
      throw Decompressor.invalid(start - from, "a wrong frame header");
    }
    long size = contentSize(source, start + headerBytes - sizeBytes, sizeBytes);
    if (!isSingle && size == UNKNOWN) {
      int window = source[start + 5] & 0xFF;
      long windowBytes = (1L << 10 + (window >> 3)) / 8 * (8 + (window & 7));
      if (windowBytes > WINDOW_MAX_BYTES) {
        throw Decompressor.invalid(start - from, "a window of " + windowBytes + " bytes");
      }
    }
    long least = 0;
    long most = 0;
    int position = start + headerBytes;
    boolean isLast = false;
    while (!isLast) {
      if (to - position < 3) {
        throw Decompressor.invalid(start - from, "cut off at " + (to - from));
      }
      int block = (source[position] & 0xFF) | (source[position + 1] & 0xFF) << 8 | (source[position + 2] & 0xFF) << 16;
      isLast = (block & 1) != 0;
      int kind = block >> 1 & 3;
      int blockBytes = block >> 3;
      if (kind <= 1) { // raw, or one byte repeated
        least += blockBytes;
        most += blockBytes;
      } else {
        most += BLOCK_BYTES;
      }
      position += 3 + (kind == 1 ? 1 : blockBytes);
      if (position > to) {
        throw Decompressor.invalid(start - from, "cut off at " + (to - from));
      }
    }
    position += (flags & CHECKSUM) != 0 ? 4 : 0;
    if (position > to) {
      throw Decompressor.invalid(start - from, "cut off at " + (to - from));
    }
    decompress(source, from, start, position, size, least, most, target);
    return position;
  }

  private void decompress(
      byte[] source, int from, int start, int end, long size, long least, long most, Decompressor target) throws Damage {
    if (size != UNKNOWN && Long.compareUnsigned(size, most) > 0) {
      throw Decompressor.invalid(
          start - from, "claims " + Long.toUnsignedString(size) + " bytes, but its blocks hold at most " + most);
    }
    long room = size == UNKNOWN ? Math.min(most, target.room()) : size;
    if (Math.max(room, least) > target.room()) {
      throw new Decompressor.BeyondLimit();
    }
    if (context == null) {
      context = new ZstdDecompressCtx();
    }
    try {
      int written = context.decompressByteArray(target.space(room), target.end(), (int) room, source, start, end - start);
      target.written(written);
    } catch (ZstdException error) {
      if (size == UNKNOWN && room < most) { // the room did not suffice, or the frame is wrong
        throw new Decompressor.BeyondLimit();
      }
      throw Decompressor.invalid(start - from, String.valueOf(error.getMessage()));
    }
  }

  private static long contentSize(byte[] source, int at, int bytes) {
    return switch (bytes) {
      case 0 -> UNKNOWN;
      case 1 -> source[at] & 0xFF;
      case 2 -> 256 + ((source[at] & 0xFF) | (source[at + 1] & 0xFF) << 8);
      case 4 -> Bytes.littleInt32(source, at) & 0xFFFFFFFFL;
      default -> Long.reverseBytes(Bytes.int64(source, at));
    };
  }

  @Override
  public void close() {
    if (context != null) {
      context.close();
      context = null;
    }
  }
}
