import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.utils.AppInfoParser;

/** {@code kafka-oracle dump}: every log file below the directories given, as Kafka's own tools judge it. */
public final class Dump {
    private Dump() {
    }

    public static void main(String[] arguments) throws IOException {
        List<String> directories = new ArrayList<>(List.of(arguments));
        boolean json = directories.remove("--json");
        boolean details = directories.remove("--entries");
        if (directories.isEmpty() || directories.stream().anyMatch(name -> name.startsWith("--"))) {
            refuse("usage: kafka-oracle dump [--json] [--entries] DIR...");
        }
        List<FileReport> reports = new ArrayList<>();
        for (String directory : directories) {
            if (!Files.isDirectory(Path.of(directory))) {
                refuse(directory + " is not a directory");
            }
            reports.addAll(below(Path.of(directory), details));
        }
        if (reports.isEmpty()) {
            refuse("no segment file (such as 00000000000000000000.log) is below " + String.join(", ", directories));
        }
        if (json) {
            System.out.println(new ObjectMapper().writeValueAsString(asMap(reports)));
        } else {
            print(reports);
        }
        System.exit(reports.stream().allMatch(FileReport::valid) ? 0 : 1);
    }

    /** Reports on every segment file and checkpoint at or below {@code root}, in the order of their paths. */
    static List<FileReport> below(Path root, boolean details) throws IOException {
        List<FileReport> reports = new ArrayList<>();
        try (var scratch = new ScratchDirectory("kafka-oracle-dump"); var paths = Files.walk(root)) {
            for (Path directory : paths.filter(Files::isDirectory).sorted().toList()) {
                Path ofDirectory = Files.createTempDirectory(scratch.path(), "partition");
                reports.addAll(new CheckpointCheck(directory, ofDirectory, details).reports());
                reports.addAll(new SegmentCheck(directory, ofDirectory, details).reports());
            }
        }
        return reports;
    }

    private static Map<String, Object> asMap(List<FileReport> reports) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("kafka_version", AppInfoParser.getVersion());
        map.put("tool", "org.apache.kafka.tools.DumpLogSegments");
        map.put("valid", reports.stream().allMatch(FileReport::valid));
        map.put("files", reports.stream().map(FileReport::asMap).toList());
        return map;
    }

    private static void print(List<FileReport> reports) {
        for (FileReport report : reports) {
            System.out.println(report.summary());
            report.problems.forEach(problem -> System.out.println("     " + problem));
            report.notes.forEach(note -> System.out.println("     note: " + note));
        }
        System.out.printf("%d files  %d batches  %d records  %d bad files%n", reports.size(),
            reports.stream().mapToLong(report -> report.batches).sum(),
            reports.stream().mapToLong(report -> report.records).sum(),
            reports.stream().filter(report -> !report.valid()).count());
    }

    private static void refuse(String why) {
        System.err.println("kafka-oracle: " + why);
        System.exit(2);
    }
}
