package pylog.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.unsafe.types.UTF8String;

/** The headers of each record; null if it has none, as in Spark's Kafka source. */
final class HeadersColumn extends LeafColumn {
  private final Rows rows;
  private final ColumnVector elements;

  HeadersColumn(Rows rows) {
    super(Columns.typeOf(Wanted.Column.HEADERS));
    this.rows = rows;
    elements = new Elements(Columns.HEADER, rows);
  }

  @Override
  public boolean isNullAt(int row) {
    return rows.headerCounts[row] == 0;
  }

  @Override
  public boolean hasNull() {
    return numNulls() > 0;
  }

  @Override
  public int numNulls() {
    int count = 0;
    for (int row = 0; row < rows.count; row++) {
      count += rows.headerCounts[row] == 0 ? 1 : 0;
    }
    return count;
  }

  @Override
  public ColumnarArray getArray(int row) {
    return new ColumnarArray(elements, rows.headers[row], rows.headerCounts[row]);
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    return elements;
  }

  /** All headers of all rows: structs of a name and a value. */
  private static final class Elements extends LeafColumn {
    private final ColumnVector names;
    private final ColumnVector contents;

    Elements(StructType type, Rows rows) {
      super(type);
      names = new Part(true, rows);
      contents = new Part(false, rows);
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

    @Override
    public ColumnVector getChild(int ordinal) {
      return ordinal == 0 ? names : contents;
    }
  }

  /** The names, or the values. */
  private static final class Part extends LeafColumn {
    private final boolean isNames;
    private final Rows rows;

    Part(boolean isNames, Rows rows) {
      super(isNames ? DataTypes.StringType : DataTypes.BinaryType);
      this.isNames = isNames;
      this.rows = rows;
    }

    @Override
    public boolean isNullAt(int row) {
      return !isNames && rows.contentSizes[row] < 0;
    }

    @Override
    public boolean hasNull() {
      return !isNames;
    }

    @Override
    public int numNulls() {
      throw new UnsupportedOperationException("headers are not counted");
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return UTF8String.fromBytes(rows.data, rows.names[row], rows.nameSizes[row]);
    }

    @Override
    public byte[] getBinary(int row) {
      int size = rows.contentSizes[row];
      return size < 0 ? null : Arrays.copyOfRange(rows.data, rows.contents[row], rows.contents[row] + size);
    }
  }
}
