package pylog.spark;

/** What is wrong with some bytes, before it is known where they lie. Never leaves the package. */
final class Damage extends Exception {
  private static final long serialVersionUID = 1L;

  Damage(String problem) {
    super(problem, null, false, false);
  }
}
