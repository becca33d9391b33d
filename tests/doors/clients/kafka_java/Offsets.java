import java.io.FileReader;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Asks where partition 0 of a topic begins and ends, and where times are in it: PROPERTIES TOPIC MILLISECONDS... */
public class Offsets {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            System.out.println("partitions " + consumer.partitionsFor(arguments[1]).size());
            System.out.println("listed " + consumer.listTopics().containsKey(arguments[1]));
            System.out.println("first " + consumer.beginningOffsets(List.of(partition)).get(partition));
            System.out.println("end " + consumer.endOffsets(List.of(partition)).get(partition));
            for (int at = 2; at < arguments.length; at++) {
                long time = Long.parseLong(arguments[at]);
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
                System.out.println("at " + time + " " + (found == null ? "none" : found.offset()));
            }
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            System.out.println("position " + consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            System.out.println("position " + consumer.position(partition));
        }
        System.out.println("done");
    }
}
