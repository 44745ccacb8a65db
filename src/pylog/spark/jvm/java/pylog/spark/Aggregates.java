package pylog.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Aggregates that are counted without a row for each record. A task gives a row of each of its pieces,
 * of which Spark makes the result: {@code groups}, then {@code functions}.
 *
 * @param groups of {@code topic} and {@code partition}: a piece has one value of each
 */
record Aggregates(List<Wanted.Column> groups, List<Function> functions) implements Serializable {
  private static final Set<Wanted.Column> IN_HEADERS =
      EnumSet.of(Wanted.Column.OFFSET, Wanted.Column.PARTITION, Wanted.Column.TIMESTAMP);
  private static final Set<Wanted.Column> OF_A_PIECE =
      EnumSet.of(Wanted.Column.TOPIC, Wanted.Column.PARTITION);

  enum Kind {
    COUNT,
    MIN,
    MAX
  }

  /** The column is null if records are counted. */
  record Function(Kind kind, Wanted.Column column) implements Serializable {
    @Override
    public String toString() {
      return kind.name().toLowerCase() + "(" + (column == null ? "*" : column.label()) + ")";
    }
  }

  /** Null if Spark asks for others: then it reads rows. */
  static Aggregates of(Aggregation asked) {
    List<Wanted.Column> groups = new ArrayList<>();
    for (Expression each : asked.groupByExpressions()) {
      Wanted.Column column = column(each);
      if (column == null || !OF_A_PIECE.contains(column)) {
        return null;
      }
      groups.add(column);
    }
    List<Function> functions = new ArrayList<>();
    for (AggregateFunc each : asked.aggregateExpressions()) {
      Function function = function(each);
      if (function == null) {
        return null;
      }
      functions.add(function);
    }
    return functions.isEmpty() ? null : new Aggregates(List.copyOf(groups), List.copyOf(functions));
  }

  /** One row's columns. */
  StructType schema() {
    StructType found = new StructType();
    for (Wanted.Column each : groups) {
      found = found.add(each.label(), Columns.typeOf(each));
    }
    for (Function each : functions) {
      found =
          found.add(
              each.toString(),
              each.column() == null ? DataTypes.LongType : Columns.typeOf(each.column()));
    }
    return found;
  }

  boolean needs(Wanted.Column column) {
    return functions.stream().anyMatch(each -> each.column() == column);
  }

  private static Function function(AggregateFunc asked) {
    if (asked instanceof CountStar) {
      return new Function(Kind.COUNT, null);
    }
    if (asked instanceof Count count) {
      Wanted.Column column = column(count.column());
      boolean countsRecords = column != null && !count.isDistinct() && Columns.isNeverNull(column);
      return countsRecords ? new Function(Kind.COUNT, null) : null;
    }
    if (asked instanceof Min min) {
      return extreme(Kind.MIN, column(min.column()));
    }
    return asked instanceof Max max ? extreme(Kind.MAX, column(max.column())) : null;
  }

  private static Function extreme(Kind kind, Wanted.Column column) {
    return column != null && IN_HEADERS.contains(column) ? new Function(kind, column) : null;
  }

  private static Wanted.Column column(Expression expression) {
    String name = Filters.column(expression);
    return name == null || !List.of(Columns.ALL.fieldNames()).contains(name) ? null : Wanted.Column.of(name);
  }
}
