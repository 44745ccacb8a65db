package pylog.spark;

import net.jpountz.lz4.LZ4Exception;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import net.jpountz.xxhash.XXHash32;
import net.jpountz.xxhash.XXHashFactory;

/** LZ4 frames of version 1 with independent blocks, as Kafka requires. */
final class Lz4 {
  private static final LZ4SafeDecompressor BLOCKS = LZ4Factory.fastestInstance().safeDecompressor();
  private static final XXHash32 HASH = XXHashFactory.fastestInstance().hash32();
  private static final int MAGIC = 0x184D2204;
  private static final int SKIPPABLE_MAGIC = 0x184D2A50;
  private static final int VERSION_MASK = 0xC0;
  private static final int VERSION = 0x40;
  private static final int INDEPENDENT = 0x20;
  private static final int BLOCK_CHECKSUMS = 0x10;
  private static final int CONTENT_SIZE = 0x08;
  private static final int CONTENT_CHECKSUM = 0x04;
  private static final int RESERVED = 0x02;
  private static final int DICTIONARY = 0x01;
  private static final int RESERVED_OF_SIZE = 0x8F;
  private static final int STORED = 0x80000000;

  private final byte[] source;
  private final int from;
  private final int to;
  private final int start;
  private int position;

  private Lz4(byte[] source, int from, int start, int to) {
    this.source = source;
    this.from = from;
    this.start = start;
    this.to = to;
    position = start;
  }

  static void append(byte[] source, int from, int to, Decompressor target) throws Damage {
    int position = from;
    do {
      position = isSkippable(source, position, to)
          ? skipped(source, from, position, to)
          : new Lz4(source, from, position, to).frame(target);
    } while (position < to);
  }

  static boolean isSkippable(byte[] source, int position, int to) {
    return to - position >= 4 && (Bytes.littleInt32(source, position) & 0xFFFFFFF0) == SKIPPABLE_MAGIC;
  }

  static int skipped(byte[] source, int from, int position, int to) throws Damage {
    long size = to - position < 8 ? Long.MAX_VALUE >> 1 : Bytes.littleInt32(source, position + 4) & 0xFFFFFFFFL;
    if (size > to - position - 8) {
      throw Decompressor.invalid(position - from, "cut off at " + (to - from));
    }
    return position + 8 + (int) size;
  }

  private int frame(Decompressor target) throws Damage {
    need(5);
    int flags = source[position + 4];
    if (Bytes.littleInt32(source, position) != MAGIC) {
      throw invalid("not a frame of version 1");
    }
    if ((flags & INDEPENDENT) == 0) {
      throw invalid("its blocks depend on each other, which Kafka does not allow");
    }
    int headerBytes = 7 + ((flags & CONTENT_SIZE) != 0 ? 8 : 0) + ((flags & DICTIONARY) != 0 ? 4 : 0);
    need(headerBytes);
    int sizes = source[position + 5];
    int blockSize = sizes >> 4 & 7;
    if ((flags & VERSION_MASK) != VERSION || (flags & RESERVED) != 0 || (sizes & RESERVED_OF_SIZE) != 0 || blockSize < 4) {
      throw invalid("a frame header with unknown flags");
    }
    int hash = HASH.hash(source, position + 4, headerBytes - 5, 0);
    if ((byte) (hash >> 8) != source[position + headerBytes - 1]) {
      throw invalid("the frame header's checksum differs");
    }
    long contentBytes = (flags & CONTENT_SIZE) != 0 ? Long.reverseBytes(Bytes.int64(source, position + 6)) : 0;
    position += headerBytes;
    int first = target.end();
    blocks(1 << (8 + 2 * blockSize), (flags & BLOCK_CHECKSUMS) != 0, target);
    if (contentBytes != 0 && contentBytes != target.end() - first) {
      throw invalid("it claims " + contentBytes + " bytes, but holds " + (target.end() - first));
    }
    if ((flags & CONTENT_CHECKSUM) != 0) {
      need(4);
      if (HASH.hash(target.data(), first, target.end() - first, 0) != Bytes.littleInt32(source, position)) {
        throw invalid("the content's checksum differs");
      }
      position += 4;
    }
    return position;
  }

  private void blocks(int blockBytes, boolean withChecksums, Decompressor target) throws Damage {
    while (true) {
      need(4);
      int word = Bytes.littleInt32(source, position);
      position += 4;
      if (word == 0) {
        return;
      }
      int size = word & ~STORED;
      if (size > blockBytes) {
        throw invalid("a block of " + size + " bytes, the limit is " + blockBytes);
      }
      need(size + (withChecksums ? 4 : 0));
      if (withChecksums && HASH.hash(source, position, size, 0) != Bytes.littleInt32(source, position + size)) {
        throw invalid("a block's checksum differs");
      }
      if ((word & STORED) != 0) {
        System.arraycopy(source, position, target.space(size), target.end(), size);
        target.written(size);
      } else {
        target.written(block(size, blockBytes, target));
      }
      position += size + (withChecksums ? 4 : 0);
    }
  }

  private int block(int size, int blockBytes, Decompressor target) throws Damage {
    int most = (int) Math.min(blockBytes, 255L * size); // a byte of a block stands for at most 255
    int room = Math.min(most, target.room());
    try {
      return BLOCKS.decompress(source, position, size, target.space(room), target.end(), room);
    } catch (LZ4Exception error) {
      if (room < most) { // it may be too small, or the block be wrong
        throw new Decompressor.BeyondLimit();
      }
      throw invalid(String.valueOf(error.getMessage()));
    }
  }

  private void need(int bytes) throws Damage {
    if (to - position < bytes) {
      throw invalid("cut off at " + (to - from));
    }
  }

  private Damage invalid(String reason) {
    return Decompressor.invalid(start - from, reason);
  }
}
