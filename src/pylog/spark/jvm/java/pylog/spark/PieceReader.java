package pylog.spark;

import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import pylog.spark.SegmentBatches.Taken;

/**
 * The rows of some pieces, in order. A batch's columns are valid until the next one is asked for: they
 * read the records where they lie.
 *
 * <p>If no column differs from record to record, the records are only counted.
 */
public final class PieceReader implements PartitionReader<ColumnarBatch> {
  private static final int DECOMPRESSED_BYTES = 1 << 20;
  private static final int COUNTED_MAX = 1 << 30;

  private final List<Piece> pieces;
  private final RowColumns columns;
  private final Rows rows;
  private final Records records = new Records();
  private final Decompressor decompressor = new Decompressor();
  private final boolean trustHeaders;
  private int number;
  private PieceBatches batches;
  private boolean isWaiting; // a batch was taken, and none of its records
  private long counted; // records of the piece that are not returned yet

  /**
   * Reads nothing before {@link #next}. {@code trustHeaders}: records that are only counted need
   * not be decoded.
   */
  public PieceReader(List<Piece> pieces, Wanted wanted, boolean trustHeaders) {
    this.pieces = List.copyOf(pieces);
    this.trustHeaders = trustHeaders;
    rows = new Rows(wanted.position(Wanted.Column.HEADERS) >= 0);
    columns = new RowColumns(wanted, rows);
  }

  /** {@code CorruptSegmentException}, {@code DataLossException}, {@code UnsupportedException}. */
  @Override
  public boolean next() throws IOException {
    return columns.areConstant() ? nextCounted() : nextDecoded();
  }

  private boolean nextCounted() throws IOException {
    while (counted == 0 && number < pieces.size()) {
      Piece piece = pieces.get(number++);
      columns.begin(piece);
      counted = PieceCounter.rows(piece, trustHeaders);
    }
    int found = (int) Math.min(counted, COUNTED_MAX);
    counted -= found;
    columns.filled(found);
    return found > 0;
  }

  private boolean nextDecoded() throws IOException {
    while (batches != null || number < pieces.size()) {
      if (batches == null) {
        batches = new PieceBatches(pieces.get(number++));
        columns.begin(batches.piece());
      }
      rows.clear();
      boolean hasEnded = decode();
      if (rows.count > 0) {
        columns.check();
      }
      if (hasEnded) {
        closePiece();
      }
      if (rows.count > 0) {
        columns.filled(rows.count);
        return true;
      }
    }
    return false;
  }

  @Override
  public ColumnarBatch get() {
    return columns.batch();
  }

  @Override
  public void close() throws IOException {
    decompressor.close();
    closePiece();
  }

  private void closePiece() throws IOException {
    if (batches != null) {
      batches.close();
      batches = null;
    }
  }

  /** Fill the rows with records that lie in one array. Whether the piece has ended. */
  private boolean decode() throws IOException {
    if (!records.hasMore()) {
      decompressor.clear();
    }
    while (true) {
      if (records.hasMore()) {
        fill();
      }
      if (rows.isFull() || records.hasMore()) {
        return false;
      }
      if (!isWaiting) {
        Taken taken = batches.take(rows.count == 0);
        if (taken != Taken.BATCH) {
          return taken == Taken.END;
        }
      }
      isWaiting = !open();
      if (isWaiting) {
        return false;
      }
    }
  }

  private void fill() throws IOException {
    try {
      records.fill(rows);
      rows.data = records.data();
    } catch (Damage damage) {
      throw batches.damaged(batches.header(), damage);
    }
  }

  /** Begin with the records of the batch that was taken; false if the rows so far lie elsewhere. */
  private boolean open() throws IOException {
    boolean isCompressed = batches.header().codec() != 0;
    if (rows.count > 0) {
      boolean isSame = isCompressed ? decompressor.end() > 0 : rows.data == batches.data();
      if (!isSame || (isCompressed && decompressor.end() > DECOMPRESSED_BYTES)) {
        return false;
      }
    } else {
      decompressor.clear();
    }
    batches.open(records, decompressor);
    return true;
  }
}
