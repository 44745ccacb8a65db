import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Understands what DumpLogSegments says on standard error: a heading that ends with the file, then lines under it.
 *
 * <p>Two of its complaints are about healthy files. Its count of offsets starts at -1 in every file, so that the first
 * record of any later segment is "non-consecutive". And it compares a time index with the records of the batch, while
 * the broker indexed the batch's header: a batch that compaction has emptied keeps its largest timestamp there.
 */
final class Complaints {
    private static final Pattern FOLLOWED = Pattern.compile("  (-?\\d+) is followed by (-?\\d+)");
    private static final Pattern NOT_IN_RECORDS = Pattern.compile("  Index timestamp: (\\d+), log timestamp: -1");

    private final FileReport report;
    private final String fileAsTold;
    private final Set<Long> timestampsOfEmptyBatches;
    private String heading = "";

    Complaints(FileReport report, String fileAsTold, Set<Long> timestampsOfEmptyBatches) {
        this.report = report;
        this.fileAsTold = fileAsTold;
        this.timestampsOfEmptyBatches = timestampsOfEmptyBatches;
    }

    void line(String line) {
        Matcher followed = FOLLOWED.matcher(line);
        Matcher notInRecords = NOT_IN_RECORDS.matcher(line);
        if (followed.matches()) {
            gap(Long.parseLong(followed.group(1)), Long.parseLong(followed.group(2)));
        } else if (line.endsWith(fileAsTold)) {
            heading = line.substring(0, line.length() - fileAsTold.length()).strip();
        } else if (notInRecords.matches() && timestampsOfEmptyBatches.contains(Long.valueOf(notInRecords.group(1)))) {
            report.notes.add("the entry with timestamp %s is of a batch without records".formatted(notInRecords.group(1)));
        } else {
            report.problems.add((heading + " " + line.strip()).strip());
        }
    }

    private void gap(long after, long before) {
        if (before <= after) {
            report.problems.add("offset %d is followed by %d".formatted(after, before));
        } else if (after >= 0) {
            report.gaps.add(new FileReport.Gap(after, before));
        }
    }
}
