package pylog.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Whether a batch belongs to a transaction that was aborted. */
final class AbortedTransactions {
  private final Map<Long, Spans> spansOf = new HashMap<>();

  AbortedTransactions(List<Piece.Aborted> all) {
    Map<Long, List<Piece.Aborted>> listed = new HashMap<>();
    for (Piece.Aborted each : all) {
      listed.computeIfAbsent(each.producerId(), id -> new ArrayList<>()).add(each);
    }
    listed.forEach((id, each) -> spansOf.put(id, new Spans(each)));
  }

  boolean contains(BatchHeader header) {
    if (!header.isTransactional() || header.isControl()) {
      return false;
    }
    Spans spans = spansOf.get(header.producerId());
    return spans != null && spans.contains(header.baseOffset());
  }

  /** A producer's, by their first offsets. {@code lasts}: the greatest last offset so far. */
  private static final class Spans {
    private final long[] firsts;
    private final long[] lasts;

    Spans(List<Piece.Aborted> spans) {
      spans.sort(Comparator.comparingLong(Piece.Aborted::firstOffset));
      firsts = spans.stream().mapToLong(Piece.Aborted::firstOffset).toArray();
      lasts = spans.stream().mapToLong(Piece.Aborted::lastOffset).toArray();
      Arrays.parallelPrefix(lasts, Math::max);
    }

    boolean contains(long offset) {
      int low = 0;
      int high = firsts.length;
      while (low < high) {
        int middle = (low + high) >>> 1;
        if (firsts[middle] <= offset) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low > 0 && offset <= lasts[low - 1];
    }
  }
}
