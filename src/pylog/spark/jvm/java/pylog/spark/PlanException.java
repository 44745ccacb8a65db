package pylog.spark;

/**
 * A query that cannot be planned: what pylog said, or why it could not be asked. PySpark shows an {@code
 * IllegalArgumentException} without the stack of the JVM.
 */
public final class PlanException extends IllegalArgumentException {
  private static final long serialVersionUID = 1L;

  public PlanException(String message) {
    super(message);
  }

  public PlanException(String message, Throwable cause) {
    super(message, cause);
  }
}
