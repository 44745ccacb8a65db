package pylog.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** Spark's predicates as the planner understands them: a column compared with constants. */
final class Filters {
  /** Spark's names of predicates, and those of the same filters in PySpark. */
  private static final Map<String, String> KINDS =
      Map.ofEntries(
          Map.entry("=", "EqualTo"),
          Map.entry("<>", "EqualTo"), // negated
          Map.entry("<=>", "EqualNullSafe"),
          Map.entry("<", "LessThan"),
          Map.entry("<=", "LessThanOrEqual"),
          Map.entry(">", "GreaterThan"),
          Map.entry(">=", "GreaterThanOrEqual"),
          Map.entry("IN", "In"),
          Map.entry("IS_NULL", "IsNull"),
          Map.entry("IS_NOT_NULL", "IsNotNull"),
          Map.entry("STARTS_WITH", "StringStartsWith"),
          Map.entry("ENDS_WITH", "StringEndsWith"),
          Map.entry("CONTAINS", "StringContains"));

  /** The same comparison from the right to the left. */
  private static final Map<String, String> TURNED =
      Map.of("=", "=", "<>", "<>", "<=>", "<=>", "<", ">", "<=", ">=", ">", "<", ">=", "<=");

  private Filters() {}

  /** As JSON; null for a predicate that the planner does not know. */
  static Map<String, Object> json(Predicate predicate) {
    String name = predicate.name();
    Expression[] children = predicate.children();
    if (name.equals("NOT")) {
      Map<String, Object> found = children[0] instanceof Predicate it ? json(it) : null;
      return found == null || isNegated(found) ? null : json(found, true);
    }
    if (children.length == 2 && children[0] instanceof Literal && TURNED.containsKey(name)) {
      children = new Expression[] {children[1], children[0]};
      name = TURNED.get(name);
    }
    String kind = KINDS.get(name);
    String column = children.length == 0 ? null : column(children[0]);
    if (kind == null || column == null) {
      return null;
    }
    List<Object> values = new ArrayList<>();
    for (int i = 1; i < children.length; i++) {
      if (!(children[i] instanceof Literal<?> literal) || !isKnown(literal)) {
        return null;
      }
      values.add(value(literal));
    }
    if (values.isEmpty()) {
      if (!kind.startsWith("Is")) {
        return null;
      }
      values.add(null);
    }
    return Map.of("kind", kind, "column", column, "values", values, "negated", name.equals("<>"));
  }

  /** The column, if the expression is no more than that. */
  static String column(Expression expression) {
    boolean isOne = expression instanceof NamedReference it && it.fieldNames().length == 1;
    return isOne ? ((NamedReference) expression).fieldNames()[0] : null;
  }

  private static boolean isNegated(Map<String, Object> found) {
    return Boolean.TRUE.equals(found.get("negated"));
  }

  private static Map<String, Object> json(Map<String, Object> found, boolean negated) {
    return Map.of(
        "kind", found.get("kind"), "column", found.get("column"), "values", found.get("values"), "negated", negated);
  }

  /** Whether it is a value of a column's own type: a date is a number, too. */
  private static boolean isKnown(Literal<?> literal) {
    DataType type = literal.dataType();
    return type.equals(DataTypes.StringType)
        || type.equals(DataTypes.TimestampType)
        || type.equals(DataTypes.IntegerType)
        || type.equals(DataTypes.LongType);
  }

  /** A time as {@code {"us": …}}: its type decides what it may be compared with. */
  private static Object value(Literal<?> literal) {
    Object value = literal.value();
    if (value == null) {
      return null;
    }
    if (literal.dataType().equals(DataTypes.TimestampType)) {
      return Map.of("us", value);
    }
    return value instanceof Integer || value instanceof Long ? value : value.toString();
  }
}
