import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;

/** What a program with today's client sees: its last sequence ids, a refused id, batches, and a Reader from each id. */
public class ModernClient {
    private static PulsarClient client;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        client = PulsarClient.builder().serviceUrl(arguments[0]).build();
        topic = arguments[1];
        Map<Long, MessageId> ids = new LinkedHashMap<>();
        try (Producer<byte[]> producer = producer()) {
            System.out.println("last " + producer.getLastSequenceId());
            sendTogether(producer, List.of(2L, 3L, 5L, 7L), ids);
            sendTogether(producer, List.of(11L, 13L), ids);
            send(producer, 17L, ids);
            MessageId again = producer.newMessage().sequenceId(17L).value("17".getBytes()).send();
            System.out.println("the first copy's id " + again.equals(ids.get(17L)));
            refused(producer, 4L, "4");
            refused(producer, 17L, "another value");
            send(producer, 19L, ids);
            System.out.println("last " + producer.getLastSequenceId());
        }
        try (Producer<byte[]> producer = producer()) {
            System.out.println("last " + producer.getLastSequenceId());
        }
        for (Map.Entry<Long, MessageId> each : ids.entrySet()) {
            System.out.println("behind " + each.getKey() + " " + read(each.getValue(), false));
            System.out.println("from " + each.getKey() + " " + read(each.getValue(), true));
        }
        System.out.println("all " + read(MessageId.earliest, false));
        System.out.println("none " + read(MessageId.latest, false));
        client.close();
    }

    private static Producer<byte[]> producer() throws PulsarClientException {
        return client.newProducer().topic(topic).producerName("modern").sendTimeout(0, TimeUnit.SECONDS)
            .batchingMaxPublishDelay(1, TimeUnit.MINUTES).create();
    }

    /** In one batch, or alone. */
    private static void sendTogether(Producer<byte[]> producer, List<Long> numbers, Map<Long, MessageId> ids)
            throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (long number : numbers) {
            sent.add(producer.newMessage().sequenceId(number).value(("" + number).getBytes()).sendAsync());
        }
        producer.flush();
        for (int at = 0; at < sent.size(); at++) {
            MessageId id = sent.get(at).get();
            System.out.println("stored " + numbers.get(at) + " at " + ((MessageIdAdv) id).getBatchIndex());
            ids.put(numbers.get(at), id);
        }
    }

    private static void send(Producer<byte[]> producer, long number, Map<Long, MessageId> ids) throws Exception {
        sendTogether(producer, List.of(number), ids);
    }

    private static void refused(Producer<byte[]> producer, long number, String value) throws Exception {
        try {
            producer.newMessage().sequenceId(number).value(value.getBytes()).send();
            System.out.println(number + " is not refused");
        } catch (PulsarClientException error) {
            System.out.println(number + " " + error.getClass().getSimpleName());
        }
    }

    /** The values behind this id, or from it on. */
    private static String read(MessageId start, boolean inclusive) throws Exception {
        StringBuilder found = new StringBuilder();
        var builder = client.newReader().topic(topic).startMessageId(start);
        try (Reader<byte[]> reader = (inclusive ? builder.startMessageIdInclusive() : builder).create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext();
                found.append(' ').append(new String(message.getData()));
            }
        }
        return found.toString().strip();
    }
}
