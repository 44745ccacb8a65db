package pylog.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/** What one task reads, in order: pieces of one or several partitions, about {@code sizeBytes} of them. */
record Task(List<Piece> pieces, long sizeBytes) implements InputPartition {}
