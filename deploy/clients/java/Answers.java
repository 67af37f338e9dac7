import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * An example: read calibrated in Avro, with the schemas of a registry.
 *
 * <p>Answers BROKERS REGISTRY TOPIC prints event id, stream, probability and registered schema of all that the topic holds, by tabs.
 */
public class Answers {
    /** Returns what a consumer of Avro needs to know; the registry is Apicurio's, http://host:8080. */
    static Map<String, Object> settings(String brokers, String registry) {
        return Map.of(
            "bootstrap.servers", brokers,
            "enable.auto.commit", false,
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "io.apicurio.registry.serde.avro.AvroKafkaDeserializer",
            "apicurio.registry.url", registry + "/apis/registry/v2",
            // trueup registers through Confluent's interface: four bytes of a content id are before each value.
            "apicurio.registry.as-confluent", true,
            "apicurio.registry.use-id", "contentId");
    }

    public static void main(String[] arguments) {
        try (KafkaConsumer<String, GenericRecord> consumer = new KafkaConsumer<>(settings(arguments[0], arguments[1]))) {
            List<TopicPartition> all = consumer.partitionsFor(arguments[2]).stream()
                .map(each -> new TopicPartition(each.topic(), each.partition()))
                .toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                for (ConsumerRecord<String, GenericRecord> record : consumer.poll(Duration.ofMillis(200))) {
                    GenericRecord said = record.value();
                    System.out.println(said.get("event_id") + "\t" + said.get("stream") + "\t" + said.get("p")
                        + "\t" + said.getSchema().getFullName());
                }
            }
        }
    }
}
