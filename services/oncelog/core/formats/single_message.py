"""Entries of one message each, cut out of the entry of a batch.

Such an entry is never stored. It carries one message from a topic owner to a metadata service, with the header of the
entry from which it comes; so its size is that of the message, not of the batch that the producer packed. A message of a
client of Pulsar is in columns, too; a null value is empty in them.
"""

from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog.core.formats.batch import Buffer, Checksum, decode_batch, deltas_of, encode_batch, payload_of
from oncelog.core.formats.columns import encode_event_times, encode_keys, encode_properties, encode_values
from oncelog.core.formats.entry import EntryKind, body_of, decode_entry, encode_header, peek_header
from oncelog.core.formats.payload import message_ids, read_columns


def batch_index_of(data: Buffer, index: int) -> int:
    """Which message of the entry's batch has this number in the topic. Raises CorruptEntry if none has."""
    entry = peek_header(data)
    if entry.kind != EntryKind.MESSAGES or not entry.base_index <= index < entry.next_index:
        raise CorruptEntry(f"entry {entry.position} does not hold message {index}", index=index)
    return entry.skip_first + index - entry.base_index


def single_message(data: Buffer, index: int, checksum: Checksum) -> bytes:
    """The entry with only the message of this number in the topic. Raises CorruptEntry if it cannot be read,
    ChunkedMessage and MessageEncrypted."""
    at = batch_index_of(data, index)
    peeked = peek_header(data)
    entry = decode_entry(data, ledger_id=peeked.ledger_id, entry_id=peeked.entry_id, checksum=checksum)
    body = body_of(data)
    try:
        batch = decode_batch(body, checksum)
        columns = read_columns(batch, payload_of(batch, body))
        sequence_id = message_ids(batch, deltas_of(batch, body), columns)[at]
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {entry.position} cannot be read: {error}", index=index) from error
    payload = encode_values([columns.values[at]])
    if columns.keys is not None:
        payload += encode_keys([columns.keys[at]])
    if columns.event_times_ms is not None:
        payload += encode_event_times([columns.event_times_ms[at]])
    if columns.properties is not None:
        payload += encode_properties([columns.properties[at]])
    message = encode_batch(
        payload,
        producer_id=batch.producer_id,
        generation=batch.generation,
        first=sequence_id,
        last=sequence_id,
        count=1,
        publish_time_ms=batch.publish_time_ms,
        checksum=checksum,
    )
    header = entry._replace(base_index=index, skip_first=0, count=1, body_bytes=len(message))
    return encode_header(header, message, checksum) + message
