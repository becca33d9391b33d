"""Entries of one message, cut out of the entry of a batch."""

import pytest

from oncelog.core.errors import CorruptEntry
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.formats.batch import (
    decode_batch,
    decode_ids,
    deltas_of,
    encode_batch,
    encode_deltas,
    payload_of,
)
from oncelog.core.formats.columns import (
    decode_columns,
    encode_event_times,
    encode_keys,
    encode_properties,
    encode_values,
)
from oncelog.core.formats.compression import Compression, compress_payload
from oncelog.core.formats.entry import EntryHeader, EntryKind, body_of, decode_entry, encode_header
from oncelog.core.formats.single_message import batch_index_of, single_message
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, ProducerId, TopicId
from tests.core.builders import LogOf, checksum
from tests.core.pulsar_entries import Sent, as_batch, encrypted, of_one_key

IDS = [10, 12, 13, 20]


def entry_of(compression: Compression = Compression.NONE) -> bytes:
    """Four messages, of which the first one is skipped; the next has the number 70 in its topic."""
    payload = b"".join(
        (
            encode_values([b"a", b"bb", b"", b"d" * 1000]),
            encode_keys([None, b"k", None, b"x"]),
            encode_event_times([None, 2**62, -(2**62), None]),
            encode_properties([{}, {"p": "q"}, None, {}]),
        )
    )
    stored = compress_payload(payload, compression) if compression else payload
    batch = encode_batch(
        stored, producer_id=ProducerId(7), generation=Generation(3), first=IDS[0], last=IDS[-1], count=len(IDS),
        publish_time_ms=5, checksum=checksum, deltas=encode_deltas(IDS), compression=compression,
        payload_raw_bytes=len(payload),
    )  # fmt: skip
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(4), EntryId(9), EntryId(8), 100, OwnerEpoch(2), 6, 70, 1, 3, len(batch),
        TopicId("0f" * 16),
    )  # fmt: skip
    return encode_header(header, batch, checksum) + batch


@pytest.mark.hazard("oversized-dead-letters")
@pytest.mark.parametrize("compression", Compression)
def test_single_message_keeps_what_its_producer_gave_it(compression: Compression) -> None:
    data = entry_of(compression)
    for index, at in ((70, 1), (71, 2), (72, 3)):
        assert batch_index_of(data, index) == at
        one = single_message(data, index, checksum)
        header = decode_entry(one, ledger_id=LedgerId(4), entry_id=EntryId(9), checksum=checksum)
        assert (header.base_index, header.skip_first, header.count, header.append_time_ms) == (index, 0, 1, 6)
        batch = decode_batch(body_of(one), checksum)
        assert (batch.producer_id, batch.generation, batch.publish_time_ms) == (7, 3, 5)
        assert list(decode_ids(batch, deltas_of(batch, body_of(one)))) == [IDS[at]]
        columns = decode_columns(payload_of(batch, body_of(one)), 1)
        assert bytes(columns.values[0]) == [b"a", b"bb", b"", b"d" * 1000][at]
        assert (columns.keys or [])[0] == [None, b"k", None, b"x"][at]
        assert (columns.event_times_ms or [])[0] == [None, 2**62, -(2**62), None][at]
        assert (columns.properties or [])[0] == [{}, {"p": "q"}, {}, {}][at]


def test_message_that_is_not_in_the_entry_is_refused() -> None:
    """Also when the bytes are damaged."""
    data = entry_of()
    for index in (69, 73):
        with pytest.raises(CorruptEntry):
            single_message(data, index, checksum)
    with pytest.raises(CorruptEntry):
        single_message(data[:-1] + b"?", 70, checksum)


@pytest.mark.parametrize(("at", "value"), [(0, b"first"), (1, b""), (2, b"last")])
def test_single_message_of_a_client_of_pulsar_is_in_columns(at: int, value: bytes) -> None:
    """A dead letter, and what a peek shows. A null value is empty in columns; a batch of one key keeps its ids."""
    sent = [Sent(3, b"first", b"k", {"p": "q"}, 9), Sent(5, None, b"k"), Sent(8, b"last", b"k")]
    body = as_batch(of_one_key(sent), [8], unit=True, count=3)
    data = LogOf()
    data.add(EntryKind.MESSAGES, body, count=3)
    one = single_message(data.entries[0][1], at, checksum)
    batch = decode_batch(body_of(one), checksum)
    columns = decode_columns(payload_of(batch, body_of(one)), 1)
    assert (bytes(columns.values[0]), (columns.keys or [])[0]) == (value, b"k")
    assert (batch.first, batch.last, batch.unit, batch.payload_format) == (sent[at].sequence_id,) * 2 + (False, 1)


def test_single_message_of_an_encrypted_entry_is_refused() -> None:
    """A dead letter names it, and lacks its value."""
    data = LogOf()
    data.add(EntryKind.MESSAGES, as_batch(encrypted(1, 3, count=3), [1, 3], unit=True, count=3), count=3)
    with pytest.raises(MessageEncrypted):
        single_message(data.entries[0][1], 1, checksum)
