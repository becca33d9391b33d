"""Stored messages as Pulsar's REST has them: headers and a body, read as `pulsar-admin` reads them."""

import base64
import json
from collections import defaultdict

import pytest

from oncelog.core.formats.pulsar import open_entry
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of
from oncelog_doors.core.rest import messages
from oncelog_doors.core.rest.messages import HEADERS_BYTES_MAX, ShownMessages, shown_id
from oncelog_doors.core.rest.refusals import Refused
from tests.core.pulsar_entries import LZ4, Sent, batched, encrypted, framed, inner, outer, plain
from tests.doors.core.pulsar.stored_batches import APPENDED_MS, columns, of_client, stored

#: Indexes of the topic, from 100 on.
THREE = [
    Sent(3, b"first", b"key", {"a": "1", "ü": "\r\nX-Pulsar-null-value: true"}, 1_700_000_000_000),
    Sent(5, None, b"\xff\x00"),
    Sent(9, b"last", ordering_key=b"\x01"),
]


def moment(time_ms: int) -> str | None:
    """Stands for a calendar that ends."""
    return None if time_ms >= 1 << 60 else f"at {time_ms}"


def shown_entry(delivery: Delivery) -> ShownMessages:
    return messages.shown_entry(delivery, moment)


def shown_message(delivery: Delivery, index: int) -> ShownMessages:
    return messages.shown_message(delivery, index, moment)


def delivered(raw: RawBatch) -> Delivery:
    return delivery_of(raw, 5 << 20)


def of(entry: bytes, ids: list[int]) -> Delivery:
    return delivered(stored(of_client(entry, ids)))


