"""Messages in chunks through a real cluster: one message of the whole value, for every kind of reader, or an error."""

import asyncio
import hashlib
from random import Random
from typing import Any

import pytest

import oncelog
from oncelog import errors
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.commands import COMMAND_TIMEOUT_S, environment
from tests.cluster.forked_program import run_forked

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024


def value_of(size: int, seed: int) -> bytes:
    return Random(seed).randbytes(size)


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


async def test_message_of_64_mib_survives_a_killed_owner(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """The owner is killed while its chunks arrive. Readers and consumers get it once, whole, between its neighbours."""
    topic = "chunks-killed"
    large = value_of(64 * MIB, 1)
    producer = await client.create_producer(topic, producer_name="uploader", chunking=True)
    await producer.send(b"before")
    owner, epoch = await cluster.owner_of(topic), (await cluster.stats(topic))["owner_epoch"]
    sending = producer.send_nowait(large, key="large", properties={"kind": "video"})
    behind = asyncio.ensure_future(producer.send(b"behind"))

    async def chunks_arrive() -> bool:
        return bool((await cluster.stats(topic))["messages_by_verdict"].get("chunk", 0) > 4)

    await cluster.kill(owner, once=chunks_arrive)
    assert not sending.done(), "the owner is killed in the middle"
    await cluster.served_by_another(topic, epoch)
    sent = await asyncio.wait_for(sending, DEADLINE_S)
    await asyncio.wait_for(behind, DEADLINE_S)
    assert not sent.duplicate

    async with await client.create_reader(topic) as reader:
        read = [await reader.read_next(timeout=DEADLINE_S) for _ in range(3)]
        assert not await reader.has_message_available()
    assert [message.index for message in read] == [0, 1, 2]
    assert (read[0].value, read[2].value) == (b"before", b"behind")
    assert digest(read[1].value) == digest(large)
    assert (read[1].key, read[1].properties, read[1].message_id) == (b"large", {"kind": "video"}, sent.message_id)

    start = oncelog.EARLIEST
    async with await client.subscribe(topic, subscription="all", type="shared", start=start) as consumer:
        received = [await consumer.receive(timeout=DEADLINE_S) for _ in range(3)]
        assert digest(received[1].value) == digest(large)
        await consumer.ack(received)
    async with await client.subscribe(topic, subscription="all", type="shared") as consumer:
        await producer.send(b"new")
        assert (await consumer.receive(timeout=DEADLINE_S)).value == b"new"
    await cluster.healed()


async def test_retry_of_a_message_in_chunks_is_a_duplicate(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Another instance sends the same again, from a list and alone."""
    topic = "chunks-again"
    values = [b"small", value_of(6 * MIB, 2), value_of(7 * MIB, 3), b"small too"]
    first = await client.create_producer(topic, producer_name="importer", chunking=True)
    stored = await first.send_many(values, sequence_ids=[10, 20, 30, 40])
    again = await client.create_producer(topic, producer_name="importer", chunking=True)
    repeated = await again.send_many(values, sequence_ids=[10, 20, 30, 40])
    assert list(repeated.message_ids) == list(stored.message_ids)
    assert (await again.send(values[1], sequence_id=20)).duplicate
    page = await cluster.get(f"{rest_path(topic)}/messages?index=0")
    shown = [(one["value"], one["value_bytes"], one["in_chunks"]) for one in page["messages"]]
    chunked = [(None, len(value), True) for value in values[1:3]]
    assert shown == [("small", 5, False), *chunked, ("small too", 9, False)]
    [found] = await cluster.get(f"{rest_path(topic)}/messages/find?producer_name=importer&sequence_id=20")
    assert (found["state"], found["message_id"], found["index"]) == ("stored", str(stored.message_ids[1]), 1)
    assert found["refusals"]["counts"] == {"duplicate": 2}
    async with await client.create_reader(topic) as reader:
        assert [digest((await reader.read_next(timeout=DEADLINE_S)).value) for _ in values] == [*map(digest, values)]
        assert not await reader.has_message_available()


async def test_message_above_max_message_bytes_is_an_error_that_names_it(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """Nothing is skipped: with a higher setting the same message arrives."""
    topic = "chunks-bounded"
    producer = await client.create_producer(topic, chunking=True)
    with pytest.raises(errors.MessageTooLarge, match="with create_producer\\(chunking=True\\)"):
        await (await client.create_producer(topic)).send(bytes(6 * MIB))
    await producer.send_many([b"first", bytes(6 * MIB), b"last"])
    start = oncelog.EARLIEST
    async with await oncelog.connect(cluster.url, max_message_bytes=MIB) as small:
        async with await small.create_reader(topic) as reader:
            assert (await reader.read_next(timeout=DEADLINE_S)).value == b"first"
            with pytest.raises(errors.MessageTooLarge, match="max_message_bytes") as raised:
                await reader.read_next(timeout=DEADLINE_S)
            assert raised.value.details["limit"] == MIB
            with pytest.raises(errors.MessageTooLarge, match="max_message_bytes"):
                await reader.read_next(timeout=DEADLINE_S)
        async with await small.subscribe(topic, subscription="s", start=start) as consumer:
            assert (await consumer.receive(timeout=DEADLINE_S)).value == b"first"
            for _ in range(2):
                with pytest.raises(errors.MessageTooLarge, match="max_message_bytes"):
                    await consumer.receive(timeout=DEADLINE_S)
    words = ["read", topic, "--url", cluster.url, "--max-message-bytes", str(MIB)]
    refused = await asyncio.to_thread(run_forked, words, environment(), timeout_s=COMMAND_TIMEOUT_S)
    assert refused.returncode == 1
    assert b"a higher limit: --max-message-bytes" in refused.stderr
    async with await client.subscribe(topic, subscription="s") as consumer:
        got = [len((await consumer.receive(timeout=DEADLINE_S)).value) for _ in range(3)]
    assert got == [5, 6 * MIB, 4]


async def test_http_and_dead_letters_say_that_a_message_is_in_chunks(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """No part of Oncelog takes the message without its chunks for the whole one."""
    topic = "chunks-elsewhere"
    producer = await client.create_producer(topic, chunking=True)
    start = oncelog.EARLIEST
    kwargs: dict[str, Any] = {"max_deliveries": 1, "dead_letter_topic": "chunks-dead", "type": "shared"}
    async with await client.subscribe(topic, subscription="s", start=start, **kwargs) as consumer:
        sent = await producer.send(bytes(6 * MIB))
        path = f"{rest_path(topic)}/subscription/s/position/1"
        peeked = await cluster.request("GET", path)
        assert (peeked.status_code, peeked.json()["code"]) == (409, "chunked_message")
        message = await consumer.receive(timeout=DEADLINE_S)
        await consumer.nack(message, delay=0)
    async with await client.create_reader("chunks-dead") as reader:
        letter = await reader.read_next(timeout=DEADLINE_S)
    assert letter.value == b""
    assert letter.properties["dead_letter.index"] == str(message.index) == "0"
    assert "in chunks" in letter.properties["dead_letter.omitted"]

    address = f"/topics/persistent/public/default/{topic}/subscription/http/session"
    session = await cluster.request("POST", address, json={"ack_timeout": 30, "start": "earliest"})
    taken = await cluster.request("GET", f"{address}/{session.json()['session']}/messages?wait=10")
    problem = taken.json()
    assert (taken.status_code, problem["code"]) == (413, "message_too_large")
    assert (problem["index"], problem["message_id"]) == (0, str(sent.message_id))
    await producer.send(b"behind")
    assert (await cluster.request("DELETE", f"{address}/{session.json()['session']}")).status_code == 204
    assert (await cluster.request("POST", problem["detail"].rpartition("POST ")[2])).status_code == 204
    session = await cluster.request("POST", address, json={"ack_timeout": 30})
    taken = await cluster.request("GET", f"{address}/{session.json()['session']}/messages?wait=10")
    assert [message["value"] for message in taken.json()["messages"]] == ["behind"]
