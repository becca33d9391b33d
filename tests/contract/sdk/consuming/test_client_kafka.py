"""Messages of Kafka's clients at readers and consumers of the SDK: as those of our producers, and with headers."""

import json
from pathlib import Path

import pytest
from crc32c import crc32c

import oncelog
from oncelog.cli.read.lines import json_lines
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.entry import encode_header
from oncelog.core.formats.epoched_ids import first_of
from oncelog.core.formats.kafka import open_batch
from oncelog.core.formats.payload import columns_of_records
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import FakeTopic
from tests.core.kafka_batches import TIME_MS, Sent, as_batch, framed, packed, records

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("both_ways")]
DEADLINE_S = 30.0
FOUR = [
    Sent(b"first", b"key", [(b"a", b"1"), (b"raw", b"\xff"), (b"a", b"2")]),
    Sent(None, b"\xff\x00"),
    Sent(b"", timestamp=-1),
    Sent(b"last", headers=[(b"a", b"x")], timestamp=TIME_MS + 5),
]


async def filled(cluster: FakeCluster, client: oncelog.AsyncClient) -> FakeTopic:
    """Twelve messages, four in an entry: entries 1 to 3 behind the grant."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=4 * 5)
    await producer.send_many([b"%x" % i for i in range(12)])
    return cluster.topic("flights")


def put(topic: FakeTopic, at: int, sent: list[Sent], *, codec: int = 0, skip_first: int = 0) -> None:
    """Put the record batch of a client of Kafka in place of one of ours."""
    entry = framed(packed(codec, records(sent)), len(sent), attributes=codec, producer=(7, 2, 5), by=crc32c)
    first = first_of(2) + 5
    body = as_batch(entry, range(first, first + len(sent)), by=crc32c)
    header = topic.entries[at][0]._replace(body_bytes=len(body), skip_first=skip_first)
    topic.entries[at] = (header, encode_header(header, body, crc32c) + body)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_messages_have_what_their_producer_gave_them(
    cluster: FakeCluster, client: oncelog.AsyncClient, codec: int
) -> None:
    """Value and null, key, timestamp as event time, headers; those that are text are properties."""
    put(await filled(cluster, client), 1, FOUR, codec=codec)
    reader = await client.create_reader("flights")
    found = [await reader.read_next(timeout=DEADLINE_S) for _ in range(5)]
    assert [message.value for message in found] == [b"first", None, b"", b"last", b"4"]
    assert [message.key for message in found] == [b"key", b"\xff\x00", None, None, None]
    assert [message.event_time_ms for message in found] == [TIME_MS, TIME_MS, None, TIME_MS + 5, None]
    assert [message.sequence_id - first_of(2) for message in found[:4]] == [5, 6, 7, 8]
    assert found[0].headers == (("a", b"1"), ("raw", b"\xff"), ("a", b"2"))
    assert [dict(message.properties) for message in found] == [{"a": "2"}, {}, {}, {"a": "x"}, {}]
    assert (found[1].headers, found[4].headers) == ((), ())
    assert "value=None" in repr(found[1])


async def test_a_consumer_gets_a_tombstone_and_acknowledges_it(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    put(await filled(cluster, client), 1, FOUR)
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
    received = [await consumer.receive(timeout=DEADLINE_S) for _ in range(4)]
    assert [message.value for message in received] == [b"first", None, b"", b"last"]
    assert (await consumer.ack(received[1])) is not None
    batch = await (await client.create_reader("flights")).read_batch(timeout=DEADLINE_S)
    lines = json_lines(batch, range(batch.count)).decode().splitlines()
    assert '"value": null' in lines[1]
    assert '"properties": {"a": "2"}' in lines[0]
    raw = {"key": "raw", "value_base64": "/w=="}
    assert json.loads(lines[0])["headers"] == [{"key": "a", "value": "1"}, raw, {"key": "a", "value": "2"}]


async def test_a_known_prefix_is_not_delivered(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    put(await filled(cluster, client), 1, [*FOUR, *FOUR], skip_first=4)
    reader = await client.create_reader("flights")
    batch = await reader.read_batch(timeout=DEADLINE_S)
    assert [bytes(value) for value in batch.values] == [b"first", b"", b"", b"last"]
    assert (batch.first_index, list(batch.nulls or ())) == (0, [False, True, False, False])
    assert batch.headers is not None
    assert batch.headers[3] == (("a", b"x"),)


async def test_what_our_columns_cannot_hold_is_never_copied_in_silence(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """A mirror packs messages again. Null values, and headers that are no properties, are an error there."""
    put(await filled(cluster, client), 1, FOUR)
    batch = await (await client.create_reader("flights")).read_batch(timeout=DEADLINE_S)
    with pytest.raises(InvalidArgument, match="message 1 has a null value of a client of Kafka"):
        batch.payload()
    with pytest.raises(InvalidArgument, match=r"message 0 has headers that are not text.* of a client of Kafka"):
        batch.part(0, 1).payload()
    assert b"last" in batch.part(3, 4).payload()


#: library, codec, batch in hexadecimal digits
SAMPLES = [line.split() for line in (Path(__file__).parent / "kafka_batches.txt").read_text().splitlines()]


@pytest.mark.parametrize(("library", "codec", "batch"), SAMPLES, ids=[" ".join(each[:2]) for each in SAMPLES])
async def test_batches_of_client_libraries_are_read(library: str, codec: str, batch: str) -> None:
    """As aiokafka 0.14.0, kafka-python 3.0.12 and confluent-kafka 2.16.1 have packed five records, byte by byte."""
    found = open_batch(bytes.fromhex(batch), checksum=crc32c)
    assert found.head.codec == int(codec)
    assert found.head.producer_id == (-1 if library == "librdkafka-plain" else 7)
    assert list(found.values) == [b"value", b"second", b"", b"", b"x" * 300]
    assert (list(found.nulls), found.keys) == ([2], [b"key", None, b"\xff\x00", b"", None])
    assert found.timestamps_ms == [
        1_700_000_000_000, 1_700_000_000_123, 1_699_999_999_999, 1_700_000_000_000, 1_700_000_005_000,
    ]  # fmt: skip
    assert columns_of_records(found).properties == [{"a": "1", "b": "é"}, {}, {"a": "2"}, {}, {}]
