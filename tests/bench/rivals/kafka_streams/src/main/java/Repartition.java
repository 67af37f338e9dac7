import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The job with source topics of other keys: scores keyed by card and labels keyed by chargeback are parsed, keyed by
 * transaction, repartitioned as a few bytes each, and joined as in {@link Job}. Two persistent stores with changelogs, at
 * least once, all defaults but acks=all and the number of threads. Each partition has calibrators of its own: one
 * calibrator a stream, as trueup has behind its router, would take a second repartition. Avro is decoded by hand, for
 * these two schemas alone.
 *
 * <p>{@code java -cp target/classes:target/lib/* Repartition BROKERS PREFIX DIRECTORY json|avro THREADS}
 */
public final class Repartition {
    static final int BINS = 20;
    private static final byte SCORE = 0;
    private static final byte LABEL = 1;
    private static final byte WAITING = -1;

    /** Reads records of one format: the transaction, and either a probability and its stream, or a label. */
    interface Parser {
        KeyValue<String, byte[]> score(byte[] value);

        KeyValue<String, byte[]> label(byte[] value);
    }

    /** What is repartitioned: the kind, then a probability and a stream, or a label. */
    static KeyValue<String, byte[]> score(String id, String stream, double p) {
        byte[] name = stream.getBytes(StandardCharsets.UTF_8);
        return KeyValue.pair(id, ByteBuffer.allocate(9 + name.length).put(SCORE).putDouble(p).put(name).array());
    }

    static KeyValue<String, byte[]> label(String id, boolean lost) {
        return KeyValue.pair(id, new byte[] {LABEL, (byte) (lost ? 1 : 0)});
    }

    /** JSON, read as a tree. */
    static final class Json implements Parser {
        private final ObjectMapper json = new ObjectMapper();

        @Override
        public KeyValue<String, byte[]> score(byte[] value) {
            JsonNode read = tree(value);
            String stream = read.get("model").textValue() + "-" + read.get("country").textValue();
            return Repartition.score(read.get("id").textValue(), stream, read.get("score").doubleValue() / 1000);
        }

        @Override
        public KeyValue<String, byte[]> label(byte[] value) {
            JsonNode read = tree(value);
            return Repartition.label(read.get("txn").textValue(), read.get("status").textValue().equals("lost"));
        }

        private JsonNode tree(byte[] value) {
            try {
                return json.readTree(value);
            } catch (IOException e) {
                throw new IllegalArgumentException(e);
            }
        }
    }

    /** Avro of the two schemas; fields behind the last one needed are not read. */
    static final class Avro implements Parser {
        @Override
        public KeyValue<String, byte[]> score(byte[] value) {
            ByteBuffer in = ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
            String id = text(in);
            String stream = text(in) + "-" + text(in);
            return Repartition.score(id, stream, in.getDouble() / 1000);
        }

        @Override
        public KeyValue<String, byte[]> label(byte[] value) {
            ByteBuffer in = ByteBuffer.wrap(value);
            text(in);
            String id = text(in);
            return Repartition.label(id, text(in).equals("lost"));
        }

        private static String text(ByteBuffer in) {
            byte[] read = new byte[(int) number(in)];
            in.get(read);
            return new String(read, StandardCharsets.UTF_8);
        }

        private static long number(ByteBuffer in) {
            long found = 0;
            for (int shift = 0; ; shift += 7) {
                byte next = in.get();
                found |= (next & 0x7FL) << shift;
                if (next >= 0) {
                    return (found >>> 1) ^ -(found & 1);
                }
            }
        }
    }

    /** Joins what one partition has of a transaction, learns, and answers. */
    static final class Join implements Processor<String, byte[], String, byte[]> {
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
            byte[] value = record.value();
            byte[] row = events.get(record.key());
            byte y = row == null ? WAITING : row[0];
            double p = row == null ? -1 : ByteBuffer.wrap(row, 1, 8).getDouble();
            String stream = row == null ? "" : name(row);
            if (value[0] == SCORE) {
                p = ByteBuffer.wrap(value, 1, 8).getDouble();
                stream = name(value);
                answer(record, stream, p);
            } else {
                y = value[1];
            }
            byte[] name = stream.getBytes(StandardCharsets.UTF_8);
            events.put(record.key(), ByteBuffer.allocate(9 + name.length).put(y).putDouble(p).put(name).array());
            if (p >= 0 && y != WAITING) {
                ByteBuffer counts = counts(stream);
                int at = 8 * bin(p);
                counts.putInt(at, counts.getInt(at) + 1).putInt(at + 4, counts.getInt(at + 4) + y);
                calibrators.put(stream, counts.array());
            }
        }

        private static String name(byte[] row) {
            return new String(row, 9, row.length - 9, StandardCharsets.UTF_8);
        }

        private void answer(Record<String, byte[]> record, String stream, double p) {
            ByteBuffer counts = counts(stream);
            int n = counts.getInt(8 * bin(p));
            int learnt = 0;
            for (int j = 0; j < BINS; j++) {
                learnt += counts.getInt(8 * j);
            }
            ObjectNode answer = json.createObjectNode();
            answer.put("event_id", record.key()).put("stream", stream).put("raw", p);
            answer.put("p", n == 0 ? p : (double) counts.getInt(8 * bin(p) + 4) / n).put("learnt", learnt);
            try {
                context.forward(record.withValue(json.writeValueAsBytes(answer)));
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

    private Repartition() {}

    static Topology topology(String prefix, Parser parser, int partitions) {
        var string = Serdes.String();
        var bytes = Serdes.ByteArray();
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("events"), string, bytes));
        builder.addStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("calibrators"), string, bytes)
                        .withCachingEnabled());
        KStream<String, byte[]> scores =
                builder.stream(prefix + "-scores", Consumed.with(bytes, bytes)).map((key, value) -> parser.score(value));
        KStream<String, byte[]> labels =
                builder.stream(prefix + "-chargebacks", Consumed.with(bytes, bytes)).map((key, value) -> parser.label(value));
        scores.merge(labels)
                .repartition(Repartitioned.with(string, bytes).withName("by-event").withNumberOfPartitions(partitions))
                .process(Join::new, "events", "calibrators")
                .to(prefix + "-calibrated", Produced.with(string, bytes));
        return builder.build();
    }

    public static void main(String[] args) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, Integer.parseInt(args[4]));
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.ACKS_CONFIG), "all");
        Parser parser = args[3].equals("avro") ? new Avro() : new Json();
        KafkaStreams streams = new KafkaStreams(topology(args[1], parser, 4), settings);
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            stopped.countDown();
        }));
        streams.start();
        stopped.await();
    }
}
