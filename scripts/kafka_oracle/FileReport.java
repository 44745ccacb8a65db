import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What Kafka said about one file. */
final class FileReport {
    /** Two record offsets that follow each other in a log without being neighbours: normal after compaction. */
    record Gap(long after, long before) {
    }

    final Path file;
    final String kind;
    long batches;
    long records;
    long declaredRecords;
    long entries;
    final List<Gap> gaps = new ArrayList<>();
    final List<String> problems = new ArrayList<>();
    /** What the tool holds against the file and is wrong about. */
    final List<String> notes = new ArrayList<>();
    private final boolean keepsDetails;
    private final List<Map<String, Object>> details = new ArrayList<>();

    FileReport(Path file, String kind, boolean keepsDetails) {
        this.file = file;
        this.kind = kind;
        this.keepsDetails = keepsDetails;
    }

    boolean valid() {
        return problems.isEmpty();
    }

    void addDetail(Map<String, Object> detail) {
        if (keepsDetails) {
            details.add(detail);
        }
    }

    String summary() {
        return "%-3s  %s  %s".formatted(valid() ? "ok" : "BAD", file, counts());
    }

    Map<String, Object> asMap() {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("file", file.toString());
        map.put("kind", kind);
        if (kind.equals("log")) {
            map.put("batches", batches);
            map.put("records", records);
            map.put("gaps", gaps.stream().map(gap -> List.of(gap.after(), gap.before())).toList());
        } else {
            map.put("entries", entries);
        }
        map.put("valid", valid());
        map.put("problems", problems);
        map.put("notes", notes);
        if (keepsDetails) {
            map.put("details", details);
        }
        return map;
    }

    private String counts() {
        if (!kind.equals("log")) {
            return entries + " entries";
        }
        return batches + " batches  " + records + " records" + (gaps.isEmpty() ? "" : "  " + gaps.size() + " gaps");
    }
}
