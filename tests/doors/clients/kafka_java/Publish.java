import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;
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
 * Publishes the records of a file: FILE, then PROPERTIES TOPIC, possibly several times. Each line of its standard input is
 * a number: so many records of the file are to be sent. A second topic gets as many as the first one. It prints the
 * number of each record, from 1, with the offset that it has got, or with the error; "done" behind each topic.
 */
public class Publish {
    private static int complete = 0;

    public static void main(String[] arguments) throws Exception {
        List<String> records = Files.readAllLines(Path.of(arguments[0]));
        for (int at = 1; at < arguments.length; at += 2) {
            Properties properties = new Properties();
            try (FileReader reader = new FileReader(arguments[at])) {
                properties.load(reader);
            }
            publish(properties, arguments[at + 1], records);
            System.out.println("done");
        }
    }

    private static void publish(Properties properties, String topic, List<String> records) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            if (properties.containsKey("transactional.id")) {
                producer.initTransactions();
            }
            int sent = 0;
            String line = "0";
            do {
                complete = Math.max(complete, Integer.parseInt(line));
                for (; sent < complete; sent++) {
                    send(producer, RecordLine.of(records.get(sent)).to(topic), sent + 1);
                }
                line = input.readLine();
            } while (line != null);
        }
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
