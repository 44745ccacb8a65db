package pylog.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what a query needs: columns, filters, aggregates. Spark does itself what is left. */
final class PylogScanBuilder
    implements ScanBuilder,
        SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownAggregates {
  private final CaseInsensitiveStringMap options;
  private StructType columns;
  private List<Map<String, Object>> filters = List.of();
  private Predicate[] pushed = new Predicate[0];
  private Aggregates aggregates;

  PylogScanBuilder(StructType columns, CaseInsensitiveStringMap options) {
    this.columns = columns;
    this.options = options;
  }

  /** All that the planner knows narrow the plan; those that it does not apply in full are returned. */
  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> known = new ArrayList<>();
    List<Predicate> left = new ArrayList<>();
    filters = new ArrayList<>();
    for (Predicate each : predicates) {
      Map<String, Object> json = Filters.json(each);
      if (json == null) {
        left.add(each);
      } else {
        known.add(each);
        filters.add(json);
      }
    }
    if (!known.isEmpty()) {
      for (int number : new TreeSet<>(Planner.left(filters))) {
        left.add(known.get(number));
      }
    }
    pushed = known.toArray(Predicate[]::new);
    return left.toArray(Predicate[]::new);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed;
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  /** Spark asks only if it has no filter of its own left. */
  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    aggregates = Aggregates.of(aggregation);
    return aggregates != null;
  }

  @Override
  public Scan build() {
    return new PylogScan(options, columns, filters, pushed, aggregates);
  }
}
