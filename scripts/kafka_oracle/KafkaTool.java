import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;

import org.apache.kafka.tools.DumpLogSegments;

/** Runs DumpLogSegments on one file and hands over what it prints, line by line, so that a large log fits in memory. */
final class KafkaTool {
    private KafkaTool() {
    }

    /** Returns what the tool threw, or null. It throws on most damage, and a shared run would skip the files after it. */
    static Exception run(Path file, List<String> options, Consumer<String> printed, Consumer<String> complained) {
        String[] arguments = Stream.concat(options.stream(), Stream.of("--files", file.toString())).toArray(String[]::new);
        PrintStream standardOutput = System.out;
        PrintStream standardError = System.err;
        try (PrintStream out = lines(printed); PrintStream err = lines(complained)) {
            System.setOut(out);
            System.setErr(err);
            DumpLogSegments.main(arguments);
            return null;
        } catch (Exception thrown) {
            return thrown;
        } finally {
            System.setOut(standardOutput);
            System.setErr(standardError);
        }
    }

    /** "Type: message" for an exception and each of its causes. */
    static String describe(Throwable thrown) {
        List<String> parts = new ArrayList<>();
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            parts.add(cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return String.join("; caused by ", parts);
    }

    private static PrintStream lines(Consumer<String> consumer) {
        return new PrintStream(new LineStream(consumer), false, StandardCharsets.UTF_8);
    }

    private static final class LineStream extends OutputStream {
        private final Consumer<String> consumer;
        private final ByteArrayOutputStream line = new ByteArrayOutputStream();

        LineStream(Consumer<String> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void write(int oneByte) {
            if (oneByte == '\n') {
                consumer.accept(line.toString(StandardCharsets.UTF_8));
                line.reset();
            } else {
                line.write(oneByte);
            }
        }

        @Override
        public void close() {
            if (line.size() > 0) {
                write('\n');
            }
        }
    }
}
