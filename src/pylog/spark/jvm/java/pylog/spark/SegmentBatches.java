package pylog.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.function.Predicate;
import java.util.zip.CRC32C;

/**
 * The batches of one segment, one after the other, each whole and checked: header, place, checksum,
 * continuity with the one before, and in a closed segment the seal.
 *
 * <p>The bytes are copied from the file before they are checked, so no writer can change them afterwards.
 * The file's length bounds the memory; a batch of more than 4 MiB is checked before it is read whole.
 */
final class SegmentBatches implements Closeable {
  /** How an attempt to take the next batch ended. */
  enum Taken {
    BATCH,
    /** The next batch is not in the buffer, which was to stay as it is. */
    NOT_HERE,
    END
  }

  private static final int CHUNK_BYTES = 512 << 10;
  /** From this size on, what is after a header is not read together with it, if only headers are. */
  private static final int FAR_BYTES = 64 << 10;

  private static final int LARGE_BYTES = 4 << 20;
  private static final int BATCH_LIMIT_BYTES = 128 << 20;

  private final Piece.Segment segment;
  private final Seal seal;
  private final boolean isDense;
  private final FileChannel file;
  private final long end;
  private final Predicate<BatchHeader> isByHeader;

  private byte[] buffer = new byte[Bytes.SLACK];
  private long bufferStart;
  private int limit;
  private long position;
  private long nextOffset = -1;
  private int ahead = CHUNK_BYTES;

  private BatchHeader header;
  private int from;

  /**
   * Begins at the segment's first batch. {@code isDense}: each batch continues the one before. {@code
   * isByHeader}: of which batches only the offsets are wanted. Where the seal shows these, no more is read.
   */
  SegmentBatches(
      Piece.Segment segment, FileChannel file, Seal seal, boolean isDense, Predicate<BatchHeader> isByHeader) {
    this.isByHeader = isByHeader;
    this.segment = segment;
    this.file = file;
    this.seal = seal;
    this.isDense = isDense && (seal == null || seal.isDense());
    this.end = segment.sizeBytes();
    this.nextOffset = segment.base();
  }

  @Override
  public void close() throws IOException {
    file.close();
  }

  boolean isDense() {
    return isDense;
  }

  /** The offset before which nothing is missing, if no batch here reaches {@code offset}. */
  long gapEnd(long offset) {
    return seal == null ? offset : seal.gapEnd(offset);
  }

  /** Where the next batch begins, or the one that is damaged. */
  long position() {
    return position;
  }

  // The batch that was taken last

  BatchHeader header() {
    return header;
  }

  /**
   * Where its bytes are, unless only its header was read: from {@link #from} on. They stay until a
   * batch is taken with {@code mayMove}.
   */
  byte[] data() {
    return buffer;
  }

  int from() {
    return from;
  }

  int to() {
    return from + (int) header.sizeBytes();
  }

  // Reading

  /** Take the next batch; if it is not in the buffer, only if the buffer may move on. */
  Taken take(boolean mayMove) throws IOException, Damage {
    if (position >= end) {
      return Taken.END;
    }
    if (!mayMove && !has(BatchHeader.BYTES)) {
      return Taken.NOT_HERE;
    }
    BatchHeader next = headerHere();
    checkHeader(next, true);
    if (isSealed(next) && isByHeader.test(next)) {
      ahead = next.sizeBytes() < FAR_BYTES ? CHUNK_BYTES : BatchHeader.BYTES;
      return taken(next);
    }
    ahead = CHUNK_BYTES;
    if (!mayMove && !has(next.sizeBytes())) {
      return Taken.NOT_HERE;
    }
    if (next.sizeBytes() > LARGE_BYTES) {
      checkLarge(next);
    }
    int at = load((int) next.sizeBytes());
    int to = at + (int) next.sizeBytes();
    checkCrc(next, Bytes.crc32c(buffer, at + BatchHeader.CRC_START, to));
    Marker.check(next, buffer, at, to);
    from = at;
    return taken(next);
  }

