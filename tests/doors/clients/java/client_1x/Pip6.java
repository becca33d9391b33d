import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageBuilder;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerConfiguration;
import org.apache.pulsar.client.api.PulsarClient;

/** The calls that PIP-6 brought: names, an initial id, ids with holes, and what a new instance learns. */
public class Pip6 {
    public static void main(String[] arguments) throws Exception {
        PulsarClient client = PulsarClient.create(arguments[0]);
        ProducerConfiguration conf = new ProducerConfiguration();
        conf.setProducerName("pip-6");
        conf.setInitialSequenceId(40);
        Producer first = client.createProducer(arguments[1], conf);
        System.out.println("last " + first.getLastSequenceId());
        first.send("initial".getBytes());
        System.out.println("last " + first.getLastSequenceId());
        for (long id : new long[] {100, 107, 107, 1000}) {
            Message message = MessageBuilder.create().setSequenceId(id).setContent(("id " + id).getBytes()).build();
            first.send(message);
        }
        System.out.println("last " + first.getLastSequenceId());
        first.close();
        ProducerConfiguration again = new ProducerConfiguration();
        again.setProducerName("pip-6");
        System.out.println("last " + client.createProducer(arguments[1], again).getLastSequenceId());
        String assigned = client.createProducer(arguments[1]).getProducerName();
        System.out.println("assigned " + !assigned.isEmpty());
        client.close();
    }
}
