"""Messages of Pulsar's clients at readers and consumers of the SDK: as those of our producers, and never ciphertext."""

import base64
import json
from collections.abc import Sequence

import pytest
from crc32c import crc32c

import oncelog
from oncelog.cli.read.lines import json_lines
from oncelog.core.errors import InvalidArgument
from oncelog.core.format_errors import MessageEncrypted, UnknownFormat
from oncelog.core.formats.batch import checksum_of
from oncelog.core.formats.entry import encode_header
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.ids import Generation, ProducerId
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import FakeTopic
from tests.core.pulsar_entries import Sent, batched, encrypted, numbered, of_one_key, pack_pulsar, summed

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("both_ways")]
DEADLINE_S = 30.0
FOUR = [
    Sent(3, b"first", b"key", {"a": "1"}, 1_700_000_000_000),
    Sent(5, None, b"\xff\x00"),
    Sent(9, b""),
    Sent(10, b"last"),
]


async def filled(cluster: FakeCluster, client: oncelog.AsyncClient) -> FakeTopic:
    """Twelve messages, four in an entry: entries 1 to 3 behind the grant."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=4 * 5)
    await producer.send_many([b"%x" % i for i in range(12)])
    return cluster.topic("flights")


def put(topic: FakeTopic, at: int, entry: bytes, *, skip_first: int = 0, payload_format: int = 5) -> None:
    """Put the entry of a client of Pulsar in place of one of ours."""
    entry = summed(entry, crc32c)
    body = bytearray(
        pack_pulsar(entry, open_entry(entry), producer_id=ProducerId(1), generation=Generation(1), checksum=crc32c)
    )
    body[3] = payload_format
    body[4:8] = checksum_of(body, crc32c).to_bytes(4, "little")
    header = topic.entries[at][0]._replace(body_bytes=len(body), skip_first=skip_first)
    topic.entries[at] = (header, encode_header(header, body, crc32c) + bytes(body))


async def read(client: oncelog.AsyncClient, count: int = 12) -> list[oncelog.Message]:
    reader = await client.create_reader("flights")
    return [await reader.read_next(timeout=DEADLINE_S) for _ in range(count)]


async def test_messages_have_what_their_producer_gave_them(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Value, null, key in text and in bytes, properties, event time, their own ids, also in a batch of one key."""
    topic = await filled(cluster, client)
    put(topic, 1, batched(FOUR, codec=4))
    put(topic, 2, of_one_key([Sent(number, b"%d" % number, b"k") for number in (11, 13, 14, 20)]))
    found = (await read(client))[:8]
    assert [message.value for message in found] == [b"first", None, b"", b"last", b"11", b"13", b"14", b"20"]
    assert [message.key for message in found] == [b"key", b"\xff\x00", None, None, b"k", b"k", b"k", b"k"]
    assert [message.sequence_id for message in found] == [3, 5, 9, 10, 11, 13, 14, 20]
    assert [message.index for message in found] == list(range(8))
    assert (found[0].properties, found[0].event_time_ms) == ({"a": "1"}, 1_700_000_000_000)
    assert {message.publish_time_ms for message in found} == {1_764_000_000_000}
    assert "value=None" in repr(found[1])


async def test_a_consumer_gets_and_acknowledges_them(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    put(await filled(cluster, client), 1, batched(FOUR))
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    received = [await consumer.receive(timeout=DEADLINE_S) for _ in range(4)]
    assert [message.value for message in received] == [b"first", None, b"", b"last"]
    assert (await consumer.ack(received[1])) is not None
    batch = await (await client.create_reader("flights")).read_batch(timeout=DEADLINE_S)
    assert (list(batch.nulls or ()), batch.encrypted) == ([False, True, False, False], False)
    lines = json_lines(batch, range(batch.count)).decode().splitlines()
    assert '"value": null' in lines[1]
    assert '"value": ""' in lines[2]


@pytest.mark.hazard("entry-of-another-batch")
async def test_a_known_prefix_is_not_delivered(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The entry is stored as it came, with two messages in front that were stored before."""
    put(await filled(cluster, client), 1, batched(numbered(range(6))), skip_first=2)
    found = (await read(client, 5))[:5]
    assert [message.value for message in found] == [b"value 2", b"value 3", b"value 4", b"value 5", b"4"]
    assert [(message.index, message.sequence_id) for message in found[:4]] == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert [message.message_id.batch_index for message in found[:4]] == [2, 3, 4, 5]


async def test_encrypted_messages_are_refused_and_never_skipped(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Also where damage is skipped. With `pass` their value is an EncryptedMessage, which has what the client sent."""
    topic = await filled(cluster, client)
    entry = encrypted(7, 10, count=4, key=b"k")
    put(topic, 1, entry)
    reader = await client.create_reader("flights", on_corrupt="skip")
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST, on_corrupt="skip")
    for _ in range(2):
        with pytest.raises(MessageEncrypted, match=r"our-key.*on_encrypted='pass'"):
            await reader.read_next(timeout=DEADLINE_S)
        with pytest.raises(MessageEncrypted, match="our-key"):
            await consumer.receive(timeout=DEADLINE_S)
    assert reader.skipped.total == consumer.skipped.total == 0
    await consumer.close()
    passing = await client.create_reader("flights", on_encrypted="pass")
    taking = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST, on_encrypted="pass")
    for messages in (await four(passing.read_next), await four(taking.receive)):
        assert [message.index for message in messages] == [0, 1, 2, 3]
        assert [message.sequence_id for message in messages] == [7, 8, 9, 10]
        for number, message in enumerate(messages):
            assert isinstance(message.value, oncelog.EncryptedMessage)
            assert (message.value.batch_index, message.value.batch_count) == (number, 4)
            assert (message.value.entry, message.value.keys) == (summed(entry, crc32c), {"our-key": b"\x01\x02"})
            assert message.key == b"k"
    assert (await passing.read_next(timeout=DEADLINE_S)).value == b"4", "our own messages are bytes as before"


