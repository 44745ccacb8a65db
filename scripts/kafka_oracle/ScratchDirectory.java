import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;

/** A temporary directory that is removed on close, and also when the process is told to stop before that. */
final class ScratchDirectory implements AutoCloseable {
    private final Path path;
    private final Thread onExit = new Thread(this::stopAndRemove);
    private Runnable stopUser = () -> { };

    ScratchDirectory(String prefix) throws IOException {
        path = Files.createTempDirectory(prefix);
        Runtime.getRuntime().addShutdownHook(onExit);
    }

    Path path() {
        return path;
    }

    /** {@code stopUser} ends whatever else writes here; it is called before the directory is removed. */
    void usedBy(Runnable stopUser) {
        this.stopUser = stopUser;
    }

    @Override
    public void close() {
        Runtime.getRuntime().removeShutdownHook(onExit);
        stopAndRemove();
    }

    private void stopAndRemove() {
        stopUser.run();
        remove();
    }

    private void remove() {
        if (!Files.exists(path)) {
            return;
        }
        try (var below = Files.walk(path)) {
            for (Path each : below.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(each);
            }
        } catch (IOException thrown) {
            throw new UncheckedIOException("could not remove " + path, thrown);
        }
    }
}
