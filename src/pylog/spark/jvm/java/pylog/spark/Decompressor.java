package pylog.spark;

import java.util.Arrays;

/**
 * Decompresses payloads one after the other into one array. What a payload claims is compared with the
 * limit, and with what its bytes can hold, before memory is allocated. Several frames in a row are one.
 */
final class Decompressor implements AutoCloseable {
  /** Of one batch. */
  static final int LIMIT_BYTES = 128 << 20;

  private static final int LEAST_BYTES = 64 << 10;

  private byte[] data = new byte[Bytes.SLACK];
  private int end;
  private int limit;
  private final Gzip gzip = new Gzip();
  private final Zstd zstd = new Zstd();

  /** The array may be another after {@link #append}; what is in it keeps its place. */
  byte[] data() {
    return data;
  }

  /** Where the next payload will begin. */
  int end() {
    return end;
  }

  /** Forget all; the memory is used again. */
  void clear() {
    end = 0;
  }

  /** Append what {@code source[from:to]} holds, at most {@code limitBytes}. Where it begins. */
  int append(int codec, byte[] source, int from, int to, int limitBytes) throws Damage {
    int start = end;
    limit = (int) Math.min((long) start + limitBytes, Integer.MAX_VALUE - 2 * Bytes.SLACK);
    try {
      switch (codec) {
        case 1 -> gzip.append(source, from, to, this);
        case 2 -> Snappy.append(source, from, to, this);
        case 3 -> Lz4.append(source, from, to, this);
        case 4 -> zstd.append(source, from, to, this);
        default -> throw new Damage("compression codec " + codec + ", expected 0 to 4");
      }
    } catch (BeyondLimit beyond) {
      throw new Damage.TooLarge(
          BatchHeader.CODECS[codec] + " payload holds more than the limit of " + limitBytes
              + " bytes for the records of one batch");
    } catch (Damage damage) {
      throw new Damage(BatchHeader.CODECS[codec] + " payload " + damage.getMessage());
    }
    return start;
  }

  @Override
  public void close() {
    gzip.close();
    zstd.close();
  }

  // For the codecs

  /** More than the limit was found, or is claimed. */
  static final class BeyondLimit extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BeyondLimit() {
      super(null, null, false, false);
    }
  }

  /** How much may still be appended. */
  int room() {
    return limit - end;
  }

  /** Memory for that many bytes after the end. {@code BeyondLimit}. */
  byte[] space(long bytes) {
    if (bytes > room()) {
      throw new BeyondLimit();
    }
    long needed = end + bytes + Bytes.SLACK;
    if (needed > data.length) {
      long all = (long) limit + Bytes.SLACK;
      long more = 4L * data.length > all ? all : 2L * data.length; // at most half of all is copied
      data = Arrays.copyOf(data, (int) Math.max(Math.max(more, needed), LEAST_BYTES));
    }
    return data;
  }

  /** How much fits without more memory. */
  int free() {
    return Math.min(data.length - Bytes.SLACK, limit) - end;
  }

  /** That many bytes were written after the end. */
  void written(int bytes) {
    end += bytes;
  }

  static Damage invalid(int position, String reason) {
    return new Damage("at position " + position + ": " + reason);
  }
}
