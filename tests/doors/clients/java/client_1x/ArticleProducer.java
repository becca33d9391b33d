import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageBuilder;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerConfiguration;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Publishes the records of a file, with the code of the article "Effectively-once semantics in Apache Pulsar". Its text
 * stands between the two lines of dashes; around it is what the article leaves to the reader, and a word for the test
 * before each message.
 */
public class ArticleProducer {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], topic = arguments[1], path = arguments[2];
        PulsarClient client = PulsarClient.create(url);
        // -------------------------------------------------------------------------------------------------------------
        ProducerConfiguration producerConf = new ProducerConfiguration();
        producerConf.setProducerName("my-producer-name");
        producerConf.setSendTimeout(0, TimeUnit.SECONDS);
        Producer producer = client.createProducer(topic, producerConf);

        // Fictitious record reader class
        RecordReader source = new RecordReader(path);

        long fileOffset = producer.getLastSequenceId();
        if (fileOffset > 0) {
            source.seekToOffset(fileOffset);
        }

        System.out.println("begins at " + fileOffset);
        while (source.hasNext()) {
            long currentOffset = source.currentOffset();
            Message msg = MessageBuilder.create()
                .setSequenceId(currentOffset)
                .setContent(source.next()).build();
            producer.send(msg);
            System.out.println(currentOffset);
        }
        // -------------------------------------------------------------------------------------------------------------
        System.out.println("done");
        client.close();
    }
}
