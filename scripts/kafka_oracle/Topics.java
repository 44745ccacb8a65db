import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.stream.LongStream;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What the workload asks of the broker besides producing: topics, their settings, and waiting for results. */
final class Topics {
    private static final long SECONDS_MAX = 60;
    private static final String TEN_YEARS_MS = "315360000000";
    /** The records are old, and markers carry the time of the run: no segment may go, or end, because of that. */
    private static final Map<String, String> FOR_ALL = Map.of(
        "retention.ms", "-1",
        "segment.ms", TEN_YEARS_MS,
        "file.delete.delay.ms", "0");

    private final Admin admin;
    private final Path logDirectory;
    private final List<String> created = new ArrayList<>();

    Topics(Admin admin, Path logDirectory) {
        this.admin = admin;
        this.logDirectory = logDirectory;
    }

    List<String> created() {
        return created;
    }

    void create(String topic, int partitions, Map<String, String> settings) throws InterruptedException, ExecutionException {
        Map<String, String> all = new HashMap<>(FOR_ALL);
        all.putAll(settings);
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(all))).all().get();
        created.add(topic);
    }

    void raiseTransactionVersion(short version) throws InterruptedException, ExecutionException {
        admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate(version, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions()).all().get();
    }

    void deleteRecordsBefore(TopicPartition partition, long offset) throws InterruptedException, ExecutionException {
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset))).all().get();
    }

    void commit(String group, Map<TopicPartition, OffsetAndMetadata> offsets) throws InterruptedException, ExecutionException {
        admin.alterConsumerGroupOffsets(group, offsets).all().get();
    }

    /** Transaction markers are written after the client has been answered: without this their place would vary. */
    void awaitEnd(TopicPartition partition, long endOffset) throws IOException, InterruptedException {
        Wait.until(partition + " ends at " + endOffset, SECONDS_MAX, () -> end(partition) == endOffset);
    }

    long end(TopicPartition partition) throws InterruptedException, ExecutionException {
        return admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get().get(partition).offset();
    }

    void awaitFirstSegment(String topic, long base) throws IOException, InterruptedException {
        Path partition = logDirectory.resolve(topic + "-0");
        Wait.until(topic + " starts with segment " + base, SECONDS_MAX,
            () -> segmentBases(partition).min().orElseThrow() == base && nothingInTransit(partition));
    }

    /** Lets the cleaner at a topic that was created with a dirty ratio of 1, and waits until it has gone all the way. */
    void clean(String topic) throws IOException, InterruptedException, ExecutionException {
        setDirtyRatio(topic, "0.001");
        Path partition = logDirectory.resolve(topic + "-0");
        Wait.until("the cleaner is done with " + topic, SECONDS_MAX,
            () -> firstDirtyOffset(topic) == segmentBases(partition).max().orElseThrow() && nothingInTransit(partition));
        setDirtyRatio(topic, "1.0");
    }

    private void setDirtyRatio(String topic, String ratio) throws IOException, InterruptedException, ExecutionException {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var change = new AlterConfigOp(new ConfigEntry("min.cleanable.dirty.ratio", ratio), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        Wait.until(topic + " has its new dirty ratio", SECONDS_MAX, () -> admin.describeConfigs(List.of(resource)).all().get()
            .get(resource).get("min.cleanable.dirty.ratio").value().equals(ratio));
    }

    private long firstDirtyOffset(String topic) throws IOException {
        Path checkpoint = logDirectory.resolve("cleaner-offset-checkpoint");
        if (!Files.exists(checkpoint)) {
            return -1;
        }
        return Files.readAllLines(checkpoint).stream().filter(line -> line.startsWith(topic + " 0 "))
            .mapToLong(line -> Long.parseLong(line.split(" ")[2])).findFirst().orElse(-1);
    }

    private static LongStream segmentBases(Path partition) throws IOException {
        return SegmentCheck.segmentFiles(partition).stream().map(file -> file.getFileName().toString())
            .filter(name -> name.endsWith(".log")).mapToLong(name -> Long.parseLong(name.split("\\.")[0]));
    }

    private static boolean nothingInTransit(Path partition) throws IOException {
        try (var files = Files.list(partition)) {
            return files.map(Path::toString).noneMatch(name -> name.matches(".*\\.(cleaned|swap|deleted)"));
        }
    }
}
