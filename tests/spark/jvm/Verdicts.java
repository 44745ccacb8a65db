package pylog.spark;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads pieces, a line of JSON each, and answers a line: {@code rows <count> <CRC-32>} over the wanted
 * columns of all rows, or the kind of error and its message. If the line has {@code "count": true}, as if
 * for no column, but counted as for an aggregate. If it has {@code "totals": true}: {@code totals <count>
 * <offsets> <timestamps>}, least and greatest. {@code "trustHeaders"} as the option.
 */
public final class Verdicts {
  private static final TypeReference<Map<String, Object>> QUESTION = new TypeReference<>() {};

  private final CRC32 crc = new CRC32();
  private final ByteBuffer number = ByteBuffer.allocate(8);

  private Verdicts() {}

  public static void main(String[] arguments) throws IOException {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    ObjectMapper json = new ObjectMapper();
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      answers.println(verdict(json.readValue(line, QUESTION)));
    }
  }

  @SuppressWarnings("unchecked")
  private static String verdict(Map<String, Object> question) {
    List<Piece> pieces =
        ((List<Map<String, Object>>) question.get("pieces")).stream().map(Piece::of).collect(Collectors.toList());
    List<Wanted.Column> columns =
        ((List<String>) question.get("columns")).stream().map(Wanted.Column::of).collect(Collectors.toList());
    try {
      boolean trustHeaders = question.get("trustHeaders") == Boolean.TRUE;
      if (question.get("count") == Boolean.TRUE) {
        return "rows " + count(pieces, trustHeaders) + " 0";
      }
      return question.get("totals") == Boolean.TRUE
          ? totals(pieces, trustHeaders)
          : new Verdicts().read(pieces, new Wanted(columns), trustHeaders);
    } catch (CorruptSegmentException error) {
      return "corrupt " + error.getMessage();
    } catch (DataLossException error) {
      return "lost " + error.getMessage();
    } catch (UnsupportedException error) {
      return "unsupported " + error.getMessage();
    } catch (IOException error) {
      return "failed " + error;
    } catch (RuntimeException | Error error) {
      return "crashed " + error + " " + List.of(error.getStackTrace());
    }
  }

  private static long count(List<Piece> pieces, boolean trustHeaders) throws IOException {
    long count = 0;
    for (Piece piece : pieces) {
      count += PieceCounter.of(piece, false, false, trustHeaders).count();
    }
    return count;
  }

  private static String totals(List<Piece> pieces, boolean trustHeaders) throws IOException {
    long count = 0;
    long[] offsets = {Long.MAX_VALUE, Long.MIN_VALUE};
    long[] times = {Long.MAX_VALUE, Long.MIN_VALUE};
    for (Piece piece : pieces) {
      long without = PieceCounter.of(piece, false, false, trustHeaders).count();
      long withOffsets = PieceCounter.of(piece, true, false, trustHeaders).count();
      PieceCounter found = PieceCounter.of(piece, true, true, trustHeaders);
      if (found.count() != without || found.count() != withOffsets) {
        return "crashed: " + found.count() + " records, or " + without + ", or " + withOffsets;
      }
      count += found.count();
      if (found.count() > 0) {
        add(offsets, found.minOffset(), found.maxOffset());
        add(times, found.minTimestamp(), found.maxTimestamp());
      }
    }
    return "totals " + count + " " + offsets[0] + " " + offsets[1] + " " + times[0] + " " + times[1];
  }

  private static void add(long[] extremes, long least, long greatest) {
    extremes[0] = Math.min(extremes[0], least);
    extremes[1] = Math.max(extremes[1], greatest);
  }

  private String read(List<Piece> pieces, Wanted wanted, boolean trustHeaders) throws IOException {
    long count = 0;
    try (PieceReader reader = new PieceReader(pieces, wanted, trustHeaders)) {
      while (reader.next()) {
        ColumnarBatch batch = reader.get();
        for (int row = 0; batch.numCols() > 0 && row < batch.numRows(); row++) {
          for (int column = 0; column < batch.numCols(); column++) {
            add(wanted.columns().get(column), batch.column(column), row);
          }
        }
        count += batch.numRows();
      }
    }
    return "rows " + count + " " + crc.getValue();
  }

  private void add(Wanted.Column column, ColumnVector vector, int row) {
    switch (column) {
      case KEY, VALUE -> add(vector.isNullAt(row) ? null : vector.getBinary(row));
      case TOPIC -> add(vector.getUTF8String(row).getBytes());
      case PARTITION, TIMESTAMP_TYPE -> add(vector.getInt(row));
      case OFFSET, TIMESTAMP -> add(vector.getLong(row));
      case HEADERS -> addHeaders(vector.isNullAt(row) ? null : vector.getArray(row));
    }
  }

  private void addHeaders(ColumnarArray headers) {
    add(headers == null ? -1 : headers.numElements());
    for (int each = 0; headers != null && each < headers.numElements(); each++) {
      add(headers.getStruct(each, 2).getUTF8String(0).getBytes());
      add(headers.getStruct(each, 2).isNullAt(1) ? null : headers.getStruct(each, 2).getBinary(1));
    }
  }

  private void add(byte[] value) {
    add(value == null ? -1 : value.length);
    if (value != null) {
      crc.update(value);
    }
  }

  /** Of any integer eight bytes. */
  private void add(long value) {
    crc.update(number.putLong(0, value).array());
  }
}
