package pylog.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** The wanted columns over {@link Rows}: those of Spark's Kafka source, each value made when it is asked for. */
final class RowColumns {
  private static final long LATEST_MS = Long.MAX_VALUE / 1000;

  private final Rows rows;
  private final ColumnarBatch batch;
  private final boolean areConstant;
  private final boolean hasTimestamps;
  private Piece piece;
  private UTF8String topic;

  RowColumns(Wanted wanted, Rows rows) {
    this.rows = rows;
    List<ColumnVector> vectors = new ArrayList<>();
    boolean isConstant = true;
    for (Wanted.Column each : wanted.columns()) {
      vectors.add(column(each));
      isConstant &= each == Wanted.Column.TOPIC || each == Wanted.Column.PARTITION;
    }
    areConstant = isConstant;
    hasTimestamps = wanted.position(Wanted.Column.TIMESTAMP) >= 0;
    batch = new ColumnarBatch(vectors.toArray(new ColumnVector[0]));
  }

  /** Whether no column differs from record to record. */
  boolean areConstant() {
    return areConstant;
  }

  void begin(Piece next) {
    piece = next;
    topic = UTF8String.fromString(next.topic());
  }

  /** {@code UnsupportedException} for a time that Spark can't express, if times are wanted. */
  void check() {
    for (int row = 0; hasTimestamps && row < rows.count; row++) {
      checkTime(rows.timestamps[row], rows.offsets[row], piece);
    }
  }

  /** {@code UnsupportedException} if a time in milliseconds is out of Spark's range. */
  static void checkTime(long time, long offset, Piece piece) {
    if (time > LATEST_MS || time < -LATEST_MS) {
      throw new UnsupportedException(
          "offset " + offset + " of " + piece.topic() + "-" + piece.partition() + " has timestamp " + time
              + " ms, out of range in microseconds; select the columns without timestamp");
    }
  }

  void filled(int count) {
    batch.setNumRows(count);
  }

  ColumnarBatch batch() {
    return batch;
  }

  private ColumnVector column(Wanted.Column wanted) {
    return switch (wanted) {
      case KEY -> new BinaryColumn(rows, rows.keys, rows.keySizes);
      case VALUE -> new BinaryColumn(rows, rows.values, rows.valueSizes);
      case TOPIC -> new NumberColumn(DataTypes.StringType) {
        @Override
        public UTF8String getUTF8String(int row) {
          return topic;
        }
      };
      case PARTITION -> new NumberColumn(DataTypes.IntegerType) {
        @Override
        public int getInt(int row) {
          return piece.partition();
        }
      };
      case OFFSET -> new NumberColumn(DataTypes.LongType) {
        @Override
        public long getLong(int row) {
          return rows.offsets[row];
        }
      };
      case TIMESTAMP -> new NumberColumn(DataTypes.TimestampType) {
        @Override
        public long getLong(int row) {
          return rows.timestamps[row] * 1000;
        }
      };
      case TIMESTAMP_TYPE -> new NumberColumn(DataTypes.IntegerType) {
        @Override
        public int getInt(int row) {
          return rows.timestampTypes[row];
        }
      };
      case HEADERS -> new HeadersColumn(rows);
    };
  }

  /** A column that is never null. */
  private abstract static class NumberColumn extends LeafColumn {
    NumberColumn(org.apache.spark.sql.types.DataType type) {
      super(type);
    }

    @Override
    public boolean isNullAt(int row) {
      return false;
    }

    @Override
    public boolean hasNull() {
      return false;
    }

    @Override
    public int numNulls() {
      return 0;
    }
  }
}
