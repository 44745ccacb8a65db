package pylog.spark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Asks planners, a line each: {@code <interpreter> <limit, s> <interrupted after, s> <question>}. Answers
 * {@code answer <…>} or {@code refused <interrupted?> <message>}.
 */
public final class Questions {
  private Questions() {}

  public static void main(String[] arguments) throws IOException {
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] given = line.split(" ", 4);
      answers.println(ask(given[0], Long.parseLong(given[1]), Long.parseLong(given[2]), given[3]));
    }
  }

  private static String ask(String interpreter, long limitSeconds, long seconds, String question) {
    Thread asking = Thread.currentThread();
    Thread interrupter =
        new Thread(
            () -> {
              try {
                Thread.sleep(seconds * 1000);
                asking.interrupt();
              } catch (InterruptedException answered) {
                return;
              }
            });
    interrupter.start();
    try {
      byte[] asked = question.getBytes(StandardCharsets.UTF_8);
      var python = new PlannerProcess.Python(interpreter, "");
      byte[] answer = PlannerProcess.ask(python, asked, limitSeconds);
      interrupter.interrupt();
      return "answer " + new String(answer, StandardCharsets.UTF_8);
    } catch (PlanException refused) {
      interrupter.interrupt();
      return "refused " + Thread.interrupted() + " " + refused.getMessage();
    }
  }
}
