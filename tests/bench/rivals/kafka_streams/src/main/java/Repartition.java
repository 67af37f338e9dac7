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
 * least once or exactly once, all else default but acks=all and the number of threads. With {@code event}, each partition
 * has calibrators of its own. With {@code stream}, there is one calibrator a stream, as in trueup, which takes a second
 * repartition: a label finds its stream where its transaction is kept, and goes on to the partition of that stream. Avro
 * is decoded by hand, for these two schemas alone.
 *
 * <p>{@code java -cp target/classes:target/lib/* Repartition BROKERS PREFIX DIRECTORY json|avro THREADS event|stream
 * at_least_once|exactly_once_v2}
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
        return KeyValue.pair(id, row(SCORE, p, stream));
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

    /** What is kept and repartitioned: a first byte, a probability, and a name. */
    static byte[] row(byte first, double p, String name) {
        byte[] bytes = name.getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(9 + bytes.length).put(first).putDouble(p).put(bytes).array();
    }

    static double p(byte[] row) {
        return ByteBuffer.wrap(row, 1, 8).getDouble();
    }

    static String name(byte[] row) {
        return new String(row, 9, row.length - 9, StandardCharsets.UTF_8);
    }

    /** Keeps what is known of each transaction; calls with its score, and once with its score and its label. */
    abstract static class Join implements Processor<String, byte[], String, byte[]> {
        protected ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, byte[]> events;

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            this.context = context;
            events = context.getStateStore("events");
        }

        @Override
        public void process(Record<String, byte[]> record) {
            byte[] value = record.value();
            byte[] row = events.get(record.key());
            byte y = row == null ? WAITING : row[0];
            double p = row == null ? -1 : p(row);
            String stream = row == null ? "" : name(row);
            if (value[0] == SCORE) {
                p = p(value);
                stream = name(value);
                scored(record, stream, p);
            } else {
                y = value[1];
            }
            events.put(record.key(), row(y, p, stream));
            if (p >= 0 && y != WAITING) {
                met(record, stream, p, y);
            }
        }

        abstract void scored(Record<String, byte[]> record, String stream, double p);

        abstract void met(Record<String, byte[]> record, String stream, double p, byte y);
    }

    /** Joins, learns and answers where the transaction is. */
    static final class Learn extends Join {
        private Calibrators calibrators;

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            super.init(context);
            calibrators = new Calibrators(context);
        }

        @Override
        void scored(Record<String, byte[]> record, String stream, double p) {
            context.forward(record.withValue(calibrators.answer(record.key(), stream, p)));
        }

        @Override
        void met(Record<String, byte[]> record, String stream, double p, byte y) {
            calibrators.learn(stream, p, y);
        }
    }

    /** Joins, and sends each label with its score on to the partition of its stream. */
    static final class Route extends Join {
        @Override
        void scored(Record<String, byte[]> record, String stream, double p) {}

        @Override
        void met(Record<String, byte[]> record, String stream, double p, byte y) {
            context.forward(record.withKey(stream).withValue(row(LABEL, p, y == 1 ? "1" : "0")));
        }
    }

    /** Learns and answers where the stream is. */
    static final class Calibrate implements Processor<String, byte[], String, byte[]> {
        private ProcessorContext<String, byte[]> context;
        private Calibrators calibrators;

        @Override
        public void init(ProcessorContext<String, byte[]> context) {
            this.context = context;
            calibrators = new Calibrators(context);
        }

        @Override
        public void process(Record<String, byte[]> record) {
            byte[] value = record.value();
            String name = name(value);
            if (value[0] == SCORE) {
                byte[] answer = calibrators.answer(name, record.key(), p(value));
                context.forward(record.withKey(name).withValue(answer));
            } else {
                calibrators.learn(record.key(), p(value), (byte) (name.equals("1") ? 1 : 0));
            }
        }
    }

    /** One histogram a stream. */
    static final class Calibrators {
        private final ObjectMapper json = new ObjectMapper();
        private final KeyValueStore<String, byte[]> calibrators;

        Calibrators(ProcessorContext<String, byte[]> context) {
            calibrators = context.getStateStore("calibrators");
        }

        void learn(String stream, double p, byte y) {
            ByteBuffer counts = counts(stream);
            int at = 8 * bin(p);
            counts.putInt(at, counts.getInt(at) + 1).putInt(at + 4, counts.getInt(at + 4) + y);
            calibrators.put(stream, counts.array());
        }

        byte[] answer(String id, String stream, double p) {
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
                return json.writeValueAsBytes(answer);
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

    static Topology topology(String prefix, Parser parser, int partitions, boolean routed) {
        var string = Serdes.String();
        var bytes = Serdes.ByteArray();
        var events = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("events"), string, bytes);
        var calibrators = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("calibrators"), string, bytes)
                .withCachingEnabled();
        var repartitioned = Repartitioned.with(string, bytes).withNumberOfPartitions(partitions);
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(events);
        builder.addStateStore(calibrators);
        KStream<String, byte[]> scores =
                builder.stream(prefix + "-scores", Consumed.with(bytes, bytes)).map((key, value) -> parser.score(value));
        KStream<String, byte[]> labels =
                builder.stream(prefix + "-chargebacks", Consumed.with(bytes, bytes)).map((key, value) -> parser.label(value));
        KStream<String, byte[]> joined = scores.merge(labels).repartition(repartitioned.withName("by-event"));
        KStream<String, byte[]> answers = !routed
                ? joined.process(Learn::new, "events", "calibrators")
                : scores.map((id, value) -> KeyValue.pair(name(value), row(SCORE, p(value), id)))
                        .merge(joined.process(Route::new, "events"))
                        .repartition(repartitioned.withName("by-stream"))
                        .process(Calibrate::new, "calibrators");
        answers.to(prefix + "-calibrated", Produced.with(string, bytes));
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
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[6]);
        Parser parser = args[3].equals("avro") ? new Avro() : new Json();
        KafkaStreams streams = new KafkaStreams(topology(args[1], parser, 4, args[5].equals("stream")), settings);
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            stopped.countDown();
        }));
        streams.start();
        stopped.await();
    }
}
