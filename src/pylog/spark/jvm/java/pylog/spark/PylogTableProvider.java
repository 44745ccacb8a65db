package pylog.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code format("pylog-jvm")}: reads batches of a log with the columns and options of {@code
 * format("pylog")}. It reads no streams and writes nothing.
 */
public final class PylogTableProvider implements TableProvider, DataSourceRegister {
  @Override
  public String shortName() {
    return "pylog-jvm";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return Columns.schema(Planner.includesHeaders(options.asCaseSensitiveMap()));
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
    boolean includeHeaders = Planner.includesHeaders(options.asCaseSensitiveMap());
    Columns.check(schema, includeHeaders);
    return new PylogTable(schema, options);
  }
}
