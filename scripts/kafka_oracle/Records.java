import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

import org.apache.kafka.clients.producer.ProducerRecord;

/** Makes the records of one topic; the same seed makes the same records. */
final class Records {
    static final long START_MS = 1_700_000_000_000L;
    private static final String[] WORDS = ("log segment batch record offset position size count topic partition leader epoch "
        + "producer sequence generation watermark commit abort marker index roll clean flush sync seal read write").split(" ");

    private final String topic;
    private final Random random;

    Records(String topic, long seed) {
        this.topic = topic;
        this.random = new Random(seed);
    }

    /** {@code key} and {@code value} are text or null. */
    ProducerRecord<byte[], byte[]> record(long afterStartMs, String key, String value) {
        return new ProducerRecord<>(topic, null, START_MS + afterStartMs, bytes(key), bytes(value));
    }

    /** The rare shapes of a record, in one batch: what is null, empty, repeated, negative or large. */
    List<ProducerRecord<byte[], byte[]>> corners() {
        var headers = record(10, "headers", "see the headers");
        headers.headers().add("twice", bytes("1")).add("twice", bytes("2")).add("null", null).add("empty", new byte[0])
            .add("", bytes("the header key is empty")).add("ключ 鍵 🔑", new byte[] {0, (byte) 0xff, '\n'});
        var manyHeaders = record(12, "many headers", "70");
        for (int header = 0; header < 70; header++) {
            manyHeaders.headers().add("h" + header, header % 7 == 0 ? null : bytes("" + header));
        }
        return List.of(
            record(0, "k1", "v1"),
            record(5, null, "no key"),
            record(7, "tombstone", null),
            record(8, null, null),
            record(9, "", ""),
            headers,
            record(-5_000, "earlier", "the timestamp delta is negative"),
            record(10_000_000_000L, "much later", "the timestamp delta does not fit an int32"),
            new ProducerRecord<>(topic, null, START_MS + 11, bytes("every byte"), everyByte()),
            manyHeaders);
    }

    /** {@code count} keyed records of a few words, one millisecond apart. */
    List<ProducerRecord<byte[], byte[]>> few(int count, long afterStartMs, int keys, int words) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            records.add(record(afterStartMs + index, "key-%02d".formatted(random.nextInt(keys)), words(words)));
        }
        return records;
    }

    ProducerRecord<byte[], byte[]> incompressible(long afterStartMs, int size) {
        byte[] noise = new byte[size];
        random.nextBytes(noise);
        return new ProducerRecord<>(topic, null, START_MS + afterStartMs, bytes("noise"), noise);
    }

    String words(int count) {
        List<String> words = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            words.add(WORDS[random.nextInt(WORDS.length)]);
        }
        return String.join(" ", words);
    }

    private static byte[] everyByte() {
        byte[] every = new byte[256];
        for (int index = 0; index < every.length; index++) {
            every[index] = (byte) index;
        }
        return every;
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
