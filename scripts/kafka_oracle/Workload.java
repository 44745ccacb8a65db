import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Writes every golden topic; tests/data/README.md says in words what each holds. */
final class Workload {
    static final List<String> GROUPS = List.of("golden-group", "golden-transactional-group");
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final long HOUR_MS = 3_600_000;

    private final String address;
    private final Topics topics;

    Workload(String address, Topics topics) {
        this.address = address;
        this.topics = topics;
    }

    /** What has to be in the log before the broker is started a second time. */
    void beforeRestart() throws IOException, InterruptedException, ExecutionException {
        firstEpoch();
        transactions("transactions-tv1");
    }

    void afterRestart() throws IOException, InterruptedException, ExecutionException {
        secondEpoch();
        for (String codec : CODECS) {
            codec(codec);
        }
        empty();
        logAppendTime();
        rolled();
        keyed();
        trimmed();
        compacted();
        compactedTransactions();
        transactions("transactions");
        committedOffsets();
        openTransaction();
    }

    private void empty() throws InterruptedException, ExecutionException {
        topics.create("empty", 1, Map.of());
    }

    private void firstEpoch() throws InterruptedException, ExecutionException {
        topics.create("epochs", 1, Map.of());
        epoch(new Records("epochs", 11));
    }

    private void secondEpoch() throws InterruptedException, ExecutionException {
        epoch(new Records("epochs", 12));
    }

    private void epoch(Records records) throws InterruptedException, ExecutionException {
        try (Writer writer = Writer.plain(address, "none")) {
            writer.batch(records.few(5, 0, 5, 3));
            writer.batch(records.few(5, 10, 5, 3));
        }
    }

    private void codec(String codec) throws InterruptedException, ExecutionException {
        String topic = "codec-" + codec;
        topics.create(topic, 1, Map.of());
        Records records = new Records(topic, 21);
        try (Writer writer = Writer.plain(address, codec)) {
            writer.batch(records.corners());
            writer.batch(List.of(records.record(20, "alone", "a batch of one")));
            writer.batch(records.few(100, 1_000, 20, 5));
            writer.batch(List.of(records.incompressible(2_000, 3_000)));
            if (!codec.equals("none")) {
                // More than two blocks of 64 KiB (lz4) and chunks of 32 KiB (snappy).
                writer.batch(records.few(20, 3_000, 5, 1_200));
            }
        }
    }

    private void logAppendTime() throws InterruptedException, ExecutionException {
        topics.create("log-append-time", 1, Map.of("message.timestamp.type", "LogAppendTime"));
        Records records = new Records("log-append-time", 31);
        for (String codec : List.of("none", "lz4")) {
            try (Writer writer = Writer.idempotent(address, codec)) {
                writer.batch(records.corners());
                writer.batch(records.few(20, 1_000, 5, 4));
            }
        }
    }

    /** Segments end by size and once by time; timestamps go back and forth, as the time index must bear. */
    private void rolled() throws InterruptedException, ExecutionException {
        topics.create("rolled", 1, Map.of("internal.segment.bytes", "8192", "index.interval.bytes", "512",
            "segment.ms", "" + HOUR_MS));
        Records records = new Records("rolled", 41);
        try (Writer one = Writer.idempotent(address, "none"); Writer other = Writer.idempotent(address, "snappy")) {
            for (int round = 0; round < 60; round++) {
                long later = round * 1_000L - (round % 5 == 4 ? 2_500 : 0) + (round >= 50 ? 2 * HOUR_MS : 0);
                (round % 3 == 2 ? other : one).batch(records.few(5, later, 20, 8));
            }
        }
    }

    private void keyed() throws InterruptedException, ExecutionException {
        topics.create("keyed", 3, Map.of());
        Records records = new Records("keyed", 51);
        List<String> keys = new ArrayList<>(List.of("", "21", "foobar", "a-little-bit-long-string", "a-little-bit-longer-string",
            "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", "abc", "ключ", "鍵", "🔑"));
        for (int length = 1; keys.size() < 150; length++) {
            keys.add(records.words(2).repeat(2).substring(0, 1 + length % 14) + length);
        }
        List<ProducerRecord<byte[], byte[]>> batch = new ArrayList<>();
        for (String key : keys) {
            batch.add(records.record(batch.size(), key, "value " + batch.size()));
        }
        try (Writer writer = Writer.idempotent(address, "none")) {
            writer.batch(batch);
        }
    }

