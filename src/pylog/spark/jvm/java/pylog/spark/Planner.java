package pylog.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/** What the driver asks pylog: the questions of {@code pylog/spark/jvm/planner.py}. */
final class Planner {
  private static final int PROTOCOL = 1;
  private static final ObjectMapper JSON = new ObjectMapper();

  private Planner() {}

  /** Whether the options ask for headers. {@link PlanException} if they, or the path, are wrong. */
  static boolean includesHeaders(Map<String, String> options) {
    return Boolean.TRUE.equals(ask("describe", options, null).get("includeHeaders"));
  }

  /** The numbers of the filters that Spark must apply. */
  static List<Integer> left(List<Map<String, Object>> filters) {
    List<Integer> found = new ArrayList<>();
    for (Object each : list(ask("filters", null, filters), "left")) {
      found.add(((Number) each).intValue());
    }
    return found;
  }

  /** The tasks of a query, as the log is now. */
  static List<Task> plan(Map<String, String> options, List<Map<String, Object>> filters) {
    List<Task> tasks = new ArrayList<>();
    for (Object task : list(ask("plan", options, filters), "tasks")) {
      Map<String, Object> fields = object(task);
      List<Piece> pieces = new ArrayList<>();
      for (Object piece : list(fields, "pieces")) {
        pieces.add(nameable(Piece.of(object(piece))));
      }
      tasks.add(new Task(List.copyOf(pieces), ((Number) fields.get("sizeBytes")).longValue()));
    }
    return tasks;
  }

  /** The piece, if this JVM can open its files. The executors' JVMs look for themselves. */
  private static Piece nameable(Piece piece) {
    try {
      PieceFiles.checkPath(piece);
    } catch (UnsupportedException error) {
      throw new PlanException("ConfigError: " + error.getMessage(), error);
    }
    return piece;
  }

  private static Map<String, Object> ask(
      String ask, Map<String, String> options, List<Map<String, Object>> filters) {
    Map<String, Object> question = new LinkedHashMap<>();
    question.put("protocol", PROTOCOL);
    question.put("ask", ask);
    if (options != null) {
      question.put("options", options);
    }
    if (filters != null) {
      question.put("filters", filters);
    }
    Map<String, Object> answer;
    try {
      byte[] asked = JSON.writeValueAsBytes(question);
      byte[] found = PlannerProcess.ask(python(), asked, limitSeconds());
      answer = object(JSON.readValue(found, Map.class));
    } catch (IOException error) {
      throw new PlanException("the planner's answer is no JSON: " + error.getMessage(), error);
    }
    if (answer.get("error") != null) {
      Map<String, Object> error = object(answer.get("error"));
      throw new PlanException(error.get("class") + ": " + error.get("message"));
    }
    return answer;
  }

  /** By the session's settings when it was started, and its environment: no option of a query counts. */
  private static PlannerProcess.Python python() {
    SparkConf conf = SparkEnv.get().conf();
    String found = conf.get("spark.pylog.python", "");
    String driver = System.getenv().getOrDefault("PYSPARK_DRIVER_PYTHON", "");
    if (found.isEmpty() && new File(driver).getName().startsWith("python")) { // not jupyter
      found = driver;
    }
    if (found.isEmpty()) {
      found = conf.get("spark.pyspark.python", System.getenv().getOrDefault("PYSPARK_PYTHON", "python3"));
    }
    return new PlannerProcess.Python(found, conf.get("spark.pylog.pythonPath", ""));
  }

  private static long limitSeconds() {
    return SparkEnv.get().conf().getTimeAsSeconds("spark.pylog.plannerTimeout", "600s");
  }

  private static List<?> list(Map<String, Object> fields, String name) {
    if (fields.get(name) instanceof List<?> found) {
      return found;
    }
    throw new PlanException("the planner's answer has no " + name);
  }

  @SuppressWarnings("unchecked") // names of JSON are text
  private static Map<String, Object> object(Object found) {
    if (found instanceof Map<?, ?>) {
      return (Map<String, Object>) found;
    }
    throw new PlanException("the planner's answer has " + found + ", expected an object");
  }
}
