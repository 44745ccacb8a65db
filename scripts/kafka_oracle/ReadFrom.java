import java.io.IOException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * {@code ReadFrom ADDRESS TOPIC ISOLATION}: reads partition 0 from every offset up to the end that the isolation level allows,
 * that end included. Prints {@code START OFFSET VALUE} for each record, the value in hexadecimal, and at last {@code end OFFSET}.
 */
public final class ReadFrom {
    private static final long SECONDS_MAX = 120;

    private ReadFrom() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "isolation.level", arguments[2], "enable.auto.commit", false);
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            for (long start = 0; start <= end; start++) {
                long from = start;
                consumer.seek(partition, from);
                Wait.until("all from offset " + from + " on is read", SECONDS_MAX, () -> {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        System.out.println(from + " " + record.offset() + " " + HexFormat.of().formatHex(record.value()));
                    }
                    return consumer.position(partition) >= end;
                });
            }
            System.out.println("end " + end);
        }
    }
}
