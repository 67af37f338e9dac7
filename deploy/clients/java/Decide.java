import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An example: decide by trueup's answer if it comes within a budget, else by the raw score.
 *
 * <p>Decide BROKERS FORECASTS CALIBRATED BUDGET_MS reads lines of event id, stream and score from standard input, by
 * tabs, and prints event id, probability and source of each, in their order.
 */
public class Decide implements AutoCloseable {
    /** A probability to decide by, and where it comes from. */
    public record Decision(double p, String source) {}

    private record Event(String id, String stream) {}

    private static final ObjectMapper JSON = new ObjectMapper();

    private final String forecasts;
    private final Duration budget;
    private final Map<Event, CompletableFuture<Decision>> waiting = new ConcurrentHashMap<>();
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;
    private final Thread reader = new Thread(this::read, "calibrated");

    public Decide(String brokers, String forecasts, String calibrated, Duration budget) {
        this.forecasts = forecasts;
        this.budget = budget;
        // A send that cannot reach a broker must not block for longer than the budget.
        Map<String, Object> sending = Map.of("bootstrap.servers", brokers, "max.block.ms", budget.toMillis());
        producer = new KafkaProducer<>(sending, new StringSerializer(), new StringSerializer());
        consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", brokers, "enable.auto.commit", false),
            new StringDeserializer(),
            new StringDeserializer());
        // No group: every instance reads all answers, from now on, and takes those that it waits for.
        List<TopicPartition> all = consumer.partitionsFor(calibrated).stream()
            .map(each -> new TopicPartition(each.topic(), each.partition()))
            .toList();
        consumer.assign(all);
        consumer.seekToEnd(all);
        all.forEach(consumer::position); // settled before the first forecast is sent
        know(forecasts);
        reader.setDaemon(true);
        reader.start();
    }

    /** Ask for the partitions, for a minute at most: the first answer may take longer than the budget. */
    private void know(String topic) {
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (true) {
            try {
                producer.partitionsFor(topic);
                return;
            } catch (org.apache.kafka.common.errors.TimeoutException slow) {
                if (System.nanoTime() > end) {
                    throw slow;
                }
            }
        }
    }

    private void read() {
        try {
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    JsonNode said = JSON.readTree(record.value());
                    Event event = new Event(said.get("event_id").asText(), said.get("stream").asText());
                    CompletableFuture<Decision> answer = waiting.remove(event);
                    // A forecast that cannot be used is answered, too, where the streams file says on_error = "raw".
                    String source = said.path("calibrated").asBoolean(true) ? "calibrated" : "raw";
                    if (answer != null) answer.complete(new Decision(said.get("p").asDouble(), source));
                }
            }
        } catch (WakeupException closing) {
            consumer.close();
        } catch (JsonProcessingException unusable) {
            throw new IllegalStateException(unusable); // this is not trueup's topic
        }
    }

    /** Returns what to decide an event by, after the budget at the latest. */
    public Decision decide(String id, String stream, double p) throws InterruptedException {
        long until = System.nanoTime() + budget.toNanos();
        Event event = new Event(id, stream);
        CompletableFuture<Decision> answer = new CompletableFuture<>();
        waiting.put(event, answer);
        try {
            String forecast = JSON.createObjectNode().put("event_id", id).put("stream", stream).put("p", p).toString();
            producer.send(new ProducerRecord<>(forecasts, stream, forecast));
            return answer.get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException | org.apache.kafka.common.KafkaException late) {
            return new Decision(p, "raw");
        } finally {
            waiting.remove(event);
        }
    }

    @Override
    public void close() throws InterruptedException {
        consumer.wakeup();
        reader.join();
        producer.close(Duration.ZERO);
    }

    public static void main(String[] arguments) throws Exception {
        Duration budget = Duration.ofMillis(Long.parseLong(arguments[3]));
        try (Decide decisions = new Decide(arguments[0], arguments[1], arguments[2], budget);
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] field = line.split("\t");
                Decision decision = decisions.decide(field[0], field[1], Double.parseDouble(field[2]));
                System.out.println(field[0] + "\t" + decision.p() + "\t" + decision.source());
            }
        }
    }
}
