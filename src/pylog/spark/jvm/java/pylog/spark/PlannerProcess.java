package pylog.spark;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.StreamCorruptedException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The planner of this JVM: {@code python -m pylog.spark.jvm}, started at the first question. It
 * ends with the JVM, which closes its stdin. Questions wait for each other.
 *
 * <p>An answer repeats the number of its question. After any failure the process is ended: nothing
 * that it wrote may be taken for the answer to the next question.
 */
final class PlannerProcess {
  private static final int QUESTION_BYTES_MAX = 16 << 20;
  private static final int ANSWER_BYTES_MAX = 256 << 20;
  private static final int SAID_CHARS = 4000;
  /** As {@code -m pylog.spark.jvm}, but a file of the working directory is no module of it. */
  private static final String PROGRAM =
      "import sys\n"
          + "if sys.path[:1] == ['']: del sys.path[0]\n"
          + "import runpy\n"
          + "runpy.run_module('pylog.spark.jvm', run_name='__main__')";
  private static final Logger LOG = LoggerFactory.getLogger("pylog.spark");
  private static final ReentrantLock TURN = new ReentrantLock(true);

  private static PlannerProcess current;

  private final Python python;
  private final Process process;
  private final DataOutputStream questions;
  private final DataInputStream answers;
  private final StringBuilder said = new StringBuilder();
  private final Thread listener;
  private long asked;

  /** The interpreter, and what it finds modules by beside its own: empty for nothing. */
  record Python(String interpreter, String path) {
    List<String> command() {
      return List.of(interpreter, "-c", PROGRAM);
    }
  }

  private PlannerProcess(Python python) throws IOException {
    this.python = python;
    ProcessBuilder builder = new ProcessBuilder(python.command());
    Map<String, String> environment = builder.environment();
    if (!python.path().isEmpty()) {
      environment.merge("PYTHONPATH", python.path(), (old, mine) -> mine + ":" + old);
    }
    process = builder.start();
    questions = new DataOutputStream(new BufferedOutputStream(process.getOutputStream(), 1 << 16));
    answers = new DataInputStream(new BufferedInputStream(process.getInputStream(), 1 << 16));
    listener = start(this::listen, "pylog planner's stderr");
  }

  /**
   * The answer to a question, both JSON. A planner that has died is started once more: a question
   * changes nothing. {@link PlanException} also after {@code limitSeconds} without an answer, and
   * if this thread is interrupted.
   */
  static byte[] ask(Python python, byte[] question, long limitSeconds) {
    if (question.length > QUESTION_BYTES_MAX) {
      throw new PlanException(
          "the query's options and filters have " + question.length + " bytes, at most "
              + QUESTION_BYTES_MAX + " can be planned; use format(\"pylog\")");
    }
    try {
      TURN.lockInterruptibly();
    } catch (InterruptedException interrupt) {
      throw interrupted(interrupt);
    }
    try {
      return askInTurn(python, question, limitSeconds);
    } catch (RuntimeException | Error error) {
      endCurrent();
      throw error;
    } finally {
      TURN.unlock();
    }
  }

  private static byte[] askInTurn(Python python, byte[] question, long limitSeconds) {
    if (current != null && !current.python.equals(python)) {
      endCurrent();
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
        return current.answer(question, limitSeconds);
      } catch (IOException error) {
        String last = endCurrent();
        if (error instanceof StreamCorruptedException) {
          last = error.getMessage() + "; " + last;
        }
        if (attempt == 2) {
          throw new PlanException(cannot(python, last), error);
        }
        LOG.warn("the planner has died, and is started again: {}", last);
      }
    }
  }

  private static String cannot(Python python, String why) {
    return "the planner "
        + python.interpreter()
        + " -m pylog.spark.jvm cannot run: "
        + why
        + "; spark.pylog.python, else PYSPARK_PYTHON, names a Python that has pylog"
        + " (pylog.spark.session_builder() sets it)";
  }

  private static PlanException interrupted(InterruptedException interrupt) {
    Thread.currentThread().interrupt();
    return new PlanException("the query was interrupted before it was planned", interrupt);
  }

  /** In another thread, because no interrupt ends a read from a pipe. */
  private byte[] answer(byte[] question, long limitSeconds) throws IOException {
    FutureTask<byte[]> answer = new FutureTask<>(() -> exchange(question));
    start(answer, "pylog planner");
    try {
      return answer.get(limitSeconds, TimeUnit.SECONDS);
    } catch (InterruptedException interrupt) {
      throw interrupted(interrupt);
    } catch (TimeoutException late) {
      throw new PlanException(
          "the planner has not answered for " + limitSeconds + " s, and was ended. If the log's"
              + " file system hangs, repair it; if the log is so large, set"
              + " spark.pylog.plannerTimeout",
          late);
    } catch (ExecutionException failure) {
      if (failure.getCause() instanceof IOException error) {
        throw error;
      }
      throw new PlanException("the planner's answer was not read: " + failure.getCause(), failure);
    }
  }

  private byte[] exchange(byte[] question) throws IOException {
    questions.writeLong(++asked);
    questions.writeInt(question.length);
    questions.write(question);
    questions.flush();
    long number = answers.readLong();
    int length = answers.readInt();
    if (number != asked || length < 0 || length > ANSWER_BYTES_MAX) {
      throw new StreamCorruptedException(
          "its stdout has something other than an answer: does its Python print when it starts?");
    }
    byte[] answer = new byte[length];
    answers.readFully(answer);
    return answer;
  }

  /** End the planner, if there is one; its last words. */
  private static String endCurrent() {
    PlannerProcess ended = current;
    current = null;
    return ended == null ? "" : ended.end();
  }

  private String end() {
    // not its streams: a close waits for the thread that reads or writes
    process.toHandle().destroyForcibly();
    boolean isInterrupted = Thread.interrupted();
    try {
      process.waitFor(5, TimeUnit.SECONDS);
      listener.join(1000);
    } catch (InterruptedException interrupt) {
      isInterrupted = true;
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
    synchronized (said) {
      String words = said.toString().strip();
      return words.isEmpty() ? "it has ended without a word" : words;
    }
  }

  private static Thread start(Runnable work, String name) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    thread.start();
    return thread;
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
