package pylog.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One read of a log. Its first use fixes the offsets: later appends are not in it. */
final class PylogScan implements Scan, Batch, SupportsReportStatistics {
  private static final int NAMED_MAX = 8;

  private final CaseInsensitiveStringMap options;
  private final List<Wanted.Column> columns;
  private final StructType schema;
  private final List<Map<String, Object>> filters;
  private final Predicate[] pushed;
  private final Aggregates aggregates;
  private List<Task> planned;

  PylogScan(
      CaseInsensitiveStringMap options,
      StructType given,
      List<Map<String, Object>> filters,
      Predicate[] pushed,
      Aggregates aggregates) {
    this.options = options;
    this.filters = filters;
    this.pushed = pushed;
    this.aggregates = aggregates;
    columns = Columns.wanted(given, true);
    schema = aggregates == null ? whole(given) : aggregates.schema();
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  /** For {@code explain}: which log, which offsets, what was pushed down. */
  @Override
  public String description() {
    StringBuilder found = new StringBuilder("pylog-jvm ").append(options.get("path"));
    found.append(" [").append(offsets()).append("], tasks ").append(tasks().size());
    if (pushed.length > 0) {
      found.append(", filters ").append(Arrays.toString(pushed));
    }
    if (aggregates != null) {
      found.append(", aggregates ").append(aggregates.functions());
      found.append(aggregates.groups().isEmpty() ? "" : " by " + labels(aggregates.groups()));
    }
    return found.toString();
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return aggregates == null ? ColumnarSupportMode.SUPPORTED : ColumnarSupportMode.UNSUPPORTED;
  }

  /** An empty log has a task all the same if records are counted: one task must return zero. */
  @Override
  public InputPartition[] planInputPartitions() {
    List<Task> found = tasks();
    if (found.isEmpty() && aggregates != null && aggregates.groups().isEmpty()) {
      found = List.of(new Task(List.of(), 0));
    }
    return found.toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    String given = options.getOrDefault("trustHeaders", "true"); // the planner has checked it
    boolean trustHeaders = given.strip().equalsIgnoreCase("true");
    return new ReaderFactory(new Wanted(columns), aggregates, trustHeaders);
  }

  @Override
  public Statistics estimateStatistics() {
    long sizeBytes = sizeBytes();
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(sizeBytes);
      }

      @Override
      public OptionalLong numRows() {
        return OptionalLong.empty();
      }
    };
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return new CustomMetric[] {new StoredBytes()};
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return new CustomTaskMetric[] {StoredBytes.of(sizeBytes())};
  }

  private long sizeBytes() {
    return tasks().stream().mapToLong(Task::sizeBytes).sum();
  }

  private synchronized List<Task> tasks() {
    if (planned == null) {
      planned = Planner.plan(options.asCaseSensitiveMap(), filters);
    }
    return planned;
  }

  /** {@code orders-0: 23 to 99, …}, the end exclusive; of many partitions the first ones. */
  private String offsets() {
    Map<String, long[]> found = new LinkedHashMap<>();
    for (Task task : tasks()) {
      for (Piece piece : task.pieces()) {
        long[] range =
            found.computeIfAbsent(
                piece.topic() + "-" + piece.partition(), name -> new long[] {piece.start(), piece.end()});
        range[0] = Math.min(range[0], piece.start());
        range[1] = Math.max(range[1], piece.end());
      }
    }
    if (found.isEmpty()) {
      return "nothing";
    }
    List<String> named = new ArrayList<>();
    found.forEach((name, range) -> named.add(name + ": " + range[0] + " to " + range[1]));
    int more = named.size() - NAMED_MAX;
    return String.join(", ", more > 0 ? named.subList(0, NAMED_MAX) : named)
        + (more > 0 ? " and " + more + " more partitions" : "");
  }

  /** The same columns, each with its full type: of a header Spark may need a part only. */
  private StructType whole(StructType given) {
    StructType found = new StructType();
    for (int i = 0; i < columns.size(); i++) {
      found =
          found.add(
              columns.get(i).label(), Columns.typeOf(columns.get(i)), given.fields()[i].nullable());
    }
    return found;
  }

  private static String labels(List<Wanted.Column> columns) {
    return columns.stream().map(Wanted.Column::label).collect(Collectors.joining(", "));
  }
}
