package pylog.spark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** How many bytes of segments a plan reads: Spark's UI shows it beside the rows. */
public final class StoredBytes extends CustomSumMetric {
  private static final String NAME = "storedBytes";

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public String description() {
    return "bytes of segments to read";
  }

  static CustomTaskMetric of(long bytes) {
    return new CustomTaskMetric() {
      @Override
      public String name() {
        return NAME;
      }

      @Override
      public long value() {
        return bytes;
      }
    };
  }
}
