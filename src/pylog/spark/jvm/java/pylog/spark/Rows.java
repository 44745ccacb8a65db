package pylog.spark;

import java.util.Arrays;

/**
 * Decoded records: numbers, and where in {@link #data} the rest is. Filled again and again, so that no
 * memory is allocated per row or batch.
 */
final class Rows {
  static final int CAPACITY = 4096;
  private static final int HEADERS_MAX = 65_536;

  byte[] data;
  int count;
  final long[] offsets = new long[CAPACITY];
  final long[] timestamps = new long[CAPACITY];
  final int[] timestampTypes = new int[CAPACITY];
  final int[] keys = new int[CAPACITY];
  /** -1: null. */
  final int[] keySizes = new int[CAPACITY];

  final int[] values = new int[CAPACITY];
  final int[] valueSizes = new int[CAPACITY];
  /** Of each row, the number of its first header, and how many it has. */
  final int[] headers;

  final int[] headerCounts;
  /** Of each header of all rows. */
  int[] names;

  int[] nameSizes;
  int[] contents;
  int[] contentSizes;
  private int headersUsed;

  Rows(boolean withHeaders) {
    headers = withHeaders ? new int[CAPACITY] : null;
    headerCounts = withHeaders ? new int[CAPACITY] : null;
    names = new int[0];
    nameSizes = new int[0];
    contents = new int[0];
    contentSizes = new int[0];
  }

  void clear() {
    count = 0;
    headersUsed = 0;
  }

  boolean isFull() {
    return count == CAPACITY || headersUsed >= HEADERS_MAX;
  }

  boolean hasHeaders() {
    return headers != null;
  }

  void noHeaders(int row) {
    headers[row] = headersUsed;
    headerCounts[row] = 0;
  }

  /** The next row has so many headers, which are added next. */
  void beginHeaders(int number) {
    headers[count] = headersUsed;
    headerCounts[count] = number;
    int needed = headersUsed + number;
    if (needed > names.length) {
      int room = Math.max(needed, 2 * names.length);
      names = Arrays.copyOf(names, room);
      nameSizes = Arrays.copyOf(nameSizes, room);
      contents = Arrays.copyOf(contents, room);
      contentSizes = Arrays.copyOf(contentSizes, room);
    }
  }

  void addHeader(int name, int nameSize, int content, int contentSize) {
    names[headersUsed] = name;
    nameSizes[headersUsed] = nameSize;
    contents[headersUsed] = content;
    contentSizes[headersUsed] = contentSize;
    headersUsed++;
  }
}