    /** The log start offset ends up inside a batch of the second segment, and the first segment is removed. */
    private void trimmed() throws IOException, InterruptedException, ExecutionException {
        topics.create("trimmed", 1, Map.of("internal.segment.bytes", "1024"));
        Records records = new Records("trimmed", 61);
        try (Writer writer = Writer.plain(address, "none")) {
            for (int round = 0; round < 6; round++) {
                writer.batch(records.few(10, round * 100L, 10, 4));
            }
        }
        topics.deleteRecordsBefore(new TopicPartition("trimmed", 0), 23);
        topics.awaitFirstSegment("trimmed", 20);
    }

    /** Cleaned twice, with a tail the cleaner has not seen. The first writer's last batch is superseded whole. */
    private void compacted() throws IOException, InterruptedException, ExecutionException {
        topics.create("compacted", 1, compaction(24 * HOUR_MS));
        Records records = new Records("compacted", 71);
        try (Writer one = Writer.idempotent(address, "none"); Writer other = Writer.idempotent(address, "zstd");
             Writer plain = Writer.plain(address, "lz4")) {
            for (int round = 0; round < 12; round++) {
                (round % 2 == 0 ? other : plain).batch(records.few(10, round * 1_000L, 40, 3));
                one.batch(with(records.few(4, round * 1_000L + 500, 40, 3),
                    records.record(round * 1_000L + 600, "key-%02d".formatted(round), null)));
            }
            one.batch(every(records, 5, 13_000));
            other.batch(every(records, 5, 14_000));
            fill(plain, records, 15_000);
            topics.clean("compacted");
            for (int round = 0; round < 4; round++) {
                other.batch(records.few(10, 20_000 + round * 1_000L, 40, 3));
            }
            other.batch(List.of(records.record(25_000, "key-30", null), records.record(25_001, "key-31", null)));
            fill(plain, records, 26_000);
            topics.clean("compacted");
            plain.batch(records.few(6, 30_000, 40, 3));
            other.batch(records.few(6, 31_000, 40, 3));
        }
    }

    /** Without delete retention a marker goes in the third round: its data first, then it gets a horizon, then it is past it. */
    private void compactedTransactions() throws IOException, InterruptedException, ExecutionException {
        String topic = "compacted-transactions";
        topics.create(topic, 1, compaction(0));
        Records records = new Records(topic, 81);
        try (Transactions one = new Transactions(topic, "compacted-one");
             Transactions other = new Transactions(topic, "compacted-other");
             Writer plain = Writer.plain(address, "none")) {
            for (int round = 0; round < 6; round++) {
                one.begin().write(with(records.few(6, round * 1_000L, 10, 3),
                    records.record(round * 1_000L + 20, "key-00", null))).commit();
                other.begin().write(records.few(6, round * 1_000L + 500, 10, 3)).abort();
            }
            fill(plain, records, 15_000);
            topics.clean(topic);
            for (int round = 2; round <= 3; round++) {
                one.begin().write(records.few(6, round * 10_000, 10, 3)).commit();
                fill(plain, records, round * 10_000 + 5_000);
                topics.clean(topic);
            }
            other.begin().write(records.few(6, 40_000, 10, 3)).abort();
        }
    }

    /** Plain, committed, aborted and interleaved; a transaction spans two segments. */
    private void transactions(String topic) throws IOException, InterruptedException, ExecutionException {
        topics.create(topic, 1, Map.of("internal.segment.bytes", "4096", "index.interval.bytes", "512"));
        Records records = new Records(topic, 91);
        try (Transactions one = new Transactions(topic, topic + "-one");
             Transactions other = new Transactions(topic, topic + "-other");
             Writer plain = Writer.plain(address, "none")) {
            plain.batch(records.few(2, 0, 5, 3));
            one.begin().write(records.few(3, 100, 5, 3)).commit();
            other.begin().write(records.few(3, 200, 5, 3)).abort();

            one.begin().write(records.few(2, 300, 5, 3));
            other.begin().write(records.few(2, 310, 5, 3));
            one.write(records.few(1, 320, 5, 3));
            plain.batch(records.few(1, 330, 5, 3));
            other.write(records.few(1, 340, 5, 3)).commit();
            one.abort();

            other.begin();
            for (int batch = 0; batch < 12; batch++) {
                other.write(records.few(3, 400 + 10 * batch, 5, 20));
                plain.batch(records.few(1, 405 + 10 * batch, 5, 20));
            }
            other.abort();
            one.begin().write(records.few(4, 600, 5, 3)).commit();
            plain.batch(records.few(2, 700, 5, 3));
        }
    }

