package pylog.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.zip.CRC32C;

/** Numbers in a byte array. Each access is checked by the virtual machine. */
final class Bytes {
  private static final VarHandle INT16 = big(short[].class);
  private static final VarHandle INT32 = big(int[].class);
  private static final VarHandle INT64 = big(long[].class);
  private static final VarHandle LITTLE_INT32 =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

  /** After the last byte in use, so that a short number may be read before its end is checked. */
  static final int SLACK = 64;

  private Bytes() {}

  private static VarHandle big(Class<?> numbers) {
    return MethodHandles.byteArrayViewVarHandle(numbers, ByteOrder.BIG_ENDIAN);
  }

  static short int16(byte[] data, int at) {
    return (short) INT16.get(data, at);
  }

  static int int32(byte[] data, int at) {
    return (int) INT32.get(data, at);
  }

  static long uint32(byte[] data, int at) {
    return int32(data, at) & 0xFFFFFFFFL;
  }

  static long int64(byte[] data, int at) {
    return (long) INT64.get(data, at);
  }

  static int littleInt32(byte[] data, int at) {
    return (int) LITTLE_INT32.get(data, at);
  }

  static long crc32c(byte[] data, int from, int to) {
    CRC32C crc = new CRC32C();
    crc.update(data, from, to - from);
    return crc.getValue();
  }
}
