import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Publishes the records of a file: PROPERTIES TOPIC FILE. Each line of its standard input is a number: so many records of
 * the file are to be sent. It prints the number of each record, from 1, with the offset that it has got, or with the
 * error.
 */
public class Publish {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        String topic = arguments[1];
        List<String> records = Files.readAllLines(Path.of(arguments[2]));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        int sent = 0;
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            if (properties.containsKey("transactional.id")) {
                producer.initTransactions();
            }
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                for (int count = Integer.parseInt(line); sent < count; sent++) {
                    send(producer, RecordLine.of(records.get(sent)).to(topic), sent + 1);
                }
            }
        }
        System.out.println("done");
    }

    private static void send(Producer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> record, int number) {
        try {
            producer.send(record, (place, error) ->
                System.out.println(number + " " + (error == null ? String.valueOf(place.offset()) : failed(error))));
        } catch (RuntimeException error) {
            System.out.println(number + " " + failed(error));
        }
    }

    private static String failed(Exception error) {
        return "failed: " + error.getClass().getSimpleName() + ": " + error.getMessage();
    }
}