  /**
   * Whether the seal shows which offsets the batch has, and that each has a record for a query. It has a
   * checksum of the base offsets; a batch ends where the next one begins. Any other flipped bit makes the
   * header one of a batch that is read whole. A batch of one record is read in any case: without two of
   * its bits a transaction's marker looks like one.
   */
  private boolean isSealed(BatchHeader next) {
    return seal != null
        && isDense
        && next.isDense()
        && next.count() > 1
        && !next.isTransactional()
        && !next.isControl();
  }

  private Taken taken(BatchHeader next) {
    header = next;
    position += next.sizeBytes();
    nextOffset = next.lastOffset() + 1;
    return Taken.BATCH;
  }

  /**
   * Take the first batch that reaches an offset. A damaged batch before it does not matter: in a sealed
   * segment none can hide others, elsewhere the walk of the headers shows it.
   */
  Taken takeAt(long offset) throws IOException, Damage {
    position = locate(offset, indexedStart(offset));
    while (true) {
      nextOffset = -1;
      long tried = position;
      try {
        return take(true);
      } catch (Damage damage) {
        long next = positionAfterDamage(tried);
        if (next <= tried || offset < offsetAfterDamage(next)) {
          position = tried;
          throw damage;
        }
        position = locate(offset, next);
      }
    }
  }

  private BatchHeader headerHere() throws IOException, Damage {
    if (end - position < BatchHeader.BYTES) {
      throw new Damage((end - position) + " bytes left, too few for a batch header");
    }
    int at = load(BatchHeader.BYTES); // first: the buffer may be another then
    return BatchHeader.read(buffer, at);
  }

  private void checkHeader(BatchHeader next, boolean withSeal) throws Damage {
    if (withSeal && seal != null && !seal.matches(seal.numberAt(position), buffer, (int) (position - bufferStart))) {
      throw new Damage("the batch header differs from the seal of this segment");
    }
    String problem = next.problem();
    if (problem == null && next.sizeBytes() > end - position) {
      problem = "batch of " + next.sizeBytes() + " bytes, but " + (end - position) + " bytes are left";
    }
    if (problem == null
        && nextOffset >= 0
        && next.baseOffset() != nextOffset
        && (isDense || next.baseOffset() < nextOffset)) {
      problem = "base offset " + next.baseOffset() + ", expected " + nextOffset;
    }
    if (problem == null && segment.nextBase() >= 0 && next.lastOffset() >= segment.nextBase()) {
      problem = "offsets to " + next.lastOffset() + ", but the next segment begins at " + segment.nextBase();
    }
    if (problem != null) {
      throw new Damage(problem);
    }
  }

  private static void checkCrc(BatchHeader next, long found) throws Damage {
    if (found != next.crc()) {
      throw new Damage(
          String.format("batch at offset %d: CRC %08x of its bytes, expected %08x", next.baseOffset(), found, next.crc()));
    }
  }

  /** Check a large batch in pieces: a damaged length must not cost memory. */
  private void checkLarge(BatchHeader next) throws IOException, Damage {
    CRC32C crc = new CRC32C();
    ByteBuffer piece = ByteBuffer.allocate(CHUNK_BYTES);
    for (long at = position + BatchHeader.CRC_START, to = position + next.sizeBytes(); at < to; ) {
      piece.clear().limit((int) Math.min(CHUNK_BYTES, to - at));
      int read = file.read(piece, at);
      if (read <= 0) {
        throw new Damage("the file ends at " + at + ", inside the batch");
      }
      crc.update(piece.array(), 0, read);
      at += read;
    }
    checkCrc(next, crc.getValue());
    if (next.sizeBytes() > BATCH_LIMIT_BYTES) {
      throw new Damage.TooLarge(
          "batch of " + next.sizeBytes() + " bytes, the limit is " + BATCH_LIMIT_BYTES);
    }
  }

  // Finding

  private long indexedStart(long offset) throws IOException {
    position = segment.startPosition();
    if (position <= 0 || position > end - BatchHeader.BYTES || (seal != null && seal.numberAt(position) < 0)) {
      return 0;
    }
    try {
      BatchHeader there = headerHere();
      boolean isRight = there.problem() == null && there.baseOffset() >= segment.base() && there.baseOffset() <= offset;
      return isRight ? position : 0;
    } catch (Damage damage) {
      return 0;
    }
  }

