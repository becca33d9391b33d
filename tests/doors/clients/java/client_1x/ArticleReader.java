import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Base64;
import java.util.List;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderConfiguration;

/**
 * Reads a topic with the code of the article "Effectively-once semantics in Apache Pulsar". Its text stands between the
 * two lines of dashes. The "DB" is a file, which is replaced at once: the id of the last message, the sum of all
 * messages (their CRC32), and their number.
 */
public class ArticleReader {
    private static Path database;
    private static String MY_TOPIC;
    private static long count, sum;

    public static void main(String[] arguments) throws Exception {
        MY_TOPIC = arguments[1];
        database = Path.of(arguments[2]);
        long end = Long.parseLong(arguments[3]);
        PulsarClient client = PulsarClient.create(arguments[0]);
        // -------------------------------------------------------------------------------------------------------------
        MessageId lastMessageId = recoverLastMessageIdFromDB();
        Reader reader = client.createReader(MY_TOPIC, lastMessageId,
                                            new ReaderConfiguration());

        while (true) {
            Message msg = reader.readNext();
            byte[] msgId = msg.getMessageId().toByteArray();

            // Process the message and store msgId atomically
            // ---------------------------------------------------------------------------------------------------------
            store(msg.getData(), msgId);
            System.out.println(count);
            if (count == end) {
                break;
            }
        }
        System.out.println("done");
        client.close();
    }

    private static MessageId recoverLastMessageIdFromDB() throws Exception {
        if (!Files.exists(database)) {
            return MessageId.earliest;
        }
        List<String> lines = Files.readAllLines(database);
        count = Long.parseLong(lines.get(1));
        sum = Long.parseLong(lines.get(2));
        return MessageId.fromByteArray(Base64.getDecoder().decode(lines.get(0)));
    }

    private static void store(byte[] data, byte[] id) throws Exception {
        java.util.zip.CRC32 crc = new java.util.zip.CRC32();
        crc.update(data);
        count += 1;
        sum += crc.getValue();
        Path next = Path.of(database + ".next");
        Files.write(next, List.of(Base64.getEncoder().encodeToString(id), "" + count, "" + sum));
        Files.move(next, database, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    }
}
