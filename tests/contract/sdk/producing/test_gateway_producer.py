"""client.gateways: the producer of a gateway's client, on a fake cluster."""

import asyncio
from typing import Any

import pytest
from crc32c import crc32c

import oncelog
from oncelog.client.gateways import PackedEntry, PackedProducer, PackedResult, create_packed_producer
from oncelog.core.errors import (
    ClientClosed,
    InvalidArgument,
    InvalidName,
    InvalidSequenceId,
    OncelogError,
    ProducerBusy,
    ProducerClosed,
    ProducerFenced,
    SequenceGap,
    SessionSuperseded,
    StaleSequence,
    TooManyRequests,
)
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.formats.client_token import decode_token
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.epoched_ids import first_of, last_of
from oncelog.core.formats.opening import GatewayClient
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import SequenceId
from oncelog.core.sdk.producer.sequence_ids import BatchIds, pack_sequence_ids
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.core.kafka_batches import framed, numbered, records

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


def entry(first: int, count: int = 1, *, value: bytes = b"v") -> PackedEntry:
    ids = BatchIds(SequenceId(first), SequenceId(first + count - 1))
    values = [b"%s%d" % (value, first + i) for i in range(count)]
    return PackedEntry(encode_values(values), count, ids, PayloadFormat.COLUMNS, publish_time_ms=5)


class Results:
    """The results of batches, in the order in which they came."""

    def __init__(self) -> None:
        self.got: list[tuple[int, PackedResult | OncelogError]] = []

    def of(self, number: int) -> Any:
        def take(result: PackedResult | None, error: OncelogError | None) -> None:
            assert (result is None) is not (error is None)
            self.got.append((number, result or error))  # type: ignore[arg-type]

        return take

    async def all(self, count: int) -> list[PackedResult | OncelogError]:
        """Those of all batches, in the order of the batches: each has one."""
        await until(lambda: len(self.got) >= count, DEADLINE_S, waiting_for="results")
        assert sorted(number for number, _ in self.got) == list(range(count))
        return [result for _, result in sorted(self.got, key=lambda got: got[0])]


def kinds(results: list[PackedResult | OncelogError]) -> list[list[ResultKind | None]]:
    return [
        [None if each.stored is None else each.stored.kind for each in result.ranges]
        for result in results
        if isinstance(result, PackedResult)
    ]


async def opened(client: oncelog.AsyncClient, **how: Any) -> PackedProducer:
    return await create_packed_producer(client, "flights", producer_name="importer", **how)


async def ended(producer: PackedProducer) -> OncelogError:
    async with asyncio.timeout(DEADLINE_S):
        return await producer.ended()


