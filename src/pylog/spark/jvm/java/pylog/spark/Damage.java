package pylog.spark;

/** What is wrong with some bytes, before it is known where they lie. Never leaves the package. */
class Damage extends Exception {
  private static final long serialVersionUID = 1L;

  Damage(String problem) {
    super(problem, null, false, false);
  }

  /** Intact perhaps, but more than this reader holds in memory. */
  static final class TooLarge extends Damage {
    private static final long serialVersionUID = 1L;

    TooLarge(String problem) {
      super(problem);
    }
  }
}
