import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** A record as text: value, key, and name and value of each header, as `x` and hexadecimal digits, or `-` for null. */
record RecordLine(byte[] value, byte[] key, List<Header> headers) {
    static RecordLine of(String line) {
        String[] words = line.split(" ");
        List<Header> headers = new ArrayList<>();
        for (int at = 2; at < words.length; at += 2) {
            headers.add(new RecordHeader(new String(bytesOf(words[at])), bytesOf(words[at + 1])));
        }
        return new RecordLine(bytesOf(words[0]), bytesOf(words[1]), headers);
    }

    static RecordLine of(ConsumerRecord<byte[], byte[]> record) {
        return new RecordLine(record.value(), record.key(), List.of(record.headers().toArray()));
    }

    ProducerRecord<byte[], byte[]> to(String topic) {
        return new ProducerRecord<>(topic, null, key, value, headers);
    }

    @Override
    public String toString() {
        StringBuilder line = new StringBuilder(textOf(value)).append(' ').append(textOf(key));
        for (Header header : headers) {
            line.append(' ').append(textOf(header.key().getBytes())).append(' ').append(textOf(header.value()));
        }
        return line.toString();
    }

    private static byte[] bytesOf(String word) {
        return word.equals("-") ? null : HexFormat.of().parseHex(word.substring(1));
    }

    private static String textOf(byte[] bytes) {
        return bytes == null ? "-" : "x" + HexFormat.of().formatHex(bytes);
    }
}
