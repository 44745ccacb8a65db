package pylog.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes an executor's readers: of columns, or of aggregates. */
record ReaderFactory(Wanted wanted, Aggregates aggregates, boolean trustHeaders)
    implements PartitionReaderFactory {
  @Override
  public boolean supportColumnarReads(InputPartition task) {
    return aggregates == null;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
    return new PieceReader(((Task) task).pieces(), wanted, trustHeaders);
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition task) {
    return new AggregateReader(((Task) task).pieces(), aggregates, trustHeaders);
  }
}
