import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Writes down what Kafka's consumer and admin client say about the topics, one JSON object a line. */
final class ReadBack {
    private static final long SECONDS_MAX = 60;
    private static final int VALUE_BYTES_MAX = 1024;
    private static final int TIME_LOOKUPS = 12;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String address;
    private final Path expected;

    ReadBack(String address, Path expected) {
        this.address = address;
        this.expected = expected;
    }

    void topics(List<String> topics) throws IOException, InterruptedException {
        try (BufferedWriter partitions = Files.newBufferedWriter(expected.resolve("partitions.jsonl"))) {
            for (String topic : topics) {
                List<ConsumerRecord<byte[], byte[]>> all = records(topic, "read_uncommitted");
                writeRecords(topic, "read_uncommitted", all);
                writeRecords(topic, "read_committed", records(topic, "read_committed"));
                writePartitions(topic, all, partitions);
            }
        }
    }

    void groups(Admin admin, List<String> groups) throws IOException, InterruptedException, ExecutionException {
        try (BufferedWriter out = Files.newBufferedWriter(expected.resolve("groups.jsonl"))) {
            for (String group : groups) {
                var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                for (TopicPartition partition : sorted(offsets.keySet())) {
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("group", group);
                    line.put("topic", partition.topic());
                    line.put("partition", partition.partition());
                    line.put("offset", offsets.get(partition).offset());
                    line.put("leader_epoch", offsets.get(partition).leaderEpoch().orElse(null));
                    line.put("metadata", offsets.get(partition).metadata());
                    writeLine(out, line);
                }
            }
        }
    }

    /** Each file's report, its name relative to {@code logDirectory}. */
    void dump(List<FileReport> reports, Path logDirectory) throws IOException {
        try (BufferedWriter out = Files.newBufferedWriter(expected.resolve("dump.jsonl"))) {
            for (FileReport report : reports) {
                Map<String, Object> line = report.asMap();
                line.put("file", logDirectory.relativize(report.file).toString());
                writeLine(out, line);
            }
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> records(String topic, String isolation) throws IOException, InterruptedException {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(topic, isolation)) {
            consumer.seekToBeginning(consumer.assignment());
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            Wait.until("all of " + topic + " is read", SECONDS_MAX, () -> {
                consumer.poll(Duration.ofMillis(100)).forEach(records::add);
                return ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
            });
        }
        records.sort(Comparator.<ConsumerRecord<byte[], byte[]>>comparingInt(ConsumerRecord::partition)
            .thenComparingLong(ConsumerRecord::offset));
        return records;
    }

    private KafkaConsumer<byte[], byte[]> consumer(String topic, String isolation) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", address, "isolation.level", isolation, "enable.auto.commit", false),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(consumer.partitionsFor(topic).stream()
            .map(info -> new TopicPartition(topic, info.partition())).toList());
        return consumer;
    }

    private void writeRecords(String topic, String isolation, List<ConsumerRecord<byte[], byte[]>> records) throws IOException {
        try (BufferedWriter out = Files.newBufferedWriter(expected.resolve(topic + "." + isolation + ".jsonl"))) {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                writeLine(out, asMap(record));
            }
        }
    }

    private static Map<String, Object> asMap(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("partition", record.partition());
        map.put("offset", record.offset());
        map.put("leader_epoch", record.leaderEpoch().orElse(null));
        map.put("timestamp", record.timestamp());
        map.put("timestamp_type", record.timestampType().toString());
        map.put("key", hex(record.key()));
        if (record.value() != null && record.value().length > VALUE_BYTES_MAX) {
            map.put("value_sha256", sha256(record.value()));
            map.put("value_bytes", record.value().length);
        } else {
            map.put("value", hex(record.value()));
        }
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(hex(header.value()));
            headers.add(pair);
        }
        map.put("headers", headers);
        return map;
    }

    private void writePartitions(String topic, List<ConsumerRecord<byte[], byte[]>> records, BufferedWriter out) throws IOException {
        try (KafkaConsumer<byte[], byte[]> uncommitted = consumer(topic, "read_uncommitted");
             KafkaConsumer<byte[], byte[]> committed = consumer(topic, "read_committed")) {
            for (TopicPartition partition : sorted(uncommitted.assignment())) {
                List<TopicPartition> one = List.of(partition);
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("topic", topic);
                line.put("partition", partition.partition());
                line.put("log_start_offset", uncommitted.beginningOffsets(one).get(partition));
                line.put("last_stable_offset", committed.endOffsets(one).get(partition));
                line.put("high_watermark", uncommitted.endOffsets(one).get(partition));
                line.put("offsets_for_times", offsetsForTimes(uncommitted, partition, records));
                writeLine(out, line);
            }
        }
    }

    private static List<Map<String, Object>> offsetsForTimes(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition,
                                                             List<ConsumerRecord<byte[], byte[]>> records) {
        List<Map<String, Object>> lookups = new ArrayList<>();
        for (long timestamp : timestampsToLookUp(partition, records)) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
            Map<String, Object> lookup = new LinkedHashMap<>();
            lookup.put("timestamp", timestamp);
            lookup.put("offset", found == null ? null : found.offset());
            lookup.put("found_timestamp", found == null ? null : found.timestamp());
            lookups.add(lookup);
        }
        return lookups;
    }

    /** Zero, past the end, and a spread of the partition's own timestamps with their next neighbours. */
    private static SortedSet<Long> timestampsToLookUp(TopicPartition partition, List<ConsumerRecord<byte[], byte[]>> records) {
        List<Long> own = records.stream().filter(record -> record.partition() == partition.partition())
            .map(ConsumerRecord::timestamp).sorted().toList();
        SortedSet<Long> chosen = new TreeSet<>(List.of(0L));
        for (int index = 0; index < own.size(); index += Math.max(1, own.size() / TIME_LOOKUPS)) {
            chosen.add(own.get(index));
            chosen.add(own.get(index) + 1);
        }
        own.stream().max(Comparator.naturalOrder()).ifPresent(last -> chosen.add(last + 1));
        return chosen;
    }

    private static List<TopicPartition> sorted(Iterable<TopicPartition> partitions) {
        Map<String, TopicPartition> sorted = new TreeMap<>();
        partitions.forEach(partition -> sorted.put("%s %09d".formatted(partition.topic(), partition.partition()), partition));
        return List.copyOf(sorted.values());
    }

    private static void writeLine(BufferedWriter out, Map<String, Object> line) throws IOException {
        out.write(JSON.writeValueAsString(line));
        out.write('\n');
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static String sha256(byte[] bytes) {
        try {
            return hex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException thrown) {
            throw new IllegalStateException("every Java has SHA-256", thrown);
        }
    }
}
