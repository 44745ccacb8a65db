import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/** Reads the small text files of a log directory and of its partitions with the classes the broker reads them with. */
final class CheckpointCheck {
    private static final List<String> NAMES = List.of("leader-epoch-checkpoint", "partition.metadata",
        "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
        "cleaner-offset-checkpoint");

    private final Path directory;
    private final Path scratch;
    private final boolean keepsDetails;

    /** {@code scratch} is for copies: Kafka's classes create what they do not find, and could write beside it. */
    CheckpointCheck(Path directory, Path scratch, boolean keepsDetails) {
        this.directory = directory;
        this.scratch = scratch;
        this.keepsDetails = keepsDetails;
    }

    List<FileReport> reports() throws IOException {
        List<FileReport> reports = new ArrayList<>();
        for (String name : NAMES) {
            if (Files.isRegularFile(directory.resolve(name))) {
                reports.add(check(directory.resolve(name)));
            }
        }
        return reports;
    }

    private FileReport check(Path file) throws IOException {
        FileReport report = new FileReport(file, file.getFileName().toString(), keepsDetails);
        Path copy = Files.copy(file, scratch.resolve(file.getFileName()));
        try {
            List<Map<String, Object>> entries = read(copy, new LogDirFailureChannel(1));
            report.entries = entries.size();
            entries.forEach(report::addDetail);
        } catch (RuntimeException thrown) {
            report.problems.add(KafkaTool.describe(thrown).replace(scratch.toString(), directory.toString()));
        }
        return report;
    }

    private static List<Map<String, Object>> read(Path copy, LogDirFailureChannel failures) throws IOException {
        return switch (copy.getFileName().toString()) {
            case "leader-epoch-checkpoint" -> new LeaderEpochCheckpointFile(copy.toFile(), failures).read().stream()
                .map(entry -> ordered("epoch", entry.epoch(), "startOffset", entry.startOffset())).toList();
            case "partition.metadata" -> {
                var metadata = new PartitionMetadataFile(copy.toFile(), failures).read();
                yield List.of(ordered("version", metadata.version(), "topicId", metadata.topicId().toString()));
            }
            default -> new OffsetCheckpointFile(copy.toFile(), failures).read().entrySet().stream()
                .map(entry -> ordered("partition", entry.getKey().toString(), "offset", entry.getValue()))
                .sorted((one, other) -> ((String) one.get("partition")).compareTo((String) other.get("partition"))).toList();
        };
    }

    private static Map<String, Object> ordered(String firstName, Object first, String secondName, Object second) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put(firstName, first);
        map.put(secondName, second);
        return map;
    }
}