async def test_batches_are_stored_as_they_are(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Each has one result, with its place; what is repeated is a duplicate."""
    producer = await opened(client, epoch=0)
    assert (producer.name, producer.generation, producer.last_sequence_id) == ("importer", 1, -1)
    assert decode_token(producer.token).generation == 1
    results = Results()
    for number, batch in enumerate((entry(0, 2), entry(5), entry(0, 2))):
        producer.send_nowait(batch, results.of(number))
    stored = await results.all(3)
    assert kinds(stored) == [[ResultKind.STORED], [ResultKind.STORED], [ResultKind.DUPLICATE]]
    assert isinstance(stored[0], PackedResult)
    assert isinstance(stored[2], PackedResult)
    assert stored[0].ids == entry(0, 2).ids
    assert stored[0].ranges[0].stored is not None
    assert stored[2].ranges[0].stored is not None
    assert stored[0].ranges[0].stored.position == stored[2].ranges[0].stored.position
    assert cluster.topic("flights").values() == [b"v0", b"v1", b"v5"]
    assert producer.pending_bytes == 0


async def test_stale_messages_have_their_error_and_the_producer_goes_on(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """If all of a batch are, it fails as a whole; else the others are stored."""
    producer = await opened(client)
    results = Results()
    partly = PackedEntry(encode_values([b"v4", b"v6"]), 2, pack_sequence_ids([4, 6]), PayloadFormat.COLUMNS, 5)
    for number, batch in enumerate((entry(5), entry(3), partly, entry(7))):
        producer.send_nowait(batch, results.of(number))
    stored, stale, mixed, last = await results.all(4)
    assert isinstance(stale, StaleSequence)
    assert stale.stored is False
    assert kinds([stored, mixed, last]) == [[ResultKind.STORED], [None, ResultKind.STORED], [ResultKind.STORED]]
    assert isinstance(mixed, PackedResult)
    assert isinstance(mixed.ranges[0].error, StaleSequence)
    assert producer.failure is None
    assert cluster.topic("flights").values() == [b"v5", b"v6", b"v7"]


@pytest.mark.hazard("gateway-opens-anew", "sessions-end-each-other")
async def test_client_comes_back_through_another_gateway(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """As the same instance. The first gateway's producer ends as superseded, and opens nothing any more."""
    cluster.knobs.supersedes = True
    first = await opened(client, epoch=0)
    results = Results()
    first.send_nowait(entry(0), results.of(0))
    await results.all(1)
    async with oncelog.connect(cluster.url, operation_timeout=30) as gateway:
        second = await opened(gateway, epoch=1, token=first.token)
        assert (second.generation, second.producer_id, second.token) == (
            first.generation, first.producer_id, first.token,
        )  # fmt: skip
        assert second.last_sequence_id == 0
        assert isinstance(await ended(first), SessionSuperseded)
        assert isinstance(first.failure, SessionSuperseded)
        opens = sum(cluster.seen.opens)
        second.send_nowait(entry(1), results.of(1))
        await results.all(2)
        with pytest.raises(SessionSuperseded):
            first.send_nowait(entry(9), results.of(9))
        assert not first.has_room(1)
        await first.room(1)
        assert sum(cluster.seen.opens) == opens
    assert cluster.topic("flights").values() == [b"v0", b"v1"]
    assert cluster.seen.clients == [GatewayClient(0), GatewayClient(1, decode_token(first.token))]


def of_kafka(epoch: int, number: int, count: int = 1) -> PackedEntry:
    """A record batch of the client with producer id 7."""
    first = SequenceId(first_of(epoch) + number)
    sent = framed(records(numbered(count)), count, producer=(7, epoch, number % 2**31), by=crc32c)
    ids = BatchIds(first, SequenceId(first + count - 1))
    return PackedEntry(sent, count, ids, PayloadFormat.KAFKA, publish_time_ms=5)


async def test_record_batches_of_a_client_of_kafka_are_numbered_by_epoch(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """What repeats is a duplicate, a higher epoch begins at 0, and a gap fails before it is sent. The instance id is
    that of the client, and not random; the mark of a new name is what the gateway says."""
    how: dict[str, Any] = {
        "producer_name": "kafka/7", "sequence_mode": "epoched", "instance_id": b"i" * 16, "epoch": 5,
        "on_conflict": "fence", "initial_mark": last_of(1),
    }  # fmt: skip
    producer = await create_packed_producer(client, "flights", **how)
    assert producer.last_sequence_id == last_of(1)
    assert cluster.seen.instance_ids == [b"i" * 16]
    results = Results()
    for number, batch in enumerate((of_kafka(2, 0, 3), of_kafka(2, 3), of_kafka(4, 0), of_kafka(2, 0, 3))):
        producer.send_nowait(batch, results.of(number))
    stored = await results.all(4)
    assert kinds(stored) == [[ResultKind.STORED]] * 3 + [[ResultKind.DUPLICATE]]
    producer.send_nowait(of_kafka(4, 2), results.of(4))
    producer.send_nowait(of_kafka(4, 1), results.of(5))
    gap, following = (await results.all(6))[4:]
    assert isinstance(gap, SequenceGap)
    assert (gap.stored, gap.details["expected"]) == (False, first_of(4) + 1)
    assert kinds([following]) == [[ResultKind.STORED]]
    assert producer.failure is None


async def test_token_of_an_older_generation_is_fenced(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The producer is never there."""
    first = await opened(client, epoch=0)
    await client.create_producer("flights", producer_name="importer")
    with pytest.raises(ProducerFenced):
        await opened(client, epoch=1, token=first.token)


async def test_name_that_is_held_is_busy(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """By default; with fence it is taken."""
    await opened(client, epoch=0)
    with pytest.raises(ProducerBusy):
        await opened(client, epoch=0)
    assert (await opened(client, epoch=0, on_conflict="fence")).generation == 2


async def test_batches_are_sent_again_after_a_takeover(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """In their order, until the log has decided: one result each. The producer presents its epoch again."""
    producer = await opened(client, epoch=7)
    results = Results()
    cluster.knobs.lose_answers = 1
    for number in range(20):
        producer.send_nowait(entry(number), results.of(number))
    await until(lambda: cluster.knobs.lose_answers == 0, DEADLINE_S, waiting_for="answers to be lost")
    await cluster.take_over()
    for number in range(20, 40):
        producer.send_nowait(entry(number), results.of(number))
    await results.all(40)
    assert cluster.topic("flights").values() == [b"v%d" % number for number in range(40)]
    assert producer.generation == 1
    assert set(cluster.seen.clients) == {GatewayClient(7)}


async def test_room_is_counted_in_bytes(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """What the log has not decided about takes room; without room a batch is refused at once."""
    producer = await opened(client, pending_bytes_max=2_000)
    results, large = Results(), b"x" * 1_500
    assert producer.has_room(1 << 20)
    cluster.knobs.gate.clear()
    producer.send_nowait(entry(0, value=large), results.of(0))
    assert not producer.has_room(1_500)
    assert producer.has_room(100)
    with pytest.raises(TooManyRequests):
        producer.send_nowait(entry(1, value=large), results.of(1))
    waiting = asyncio.ensure_future(producer.room(1_500))
    producer.send_nowait(entry(1), results.of(1))
    assert not waiting.done()
    cluster.knobs.gate.set()
    async with asyncio.timeout(DEADLINE_S):
        await waiting
    producer.send_nowait(entry(2, value=large), results.of(2))
    assert kinds(await results.all(3)) == [[ResultKind.STORED]] * 3


@pytest.mark.hazard("name-lost-by-a-restart")
@pytest.mark.parametrize("gives_up", [True, False])
async def test_close_says_whether_the_name_is_given_up(
    cluster: FakeCluster, client: oncelog.AsyncClient, *, gives_up: bool
) -> None:
    """Open batches fail, and nothing is known of them."""
    producer = await opened(client)
    results = Results()
    cluster.knobs.lose_answers = 1_000
    producer.send_nowait(entry(0), results.of(0))
    await producer.close(gives_up_name=gives_up)
    (failed,) = await results.all(1)
    assert isinstance(failed, ProducerClosed)
    assert isinstance(await ended(producer), ProducerClosed)
    cluster.knobs.lose_answers = 0
    fresh = await opened(client, on_conflict="fence")
    await fresh.close(gives_up_name=gives_up)
    closed, kept = cluster.seen.closed_sessions, cluster.seen.kept_sessions
    assert (len(closed) > 0, len(kept) > 0) == (gives_up, not gives_up)


@pytest.mark.hazard("half-open-session")
async def test_gateway_answers_for_its_client(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """When the client has answered the gateway: not before, and once."""
    asked = asyncio.Event()
    producer = await opened(client, wanted=asked.set)
    assert cluster.owner is not None
    await cluster.owner.want("importer")
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    assert cluster.seen.held_sessions == []
    producer.client_lives()
    producer.client_lives()
    await until(lambda: cluster.seen.held_sessions != [], DEADLINE_S, waiting_for="the answer")
    results = Results()
    producer.send_nowait(entry(0), results.of(0))
    await results.all(1)
    assert len(cluster.seen.held_sessions) == 1


async def test_client_that_is_just_opening_is_there(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Another one has waited for the name. The gateway could not answer yet: it has no producer to answer with."""
    asked: list[None] = []
    cluster.knobs.wants_at_once = True
    await opened(client, wanted=lambda: asked.append(None))
    await until(lambda: len(cluster.seen.held_sessions) == 1, DEADLINE_S, waiting_for="the answer")
    assert asked == []


async def test_gateway_that_asks_nobody_holds_the_name(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """A client within the process of the gateway lives as long as it."""
    await opened(client)
    assert cluster.owner is not None
    await cluster.owner.want("importer")
    await until(lambda: len(cluster.seen.held_sessions) == 1, DEADLINE_S, waiting_for="the answer")


async def test_producer_ends_with_its_client(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The names are kept for the clients of the gateway, which is about to stop."""
    gateway = await oncelog.connect(cluster.url, operation_timeout=30)
    producer = await opened(gateway)
    await gateway.close()
    assert isinstance(await ended(producer), ProducerClosed)
    assert len(cluster.seen.kept_sessions) == 1
    with pytest.raises(ClientClosed):
        await opened(gateway)


async def test_producer_that_is_fenced_says_so(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """An open batch fails with the same error."""
    producer = await opened(client)
    waiting = asyncio.ensure_future(producer.ended())
    await client.create_producer("flights", producer_name="importer")
    results = Results()
    producer.send_nowait(entry(0), results.of(0))
    (failed,) = await results.all(1)
    assert isinstance(failed, ProducerFenced)
    async with asyncio.timeout(DEADLINE_S):
        assert isinstance(await waiting, ProducerFenced)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"token": 1}, "token"),
        ({"token": -1}, "token"),
        ({"token": "7"}, "token"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": 2**64}, "epoch"),
        ({"on_conflict": "wait"}, "on_conflict"),
        ({"sequence_mode": "random"}, "sequence_mode"),
        ({"instance_id": b"i" * 15, "epoch": 1}, "instance_id"),
        ({"instance_id": bytes(16), "epoch": 1}, "instance_id"),
        ({"instance_id": "i" * 16, "epoch": 1}, "instance_id"),
        ({"instance_id": b"i" * 16}, "instance_id"),
        ({"instance_id": b"i" * 16, "epoch": 1, "token": 2**40}, "instance_id"),
        ({"initial_mark": -2}, "initial_mark"),
        ({"initial_mark": 2**63 - 1}, "initial_mark"),
        ({"on_behalf_of": "importer"}, "on_behalf_of"),
        ({"wanted": 3}, "wanted"),
        ({"pending_bytes_max": 0}, "pending_bytes_max"),
        ({"timeout": 0}, "timeout"),
    ],
)
async def test_wrong_arguments_are_named(client: oncelog.AsyncClient, arguments: dict[str, Any], field: str) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidArgument) as refused:
        await opened(client, **arguments)
    assert refused.value.details["field"] == field


@pytest.mark.hazard("gateway-at-an-older-owner")
async def test_owner_of_an_older_version_is_an_error(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """And its session is closed."""
    cluster.knobs.knows_gateways = False
    with pytest.raises(InvalidArgument, match="older version") as refused:
        await opened(client)
    assert refused.value.details["field"] == "client"
    await until(lambda: len(cluster.seen.closed_sessions) == 1, DEADLINE_S, waiting_for="the session to be closed")


async def test_topic_with_partitions_is_refused(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The clients of gateways know the partitions, and open each by its name."""
    cluster.partitioned["public/default/flights"] = 3
    with pytest.raises(InvalidArgument, match="partition"):
        await opened(client)
    with pytest.raises(InvalidName):
        await create_packed_producer(client, "flights", producer_name="")


@pytest.mark.parametrize(
    ("ids", "count"),
    [
        (BatchIds(SequenceId(0), SequenceId(1)), 1),
        (BatchIds(SequenceId(0), SequenceId(0)), 2),
        (BatchIds(SequenceId(1), SequenceId(0)), 1),
        (BatchIds(SequenceId(-1), SequenceId(0)), 2),
        (BatchIds(SequenceId(2**63 - 1), SequenceId(2**63)), 2),
        (BatchIds(SequenceId(0), SequenceId(0)), 0),
    ],
)
async def test_ids_that_contradict_their_count_are_refused(
    client: oncelog.AsyncClient, ids: BatchIds, count: int
) -> None:
    """At once, and the producer goes on."""
    producer = await opened(client)
    results = Results()
    with pytest.raises(InvalidSequenceId):
        producer.send_nowait(PackedEntry(b"x", count, ids, PayloadFormat.COLUMNS, 0), results.of(9))
    producer.send_nowait(entry(0), results.of(0))
    await results.all(1)


async def test_opening_that_is_cancelled_leaves_no_session(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The owner does not answer, and the client of the gateway is gone."""
    first = await opened(client)
    await first.close(gives_up_name=True)
    cluster.knobs.gate.clear()
    opening = asyncio.ensure_future(opened(client, epoch=1, token=first.token))
    frames = len(cluster.seen.frames)
    await until(lambda: len(cluster.seen.frames) > frames, DEADLINE_S, waiting_for="the request at the owner")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    cluster.knobs.gate.set()
    await until(lambda: len(cluster.seen.kept_sessions) == 1, DEADLINE_S, waiting_for="the session to be closed")
