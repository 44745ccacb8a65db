import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;

/** A single-node broker in a process of its own, on free loopback ports, with everything it writes in one directory. */
final class Broker {
    static final String CLUSTER_ID = "cHlsb2ctZ29sZGVuLWRhdA";
    private static final long START_SECONDS_MAX = 90;
    private static final long STOP_SECONDS_MAX = 90;

    private final Path home;
    private final Path printed;
    private final Path configuration;
    private final int clientPort;
    private Process process;

    /** Formats {@code home}, an existing empty directory, and does not start anything yet. */
    Broker(Path home, short transactionVersion) throws IOException, InterruptedException {
        this.home = home;
        this.printed = home.resolve("broker-output.txt");
        this.configuration = home.resolve("server.properties");
        this.clientPort = writeConfiguration();
        Process format = java("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID,
            "--config", configuration.toString(), "--feature", "transaction.version=" + transactionVersion);
        if (!format.waitFor(START_SECONDS_MAX, TimeUnit.SECONDS) || format.exitValue() != 0) {
            format.destroyForcibly();
            throw failed("formatting the broker's storage failed");
        }
    }

    Path logDirectory() {
        return home.resolve("log");
    }

    String address() {
        return "127.0.0.1:" + clientPort;
    }

    Admin admin() {
        return Admin.create(Map.<String, Object>of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, address()));
    }

    void start() throws IOException, InterruptedException {
        process = java("kafka.Kafka", configuration.toString());
        try (Admin admin = admin()) {
            Wait.until("the broker answers", START_SECONDS_MAX, () -> {
                if (!process.isAlive()) {
                    throw failed("the broker ended while starting");
                }
                return !admin.describeCluster().nodes().get().isEmpty();
            });
        }
    }

    /** Asks the broker to stop, waits for it, and checks that it left the mark of a clean stop. */
    void stopCleanly() throws IOException, InterruptedException {
        process.destroy();
        if (!process.waitFor(STOP_SECONDS_MAX, TimeUnit.SECONDS)) {
            throw failed("the broker did not stop in " + STOP_SECONDS_MAX + " s");
        }
        if (!Files.exists(logDirectory().resolve(".kafka_cleanshutdown"))) {
            throw failed("the broker stopped without .kafka_cleanshutdown");
        }
    }

    /** Ends the broker's process at once; does nothing when it has ended. */
    void kill() {
        if (process != null) {
            process.destroyForcibly().onExit().join();
        }
    }

    private Process java(String mainClass, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx768m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-cp", System.getProperty("java.class.path"), mainClass));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(printed.toFile())).start();
    }

    private int writeConfiguration() throws IOException {
        int[] ports = freePorts();
        Properties properties = new Properties();
        properties.putAll(Map.of(
            "process.roles", "broker,controller",
            "node.id", "1",
            "controller.quorum.voters", "1@127.0.0.1:" + ports[1],
            "controller.listener.names", "CONTROLLER",
            "listeners", "PLAINTEXT://127.0.0.1:" + ports[0] + ",CONTROLLER://127.0.0.1:" + ports[1],
            "log.dirs", logDirectory().toString(),
            "auto.create.topics.enable", "false",
            "default.replication.factor", "1"));
        properties.putAll(Map.of(
            "offsets.topic.num.partitions", "1",
            "offsets.topic.replication.factor", "1",
            "transaction.state.log.num.partitions", "1",
            "transaction.state.log.replication.factor", "1",
            "transaction.state.log.min.isr", "1"));
        properties.putAll(Map.of(
            "log.initial.task.delay.ms", "100",
            "log.retention.check.interval.ms", "100",
            "log.cleaner.backoff.ms", "100",
            "log.cleaner.dedupe.buffer.size", "8388608"));
        try (var out = Files.newBufferedWriter(configuration)) {
            properties.store(out, null);
        }
        return ports[0];
    }

    /** Both sockets are open at once, so that the two ports differ. */
    private static int[] freePorts() throws IOException {
        try (var one = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
             var other = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return new int[] {one.getLocalPort(), other.getLocalPort()};
        }
    }

    /** An error with the last lines the broker printed, which are gone with its directory otherwise. */
    IOException failed(String what) throws IOException {
        List<String> lines = Files.readAllLines(printed);
        String tail = String.join("\n", lines.subList(Math.max(0, lines.size() - 30), lines.size()));
        return new IOException(what + "; its last words:\n" + tail);
    }
}