async def test_encrypted_messages_are_printed_with_what_their_client_has_sent(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Their value is null, and their entry is printed once."""
    entry = encrypted(7, 10, count=4, key=b"k")
    put(await filled(cluster, client), 1, entry)
    batch = await (await client.create_reader("flights", on_encrypted="pass")).read_batch(timeout=DEADLINE_S)
    lines = [json.loads(line) for line in json_lines(batch, [1, 3]).splitlines()]
    assert [(line["value"], line["index"], line["key"]) for line in lines] == [(None, 1, "k"), (None, 3, "k")]
    sealed = {
        "keys": {"our-key": "AQI="}, "algorithm": "AES", "parameters_base64": base64.b64encode(bytes(12)).decode(),
        "batch_count": 4,
    }  # fmt: skip
    whole = base64.b64encode(summed(entry, crc32c)).decode()
    assert lines[0]["encrypted"] == sealed | {"batch_index": 1, "entry_base64": whole}
    assert lines[1]["encrypted"] == sealed | {"batch_index": 3}


async def test_messages_before_an_encrypted_one_are_received_first(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """One call returns several entries: an error of the second one must not lose the first one."""
    put(await filled(cluster, client), 2, encrypted(17, 20, count=4))
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    received: list[int] = []
    while len(received) < 4:
        batch = await consumer.receive_batch()
        received += [message.index for message in batch]
    assert received == [0, 1, 2, 3]
    with pytest.raises(MessageEncrypted):
        await consumer.receive_batch()


async def four(take: object) -> Sequence[oncelog.Message]:
    assert callable(take)
    return [await take(timeout=DEADLINE_S) for _ in range(4)]


@pytest.mark.hazard("format-of-a-later-version")
async def test_an_entry_of_a_later_format_is_named_and_never_skipped(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """A reader that skips damage would lose its messages, and a consumer would acknowledge them."""
    put(await filled(cluster, client), 2, batched(numbered(range(4))), payload_format=6)
    reader = await client.create_reader("flights", on_corrupt="skip")
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST, on_corrupt="skip")
    for take in (reader.read_next, consumer.receive):
        assert [message.index for message in await four(take)] == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(UnknownFormat, match=r"payload format 6.*upgrade"):
                await take(timeout=DEADLINE_S)
    assert reader.skipped.total == consumer.skipped.total == 0


async def test_values_that_columns_cannot_hold_are_not_copied_as_if_they_were_empty(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """A mirror would make an empty value of a null one. What is neither null nor encrypted is copied."""
    topic = await filled(cluster, client)
    put(topic, 1, batched(FOUR))
    put(topic, 2, encrypted(17, 20, count=4))
    reader = await client.create_reader("flights", on_encrypted="pass")
    with_null, sealed = [await reader.read_batch(timeout=DEADLINE_S) for _ in range(2)]
    with pytest.raises(InvalidArgument, match="message 1 has a null value"):
        with_null.payload()
    with pytest.raises(InvalidArgument, match="message 4 has an encrypted value"):
        sealed.payload()
    assert b"last" in with_null.after(2).payload()


async def test_a_search_finds_them_by_key(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    put(await filled(cluster, client), 1, batched(FOUR))
    found = [message async for message in await client.search("flights", key=b"\xff\x00")]
    assert [(message.index, message.value) for message in found] == [(1, None)]
    found = [message async for message in await client.search("flights", text="las")]
    assert [message.value for message in found] == [b"last"]