def headers(shown: ShownMessages) -> dict[str, str]:
    """Of those that come once. Each one may stand in an answer over HTTP."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in shown.headers:
        assert all(" " <= each <= "~" for each in name + value)
        found[name.removeprefix("X-Pulsar-")].append(value)
    assert all(len(each) == 1 for each in found.values())
    return {name: each for name, (each,) in found.items()}


def test_single_message_of_a_client() -> None:
    """Its value without the compression of the client."""
    shown = shown_entry(of(plain(THREE[0], codec=LZ4), [3]))
    found = headers(shown)
    assert (bytes(shown.body), found["Message-ID"], found["sequence-id"]) == (b"first", "5:3", "3")
    assert json.loads(found["PROPERTY"]) == THREE[0].properties
    assert (found["partition-key"], found["partition-key-b64-encoded"]) == ("key", "false")
    assert (found["publish-time"], found["event-time"]) == ("at 1764000000000", "at 1700000000000")
    assert (found["producer-name"], found["compression"], found["uncompressed-size"]) == ("p", "LZ4", "5")
    assert (found["Is-Encrypted"], found["Broker-Entry-METADATA-index"]) == ("false", "100")
    assert found["Broker-Entry-METADATA-timestamp"] == f"at {APPENDED_MS + 3}"
    assert "num-batch-message" not in found


@pytest.mark.parametrize("codec", [0, LZ4])
def test_batch_of_a_client_has_each_message_with_its_metadata(codec: int) -> None:
    """As the client has written them, after decompression."""
    shown = shown_entry(of(batched(THREE, codec=codec), [3, 5, 9]))
    found = headers(shown)
    assert bytes(shown.body) == inner(THREE)
    assert (found["num-batch-message"], found["highest-sequence-id"], found["PROPERTY"]) == ("3", "9", "{}")
    assert int(found["batch-size"]) > 0
    assert found["Broker-Entry-METADATA-index"] == "102"


def test_one_message_of_a_batch() -> None:
    """With what it has itself, and what the batch says for all: no count, so that its value is the body."""
    delivery = of(batched(THREE, codec=LZ4), [3, 5, 9])
    shown = [shown_message(delivery, index) for index in (100, 101, 102)]
    found = [headers(each) for each in shown]
    assert [bytes(each.body) for each in shown] == [b"first", b"", b"last"]
    assert [each["Message-ID"] for each in found] == ["5:3:0", "5:3:1", "5:3:2"]
    assert [each["sequence-id"] for each in found] == ["3", "5", "9"]
    assert [each["Broker-Entry-METADATA-index"] for each in found] == ["100", "101", "102"]
    assert [each.get("null-value") for each in found] == [None, "true", None]
    assert [json.loads(each["PROPERTY"]) for each in found] == [THREE[0].properties, {}, {}]
    assert [each.get("event-time") for each in found] == ["at 1700000000000", None, None]
    assert base64.b64decode(found[1]["partition-key"]) == THREE[1].key
    assert found[1]["partition-key-b64-encoded"] == "true"
    assert base64.b64decode(found[2]["Base64-ordering-key"]) == b"\x01"
    assert {each["producer-name"] for each in found} == {"p"}
    assert not {"num-batch-message", "highest-sequence-id", "uncompressed-size"} & set(found[0])


def test_messages_without_ids_have_those_of_their_places() -> None:
    delivery = of(batched([Sent(7, b"a"), Sent(8, b"b")], with_ids=False), [7, 8])
    assert [headers(shown_message(delivery, index))["sequence-id"] for index in (100, 101)] == ["7", "8"]


def test_known_prefix_is_not_shown() -> None:
    """The same numbers as clients of Pulsar count."""
    raw = stored(of_client(batched(THREE), [3, 5, 9]), skip_first=1)
    shown = shown_entry(delivered(raw))
    assert headers(shown)["num-batch-message"] == "2"
    assert bytes(shown.body) == inner(THREE[1:])
    last = shown_message(delivered(raw), 101)
    assert (headers(last)["Message-ID"], bytes(last.body)) == ("5:3:1", b"last")


def test_batch_of_the_sdk() -> None:
    """As it is converted for clients of Pulsar."""
    data = columns([b"one", b"two"], [7, 9], keys=[b"\xff", None], properties=[{}, {"a": "b"}])
    shown = shown_entry(delivered(stored(data)))
    found = headers(shown)
    assert (found["num-batch-message"], found["producer-name"], found["sequence-id"]) == ("2", "importer", "7")
    delivery = delivered(stored(data))
    assert bytes(shown.body) == delivery.payload
    both = open_entry(framed(delivery.metadata, delivery.payload))
    assert (both.values, both.ids, both.keys) == ([b"one", b"two"], [7, 9], [b"\xff", None])
    assert both.properties == [{}, {"a": "b"}]
    two_alone = shown_message(delivered(stored(data)), 101)
    assert (bytes(two_alone.body), json.loads(headers(two_alone)["PROPERTY"])) == (b"two", {"a": "b"})
    single = shown_entry(delivered(stored(columns([b"one"], keys=[b"\xff"]))))
    assert (bytes(single.body), headers(single)["partition-key"]) == (b"one", "/w==")


@pytest.mark.parametrize("count", [None, 3])
def test_encrypted_entry_stays_as_it_is(count: int | None) -> None:
    """Also when one of its messages is asked for: they are not visible."""
    ids = [4] if count is None else [4, 5, 6]
    entry = encrypted(4, None if count is None else 6, count=count, key=b"k")
    delivery = of(entry, ids)
    shown = shown_entry(delivery)
    assert shown_message(delivery, 100) == shown
    found = headers(shown)
    assert (bytes(shown.body), found["Is-Encrypted"], found["encryption-algo"]) == (bytes(range(256)), "true", "AES")
    assert base64.b64decode(found["Base64-encryption-param"]) == bytes(12)
    assert base64.b64decode(found["Base64-encryption-keys"]) == b"\x0a\x07our-key\x12\x02\x01\x02"
    assert found.get("num-batch-message") == (None if count is None else "3")


def test_header_takes_no_other_characters() -> None:
    """A key with others goes in base64, a name with others is left out: both could forge a header."""
    for name, key in (("caf\u00e9", b"a\r\nX-Pulsar-null-value: true"), ("a\n", "\u00fc".encode()), (" a", b"a ")):
        found = headers(shown_entry(of(plain(Sent(1, b"v", key), producer=name), [1])))
        assert "producer-name" not in found
        assert base64.b64decode(found["partition-key"]) == key
        assert found["partition-key-b64-encoded"] == "true"
        assert "null-value" not in found


def test_time_that_no_calendar_has_is_left_out() -> None:
    found = headers(shown_entry(of(plain(Sent(1, b"v", event_time_ms=1 << 62)), [1])))
    assert "event-time" not in found


def test_message_with_more_than_headers_take_is_refused() -> None:
    """Clients of Pulsar's REST would fail on such an answer, without a reason."""
    for size in (HEADERS_BYTES_MAX // 2, HEADERS_BYTES_MAX):
        delivery = of(plain(Sent(1, b"v", properties={"a": "x" * size})), [1])
        if size < HEADERS_BYTES_MAX:
            assert len(headers(shown_entry(delivery))["PROPERTY"]) > size
            continue
        with pytest.raises(
            Refused, match=rf"5:3 have 7\d+ bytes, and headers of HTTP take {HEADERS_BYTES_MAX}"
        ) as info:
            shown_entry(delivery)
        assert info.value.status == 413
    in_batch = of(batched([Sent(1, b"v", properties={"a": "x" * HEADERS_BYTES_MAX}), Sent(2, b"w")]), [1, 2])
    assert headers(shown_entry(in_batch))["num-batch-message"] == "2"  # properties are in the body
    with pytest.raises(Refused, match="5:3:0 have"):
        shown_message(in_batch, 100)
    assert bytes(shown_message(in_batch, 101).body) == b"w"


def test_unknown_fields_and_codecs_do_no_harm() -> None:
    metadata = outer(1).SerializeToString() + b"\xfa\x01\x02hi"  # field 31
    shown = shown_entry(of(framed(metadata, b"v"), [1]))
    assert bytes(shown.body) == b"v"


def test_ids_as_json() -> None:
    entry = of(plain(Sent(1, b"v")), [1])
    assert shown_id(entry.id, None) == {"ledgerId": 5, "entryId": 3, "partitionIndex": -1}
    in_batch = entry.id._replace(batch_index=2)
    assert shown_id(in_batch, 4) == {
        "ledgerId": 5, "entryId": 3, "partitionIndex": 4, "batchIndex": 2, "batchSize": 3,
    }  # fmt: skip
    assert shown_id(None, None) == {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
