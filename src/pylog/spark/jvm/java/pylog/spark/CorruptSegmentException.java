package pylog.spark;

/** Bytes on the disk are damaged. The message names topic, partition, offset and file. */
public final class CorruptSegmentException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public CorruptSegmentException(String message) {
    super(message);
  }
}
