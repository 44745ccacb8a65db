package pylog.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.DataTypes;

/** Keys or values: each is copied when Spark asks for it, since Spark may keep it. */
final class BinaryColumn extends LeafColumn {
  private final Rows rows;
  private final int[] starts;
  private final int[] sizes;

  BinaryColumn(Rows rows, int[] starts, int[] sizes) {
    super(DataTypes.BinaryType);
    this.rows = rows;
    this.starts = starts;
    this.sizes = sizes;
  }

  @Override
  public boolean isNullAt(int row) {
    return sizes[row] < 0;
  }

  @Override
  public boolean hasNull() {
    return numNulls() > 0;
  }

  @Override
  public int numNulls() {
    int count = 0;
    for (int row = 0; row < rows.count; row++) {
      count += sizes[row] >>> 31;
    }
    return count;
  }

  @Override
  public byte[] getBinary(int row) {
    int size = sizes[row];
    return size < 0 ? null : Arrays.copyOfRange(rows.data, starts[row], starts[row] + size);
  }
}
