import java.io.FileReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads partition 0 of one topic after the other, without a group: PROPERTIES COUNT TOPIC... It prints the offset of each
 * record and the record; "done" behind each topic.
 */
public class Read {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        int count = Integer.parseInt(arguments[1]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            for (String topic : Arrays.asList(arguments).subList(2, arguments.length)) {
                read(consumer, new TopicPartition(topic, 0), count);
                System.out.println("done");
            }
        }
    }

    private static void read(Consumer<byte[], byte[]> consumer, TopicPartition partition, int count) {
        consumer.assign(List.of(partition));
        consumer.seek(partition, 0);
        int found = 0;
        while (found < count) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                System.out.println(record.offset() + " " + RecordLine.of(record));
                found++;
            }
        }
    }
}