    private void committedOffsets() throws IOException, InterruptedException, ExecutionException {
        topics.commit(GROUPS.get(0), Map.of(
            new TopicPartition("keyed", 0), new OffsetAndMetadata(7, Optional.of(0), "seven"),
            new TopicPartition("keyed", 1), new OffsetAndMetadata(11),
            new TopicPartition("codec-none", 0), new OffsetAndMetadata(10, Optional.empty(), "")));
        topics.commit(GROUPS.get(0), Map.of(new TopicPartition("keyed", 1), new OffsetAndMetadata(12, Optional.of(0), "moved")));
        try (Writer writer = Writer.transactional(address, "none", "offsets")) {
            ConsumerGroupMetadata group = groupMetadata(GROUPS.get(1));
            writer.producer().beginTransaction();
            writer.producer().sendOffsetsToTransaction(offset("codec-gzip", 3), group);
            writer.producer().commitTransaction();
            writer.producer().beginTransaction();
            writer.producer().sendOffsetsToTransaction(offset("codec-gzip", 5), group);
            writer.producer().abortTransaction();
        }
    }

    private ConsumerGroupMetadata groupMetadata(String group) {
        try (var consumer = new KafkaConsumer<>(Map.<String, Object>of("bootstrap.servers", address, "group.id", group),
                new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            return consumer.groupMetadata();
        }
    }

    /**
     * The last stable offset stays at the open transaction, although others end after it. The broker's usual segment.ms
     * ends the segment before the first marker, which is years newer than the records.
     */
    private void openTransaction() throws IOException, InterruptedException, ExecutionException {
        String topic = "transactions-open";
        topics.create(topic, 1, Map.of("segment.ms", "" + 7 * 24 * HOUR_MS));
        Records records = new Records(topic, 101);
        try (Transactions one = new Transactions(topic, "open-one"); Transactions left = new Transactions(topic, "open-left");
             Writer plain = Writer.plain(address, "none")) {
            plain.batch(records.few(2, 0, 5, 3));
            one.begin().write(records.few(2, 100, 5, 3)).commit();
            left.begin().write(records.few(2, 200, 5, 3));
            one.begin().write(records.few(2, 300, 5, 3)).commit();
            one.begin().write(records.few(2, 400, 5, 3)).abort();
            left.write(records.few(1, 500, 5, 3));
            plain.batch(records.few(2, 600, 5, 3));
            left.abandon();
        }
    }

    private static Map<String, String> compaction(long deleteRetentionMs) {
        Map<String, String> settings = new HashMap<>();
        settings.put("cleanup.policy", "compact");
        settings.put("internal.segment.bytes", "2048");
        settings.put("index.interval.bytes", "256");
        settings.put("delete.retention.ms", "" + deleteRetentionMs);
        // Nothing is ever dirtier than this: the cleaner waits until Topics.clean lets it go.
        settings.put("min.cleanable.dirty.ratio", "1.0");
        return settings;
    }

    /** A batch nearly as large as a segment: all before it ends up in segments the cleaner may touch. */
    private static void fill(Writer writer, Records records, long afterStartMs) throws InterruptedException, ExecutionException {
        writer.batch(List.of(records.incompressible(afterStartMs, 1_900)));
    }

    private static List<ProducerRecord<byte[], byte[]>> every(Records records, int keys, long afterStartMs) {
        List<ProducerRecord<byte[], byte[]>> batch = new ArrayList<>();
        for (int key = 0; key < keys; key++) {
            batch.add(records.record(afterStartMs + key, "key-%02d".formatted(key), records.words(3)));
        }
        return batch;
    }

    private static List<ProducerRecord<byte[], byte[]>> with(List<ProducerRecord<byte[], byte[]>> records,
                                                             ProducerRecord<byte[], byte[]> last) {
        records.add(last);
        return records;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offset(String topic, long offset) {
        return Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset));
    }

    /** The transactions of one producer in one partition. */
    private final class Transactions implements AutoCloseable {
        private final TopicPartition partition;
        private final Writer writer;

        Transactions(String topic, String transactionalId) {
            partition = new TopicPartition(topic, 0);
            writer = Writer.transactional(address, "none", transactionalId);
        }

        Transactions begin() {
            writer.producer().beginTransaction();
            return this;
        }

        Transactions write(List<ProducerRecord<byte[], byte[]>> records) throws InterruptedException, ExecutionException {
            writer.batch(records);
            return this;
        }

        void commit() throws IOException, InterruptedException, ExecutionException {
            long end = topics.end(partition);
            writer.producer().commitTransaction();
            topics.awaitEnd(partition, end + 1);
        }

        void abort() throws IOException, InterruptedException, ExecutionException {
            long end = topics.end(partition);
            writer.producer().abortTransaction();
            topics.awaitEnd(partition, end + 1);
        }

        void abandon() {
            writer.abandon();
        }

        @Override
        public void close() {
            writer.close();
        }
    }
}
