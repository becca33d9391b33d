import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** The program with Pulsar's Java client; the lines are those of the other programs (clients/__init__.py). */
public class ProofClient {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0])
            .operationTimeout(60, TimeUnit.SECONDS).build();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Producer<byte[]> producer = null;
        Consumer<byte[]> consumer = null;
        Map<String, MessageId> received = new HashMap<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "open":
                    int count = Integer.parseInt(words[2]);
                    try {
                        producer = client.newProducer().topic(topic).producerName(words[1])
                            .sendTimeout(Integer.parseInt(words[3]), TimeUnit.MILLISECONDS)
                            .enableBatching(count > 1).enableChunking(count == 1).batchingMaxMessages(count)
                            .batchingMaxPublishDelay(1, TimeUnit.MINUTES).create();
                        say("opened " + producer.getLastSequenceId());
                    } catch (PulsarClientException error) {
                        say("error " + error.getClass().getSimpleName());
                    }
                    break;
                case "send":
                    String tag = words[1];
                    String padding = " ".repeat(Math.max(0, Integer.parseInt(words[4]) - words[3].length()));
                    TypedMessageBuilder<byte[]> message = producer.newMessage().value((words[3] + padding).getBytes());
                    if (!words[2].equals("-")) {
                        message.sequenceId(Long.parseLong(words[2]));
                    }
                    message.sendAsync().whenComplete((place, error) -> say(error == null
                        ? "sent " + tag + " " + place.toString().replace(" ", "")
                        : "failed " + tag + " " + error.getClass().getSimpleName()));
                    break;
                case "read":
                    StringBuilder found = new StringBuilder("read");
                    try (Reader<byte[]> reader = client.newReader().topic(topic)
                            .startMessageId(MessageId.earliest).create()) {
                        while (reader.hasMessageAvailable()) {
                            found.append(' ').append(new String(reader.readNext().getData()).stripTrailing());
                        }
                    }
                    say(found.toString());
                    break;
                case "consume":
                    consumer = client.newConsumer().topic(topic).subscriptionName("billing")
                        .subscriptionType(SubscriptionType.Shared)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .receiverQueueSize(Integer.parseInt(words[1]))
                        .isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe();
                    say("consuming");
                    break;
                case "receive":
                    say(receive(consumer, Integer.parseInt(words[1]), words, received));
                    break;
                case "acknowledge":
                    for (int at = 1; at < words.length; at++) {
                        consumer.acknowledge(received.get(words[at]));
                    }
                    say("acknowledged");
                    break;
                case "close":
                    consumer.close();
                    say("closed");
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }

    private static String receive(Consumer<byte[]> consumer, int milliseconds, String[] words,
            Map<String, MessageId> received) throws PulsarClientException {
        Set<String> missing = new HashSet<>(Arrays.asList(words).subList(2, words.length));
        StringBuilder found = new StringBuilder("received");
        while (!missing.isEmpty()) {
            Message<byte[]> message = milliseconds == 0
                ? consumer.receive() : consumer.receive(milliseconds, TimeUnit.MILLISECONDS);
            if (message == null) {
                break;
            }
            String value = new String(message.getData());
            received.put(value, message.getMessageId());
            missing.remove(value);
            found.append(' ').append(value);
        }
        return found.toString();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}
