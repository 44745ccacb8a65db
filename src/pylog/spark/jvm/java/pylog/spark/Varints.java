package pylog.spark;

/** Kafka's numbers of 32 bits: seven bits a byte, the low ones first, signs zigzagged. */
final class Varints {
  private static final Damage IN_DOUBT = new Damage("");

  private Varints() {}

  /**
   * A number of 32 bits in the upper half, the position after it in the lower. Its end is not
   * checked. Any {@code Damage} means: read it again with all checks.
   */
  static long unchecked(byte[] data, int position) throws Damage {
    int bits = data[position];
    if (bits >= 0) {
      return packed(bits, position + 1);
    }
    int next = data[position + 1];
    if (next >= 0) {
      return packed(bits & 0x7F | next << 7, position + 2);
    }
    bits = bits & 0x7F | (next & 0x7F) << 7;
    next = data[position + 2];
    if (next >= 0) {
      return packed(bits | next << 14, position + 3);
    }
    bits |= (next & 0x7F) << 14;
    next = data[position + 3];
    if (next >= 0) {
      return packed(bits | next << 21, position + 4);
    }
    bits |= (next & 0x7F) << 21;
    next = data[position + 4];
    if (next >= 0 && next <= 0x0F) {
      return packed(bits | next << 28, position + 5);
    }
    throw IN_DOUBT;
  }

  static long packed(int bits, int position) {
    return (long) ((bits >>> 1) ^ -(bits & 1)) << 32 | position;
  }
}
