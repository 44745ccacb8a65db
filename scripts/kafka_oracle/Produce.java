import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * {@code Produce ADDRESS TOPIC}: sends each line of the input, {@code KEY VALUE} in hexadecimal ("-" for no key), with a producer
 * as Kafka makes it by default: idempotent, its own partitioner. Waits for each record, so that each is a batch of its own, and
 * prints the partition and the offset that were acknowledged.
 */
public final class Produce {
    private Produce() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
             var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] fields = line.split(" ", 2);
                byte[] key = fields[0].equals("-") ? null : HexFormat.of().parseHex(fields[0]);
                byte[] value = HexFormat.of().parseHex(fields[1]);
                RecordMetadata sent = producer.send(new ProducerRecord<>(arguments[1], key, value)).get();
                System.out.println(sent.partition() + " " + sent.offset());
            }
        }
    }
}
