package pylog.spark;

/** This reader can't do what was asked; the message names the way out. */
public final class UnsupportedException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public UnsupportedException(String message) {
    super(message);
  }
}
