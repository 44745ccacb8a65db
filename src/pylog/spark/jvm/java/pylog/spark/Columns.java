package pylog.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The columns of Spark's Kafka source, as {@code spark/source/schema.py} has them. */
final class Columns {
  static final StructType HEADER =
      new StructType().add("key", DataTypes.StringType).add("value", DataTypes.BinaryType);

  static final StructType ALL =
      new StructType()
          .add("key", DataTypes.BinaryType)
          .add("value", DataTypes.BinaryType)
          .add("topic", DataTypes.StringType)
          .add("partition", DataTypes.IntegerType)
          .add("offset", DataTypes.LongType)
          .add("timestamp", DataTypes.TimestampType)
          .add("timestampType", DataTypes.IntegerType)
          .add("headers", DataTypes.createArrayType(HEADER));

  private Columns() {}

  static StructType schema(boolean includeHeaders) {
    return includeHeaders ? ALL : without("headers");
  }

  static DataType typeOf(Wanted.Column column) {
    return ALL.apply(column.label()).dataType();
  }

  /** Whether no record lacks it. */
  static boolean isNeverNull(Wanted.Column column) {
    return switch (column) {
      case KEY, VALUE, HEADERS -> false;
      default -> true;
    };
  }

  /**
   * The columns of a schema that the query was given, or that Spark has pruned; a part of a header is
   * read as the whole. {@link PlanException} for one that there is not.
   */
  static List<Wanted.Column> wanted(StructType given, boolean includeHeaders) {
    StructType there = schema(includeHeaders);
    List<Wanted.Column> found = new ArrayList<>();
    for (StructField field : given.fields()) {
      if (!List.of(there.fieldNames()).contains(field.name())) {
        throw wrong(field, there, includeHeaders);
      }
      found.add(Wanted.Column.of(field.name()));
    }
    return found;
  }

  /** Refuse a schema of the query's own that is not one of these columns, each once and nullable if it is. */
  static void check(StructType given, boolean includeHeaders) {
    StructType there = schema(includeHeaders);
    List<Wanted.Column> columns = wanted(given, includeHeaders);
    for (int i = 0; i < columns.size(); i++) {
      StructField field = given.fields()[i];
      if (!DataType.equalsIgnoreNullability(field.dataType(), typeOf(columns.get(i)))) {
        throw wrong(field, there, includeHeaders);
      }
      if (columns.indexOf(columns.get(i)) != i) {
        throw new PlanException("ConfigError: column " + field.name() + " stands twice in the schema");
      }
      if (!field.nullable() && !isNeverNull(columns.get(i))) {
        throw new PlanException(
            "ConfigError: column " + field.name() + " may be null; declare it without NOT NULL");
      }
    }
  }

  private static StructType without(String name) {
    StructType found = new StructType();
    for (StructField field : ALL.fields()) {
      found = field.name().equals(name) ? found : found.add(field);
    }
    return found;
  }

  private static PlanException wrong(StructField field, StructType there, boolean includeHeaders) {
    return new PlanException(
        "ConfigError: no column "
            + field.name()
            + " "
            + field.dataType().simpleString()
            + "; there are "
            + there.simpleString()
            + (includeHeaders ? "" : " (and headers with includeHeaders=true)")
            + "; to write, use format(\"pylog\")");
  }
}
