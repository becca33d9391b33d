"""Bad input to real processes: each has an error with a name, changes nothing, and ends no process."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
import pytest_asyncio

import oncelog
from oncelog.core.errors import (
    IdempotencyUnavailable,
    InvalidArgument,
    InvalidName,
    InvalidSequenceId,
    MessageTooLarge,
    ModeMismatch,
    OncelogError,
    ProducerClosed,
    ProducerFenced,
    SequenceGap,
    TopicNotFound,
    WrongCluster,
)
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, SessionNumber, TopicId
from oncelog.rpc.codecs import owner_codec, reader_codec, storage_codec
from oncelog.rpc.codecs.metadata_codec import LEDGERS, LOOKUP, OWNER_STREAM, TOPICS
from oncelog.rpc.codecs.owner_codec import OpenRequest, PublishFrame
from oncelog.rpc.codecs.reader_codec import ReadControl, ReaderStart, StartEdge
from oncelog.rpc.codecs.storage_codec import AppendFrame, ReadRequest
from oncelog.rpc.methods import Method, StreamMethod
from oncelog.rpc.server import Server
from oncelog.wire import metadata_pb2, owner_pb2, storage_pb2
from oncelog.wire import storage_pb2 as pb
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.loads import read_all
from tests.cluster.wire_client import PublishWire, batch_of, code_of_garbage, instance_of, noise

pytestmark = pytest.mark.asyncio

MESSAGE_BYTES_MAX = 5 << 20
NAMESPACE = "/admin/v2/persistent/public/default"
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.running(tmp_path_factory.mktemp("bad-input"), storage_nodes=1, owners=1) as own:
        yield own


@pytest_asyncio.fixture
async def client(cluster: Cluster) -> AsyncIterator[oncelog.AsyncClient]:
    """At the end no process has restarted or reported a bug."""
    before = {name: process["pid"] for name, process in cluster.processes.items()}
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as own:
        yield own
        producer = await own.create_producer("afterwards")
        assert not (await producer.send(b"still serving")).duplicate
    assert {name: process["pid"] for name, process in cluster.processes.items()} == before
    for log in (cluster.data / "logs").glob("*.log"):
        assert '"level": "error"' not in log.read_text(), log


# --- the SDK: what it refuses by itself is in tests/contract/sdk, what REST refuses in tests/contract/rest ------------


async def test_invalid_producer_names_are_refused(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """InvalidName from the SDK, and from the owner for other clients. No producer is created."""
    await client.create_producer("named", producer_name="importer")
    stats = await cluster.stats("named", "internalStats")
    for name in ("", "x" * 256, "x" * 2_000, "ü" * 255 + "x", "new\nline", "nul\x00", "\ud800"):
        with pytest.raises(InvalidName):
            await client.create_producer("named", producer_name=name)
        if name and name.isprintable() | name.isascii():
            async with PublishWire.to(stats["owner_address"]) as wire:
                assert isinstance(await wire.open("public/default/named", stats["topic_id"], name), InvalidName)
    producers = (await cluster.stats("named", "internalStats"))["producers"]
    assert [producer["name"] for producer in producers] == ["importer"]


async def test_messages_over_the_limit_are_refused(client: oncelog.AsyncClient) -> None:
    """A message of 5 MiB is accepted, one byte more is refused. Messages sent before and after it are stored."""
    producer = await client.create_producer("large")
    largest = bytes(MESSAGE_BYTES_MAX)
    await producer.send(largest)
    with pytest.raises(MessageTooLarge) as caught:
        await producer.send(largest + b"x")
    assert caught.value.details == {"field": "value", "limit": MESSAGE_BYTES_MAX}
    with pytest.raises(MessageTooLarge):
        await producer.send_many([b"small", largest + bytes(100_000)])
    await producer.send(b"last")
    sizes = [len(message.value) for message in await read_all(client, "large")]
    assert (sizes[0], sizes[-1], max(sizes)) == (MESSAGE_BYTES_MAX, 4, MESSAGE_BYTES_MAX)


async def test_automatic_ids_do_not_wrap_around(client: oncelog.AsyncClient) -> None:
    """After the greatest id the producer raises an error."""
    producer = await client.create_producer("last-id", initial_sequence_id=2**63 - 3)
    results = [await producer.send(b"x") for _ in range(2)]
    assert [result.sequence_id for result in results] == [2**63 - 2, 2**63 - 1]
    with pytest.raises(InvalidSequenceId):
        await producer.send(b"x")
    assert len(await read_all(client, "last-id")) == 2


async def test_gaps_of_a_contiguous_producer_are_refused(client: oncelog.AsyncClient) -> None:
    """SequenceGap names the expected id. Opening the same name in the other mode is refused."""
    producer = await client.create_producer("gaps", producer_name="importer", sequence_mode="contiguous")
    await producer.send(b"0", sequence_id=0)
    with pytest.raises(SequenceGap) as caught:
        await producer.send(b"2", sequence_id=2)
    assert caught.value.details["expected"] == 1
    with pytest.raises(ModeMismatch):
        await client.create_producer("gaps", producer_name="importer")
    await producer.send(b"1", sequence_id=1)
    assert [message.value for message in await read_all(client, "gaps")] == [b"0", b"1"]


async def test_closed_and_fenced_producers_report_their_state(client: oncelog.AsyncClient) -> None:
    """Each way of sending reports whether the producer is closed or fenced."""
    closed = await client.create_producer("over", producer_name="closed")
    await closed.close()
    fenced = await client.create_producer("over", producer_name="fenced")
    await client.create_producer("over", producer_name="fenced")
    for producer, error in ((closed, ProducerClosed), (fenced, ProducerFenced)):
        with pytest.raises(error):
            await producer.send(b"x")
        with pytest.raises(error):
            await producer.send_many([b"x"])
        with pytest.raises(error):
            producer.send_nowait(b"x")
    assert await read_all(client, "over") == []


async def test_missing_topic_is_not_found_if_creation_is_disabled(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """TopicNotFound while the namespace disables creation. Once it is enabled, the topic is created on use."""
    await cluster.change("PUT", "/admin/v2/namespaces/public/closed", json={"auto_create_topics": False})
    topic = "public/closed/flights"
    with pytest.raises(TopicNotFound):
        await client.create_producer(topic)
    with pytest.raises(TopicNotFound):
        await client.create_reader(topic)
    assert await cluster.get("/admin/v2/persistent/public/closed") == []
    await cluster.change("DELETE", "/admin/v2/namespaces/public/closed/autoTopicCreation")
    await (await client.create_producer(topic)).send(b"x")
    assert await cluster.get("/admin/v2/persistent/public/closed") == [topic]


async def test_missing_namespace_is_reported(client: oncelog.AsyncClient) -> None:
    """The error names the namespace. The client does not wait forever."""
    with pytest.raises(OncelogError) as caught:
        await client.create_producer("nobody/nowhere/flights")
    assert caught.value.code == "namespace_not_found"


async def test_metadata_services_of_two_clusters_are_refused(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """An address of another cluster would mix two logs: WrongCluster."""

    async def look_up(_request: metadata_pb2.LookupRequest) -> metadata_pb2.LookupAnswer:
        owner = cluster.serving("owner-1")
        return metadata_pb2.LookupAnswer(cluster_id="another", topic_id="t", owner_address=owner, owner_epoch=1)

    server = Server()
    server.unary(LOOKUP, look_up)
    port = await server.start()
    url = f"oncelog://127.0.0.1:{port},{cluster.url.removeprefix('oncelog://')}"
    async with await oncelog.connect(url, operation_timeout=DEADLINE_S) as stray:
        reader = await stray.create_reader("elsewhere")
        await reader.close()
        await server.stop(grace_ms=0)
        with pytest.raises(WrongCluster):
            await stray.create_producer("here")
    assert "public/default/here" not in await cluster.get(NAMESPACE)


# --- batches ----------------------------------------------------------------------------------------------------------


async def test_malformed_batches_end_their_session_only(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Truncated, corrupted or inconsistent: InvalidBatch ends that session; other sessions of the stream continue."""
    topic = "batches"
    await client.create_producer(topic, producer_name="somebody")
    stats = await cluster.stats(topic)
    full = f"public/default/{topic}"
    own = random.Random(7)
    async with PublishWire.to(stats["owner_address"]) as wire:
        good = await wire.granted(full, stats["topic_id"], "good")
        first = await wire.granted(full, stats["topic_id"], "bad")
        instance = instance_of(first)
        whole = batch_of(instance, 0, [b"one", b"two", b"three"])
        bad = [whole[:length] for length in (0, 1, 63, 64, len(whole) - 1)]
        bad += [
            whole + b"x",
            own.randbytes(200),
            bytes(64),
            batch_of(instance, 2**63 - 2, [b"1", b"2", b"3"], last=2**63 - 1),
        ]
        for _ in range(20):
            at = own.randrange(len(whole))
            bad.append(whole[:at] + bytes([whole[at] ^ 1 << own.randrange(8)]) + whole[at + 1 :])
        for number, batch in enumerate(bad):
            granted = await wire.granted(full, stats["topic_id"], "bad", resume=instance)
            await wire.send(granted.session, 1, batch)
            fate = await wire.fate(granted.session, 1)
            assert isinstance(fate, InvalidArgument), (number, fate)
            await wire.send(good.session, number, batch_of(instance_of(good), number, [b"good"]))
            await wire.stored(good.session, number)
        granted = await wire.granted(full, stats["topic_id"], "bad", resume=instance)
        await wire.send(granted.session, 1, whole)
        assert len(await wire.stored(granted.session, 1)) == 1
    stored = await read_all(client, topic)
    assert [message.value for message in stored if message.producer_name == "bad"] == [b"one", b"two", b"three"]
    assert len(stored) == len(bad) + 3