  /** Where the first batch begins whose last offset is not before {@code offset}; the end without one. */
  private long locate(long offset, long start) throws IOException, Damage {
    return seal == null ? locateByHeaders(offset, start) : locateBySeal(offset, start);
  }

  private long locateByHeaders(long offset, long start) throws IOException, Damage {
    long previous = -1;
    nextOffset = start == 0 ? segment.base() : -1;
    for (position = start; position < end; ) {
      BatchHeader next = headerHere();
      checkHeader(next, false);
      if (next.lastOffset() >= offset) {
        return locatedAfter(previous, position, next.baseOffset() > offset);
      }
      previous = position;
      position += next.sizeBytes();
      nextOffset = next.lastOffset() + 1;
    }
    return end;
  }

  private long locateBySeal(long offset, long start) throws IOException, Damage {
    if (start >= end) {
      return end; // no batch begins there, and the search must not begin again at the first
    }
    long previous = -1;
    for (int number = Math.max(seal.numberAt(start), 0); number < seal.count(); number++) {
      position = seal.position(number);
      if (position >= end) {
        return end;
      }
      if (end - position >= BatchHeader.BYTES) {
        int at = load(BatchHeader.BYTES);
        BatchHeader next = BatchHeader.read(buffer, at);
        if (seal.matches(number, buffer, at) && next.lastOffset() >= offset) {
          return locatedAfter(previous, position, next.baseOffset() > offset);
        }
      }
      previous = position;
    }
    return locatedAfter(previous, end, true);
  }

  /** {@code found}; but if the offset may be in a gap, the batch before it must be intact. */
  private long locatedAfter(long previous, long found, boolean isGap) throws IOException, Damage {
    if (isGap && previous >= 0) {
      position = previous;
      BatchHeader there = headerHere();
      nextOffset = -1;
      checkHeader(there, true);
      if (there.sizeBytes() > LARGE_BYTES) {
        checkLarge(there);
      }
      int at = load((int) there.sizeBytes());
      checkCrc(there, Bytes.crc32c(buffer, at + BatchHeader.CRC_START, at + (int) there.sizeBytes()));
    }
    return found;
  }

  /** Where the seal says that an intact header follows; the damaged position itself without a seal. */
  private long positionAfterDamage(long damaged) throws IOException {
    int number = seal == null ? -1 : seal.numberAt(damaged);
    if (number < 0) {
      return damaged;
    }
    for (int following = number + 1; following < seal.count(); following++) {
      position = seal.position(following);
      if (end - position >= BatchHeader.BYTES) {
        int at = load(BatchHeader.BYTES);
        if (seal.matches(following, buffer, at)) {
          return position;
        }
      }
    }
    return end;
  }

  private long offsetAfterDamage(long next) throws IOException {
    if (next >= end) {
      return seal.lastOffset + 1;
    }
    position = next;
    int at = load(BatchHeader.BYTES);
    return Bytes.int64(buffer, at);
  }

  // The buffer

  private boolean has(long bytes) {
    return position + bytes <= bufferStart + limit && position >= bufferStart;
  }

  /** Bring the bytes from the position on into the buffer; where they begin there. */
  private int load(int bytes) throws IOException {
    if (!has(bytes)) {
      moveOn(bytes);
    }
    return (int) (position - bufferStart);
  }

  private void moveOn(int bytes) throws IOException {
    int room = (int) Math.min(Math.max(bytes, ahead), end - position);
    byte[] target = room + Bytes.SLACK > buffer.length ? new byte[room + Bytes.SLACK] : buffer;
    int kept = 0;
    if (position >= bufferStart && position < bufferStart + limit) {
      kept = (int) (bufferStart + limit - position);
      System.arraycopy(buffer, (int) (position - bufferStart), target, 0, kept);
    }
    buffer = target;
    bufferStart = position;
    ByteBuffer space = ByteBuffer.wrap(target, kept, room - kept);
    while (space.hasRemaining() && file.read(space, bufferStart + space.position()) >= 0) {
      continue;
    }
    limit = space.position();
    if (limit < bytes) {
      throw new DataLossException(
          segment.path() + " ends at " + (bufferStart + limit) + ", but had " + end + " bytes when the query was planned");
    }
  }
}
