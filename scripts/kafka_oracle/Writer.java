import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer that writes a batch exactly when it is told to, so that the batches of the log are the same in every run. */
final class Writer implements AutoCloseable {
    private static final Map<String, Object> ONE_BATCH_PER_FLUSH =
        Map.of("linger.ms", 60_000, "batch.size", 1 << 20, "delivery.timeout.ms", 120_000);

    private final KafkaProducer<byte[], byte[]> producer;
    private boolean closed;

    private Writer(String address, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(ONE_BATCH_PER_FLUSH);
        all.put("bootstrap.servers", address);
        all.putAll(settings);
        producer = new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static Writer plain(String address, String codec) {
        return new Writer(address, Map.of("enable.idempotence", false, "compression.type", codec));
    }

    static Writer idempotent(String address, String codec) {
        return new Writer(address, Map.of("enable.idempotence", true, "compression.type", codec));
    }

    /** A transaction may stay open for as long as the whole run takes. */
    static Writer transactional(String address, String codec, String transactionalId) {
        Writer writer = new Writer(address, Map.of("transactional.id", transactionalId, "compression.type", codec,
            "transaction.timeout.ms", 900_000));
        writer.producer.initTransactions();
        return writer;
    }

    KafkaProducer<byte[], byte[]> producer() {
        return producer;
    }

    void batch(List<ProducerRecord<byte[], byte[]>> records) throws InterruptedException, ExecutionException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) {
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
    }

    /** Leaves an open transaction open; an ordinary close would abort it. */
    void abandon() {
        closed = true;
        producer.close(Duration.ZERO);
    }

    @Override
    public void close() {
        if (!closed) {
            producer.close(Duration.ofSeconds(30));
        }
    }
}