async def test_batches_over_the_limit_on_the_wire(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """A client that exceeds the limit gets an error, and nothing is stored. A frame above gRPC's own limit ends the
    call."""
    await client.create_producer("wire-large", producer_name="importer")
    stats = await cluster.stats("wire-large")
    full = "public/default/wire-large"
    async with PublishWire.to(stats["owner_address"]) as wire:
        granted = await wire.granted(full, stats["topic_id"], "rude")
        await wire.send(granted.session, 1, batch_of(instance_of(granted), 0, [bytes(6 << 20)]))
        assert isinstance(await wire.fate(granted.session, 1), MessageTooLarge)
    frame = owner_codec.encode_publish(PublishFrame([granted.session], [1], [bytes(17 << 20)]))
    code = await code_of_garbage(stats["owner_address"], owner_codec.PUBLISH.path, frame, streaming=True)
    assert code is Code.RESOURCE_EXHAUSTED
    assert await read_all(client, "wire-large") == []


# --- the ports --------------------------------------------------------------------------------------------------------


def requests_of(cluster: Cluster, topic_id: str) -> dict[str, list[tuple[Method, bytes]]]:  # type: ignore[type-arg]
    """{process: (method, a good first message)}, for every method of every gRPC port."""
    node = Incarnation(cluster.serving("storage-1", "incarnation"))
    me = cluster.serving("owner-1", "incarnation")
    topic = "public/default/garbage"
    control = ReadControl(ReaderStart(topic, TopicId(topic_id), StartEdge.EARLIEST, OwnerEpoch(0)), 1000)
    publish = PublishFrame([SessionNumber(1)], [1], [b"batch"], [OpenRequest(1, topic, TopicId(topic_id), "n")])
    hello = metadata_pb2.OwnerHello(cluster_id="c", incarnation="i", address="127.0.0.1:1")
    asked: dict[str, list[tuple[Method, object]]] = {  # type: ignore[type-arg]
        "owner-1": [
            (owner_codec.PUBLISH, publish),
            (reader_codec.READ, control),
            (owner_codec.LAST_MESSAGE, owner_pb2.LastMessageRequest(topic=topic, topic_id=topic_id)),
            (owner_codec.PRODUCER_NAMES, owner_pb2.ProducerNamesRequest(topic=topic, topic_id=topic_id)),
            (owner_codec.TOPIC_STATES, owner_pb2.TopicStatesRequest(topic_ids=[topic_id], internal=True)),
            (owner_codec.ASSIGN, owner_pb2.AssignRequest(target=me, topic_id="nothing", owner_epoch=1)),
            (owner_codec.UNLOAD, owner_pb2.UnloadRequest(target=me, topic_id="nothing")),
        ],
        "storage-1": [
            (storage_codec.APPEND, AppendFrame(node, recovery=False, entries=[b"entry"])),
            (storage_codec.FENCE, pb.FenceRequest(target=Incarnation("0" * 32), ledger_id=1)),
            (storage_codec.READ, ReadRequest(node, LedgerId(10**6), EntryId(0), 5)),
            (storage_codec.DESCRIBE, storage_pb2.DescribeRequest()),
        ],
        "metadata-1": [
            (LOOKUP, metadata_pb2.LookupRequest(topic="garbage")),
            (LEDGERS, metadata_pb2.LedgersRequest(topic="garbage")),
            (TOPICS, metadata_pb2.TopicsRequest(namespace="public/default")),
            (OWNER_STREAM, hello),
        ],
    }
    return {name: [(method, method.encode_request(value)) for method, value in some] for name, some in asked.items()}


async def test_publish_with_a_key_without_redis_says_so_at_once(client: oncelog.AsyncClient) -> None:
    """It is not repeated until operation_timeout: only an operator can help. Nothing is created."""
    async with asyncio.timeout(DEADLINE_S / 2):
        with pytest.raises(IdempotencyUnavailable, match="ONCELOG_REDIS_URL") as caught:
            await client.publish("unkeyed", b"a", idempotency_key="a")
    assert caught.value.stored is False
    with pytest.raises(TopicNotFound):
        await client.last_message_id("unkeyed")


async def test_garbage_and_truncated_frames_fail_no_handler(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """A frame that cannot be parsed is INVALID_ARGUMENT. A frame that still parses is answered as a request. No
    handler fails."""
    await (await client.create_producer("garbage")).send(b"x")
    own = random.Random(11)
    lookup = await cluster.stats("garbage")
    honest = {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.UNAVAILABLE}
    for name, methods in requests_of(cluster, lookup["topic_id"]).items():
        address = cluster.serving(name)
        for method, good in methods:
            streaming = isinstance(method, StreamMethod)
            cuts = {own.randrange(len(good)) for _ in range(4)} if good else set()
            for data in [good[:cut] for cut in cuts] + [good + b"\x0b", b"\xff" * 40, own.randbytes(300)]:
                code = await code_of_garbage(address, method.path, data, streaming=streaming)
                assert code in honest, (method.path, data, code)
                assert code is Code.INVALID_ARGUMENT or data in {good[:cut] for cut in cuts}, (method.path, data, code)
    assert [message.value for message in await read_all(client, "garbage")] == [b"x"]


async def test_noise_on_a_port_does_not_end_the_process(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Bytes that are not HTTP end the connection, and the process continues."""
    for process in cluster.processes.values():
        for what in ("address", "http", "health"):
            if process["role"] != "zookeeper" and what in process["serving"]:
                await asyncio.gather(*(noise(process["serving"][what], seed) for seed in range(6)))
