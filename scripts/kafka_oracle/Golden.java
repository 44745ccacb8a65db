import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;

/** {@code kafka-oracle golden}: lets a real broker write log directories, and writes down what its clients read back. */
public final class Golden {
    private static final short OLD_TRANSACTIONS = 1;
    private static final short NEW_TRANSACTIONS = 2;

    private Golden() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        if (arguments.length != 1 || arguments[0].startsWith("--")) {
            refuse("usage: kafka-oracle golden OUT");
        }
        Path out = Path.of(arguments[0]);
        if (Files.exists(out)) {
            refuse(out + " exists: name a directory that does not, or remove it first");
        }
        try (ScratchDirectory brokerHome = new ScratchDirectory("kafka-oracle-broker");
             ScratchDirectory made = new ScratchDirectory("kafka-oracle-golden")) {
            make(brokerHome, made.path());
            // Only a whole result is worth finding.
            copyTree(made.path(), out);
        }
        System.out.println("wrote " + out);
    }

    private static void make(ScratchDirectory brokerHome, Path made) throws IOException, InterruptedException, ExecutionException {
        Broker broker = new Broker(brokerHome.path(), OLD_TRANSACTIONS);
        brokerHome.usedBy(broker::kill);
        ReadBack readBack = new ReadBack(broker.address(), Files.createDirectory(made.resolve("expected")));
        try {
            write(broker, readBack);
        } catch (IOException | ExecutionException thrown) {
            thrown.addSuppressed(broker.failed("the broker at that time"));
            throw thrown;
        }
        copyTree(broker.logDirectory(), made.resolve("log"));
        judge(made.resolve("log"), readBack);
    }

    private static void write(Broker broker, ReadBack readBack) throws IOException, InterruptedException, ExecutionException {
        broker.start();
        try (Admin admin = broker.admin()) {
            Topics topics = new Topics(admin, broker.logDirectory());
            Workload workload = new Workload(broker.address(), topics);
            workload.beforeRestart();
            topics.raiseTransactionVersion(NEW_TRANSACTIONS);
            // A new start makes a new leader epoch, and the new transactions known to every part of the broker.
            broker.stopCleanly();
            broker.start();
            workload.afterRestart();
            readBack.topics(topics.created());
            readBack.groups(admin, Workload.GROUPS);
        }
        broker.stopCleanly();
    }

    private static void copyTree(Path from, Path to) throws IOException {
        try (var paths = Files.walk(from)) {
            for (Path path : paths.sorted().toList()) {
                Files.copy(path, to.resolve(from.relativize(path).toString()));
            }
        }
    }

    private static void judge(Path log, ReadBack readBack) throws IOException {
        List<FileReport> reports = Dump.below(log, true);
        readBack.dump(reports, log);
        List<String> bad = reports.stream().filter(report -> !report.valid())
            .map(report -> report.summary() + " " + report.problems).toList();
        if (!bad.isEmpty()) {
            throw new IOException("Kafka finds fault with its own files:\n" + String.join("\n", bad));
        }
    }

    private static void refuse(String why) {
        System.err.println("kafka-oracle: " + why);
        System.exit(2);
    }
}
