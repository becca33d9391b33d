"""Which messages of clients of Kafka a mirror does not copy: what a copy would lack is never left out in silence."""

import pytest
from crc32c import crc32c

from oncelog.client.values.messages import MessageBatch, open_entry
from oncelog.client.values.results import TopicPartition
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, TopicId
from tests.core.kafka_batches import Sent, as_batch, framed, records

TEXT, TWICE, RAW = [(b"a", b"1")], [(b"a", b"1"), (b"a", b"2")], [(b"a", b"\xff")]


def batch_of(*sent: Sent) -> MessageBatch:
    body = as_batch(framed(records(sent), len(sent), by=crc32c), range(len(sent)), by=crc32c)
    topic_id = TopicId("ab" * 16)
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(3), EntryId(4), EntryId(-1), 0, OwnerEpoch(1), 0, 40, 0, len(sent), len(body),
        topic_id,
    )  # fmt: skip
    stored = open_entry(encode_header(header, body, crc32c) + body, crc32c)
    return MessageBatch(stored, TopicPartition(topic_id, -1), "kafka/7", first_batch_index=0)


@pytest.mark.parametrize(
    ("sent", "index", "kind"),
    [
        ((Sent(b"a"), Sent(b"b", headers=TEXT)), None, ""),
        ((Sent(b"a"), Sent(b"b", headers=RAW)), 41, "headers that are not text"),
        ((Sent(b"a", headers=TWICE), Sent(b"")), 40, "headers that are not text"),
        ((Sent(b"a"), Sent(None), Sent(b"c", headers=RAW)), 41, "a null value"),
        ((Sent(b"a"), Sent(None, headers=RAW)), 41, "a null value"),
    ],
)
def test_the_first_message_that_a_copy_would_change_is_named(
    sent: tuple[Sent, ...], index: int | None, kind: str
) -> None:
    found = batch_of(*sent).not_in_columns()
    assert (None if found is None else found[0]) == index
    assert found is None or kind in found[1]
