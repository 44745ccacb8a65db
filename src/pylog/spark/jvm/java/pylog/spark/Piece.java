package pylog.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A range of offsets of one partition, as the planner fixed it: what one or several of a task's reads
 * need, and nothing else. The driver makes it from the planner's JSON; executors get it with the task.
 *
 * @param start the first offset to read
 * @param end the offset after the last one; a batch whose base offset is not before it ends the piece
 * @param readCommitted whether records of aborted transactions are left out
 * @param isKafka whether Kafka writes the directory: offsets may have gaps, and there is no seal
 * @param identity base64 of {@code partition.metadata} as planned; empty if there was none
 * @param home the partition's name in its seals; empty if unknown
 * @param segments those that the range lies in, by rising base offset
 * @param aborted the aborted transactions that overlap the range
 */
public record Piece(
    String topic,
    int partition,
    String directory,
    long start,
    long end,
    boolean readCommitted,
    boolean isKafka,
    String identity,
    String home,
    List<Segment> segments,
    List<Aborted> aborted)
    implements Serializable {

  /**
   * One segment file.
   *
   * @param nextBase the base offset of the segment after it; -1 if it is the last
   * @param sizeBytes readable bytes: of the active segment those that were published
   * @param isClosed whether it will not grow, so that its seal, if there is one, applies
   * @param startPosition a batch begins there, at or before the piece's start
   */
  public record Segment(
      long base, long nextBase, String path, long sizeBytes, boolean isClosed, long startPosition)
      implements Serializable {

    static Segment of(Map<?, ?> fields) {
      return new Segment(
          number(fields, "base"),
          number(fields, "nextBase"),
          text(fields, "path"),
          number(fields, "sizeBytes"),
          bool(fields, "isClosed"),
          number(fields, "startPosition"));
    }
  }

  /** A transaction that was aborted: its producer's records from the first offset to the last. */
  public record Aborted(long producerId, long firstOffset, long lastOffset) implements Serializable {

    static Aborted of(Map<?, ?> fields) {
      return new Aborted(
          number(fields, "producerId"), number(fields, "firstOffset"), number(fields, "lastOffset"));
    }
  }

  /** From the planner's JSON. {@code IllegalArgumentException} for a field that is missing or wrong. */
  public static Piece of(Map<String, Object> fields) {
    List<Segment> segments = new ArrayList<>();
    for (Object each : list(fields, "segments")) {
      segments.add(Segment.of(map("segments", each)));
    }
    List<Aborted> aborted = new ArrayList<>();
    for (Object each : list(fields, "aborted")) {
      aborted.add(Aborted.of(map("aborted", each)));
    }
    return new Piece(
        text(fields, "topic"),
        Math.toIntExact(number(fields, "partition")),
        text(fields, "directory"),
        number(fields, "start"),
        number(fields, "end"),
        bool(fields, "readCommitted"),
        bool(fields, "isKafka"),
        text(fields, "identity"),
        text(fields, "home"),
        List.copyOf(segments),
        List.copyOf(aborted));
  }

  private static String text(Map<?, ?> fields, String name) {
    if (fields.get(name) instanceof String found) {
      return found;
    }
    throw wrong(fields, name);
  }

  private static long number(Map<?, ?> fields, String name) {
    Object found = fields.get(name);
    if (found instanceof Integer || found instanceof Long) {
      return ((Number) found).longValue();
    }
    throw wrong(fields, name);
  }

  private static boolean bool(Map<?, ?> fields, String name) {
    if (fields.get(name) instanceof Boolean found) {
      return found;
    }
    throw wrong(fields, name);
  }

  private static List<?> list(Map<?, ?> fields, String name) {
    if (fields.get(name) instanceof List<?> found) {
      return found;
    }
    throw wrong(fields, name);
  }

  private static Map<?, ?> map(String name, Object each) {
    if (each instanceof Map<?, ?> found) {
      return found;
    }
    throw new IllegalArgumentException("the plan's " + name + " has " + each + ", expected an object");
  }

  private static IllegalArgumentException wrong(Map<?, ?> fields, String name) {
    return new IllegalArgumentException("the plan's " + name + " is " + fields.get(name));
  }
}
