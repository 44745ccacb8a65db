package pylog.spark;

/** The control batches that end a transaction. They contain nothing for a query, but must be whole. */
final class Marker {
  private static final int DECOMPRESSED_LIMIT_BYTES = 1 << 20;
  private static final int KEY_BYTES = 4;
  private static final int VALUE_BYTES = 6;

  private Marker() {}

  /** Check the record of a batch that should end a transaction, if it is one. */
  static void check(BatchHeader header, byte[] data, int from, int to) throws Damage {
    if (!header.isControl() || header.producerId() < 0 || header.count() == 0) {
      return;
    }
    Records records = new Records();
    if (header.codec() == 0) {
      records.open(data, from + BatchHeader.BYTES, to, header);
    } else {
      try (Decompressor decompressor = new Decompressor()) {
        int start =
            decompressor.append(
                header.codec(), data, from + BatchHeader.BYTES, to, DECOMPRESSED_LIMIT_BYTES);
        records.open(decompressor.data(), start, decompressor.end(), header);
      } catch (Damage.TooLarge bomb) { // no marker has as much
        throw new Damage(bomb.getMessage());
      }
    }
    records.readOne();
    int type = field(records, "key", records.key(), records.keySize(), KEY_BYTES, header);
    if (type == 0 || type == 1) {
      field(records, "value", records.value(), records.valueSize(), VALUE_BYTES, header);
    }
  }

  /** The number after the version: of a key the type. */
  private static int field(Records records, String name, int at, int size, int least, BatchHeader header) throws Damage {
    String where = "control record at offset " + header.baseOffset() + ": " + name;
    if (size < least) {
      throw new Damage(where + " of " + size + " bytes, expected " + least + " bytes or more");
    }
    int version = Bytes.int16(records.data(), at);
    if (version < 0) {
      throw new Damage(where + " version " + version + ", expected 0 or more");
    }
    return Bytes.int16(records.data(), at + 2);
  }
}
