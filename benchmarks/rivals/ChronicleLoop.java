import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.wire.DocumentContext;

/**
 * Appends records to Chronicle queues and reads them. One request a line: "append DIRECTORY COUNT" or "read DIRECTORY COUNT"; the answer
 * is a line with the nanoseconds that the records took, without opening and closing. The process ends at the end of its input.
 */
final class ChronicleLoop {
    private static final byte[] VALUE = new byte[100];

    // The last record read. Without a field that holds the arrays, the compiled loop would not make them.
    private static byte[] key;
    private static byte[] value;

    private ChronicleLoop() {}

    public static void main(String[] arguments) throws IOException {
        Arrays.fill(VALUE, (byte) 'v');
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t");
            int count = Integer.parseInt(words[2]);
            try (ChronicleQueue queue = ChronicleQueue.single(new File(words[1]).getPath())) {
                System.out.println("took " + (words[0].equals("append") ? append(queue, keys(count)) : read(queue, count)));
            }
        }
    }

    private static byte[][] keys(int count) {
        byte[][] keys = new byte[count][];
        for (int number = 0; number < count; number++) {
            keys[number] = String.format("key-%07d", number).getBytes(StandardCharsets.US_ASCII);
        }
        return keys;
    }

    /** A document for each record: the lengths of key and value, then both. */
    private static long append(ChronicleQueue queue, byte[][] keys) {
        ExcerptAppender appender = queue.createAppender();
        long start = System.nanoTime();
        for (byte[] key : keys) {
            try (DocumentContext document = appender.writingDocument()) {
                Bytes<?> bytes = document.wire().bytes();
                bytes.writeStopBit(key.length).write(key).writeStopBit(VALUE.length).write(VALUE);
            }
        }
        return System.nanoTime() - start;
    }

    /** Key and value of every record into arrays of their own. */
    private static long read(ChronicleQueue queue, int count) {
        ExcerptTailer tailer = queue.createTailer();
        long start = System.nanoTime();
        int found = 0;
        long length = 0;
        while (true) {
            try (DocumentContext document = tailer.readingDocument()) {
                if (!document.isPresent()) {
                    break;
                }
                Bytes<?> bytes = document.wire().bytes();
                key = array(bytes);
                value = array(bytes);
                length += key.length + value.length;
                found++;
            }
        }
        long took = System.nanoTime() - start;
        if (found != count || length != 111L * count) {
            throw new IllegalStateException(found + " records of " + length + " bytes read, " + count + " written");
        }
        return took;
    }

    private static byte[] array(Bytes<?> bytes) {
        byte[] array = new byte[(int) bytes.readStopBit()];
        bytes.read(array);
        return array;
    }
}
