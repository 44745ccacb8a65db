package pylog.spark;

import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The aggregates of a task: a row of each piece that has records. Without groups there is a row in any
 * case, which counts nothing: Spark adds the counts up.
 */
final class AggregateReader implements PartitionReader<InternalRow> {
  private static final long MICROSECONDS = 1000;

  private final Iterator<Piece> pieces;
  private final Aggregates aggregates;
  private final boolean trustHeaders;
  private boolean owesRow;
  private InternalRow row;

  AggregateReader(List<Piece> pieces, Aggregates aggregates, boolean trustHeaders) {
    this.pieces = pieces.iterator();
    this.aggregates = aggregates;
    this.trustHeaders = trustHeaders;
    owesRow = aggregates.groups().isEmpty();
  }

  @Override
  public boolean next() throws IOException {
    boolean wantsOffsets = aggregates.needs(Wanted.Column.OFFSET);
    boolean wantsTimestamps = aggregates.needs(Wanted.Column.TIMESTAMP);
    while (pieces.hasNext()) {
      Piece piece = pieces.next();
      PieceCounter counter =
          PieceCounter.of(piece, wantsOffsets, wantsTimestamps, trustHeaders);
      if (counter.count() > 0) {
        row = row(piece, counter);
        owesRow = false;
        return true;
      }
    }
    if (!owesRow) {
      return false;
    }
    owesRow = false;
    row = emptyRow();
    return true;
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public void close() {
    // a counter closes its files itself
  }

  private InternalRow row(Piece piece, PieceCounter counter) {
    int groups = aggregates.groups().size();
    Object[] values = new Object[groups + aggregates.functions().size()];
    for (int i = 0; i < groups; i++) {
      boolean isTopic = aggregates.groups().get(i) == Wanted.Column.TOPIC;
      values[i] = isTopic ? UTF8String.fromString(piece.topic()) : (Object) piece.partition();
    }
    for (int i = groups; i < values.length; i++) {
      values[i] = value(aggregates.functions().get(i - groups), piece, counter);
    }
    return new GenericInternalRow(values);
  }

  private static Object value(Aggregates.Function function, Piece piece, PieceCounter counter) {
    if (function.kind() == Aggregates.Kind.COUNT) {
      return counter.count();
    }
    boolean isMin = function.kind() == Aggregates.Kind.MIN;
    return switch (function.column()) {
      case PARTITION -> (Object) piece.partition();
      case OFFSET -> isMin ? counter.minOffset() : counter.maxOffset();
      case TIMESTAMP ->
          Math.multiplyExact(isMin ? counter.minTimestamp() : counter.maxTimestamp(), MICROSECONDS);
      default -> throw new IllegalStateException("no aggregate of " + function.column());
    };
  }

  /** Of no records: none are counted, and nothing is the least or greatest of them. */
  private InternalRow emptyRow() {
    Object[] values =
        aggregates.functions().stream()
            .map(each -> each.kind() == Aggregates.Kind.COUNT ? 0L : null)
            .toArray();
    return new GenericInternalRow(values);
  }
}
