import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Understands the lines DumpLogSegments prints on standard output, and counts them into a report. */
final class DumpLines {
    private static final Pattern BATCH = Pattern.compile("(baseOffset|offset): \\d+ .*isvalid: (true|false)");
    private static final Pattern FIELD = Pattern.compile("(\\w+): (\\S+)");
    private static final Map<String, String> FIRST_FIELD_OF_ENTRY =
        Map.of("index", "offset: ", "timeindex", "timestamp: ", "txnindex", "version: ", "snapshot", "producerId: ");

    private final FileReport report;
    private final Set<Long> timestampsOfEmptyBatches;
    private Map<String, Object> batch = Map.of();

    /** Adds to {@code timestampsOfEmptyBatches} what a time index may point at and the tool will not find again. */
    DumpLines(FileReport report, Set<Long> timestampsOfEmptyBatches) {
        this.report = report;
        this.timestampsOfEmptyBatches = timestampsOfEmptyBatches;
    }

    void line(String line) {
        if (report.kind.equals("log")) {
            logLine(line);
        } else if (line.startsWith(FIRST_FIELD_OF_ENTRY.get(report.kind))) {
            report.entries++;
            report.addDetail(fields(line));
        }
    }

    private void logLine(String line) {
        if (line.startsWith("| offset: ")) {
            recordLine(line);
        } else if (BATCH.matcher(line).matches()) {
            batchLine(line);
        } else if (line.startsWith("Found ") && line.contains(" invalid bytes at the end of ")) {
            report.problems.add(line);
        }
    }

    private void recordLine(String line) {
        report.records++;
        if (Boolean.TRUE.equals(batch.get("isControl"))) {
            Map<String, Object> record = fields(line);
            batch.put("endTxnMarker", record.get("endTxnMarker"));
            batch.put("coordinatorEpoch", record.get("coordinatorEpoch"));
        }
    }

    private void batchLine(String line) {
        batch = fields(line);
        report.addDetail(batch);
        report.batches++;
        report.declaredRecords += (Long) batch.getOrDefault("count", 0L);
        if (Long.valueOf(0).equals(batch.get("count"))) {
            timestampsOfEmptyBatches.add((Long) batch.get("maxTimestamp"));
        }
        if (!Boolean.TRUE.equals(batch.get("isvalid"))) {
            report.problems.add("batch at position %s, base offset %s: isvalid: false"
                .formatted(batch.get("position"), batch.get("baseOffset")));
        }
        if (!Long.valueOf(2).equals(batch.get("magic"))) {
            report.problems.add("batch at position %s has magic %s, expected 2"
                .formatted(batch.get("position"), batch.get("magic")));
        }
    }

    private static Map<String, Object> fields(String line) {
        Map<String, Object> fields = new LinkedHashMap<>();
        Matcher matcher = FIELD.matcher(line);
        while (matcher.find()) {
            switch (matcher.group(1)) {
                case "CreateTime", "LogAppendTime", "NoTimestampType" -> {
                    fields.put("timestampType", matcher.group(1));
                    fields.put("maxTimestamp", scalar(matcher.group(2)));
                }
                default -> fields.put(matcher.group(1), scalar(matcher.group(2)));
            }
        }
        return fields;
    }

    private static Object scalar(String text) {
        if (text.equals("OptionalLong.empty")) {
            return null;
        }
        if (text.startsWith("OptionalLong[")) {
            return Long.valueOf(text.substring("OptionalLong[".length(), text.length() - 1));
        }
        if (text.equals("true") || text.equals("false")) {
            return Boolean.valueOf(text);
        }
        return text.matches("-?\\d+") ? Long.valueOf(text) : text;
    }
}
