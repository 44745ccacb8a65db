package pylog.spark;

/** What was planned is gone or was replaced: by retention, by compaction, or with its topic. */
public final class DataLossException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public DataLossException(String message) {
    super(message);
  }
}
