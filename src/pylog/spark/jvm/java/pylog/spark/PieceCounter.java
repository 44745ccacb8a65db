package pylog.spark;

import java.io.IOException;
import java.util.function.Predicate;
import pylog.spark.SegmentBatches.Taken;

/**
 * How many records a piece has for the query, and on demand their least and greatest offset and
 * timestamp. Records are decoded only where the headers do not suffice, or are not trusted. Other
 * batches are checked as for rows, except in an aggregate if a seal shows that their number is right.
 */
final class PieceCounter {
  private final boolean wantsOffsets;
  private final boolean wantsTimestamps;
  private final boolean trustHeaders;
  private long count;
  private long minOffset = Long.MAX_VALUE;
  private long maxOffset = Long.MIN_VALUE;
  private long minTimestamp = Long.MAX_VALUE;
  private long maxTimestamp = Long.MIN_VALUE;

  private PieceCounter(boolean wantsOffsets, boolean wantsTimestamps, boolean trustHeaders) {
    this.wantsOffsets = wantsOffsets;
    this.wantsTimestamps = wantsTimestamps;
    this.trustHeaders = trustHeaders;
  }

  /**
   * What a query asks of one piece. {@code CorruptSegmentException}, {@code DataLossException}, {@code
   * UnsupportedException}.
   */
  static PieceCounter of(
      Piece piece, boolean wantsOffsets, boolean wantsTimestamps, boolean trustHeaders)
      throws IOException {
    PieceCounter counter = new PieceCounter(wantsOffsets, wantsTimestamps, trustHeaders);
    counter.read(piece, header -> counter.isByOffsets(header, piece));
    return counter;
  }

  /** How many rows a piece has. Checks every checksum, as a query of rows does; errors as {@link #of}. */
  static long rows(Piece piece, boolean trustHeaders) throws IOException {
    PieceCounter counter = new PieceCounter(false, false, trustHeaders);
    counter.read(piece, header -> false);
    return counter.count;
  }

  private void read(Piece piece, Predicate<BatchHeader> isByOffsets) throws IOException {
    try (PieceBatches batches = new PieceBatches(piece, isByOffsets);
        Decompressor decompressor = new Decompressor()) {
      Records records = new Records();
      Rows rows = null;
      while (batches.take(true) == Taken.BATCH) {
        if (isByHeader(batches.header(), piece)) {
          addByHeader(batches.header(), piece);
          continue;
        }
        rows = rows == null ? new Rows(false) : rows;
        decompressor.clear();
        batches.open(records, decompressor);
        try {
          while (records.hasMore()) {
            rows.clear();
            records.fill(rows);
            add(rows, piece);
          }
        } catch (Damage damage) {
          throw batches.damaged(batches.header(), damage);
        }
      }
    }
  }

  long count() {
    return count;
  }

  /** Of at least one record. */
  long minOffset() {
    return minOffset;
  }

  long maxOffset() {
    return maxOffset;
  }

  /** In milliseconds. */
  long minTimestamp() {
    return minTimestamp;
  }

  long maxTimestamp() {
    return maxTimestamp;
  }

  /** The greatest timestamp of a header is not taken: a header of another writer may say anything. */
  private boolean isByHeader(BatchHeader header, Piece piece) {
    if (!trustHeaders || !header.isCountPossible()) {
      return false;
    }
    if (header.baseOffset() < piece.start() || header.lastOffset() >= piece.end()) {
      return false;
    }
    return (!wantsOffsets || header.isDense()) && (!wantsTimestamps || header.appendTime() >= 0);
  }

  /** Whether the batch's offsets suffice. An aborted one may look like one outside of a transaction. */
  private boolean isByOffsets(BatchHeader header, Piece piece) {
    return piece.aborted().isEmpty() && !wantsTimestamps && isByHeader(header, piece);
  }

  private void addByHeader(BatchHeader header, Piece piece) {
    count += header.count();
    addOffsets(header.baseOffset(), header.lastOffset());
    if (wantsTimestamps) {
      addTimestamp(header.appendTime(), header.baseOffset(), piece);
    }
  }

  private void add(Rows rows, Piece piece) {
    if (rows.count == 0) {
      return;
    }
    count += rows.count;
    addOffsets(rows.offsets[0], rows.offsets[rows.count - 1]);
    if (wantsTimestamps) {
      for (int row = 0; row < rows.count; row++) {
        addTimestamp(rows.timestamps[row], rows.offsets[row], piece);
      }
    }
  }

  private void addOffsets(long first, long last) {
    minOffset = Math.min(minOffset, first);
    maxOffset = Math.max(maxOffset, last);
  }

  private void addTimestamp(long time, long offset, Piece piece) {
    RowColumns.checkTime(time, offset, piece);
    minTimestamp = Math.min(minTimestamp, time);
    maxTimestamp = Math.max(maxTimestamp, time);
  }
}
