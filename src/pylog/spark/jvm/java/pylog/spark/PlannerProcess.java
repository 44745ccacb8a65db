package pylog.spark;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The planner of this JVM: {@code python -m pylog.spark.jvm.planner}, started at the first question.
 * It ends with the JVM, which closes its stdin. Questions wait for each other.
 */
final class PlannerProcess {
  private static final int QUESTION_BYTES_MAX = 16 << 20;
  private static final int ANSWER_BYTES_MAX = 257 << 20;
  private static final int SAID_CHARS = 4000;
  private static final Logger LOG = LoggerFactory.getLogger("pylog.spark");

  private static PlannerProcess current;

  private final Python python;
  private final Process process;
  private final OutputStream questions;
  private final InputStream answers;
  private final StringBuilder said = new StringBuilder();
  private final Thread listener;

  /** The interpreter, and what it finds modules by beside its own: empty for nothing. */
  record Python(String interpreter, String path) {
    List<String> command() {
      return List.of(interpreter, "-m", "pylog.spark.jvm.planner");
    }
  }

  private PlannerProcess(Python python) throws IOException {
    this.python = python;
    ProcessBuilder builder = new ProcessBuilder(python.command());
    Map<String, String> environment = builder.environment();
    environment.put("PYTHONSAFEPATH", "1"); // a file of the working directory is no module of it
    if (!python.path().isEmpty()) {
      environment.merge("PYTHONPATH", python.path(), (old, mine) -> mine + ":" + old);
    }
    process = builder.start();
    questions = process.getOutputStream();
    answers = new BufferedInputStream(process.getInputStream(), 1 << 16);
    listener = new Thread(this::listen, "pylog planner's stderr");
    listener.setDaemon(true);
    listener.start();
  }

  /**
   * The answer to a question, both one line of JSON. A planner that has died is started once more: a
   * question changes nothing.
   */
  static synchronized byte[] ask(Python python, byte[] question) {
    if (question.length >= QUESTION_BYTES_MAX) {
      throw new PlanException(
          "the query's options and filters have " + question.length + " bytes, at most " + QUESTION_BYTES_MAX
              + " can be planned; use format(\"pylog\")");
    }
    if (current != null && !current.python.equals(python)) {
      current.end();
      current = null;
    }
    for (int attempt = 1; ; attempt++) {
      try {
        if (current == null) {
          current = new PlannerProcess(python);
        }
      } catch (IOException error) {
        throw new PlanException(cannot(python, error.getMessage()), error);
      }
      try {
        return current.exchange(question);
      } catch (IOException error) {
        String last = current.end();
        current = null;
        if (attempt == 2) {
          throw new PlanException(cannot(python, last), error);
        }
        LOG.warn("the planner has died, and is started again: {}", last);
      }
    }
  }

  private static String cannot(Python python, String why) {
    return "the planner "
        + String.join(" ", python.command())
        + " cannot run: "
        + why
        + "; spark.pylog.python, else PYSPARK_PYTHON, names a Python that has pylog"
        + " (pylog.spark.session_builder() sets it)";
  }

  private byte[] exchange(byte[] question) throws IOException {
    questions.write(question);
    questions.write('\n');
    questions.flush();
    ByteArrayOutputStream line = new ByteArrayOutputStream(1 << 12);
    while (true) {
      int next = answers.read();
      if (next == '\n') {
        return line.toByteArray();
      }
      if (next < 0) {
        throw new EOFException("the planner has ended");
      }
      if (line.size() == ANSWER_BYTES_MAX) {
        throw new IOException("an answer of more than " + ANSWER_BYTES_MAX + " bytes");
      }
      line.write(next);
    }
  }

  /** End it; its last words. */
  private String end() {
    process.destroyForcibly();
    try {
      process.waitFor(5, TimeUnit.SECONDS);
      listener.join(1000);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
    synchronized (said) {
      String words = said.toString().strip();
      return words.isEmpty() ? "it has ended without a word" : words;
    }
  }

  private void listen() {
    byte[] buffer = new byte[4096];
    try (InputStream errors = process.getErrorStream()) {
      for (int count = errors.read(buffer); count >= 0; count = errors.read(buffer)) {
        String words = new String(buffer, 0, count, StandardCharsets.UTF_8);
        LOG.warn("planner: {}", words.stripTrailing());
        synchronized (said) {
          said.append(words);
          said.delete(0, Math.max(0, said.length() - SAID_CHARS));
        }
      }
    } catch (IOException ended) {
      LOG.debug("the planner's stderr was closed", ended);
    }
  }
}
