import java.io.IOException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Waits for a result by looking at it again and again, up to a limit. */
final class Wait {
    private static final long PAUSE_MS = 50;

    /** Something that is true once the wait is over. */
    interface Condition {
        boolean holds() throws IOException, InterruptedException, ExecutionException;
    }

    private Wait() {
    }

    static void until(String what, long secondsMax, Condition condition) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(secondsMax);
        ExecutionException last = null;
        while (System.nanoTime() < deadline) {
            try {
                if (condition.holds()) {
                    return;
                }
            } catch (ExecutionException thrown) {
                last = thrown;
            }
            Thread.sleep(PAUSE_MS);
        }
        throw new IOException("not within " + secondsMax + " s: " + what, last);
    }
}
