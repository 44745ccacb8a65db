package pylog.spark;

import java.io.Serializable;
import java.util.List;

/**
 * What a query wants of the records: columns in the order of its output. No columns: only the number
 * of rows counts.
 */
public record Wanted(List<Column> columns) implements Serializable {

  public Wanted {
    columns = List.copyOf(columns);
  }

  /** The columns of Spark's Kafka source, by their names there. */
  public enum Column {
    KEY("key"),
    VALUE("value"),
    TOPIC("topic"),
    PARTITION("partition"),
    OFFSET("offset"),
    TIMESTAMP("timestamp"),
    TIMESTAMP_TYPE("timestampType"),
    HEADERS("headers");

    private final String label;

    Column(String label) {
      this.label = label;
    }

    public String label() {
      return label;
    }

    /** By name, exactly. {@code IllegalArgumentException} for another. */
    public static Column of(String label) {
      for (Column each : values()) {
        if (each.label.equals(label)) {
          return each;
        }
      }
      throw new IllegalArgumentException("no column " + label);
    }
  }

  /** Where a column stands in the output; -1 if it is not wanted. */
  public int position(Column column) {
    return columns.indexOf(column);
  }
}
