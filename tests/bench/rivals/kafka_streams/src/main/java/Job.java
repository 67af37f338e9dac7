import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The job in Kafka Streams' Processor API: two persistent stores with changelogs, at least once, one thread, all
 * defaults but acks=all. Calibrators are cached, so that their changelog gets one row a commit; events are written as
 * they come. Offsets are committed every 30 s, after changelog and answers are flushed.
 *
 * <p>{@code java -cp target/classes:target/lib/* Job BROKERS PREFIX DIRECTORY [LINGER_MS]}; Kafka Streams' own linger is
 * 100 ms.
 */
public final class Job {
    static final int BINS = 20;
    private static final byte WAITING = -1;

    /** Joins the two topics of one partition, learns, and answers. */
    static final class Calibrate implements Processor<String, byte[], String, byte[]> {
        private final ObjectMapper json = new ObjectMapper();
        private ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, byte[]> events;
        private KeyValueStore<String, byte[]> calibrators;

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            this.context = context;
            events = context.getStateStore("events");
            calibrators = context.getStateStore("calibrators");
        }

        @Override
        public void process(Record<String, byte[]> record) {
            ObjectNode event;
            try {
                event = (ObjectNode) json.readTree(record.value());
            } catch (IOException e) {
                throw new IllegalArgumentException(e);
            }
            String id = event.get("event_id").textValue();
            byte[] row = events.get(id);
            byte y = row == null ? WAITING : row[0];
            double p = row == null ? -1 : ByteBuffer.wrap(row, 1, 8).getDouble();
            String stream = row == null ? "" : new String(row, 9, row.length - 9, java.nio.charset.StandardCharsets.UTF_8);
            if (event.has("p")) {
                p = event.get("p").doubleValue();
                stream = event.get("stream").textValue();
                answer(record, id, stream, p);
            } else {
                y = (byte) event.get("y").intValue();
            }
            byte[] name = stream.getBytes(java.nio.charset.StandardCharsets.UTF_8);
            events.put(id, ByteBuffer.allocate(9 + name.length).put(y).putDouble(p).put(name).array());
            if (p >= 0 && y != WAITING) {
                ByteBuffer counts = counts(stream);
                int at = 8 * bin(p);
                counts.putInt(at, counts.getInt(at) + 1).putInt(at + 4, counts.getInt(at + 4) + y);
                calibrators.put(stream, counts.array());
            }
        }

        private void answer(Record<String, byte[]> record, String id, String stream, double p) {
            ByteBuffer counts = counts(stream);
            int n = counts.getInt(8 * bin(p));
            int learnt = 0;
            for (int j = 0; j < BINS; j++) {
                learnt += counts.getInt(8 * j);
            }
            ObjectNode answer = json.createObjectNode();
            answer.put("event_id", id).put("stream", stream).put("raw", p);
            answer.put("p", n == 0 ? p : (double) counts.getInt(8 * bin(p) + 4) / n).put("learnt", learnt);
            try {
                context.forward(record.withKey(id).withValue(json.writeValueAsBytes(answer)));
            } catch (IOException e) {
                throw new IllegalArgumentException(e);
            }
        }

        private ByteBuffer counts(String stream) {
            byte[] stored = calibrators.get(stream);
            return stored == null ? ByteBuffer.allocate(8 * BINS) : ByteBuffer.wrap(stored.clone());
        }

        private static int bin(double p) {
            return Math.min((int) (p * BINS), BINS - 1);
        }
    }

    private Job() {}

    static Topology topology(String prefix) {
        var string = Serdes.String();
        var bytes = Serdes.ByteArray();
        Topology topology = new Topology();
        topology.addSource(
                "inputs", string.deserializer(), bytes.deserializer(), prefix + "-forecasts", prefix + "-outcomes");
        topology.addProcessor("calibrate", Calibrate::new, "inputs");
        topology.addStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("events"), string, bytes), "calibrate");
        topology.addStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("calibrators"), string, bytes)
                        .withCachingEnabled(),
                "calibrate");
        topology.addSink(
                "calibrated", prefix + "-calibrated", string.serializer(), bytes.serializer(), "calibrate");
        return topology;
    }

    public static void main(String[] args) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.ACKS_CONFIG), "all");
        if (args.length > 3) {
            settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), args[3]);
        }
        KafkaStreams streams = new KafkaStreams(topology(args[1]), settings);
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            stopped.countDown();
        }));
        streams.start();
        stopped.await();
    }
}
