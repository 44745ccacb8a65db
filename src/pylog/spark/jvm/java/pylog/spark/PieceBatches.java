package pylog.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.List;
import java.util.function.Predicate;
import pylog.spark.SegmentBatches.Taken;

/**
 * The batches of a piece that contain records for the query, in order, each checked. The one place that
 * knows which batches those are; readers of rows and of counts share it.
 */
final class PieceBatches implements Closeable {
  private final Piece piece;
  private final Predicate<BatchHeader> isByHeader;
  private final PieceFiles files;
  private final AbortedTransactions aborted;
  private long offset;
  private int number;
  private SegmentBatches segment;
  private boolean isFirst;

  /** {@code DataLossException} if the piece's directory is not the planned one. */
  PieceBatches(Piece piece) throws IOException {
    this(piece, header -> false);
  }

  /** {@code isByHeader}: of which batches only the offsets are wanted: see {@link SegmentBatches}. */
  PieceBatches(Piece piece, Predicate<BatchHeader> isByHeader) throws IOException {
    this.piece = piece;
    this.isByHeader = isByHeader;
    files = new PieceFiles(piece);
    aborted = new AbortedTransactions(piece.readCommitted() ? piece.aborted() : List.of());
    offset = piece.start();
    files.checkIdentity(offset);
    while (number + 1 < piece.segments().size() && piece.segments().get(number + 1).base() <= offset) {
      number++;
    }
  }

  @Override
  public void close() throws IOException {
    closeSegment();
  }

  Piece piece() {
    return piece;
  }

  // The batch that was taken last

  BatchHeader header() {
    return segment.header();
  }

  byte[] data() {
    return segment.data();
  }

  int from() {
    return segment.from();
  }

  int to() {
    return segment.to();
  }

  /**
   * Take the next batch; one that is not in memory only if the bytes of those before may be given up.
   * {@code CorruptSegmentException}, {@code DataLossException}.
   */
  Taken take(boolean mayMove) throws IOException {
    while (offset < piece.end()) {
      if (segment == null) {
        if (!mayMove) {
          return Taken.NOT_HERE;
        }
        openSegment();
      }
      Taken taken = takeOne(mayMove);
      if (taken == Taken.NOT_HERE) {
        return taken;
      }
      if (taken == Taken.END) {
        leaveSegment();
        continue;
      }
      BatchHeader header = segment.header();
      if (header.baseOffset() > offset && segment.isDense()) {
        throw missing(header.baseOffset());
      }
      offset = Math.max(header.lastOffset(), header.lastOffset() + 1); // the greatest offset has none after it
      if (header.baseOffset() >= piece.end()) {
        break;
      }
      if (header.count() > 0 && !header.isControl() && !aborted.contains(header)) {
        return taken;
      }
    }
    files.checkIdentity(piece.end());
    return Taken.END;
  }

  /** Open its records that the piece wants; compressed ones are appended to the {@code decompressor}. */
  void open(Records records, Decompressor decompressor) throws IOException {
    BatchHeader header = header();
    try {
      if (header.codec() == 0) {
        records.open(data(), from() + BatchHeader.BYTES, to(), header, piece.start(), piece.end());
        return;
      }
      int start =
          decompressor.append(
              header.codec(), data(), from() + BatchHeader.BYTES, to(), Decompressor.LIMIT_BYTES);
      records.open(decompressor.data(), start, decompressor.end(), header, piece.start(), piece.end());
    } catch (Damage damage) {
      throw damaged(header, damage);
    }
  }

  /** The error for a batch whose records are wrong. */
  RuntimeException damaged(BatchHeader header, Damage damage) throws IOException {
    return files.damaged(current(), segment.position() - header.sizeBytes(), header.baseOffset(), damage);
  }

  private Taken takeOne(boolean mayMove) throws IOException {
    try {
      if (isFirst) {
        isFirst = false;
        return offset > current().base() ? segment.takeAt(offset) : segment.take(true);
      }
      if (offset >= nextBase() && !piece.isKafka()) { // its offsets are the next segment's
        return Taken.END;
      }
      return segment.take(mayMove);
    } catch (Damage damage) {
      throw files.damaged(current(), segment.position(), offset, damage);
    } catch (DataLossException changed) {
      throw files.lost(offset, changed.getMessage());
    }
  }

  private Piece.Segment current() {
    return piece.segments().get(number);
  }

  /** Where the segment after the current one begins. */
  private long nextBase() {
    long next = current().nextBase();
    return next < 0 ? Long.MAX_VALUE : next;
  }

  private void openSegment() throws IOException {
    if (number >= piece.segments().size()) {
      throw files.damaged(
          null, 0, offset,
          new Damage("the log ends there, but when the query was planned it reached offset " + piece.end()));
    }
    segment = files.open(current(), offset, isByHeader);
    isFirst = true;
  }

  private void leaveSegment() throws IOException {
    long following = nextBase();
    long known = piece.isKafka() ? Long.MAX_VALUE : segment.gapEnd(offset);
    if (current().nextBase() >= 0 && offset < following && known < following) {
      offset = known;
      throw missing(following);
    }
    skipTo(following);
  }

  private void skipTo(long following) throws IOException {
    if (following != Long.MAX_VALUE) {
      offset = Math.max(offset, following);
    }
    closeSegment();
    number++;
  }

  private void closeSegment() throws IOException {
    if (segment != null) {
      segment.close();
      segment = null;
    }
  }

  private RuntimeException missing(long found) throws IOException {
    return files.damaged(
        current(), segment.position(), offset, new Damage("offsets " + offset + " to " + (found - 1) + " are missing"));
  }
}
