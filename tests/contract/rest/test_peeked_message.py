"""A message of a backlog, as REST shows the entry that the owner has sent: also one of a client of Pulsar."""

from typing import Any

import pytest
from crc32c import crc32c

from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, ProducerId, TopicId
from oncelog.core.names import parse_topic
from oncelog.metadata.rest.subscription_values import peeked_message
from oncelog.wire import subscriptions_pb2 as pb
from tests.core.pulsar_entries import Sent, batched, encrypted, pack_pulsar, summed


def stored(entry: bytes) -> bytes:
    """The messages of a client of Pulsar, from index 40 on."""
    entry = summed(entry, crc32c)
    messages = open_entry(entry)
    body = pack_pulsar(entry, messages, producer_id=ProducerId(7), generation=Generation(1), checksum=crc32c)
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(3), EntryId(4), EntryId(-1), 0, OwnerEpoch(1), 0, 40, 0, messages.count, len(body),
        TopicId("ab" * 16),
    )  # fmt: skip
    return encode_header(header, body, crc32c) + body


def peeked(entry: bytes, index: int) -> dict[str, Any]:
    """index: of a message, from 40 on."""
    answer = pb.PeekMessageAnswer(entry=stored(entry), message_index=index)
    return peeked_message(parse_topic("public/default/flights"), answer).model_dump()


def test_null_value_is_null() -> None:
    """And an empty one is empty."""
    entry = batched([Sent(1, b"1"), Sent(2, None), Sent(3, b"")])
    values = [peeked(entry, index)["value"] for index in (40, 41, 42)]
    assert (values, peeked(entry, 41)["encrypted"]) == (["1", None, ""], False)


@pytest.mark.parametrize("count", [None, 3])
def test_encrypted_message_is_shown_without_its_value(count: int | None) -> None:
    """Its place is known, so the messages behind it are found, too."""
    found = peeked(encrypted(1, None if count is None else 3, count=count, key=b"k"), 40)
    assert (found["value"], found["value_base64"], found["encrypted"]) == (None, None, True)
    assert (found["index"], found["message_id"], found["key"]) == (40, "3:4:0", "k")
