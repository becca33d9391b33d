import java.io.IOException;
import java.io.RandomAccessFile;

/** The lines of a file. An offset is that of a line's first byte. */
public class RecordReader {
    private final RandomAccessFile file;

    public RecordReader(String path) throws IOException {
        file = new RandomAccessFile(path, "r");
    }

    public void seekToOffset(long offset) throws IOException {
        file.seek(offset);
    }

    public boolean hasNext() throws IOException {
        return file.getFilePointer() < file.length();
    }

    public long currentOffset() throws IOException {
        return file.getFilePointer();
    }

    public byte[] next() throws IOException {
        return file.readLine().getBytes("ISO-8859-1");
    }
}
