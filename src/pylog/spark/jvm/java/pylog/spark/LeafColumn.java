package pylog.spark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column that answers what its type allows, and nothing else. It owns no memory. */
abstract class LeafColumn extends ColumnVector {
  LeafColumn(DataType type) {
    super(type);
  }

  @Override
  public void close() {}

  @Override
  public boolean getBoolean(int row) {
    throw other();
  }

  @Override
  public byte getByte(int row) {
    throw other();
  }

  @Override
  public short getShort(int row) {
    throw other();
  }

  @Override
  public int getInt(int row) {
    throw other();
  }

  @Override
  public long getLong(int row) {
    throw other();
  }

  @Override
  public float getFloat(int row) {
    throw other();
  }

  @Override
  public double getDouble(int row) {
    throw other();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw other();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw other();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw other();
  }

  @Override
  public UTF8String getUTF8String(int row) {
    throw other();
  }

  @Override
  public byte[] getBinary(int row) {
    throw other();
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw other();
  }

  private UnsupportedOperationException other() {
    return new UnsupportedOperationException("the column is " + dataType().simpleString());
  }
}
