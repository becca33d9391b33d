"""Which entries of gateways' clients take long to read, because their messages are read one by one in Python.

A caller reads such an entry in another thread. What is decided here costs little: the count of messages and the size
without compression are read from the front of the entry, or the entry is decompressed up to LONG_CHECK_BYTES.
"""

from oncelog.core.errors import CompressionUnavailable, InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import BatchHeader, Buffer
from oncelog.core.formats.kafka import read_head, records_of
from oncelog.core.formats.pulsar import claims_of

#: An entry of more bytes takes long, with or without its compression.
LONG_CHECK_BYTES = 64 * 1024
#: And one of more messages: each takes 1 to 2 us, a change of threads 35.
LONG_CHECK_COUNT = 1_000


def kafka_takes_long(batch: Buffer) -> bool:
    """Of a record batch. False also of one that cannot be read."""
    if len(batch) > LONG_CHECK_BYTES:
        return True
    try:
        head = read_head(batch)
        if head.count > LONG_CHECK_COUNT:
            return True
        if head.codec:
            records_of(head, batch, raw_bytes_max=LONG_CHECK_BYTES)
    except MessageTooLarge:
        return True
    except (InvalidBatch, CompressionUnavailable):
        return False
    return False


def pulsar_takes_long(entry: Buffer) -> bool:
    """Of an entry of a client of Pulsar. False also of one that cannot be read."""
    if len(entry) > LONG_CHECK_BYTES:
        return True
    raw_bytes, count = claims_of(entry)
    return raw_bytes > LONG_CHECK_BYTES or count > LONG_CHECK_COUNT


def read_cost(batch: BatchHeader, body: Buffer) -> int:
    """Of reading a stored batch, as the bytes that take about as long: above LONG_CHECK_BYTES it takes long."""
    return max(len(body), batch.payload_raw_bytes, batch.count * LONG_CHECK_BYTES // LONG_CHECK_COUNT)
