import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A stock producer: Producer BROKERS, and on standard input lines of codec, topic, time in ms, key and value, by tabs. */
public class Producer {
    public static void main(String[] arguments) throws Exception {
        KafkaProducer<byte[], byte[]> producer = null;
        String codec = "";
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] field = line.split("\t", 5);
                if (!field[0].equals(codec)) {
                    if (producer != null) producer.close();
                    codec = field[0];
                    producer = new KafkaProducer<>(
                        Map.of("bootstrap.servers", arguments[0], "compression.type", codec, "linger.ms", 50),
                        new ByteArraySerializer(),
                        new ByteArraySerializer());
                }
                producer.send(new ProducerRecord<>(
                    field[1],
                    null,
                    Long.parseLong(field[2]),
                    field[3].getBytes(StandardCharsets.UTF_8),
                    field[4].getBytes(StandardCharsets.UTF_8)), (where, refused) -> {
                        if (refused != null) Runtime.getRuntime().halt(1);
                    });
            }
        }
        if (producer != null) producer.close();
    }
}
