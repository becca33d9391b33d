import java.io.FileReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads partition 0 of a topic, without a group: PROPERTIES TOPIC OFFSET COUNT. It prints offset and record. */
public class Read {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        int count = Integer.parseInt(arguments[3]), found = 0;
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, Long.parseLong(arguments[2]));
            while (found < count) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.offset() + " " + RecordLine.of(record));
                    found++;
                }
            }
        }
        System.out.println("done");
    }
}
