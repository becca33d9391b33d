"""The messages of a log in their whole values, as a reader has to find them: for tests of messages in chunks."""

from oncelog.core.formats.batch import BatchHeader, PayloadFormat, decode_batch, payload_of
from oncelog.core.formats.chunks import decode_chunk, decode_chunk_names
from oncelog.core.formats.columns import decode_columns
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.ids import Position
from tests.core.builders import checksum
from tests.core.topic.topic_world import World


def whole_messages(world: World) -> list[tuple[Position, bytes]]:
    """(Position, value) of each message. Asserts that indexes are dense, and that a message in chunks names whole
    chunks of its own ledger, producer and id, before it and in the order of its value."""
    found: list[tuple[Position, bytes]] = []
    next_index = 0
    for link in world.links:
        entries = world.entries_of(link.ledger_id)
        for _, data in sorted(entries.items()):
            header = peek_header(data)
            assert header.base_index == next_index
            next_index = header.next_index
            if header.kind != EntryKind.MESSAGES:
                assert not header.count
                continue
            batch = decode_batch(body_of(data), checksum)
            payload = payload_of(batch, body_of(data))
            (value,) = decode_columns(payload, batch.count).values.to_list()
            if batch.payload_format == PayloadFormat.CHUNKED:
                assert not value
                value = _joined(batch, payload, {at: each for at, each in entries.items() if at < header.entry_id})
            found.append((header.position, value))
    return found


def _joined(batch: BatchHeader, payload: memoryview, before: dict[int, bytes]) -> bytes:
    names, value = decode_chunk_names(payload), bytearray()
    for entry_id, crc in names.chunks:
        data = before[entry_id]
        assert (peek_header(data).kind, peek_header(data).ledger_id) == (EntryKind.CHUNK, names.ledger_id)
        chunk = decode_batch(body_of(data), checksum)
        assert chunk.checksum == crc
        assert (chunk.producer_id, chunk.generation, chunk.first) == (batch.producer_id, batch.generation, batch.first)
        offset, part = decode_chunk(payload_of(chunk, body_of(data)))
        assert offset == len(value)
        value += part
    assert len(value) == names.value_bytes
    return bytes(value)
