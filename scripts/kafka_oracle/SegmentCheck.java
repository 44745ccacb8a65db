import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.regex.Pattern;

import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Checks the segment files of one directory with DumpLogSegments.
 *
 * <p>The tool does not only read: it cuts an index to whole entries when it closes it, creates one that is missing, and
 * splits its list of files at commas. So it works in a scratch directory, on a fresh copy of each index for each run;
 * logs, which it leaves alone, are there as symbolic links.
 */
final class SegmentCheck {
    private static final Pattern SEGMENT_FILE = Pattern.compile("\\d{20}\\.(log|index|timeindex|txnindex|snapshot)");
    private static final String HEX = HexDecoder.class.getName();
    private static final List<String> DUMP = List.of("--deep-iteration", "--print-data-log",
        "--key-decoder-class", HEX, "--value-decoder-class", HEX, "--max-message-size", "" + Integer.MAX_VALUE);
    private static final List<String> SANITY = List.of("--index-sanity-check");
    private static final Map<String, Integer> ENTRY_BYTES = Map.of("index", 8, "timeindex", 12, "txnindex", 34);

    private final Path directory;
    private final Path scratch;
    private final boolean keepsDetails;
    private final Map<String, Set<Long>> timestampsOfEmptyBatches = new HashMap<>();

    /** {@code scratch} is an existing directory that nothing else uses. */
    SegmentCheck(Path directory, Path scratch, boolean keepsDetails) {
        this.directory = directory;
        this.scratch = scratch;
        this.keepsDetails = keepsDetails;
    }

    static List<Path> segmentFiles(Path directory) throws IOException {
        try (var files = Files.list(directory)) {
            return files.filter(file -> SEGMENT_FILE.matcher(file.getFileName().toString()).matches()).sorted().toList();
        }
    }

    List<FileReport> reports() throws IOException {
        List<FileReport> reports = new ArrayList<>();
        for (Path file : segmentFiles(directory)) {
            reports.add(check(file));
        }
        return reports;
    }

    private FileReport check(Path file) throws IOException {
        FileReport report = new FileReport(file, file.getFileName().toString().split("\\.")[1], keepsDetails);
        nameMissingNeighbours(report);
        if (report.valid()) {
            dump(report);
            checkBeyondDump(report);
        }
        return report;
    }

    /** DumpLogSegments reads an index against its log, and a time index through the offset index as well. */
    private void nameMissingNeighbours(FileReport report) {
        neighbours(report).stream().filter(file -> !Files.exists(file)).forEach(file ->
            report.problems.add("there is no " + file.getFileName() + " beside it to check it against"));
    }

    private List<Path> neighbours(FileReport report) {
        return switch (report.kind) {
            case "index" -> List.of(sibling(report, "log"));
            case "timeindex" -> List.of(sibling(report, "log"), sibling(report, "index"));
            default -> List.<Path>of();
        };
    }

    private void dump(FileReport report) throws IOException {
        run(report, DUMP, new DumpLines(report, emptyBatches(report))::line);
    }

    private void checkBeyondDump(FileReport report) throws IOException {
        switch (report.kind) {
            case "log" -> checkCounts(report);
            case "index", "timeindex" -> {
                run(report, SANITY, line -> { });
                checkUnreadTail(report);
            }
            case "txnindex" -> {
                checkTransactionIndex(report);
                checkUnreadTail(report);
            }
            default -> { }
        }
    }

    private void run(FileReport report, List<String> options, Consumer<String> printed) throws IOException {
        for (Path neighbour : neighbours(report)) {
            place(neighbour);
        }
        Path placed = place(report.file);
        Exception thrown = KafkaTool.run(placed, options, printed,
            new Complaints(report, placed.toString(), emptyBatches(report))::line);
        if (thrown != null) {
            addThrown(report, thrown);
        }
    }

    private Path place(Path file) throws IOException {
        Path placed = scratch.resolve(file.getFileName());
        if (!file.toString().endsWith(".log")) {
            Files.copy(file, placed, StandardCopyOption.REPLACE_EXISTING);
        } else if (!Files.exists(placed)) {
            Files.createSymbolicLink(placed, file.toRealPath());
        }
        return placed;
    }

    private static void checkCounts(FileReport report) {
        if (report.valid() && report.declaredRecords != report.records) {
            report.problems.add("the batch headers count %d records, the tool read %d"
                .formatted(report.declaredRecords, report.records));
        }
    }

    /** The tool stops at what looks like preallocated space or half an entry, without a word about what is there. */
    private static void checkUnreadTail(FileReport report) throws IOException {
        long readBytes = report.entries * ENTRY_BYTES.get(report.kind);
        try (FileChannel channel = FileChannel.open(report.file)) {
            ByteBuffer tail = ByteBuffer.allocate(Math.toIntExact(Math.max(0, channel.size() - readBytes)));
            channel.read(tail, readBytes);
            for (byte one : tail.array()) {
                if (one != 0) {
                    report.problems.add("the tool stopped after %d entries, and bytes other than zero follow"
                        .formatted(report.entries));
                    return;
                }
            }
        }
    }

    /** DumpLogSegments has no sanity check for this kind of index; the broker runs this one. */
    private void checkTransactionIndex(FileReport report) throws IOException {
        Path placed = place(report.file);
        try (TransactionIndex index = new TransactionIndex(UnifiedLog.offsetFromFile(placed.toFile()), placed.toFile())) {
            index.sanityCheck();
        } catch (RuntimeException thrown) {
            addThrown(report, thrown);
        }
    }

    private void addThrown(FileReport report, Exception thrown) {
        String problem = KafkaTool.describe(thrown).replace(scratch.toString(), directory.toString());
        if (!report.problems.contains(problem)) {
            report.problems.add(problem);
        }
    }

    /** Filled by the log of a segment, which is checked before its time index. */
    private Set<Long> emptyBatches(FileReport report) {
        String base = report.file.getFileName().toString().split("\\.")[0];
        return timestampsOfEmptyBatches.computeIfAbsent(base, unseen -> new HashSet<>());
    }

    private static Path sibling(FileReport report, String kind) {
        return report.file.resolveSibling(report.file.getFileName().toString().split("\\.")[0] + "." + kind);
    }
}
