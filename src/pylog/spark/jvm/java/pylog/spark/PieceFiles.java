package pylog.spark;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Arrays;
import java.util.Base64;
import java.util.Set;
import java.util.function.Predicate;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Opens a piece's files, and finds out whether they are still those of the plan. The log lives on while
 * a query runs: retention deletes, compaction replaces, a topic is deleted and created again.
 */
final class PieceFiles {
  private static final Logger LOGGER = LoggerFactory.getLogger(PieceFiles.class);
  private static final String LOG = ".log";
  private static final int IDENTITY_LIMIT_BYTES = 4096;

  private final Piece piece;

  PieceFiles(Piece piece) {
    checkPath(piece);
    this.piece = piece;
  }

  /** In a locale without Unicode a JVM cannot open every path that Python can. */
  static void checkPath(Piece piece) {
    try {
      Path.of(piece.directory());
    } catch (InvalidPathException error) {
      throw new UnsupportedException(
          "this JVM cannot open " + piece.directory() + " (sun.jnu.encoding="
              + System.getProperty("sun.jnu.encoding")
              + "): start it with LC_ALL=C.UTF-8, or use format(\"pylog\")");
    }
  }

  /**
   * The segment's batches, of some only the headers. {@code DataLossException} if its file is not the
   * planned one.
   */
  SegmentBatches open(Piece.Segment segment, long offset, Predicate<BatchHeader> isByHeader) throws IOException {
    FileChannel file = openLog(segment, offset);
    try {
      checkSize(segment, file.size(), offset);
      Seal seal = segment.isClosed() ? readSeal(segment, segment.sizeBytes()) : null;
      checkHome(segment, seal, offset);
      return new SegmentBatches(segment, file, seal, !piece.isKafka(), isByHeader);
    } catch (IOException | RuntimeException error) {
      file.close();
      throw error;
    }
  }

  /** {@code DataLossException} if another topic has the directory now, or none. */
  void checkIdentity(long offset) throws IOException {
    if (!piece.identity().isEmpty() && !Arrays.equals(Base64.getDecoder().decode(piece.identity()), identityNow())) {
      throw lost(offset, "the topic was deleted, or deleted and created again, since the query was planned");
    }
  }

  /**
   * The error for damage in a segment, or in none. It is loss if the file is no longer the planned one,
   * for then the positions of the plan mean nothing.
   */
  RuntimeException damaged(Piece.Segment segment, long position, long offset, Damage damage) throws IOException {
    checkIdentity(offset);
    if (segment != null) {
      try {
        checkSize(segment, Files.size(Path.of(segment.path())), offset);
      } catch (NoSuchFileException gone) {
        throw lost(offset, segment.path() + " is gone");
      }
      Seal seal = segment.isClosed() ? null : readSeal(segment, Integer.MAX_VALUE);
      if (seal != null && !seal.isDense()) {
        throw lost(offset, segment.path() + " was compacted since the query was planned");
      }
    }
    String path = segment == null ? piece.directory() : segment.path();
    String where =
        " at offset " + offset + ", file " + path
            + (segment == null ? "" : ", position " + position);
    if (damage instanceof Damage.TooLarge) {
      return new UnsupportedException(
          name() + where + ": " + damage.getMessage()
              + "; neither Spark format reads it: use a Consumer with a greater fetch_max_bytes");
    }
    return new CorruptSegmentException(name() + " is damaged" + where + ": " + damage.getMessage());
  }

  DataLossException lost(long offset, String cause) {
    return new DataLossException(
        "offset " + offset + " of " + name() + " was lost: " + cause + " (planned were offsets " + piece.start() + " to "
            + piece.end() + " of " + piece.directory() + "); load the frame again");
  }

  String name() {
    return piece.topic() + "-" + piece.partition();
  }

  private FileChannel openLog(Piece.Segment segment, long offset) throws IOException {
    try {
      return openRegular(Path.of(segment.path()));
    } catch (NoSuchFileException gone) {
      checkIdentity(offset);
      throw lost(offset, segment.path() + " is gone: retention or compaction has removed it, or the topic was deleted");
    }
  }

  private FileChannel openRegular(Path path) throws IOException {
    // a link in pylog's own directory could lead anywhere; opening a FIFO would wait for its writer
    LinkOption[] links = piece.isKafka() ? new LinkOption[0] : new LinkOption[] {LinkOption.NOFOLLOW_LINKS};
    if (!Files.readAttributes(path.getParent(), BasicFileAttributes.class, links).isDirectory()) {
      throw new IOException(path.getParent() + " is not a directory");
    }
    if (!Files.readAttributes(path, BasicFileAttributes.class, links).isRegularFile()) {
      throw new IOException(path + " is not a regular file");
    }
    Set<OpenOption> options =
        piece.isKafka() ? Set.of(StandardOpenOption.READ) : Set.of(StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
    return FileChannel.open(path, options);
  }

  private void checkSize(Piece.Segment segment, long found, long offset) {
    if (segment.isClosed() ? found != segment.sizeBytes() : found < segment.sizeBytes()) {
      throw lost(
          offset,
          segment.path() + " has " + found + " bytes, but had " + segment.sizeBytes()
              + " when the query was planned: compaction has replaced it, or it was cut");
    }
  }

  private void checkHome(Piece.Segment segment, Seal seal, long offset) {
    if (seal != null && !seal.home.isEmpty() && !piece.home().isEmpty() && !seal.home.equals(piece.home())) {
      throw new CorruptSegmentException(
          name() + " is damaged at offset " + offset + ", file " + segment.path() + ": its seal says that it belongs to "
              + seal.home + ", but it lies in " + piece.home() + " (topic id and partition)");
    }
  }

  /** A segment's seal; null if it has none. A damaged or newer one is logged, and counts as absent. */
  private Seal readSeal(Piece.Segment segment, long segmentBytes) throws IOException {
    String log = segment.path();
    Path path = Path.of(log.substring(0, log.length() - LOG.length()) + ".seal");
    try (FileChannel file = openRegular(path)) {
      return Seal.read(file, segmentBytes);
    } catch (NoSuchFileException absent) {
      return null;
    } catch (Damage damage) {
      LOGGER.warn("{}: {}; reading on without it", path, damage.getMessage());
      return null;
    }
  }

  private byte[] identityNow() throws IOException {
    try (FileChannel file = openRegular(Path.of(piece.directory(), "partition.metadata"))) {
      java.nio.ByteBuffer data = java.nio.ByteBuffer.allocate(IDENTITY_LIMIT_BYTES);
      while (data.hasRemaining() && file.read(data) >= 0) {
        continue;
      }
      return Arrays.copyOf(data.array(), data.position());
    } catch (NoSuchFileException absent) {
      return new byte[0];
    }
  }
}
