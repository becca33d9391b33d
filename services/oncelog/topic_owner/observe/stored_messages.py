"""Messages as they are stored, for a look at them: what is long is cut here, so that it is not sent to be cut later."""

from collections.abc import Mapping

from oncelog.core.delivery.events import StoredEntry
from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog.core.formats.batch import PayloadFormat, deltas_of, payload_of, peek_batch
from oncelog.core.formats.chunks import decode_chunk_names
from oncelog.core.formats.entry import body_of, peek_header
from oncelog.core.formats.payload import message_ids, shown_columns
from oncelog.core.search.message_filter import MessageFilter
from oncelog.wire import finding_pb2 as pb

#: Of one message that is shown. Honest keys and properties are far below it.
KEY_BYTES_MAX = 1024
PROPERTIES_BYTES_MAX = 16 * 1024
EVERY = MessageFilter()


def shown_messages(
    entry: StoredEntry,
    first_index: int,
    count_max: int,
    wanted: MessageFilter = EVERY,
    *,
    with_content: bool,
    value_bytes_max: int,
) -> list[pb.StoredMessage]:
    """The messages of an entry from `first_index` on that are wanted, at most so many, without the names of their
    producers. A message in chunks or an encrypted one has no value here, so it meets nothing that is asked of one.

    Raises CorruptEntry when the payload contradicts its header.
    """
    body = body_of(entry.data)
    batch = peek_batch(body)
    if not wanted.wants_ids(batch.producer_id, batch.first, batch.last):
        return []
    try:
        payload = payload_of(batch, body)
        columns = shown_columns(batch, payload)
        ids = message_ids(batch, deltas_of(batch, body), columns)
        chunks = decode_chunk_names(payload) if batch.payload_format == PayloadFormat.CHUNKED else None
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {entry.position} cannot be read: {error}") from error
    shown: list[pb.StoredMessage] = []
    for at in range(entry.skip_first + max(0, first_index - entry.base_index), batch.count):
        if len(shown) >= count_max:
            break
        value, key = columns.values[at], None if columns.keys is None else columns.keys[at]
        encrypted = columns.encryption is not None
        if not wanted.wants(b"" if encrypted or chunks is not None else value, key, ids[at]):
            continue
        one = pb.StoredMessage(
            index=entry.base_index + at - entry.skip_first,
            ledger_id=entry.position.ledger_id,
            entry_id=entry.position.entry_id,
            batch_index=at,
            producer_id=batch.producer_id,
            sequence_id=ids[at],
            publish_time_ms=batch.publish_time_ms,
            append_time_ms=peek_header(entry.data).append_time_ms,
            event_time_ms=None if columns.event_times_ms is None else columns.event_times_ms[at],
            value_bytes=len(value) if chunks is None else chunks.value_bytes,
            in_chunks=chunks is not None,
            null_value=columns.nulls is not None and bool(columns.nulls[at]),
            encrypted=encrypted,
        )
        if with_content:
            _fill(one, value, key, {} if columns.properties is None else columns.properties[at], value_bytes_max)
        shown.append(one)
    return shown


def _fill(
    one: pb.StoredMessage, value: memoryview, key: bytes | None, properties: Mapping[str, str], value_bytes_max: int
) -> None:
    one.value = bytes(value[:value_bytes_max])
    one.truncated = len(value) > value_bytes_max
    if key is not None:
        one.key = key[:KEY_BYTES_MAX]
        one.truncated = one.truncated or len(key) > KEY_BYTES_MAX
    room = PROPERTIES_BYTES_MAX
    for name, text in properties.items():
        room -= len(name.encode()) + len(text.encode())
        if room < 0:
            one.truncated = True
            break
        one.properties[name] = text
