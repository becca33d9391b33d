"""Produce: what is stored once, in which order, and what each client is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack
from typing import Any

import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import ProducerFenced, ServiceUnavailable, TopicNotFound
from oncelog.core.ids import SequenceId
from oncelog.core.names import TopicName
from oncelog_doors.core.kafka.batch_numbers import GAP_MS, GivenIds
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.connection import Connection
from oncelog_doors.kafka.producers import IDLE_MS
from oncelog_doors.kafka.producing import ANSWER_MS_MAX
from tests.cluster.until import until
from tests.core.kafka_batches import GZIP
from tests.doors.kafka.client_batches import batch_of, numbered
from tests.doors.kafka.fake_cluster import FakeCluster, FakeLog, FakeProducer
from tests.doors.kafka.raw_client import KafkaWorld, RawClient, kafka_world, raw_client, request
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

PID = 1_001


def produce(
    records: bytes, *, topic: str = "orders", index: int = 0, acks: int = -1, timeout_ms: int = 60_000
) -> dict[str, Any]:
    parts = [{"index": index, "records": records}]
    return {"acks": acks, "timeout_ms": timeout_ms, "topic_data": [{"name": topic, "partition_data": parts}]}


def batch(sequence: int = 0, count: int = 1, *, epoch: int = 0, producer_id: int = PID, codec: int = 0) -> bytes:
    return batch_of(numbered(count), producer=(producer_id, epoch, sequence), codec=codec)


def of_partition(answer: Body) -> Body:
    [topic] = answer["responses"]
    [partition] = topic["partition_responses"]
    return partition  # type: ignore[no-any-return]


class Publisher:
    def __init__(self, world: KafkaWorld, client: RawClient) -> None:
        self.world, self.client = world, client

    @property
    def log(self) -> FakeLog:
        return self.world.cluster.log()

    async def send(self, records: bytes, **options: Any) -> tuple[ErrorCode, int]:
        """The code and the offset that the client gets."""
        found = of_partition(await self.client.ask("Produce", 8, produce(records, **options)))
        return ErrorCode(found["error_code"]), found["base_offset"]

    def begin(self, records: bytes, **options: Any) -> None:
        self.client.send("Produce", 8, produce(records, **options))

    async def answer(self) -> tuple[ErrorCode, int]:
        found = of_partition((await self.client.read("Produce", 8))[1])
        return ErrorCode(found["error_code"]), found["base_offset"]

    async def holds(self, count: int) -> None:
        """Return when so many batches wait at the log."""
        await until(lambda: len(self.log.waiting) == count, DEADLINE_S)


@asynccontextmanager
async def publishing(cluster: FakeCluster | None = None, **options: Any) -> AsyncIterator[Publisher]:
    async with kafka_world(cluster, **options) as world, raw_client(world.port) as client:
        yield Publisher(world, client)


async def test_a_batch_is_stored_as_it_came_and_its_offset_is_told() -> None:
    async with publishing() as publisher:
        first, second = batch(0, 3, codec=GZIP), batch(3, 2)
        assert await publisher.send(first) == (ErrorCode.NONE, 0)
        assert await publisher.send(second) == (ErrorCode.NONE, 3)
        assert [each.records for each in publisher.log.entries] == [first, second]


async def test_a_repeated_batch_has_the_offset_of_the_first_copy() -> None:
    async with publishing() as publisher:
        await publisher.send(batch(0, 3))
        assert await publisher.send(batch(3, 2)) == (ErrorCode.NONE, 3)
        assert publisher.world.cluster.places_asked == 0
        assert await publisher.send(batch(0, 3)) == (ErrorCode.NONE, 0)
        assert publisher.world.cluster.places_asked == 1
        assert len(publisher.log.entries) == 2


async def test_a_repetition_on_another_connection_joins_what_is_not_decided() -> None:
    """The first connection broke before the answer."""
    async with publishing() as publisher:
        publisher.log.takes = False
        publisher.begin(batch(0, 3))
        await publisher.holds(1)
        await publisher.client.close()
        async with raw_client(publisher.world.port) as again:
            again.send("Produce", 8, produce(batch(0, 3)))
            again.send("Produce", 8, produce(batch(3, 1)))
            await publisher.holds(2)
            publisher.log.take()
            assert of_partition((await again.read("Produce", 8))[1])["base_offset"] == 0
            assert of_partition((await again.read("Produce", 8))[1])["base_offset"] == 3
        assert len(publisher.log.entries) == 2


@pytest.mark.hazard("offsets-counted-from-none")
@pytest.mark.parametrize(("count", "offset"), [(1, -1), (5, -(2**31))])
async def test_an_offset_that_is_forgotten_does_not_look_like_one(count: int, offset: int) -> None:
    """Clients count the records from it: from -1 they would get -1, 0, 1, 2."""
    async with publishing() as publisher:
        await publisher.send(batch(0, count))
        ids = GivenIds(SequenceId(0), SequenceId(count - 1))
        publisher.log.stored[PID][ids] = None
        assert await publisher.send(batch(0, count)) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, offset)


async def test_batches_are_handed_over_in_the_order_of_their_requests() -> None:
    """A large one is checked in a thread, and the small one behind it waits."""
    async with publishing() as publisher:
        large = batch(0, 9_000)
        assert len(large) > 64 * 1024
        publisher.begin(large)
        publisher.begin(batch(9_000))
        assert await publisher.answer() == (ErrorCode.NONE, 0)
        assert await publisher.answer() == (ErrorCode.NONE, 9_000)


class _SlowLookUps(FakeCluster):
    """The first look-up of partitions never has an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.look_ups = 0

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        self.look_ups += 1
        if self.look_ups == 1:
            await asyncio.Event().wait()
        return await super().partitions(topic, caller, may_create=may_create)


async def test_a_client_goes_while_its_batches_wait_for_the_one_in_front() -> None:
    """The door goes on: an error that is not handled would end it, and the connections of all other clients."""
    cluster, errors = _SlowLookUps(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with publishing(cluster) as publisher, raw_client(publisher.world.port) as leaving:
        for sequence in range(2):
            leaving.send("Produce", 8, produce(batch(sequence)))
        await until(lambda: cluster.look_ups == 2, DEADLINE_S)
        await leaving.close()
        await until(lambda: len(publisher.world.home.connections) == 1, DEADLINE_S)
        assert await publisher.send(batch()) == (ErrorCode.NONE, 0)
    assert errors == []


@pytest.mark.hazard("late-answer")
async def test_what_is_not_decided_in_time_is_unknown_and_stays() -> None:
    """Any number of batches may be in flight, and each is acknowledged late."""
    async with publishing() as publisher:
        publisher.log.takes = False
        for number in range(64):
            publisher.begin(batch(number))
        await publisher.holds(64)
        publisher.world.timers.advance(ANSWER_MS_MAX)
        assert [await publisher.answer() for _ in range(64)] == [(ErrorCode.REQUEST_TIMED_OUT, -1)] * 64
        for number in range(64):
            publisher.begin(batch(number))
        publisher.log.take()
        assert [await publisher.answer() for _ in range(64)] == [(ErrorCode.NONE, number) for number in range(64)]
        assert len(publisher.log.entries) == 64


async def test_a_client_decides_how_long_it_waits() -> None:
    async with publishing() as publisher:
        publisher.log.takes = False
        publisher.begin(batch(0), timeout_ms=5_000)
        await publisher.holds(1)
        publisher.world.timers.advance(5_000)
        assert await publisher.answer() == (ErrorCode.REQUEST_TIMED_OUT, -1)


@pytest.mark.hazard("lost-first-batch")
async def test_a_producer_of_which_nothing_is_stored_starts_at_zero() -> None:
    """Batch 0 was refused, and batch 1 must not take its place."""
    async with publishing() as publisher:
        publisher.log.refuses = [ErrorCode.KAFKA_STORAGE_ERROR]
        assert await publisher.send(batch(0)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert await publisher.send(batch(1)) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert await publisher.send(batch(0)) == (ErrorCode.NONE, 0)
        assert await publisher.send(batch(1)) == (ErrorCode.NONE, 1)


@pytest.mark.hazard("gap-for-ever")
async def test_a_gap_that_stays_is_refused_for_good() -> None:
    async with publishing() as publisher:
        await publisher.send(batch(0))
        assert await publisher.send(batch(5)) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        publisher.world.timers.advance(GAP_MS)
        assert await publisher.send(batch(5)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await publisher.send(batch(1)) == (ErrorCode.NONE, 1)


async def test_a_raised_epoch_begins_at_zero_and_ends_the_former_one() -> None:
    async with publishing() as publisher:
        await publisher.send(batch(0))
        assert await publisher.send(batch(0, epoch=1)) == (ErrorCode.NONE, 1)
        assert await publisher.send(batch(1)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


@pytest.mark.hazard("renumbered-while-undecided")
async def test_a_final_refusal_waits_for_what_is_not_decided_elsewhere() -> None:
    """At it the client renumbers the batch of the other partition, which is being stored."""
    cluster = FakeCluster()
    cluster.partition_counts["public/default/orders"] = 2
    slow, fast = cluster.log("orders-partition-0"), cluster.log("orders-partition-1")
    slow.takes = False
    async with publishing(cluster) as publisher:
        publisher.begin(batch(0), index=0)
        fast.refuses = [ErrorCode.MESSAGE_TOO_LARGE]
        async with raw_client(publisher.world.port) as other:
            other.send("Produce", 8, produce(batch(0), index=1, timeout_ms=20_000))
            await until(lambda: not fast.refuses and len(slow.waiting) == 1, DEADLINE_S)
            assert publisher.world.home.counts.requests["Produce"] == 0
            slow.take()
            refused = of_partition((await other.read("Produce", 8))[1])
            assert refused["error_code"] == ErrorCode.MESSAGE_TOO_LARGE
        assert await publisher.answer() == (ErrorCode.NONE, 0)


@pytest.mark.hazard("renumbered-while-undecided")
async def test_a_final_refusal_that_waits_too_long_is_unknown() -> None:
    cluster = FakeCluster()
    cluster.partition_counts["public/default/orders"] = 2
    cluster.log("orders-partition-0").takes = False
    cluster.log("orders-partition-1").refuses = [ErrorCode.MESSAGE_TOO_LARGE]
    async with publishing(cluster) as publisher, raw_client(publisher.world.port) as other:
        other.send("Produce", 8, produce(batch(0), index=0))
        await until(lambda: len(cluster.log("orders-partition-0").waiting) == 1, DEADLINE_S)
        publisher.begin(batch(0), index=1)
        await until(lambda: not cluster.log("orders-partition-1").refuses, DEADLINE_S)
        publisher.world.timers.advance(ANSWER_MS_MAX)
        assert await publisher.answer() == (ErrorCode.REQUEST_TIMED_OUT, -1)


@pytest.mark.hazard("producer-id-of-another-cluster")
async def test_a_producer_id_of_another_cluster_is_refused() -> None:
    async with publishing() as publisher:
        refused = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
        assert await publisher.send(batch(0, producer_id=7)) == refused
        assert not publisher.world.cluster.opened


async def test_batches_without_numbers_are_stored_each_time() -> None:
    async with publishing() as publisher:
        plain = batch_of(numbered(2))
        assert await publisher.send(plain) == (ErrorCode.NONE, 0)
        assert await publisher.send(plain) == (ErrorCode.NONE, 2)
        assert publisher.world.home.counts.unnumbered == 2


async def test_another_door_that_opens_the_producer_leaves_nothing_unclear() -> None:
    """What was in flight here is unknown, so the client asks again."""
    async with publishing() as publisher:
        await publisher.send(batch(0))
        publisher.log.takes = False
        publisher.begin(batch(1))
        await publisher.holds(1)
        FakeProducer(publisher.log, PID)
        assert await publisher.answer() == (ErrorCode.REQUEST_TIMED_OUT, -1)
        publisher.log.take()
        assert await publisher.send(batch(1)) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProducerFenced("another one has the name"), ErrorCode.INVALID_PRODUCER_EPOCH),
        (TopicNotFound("deleted"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ServiceUnavailable("no owner"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_a_producer_that_ends_is_opened_again(error: Any, code: ErrorCode) -> None:
    async with publishing() as publisher:
        publisher.log.takes = False
        publisher.begin(batch(0))
        await publisher.holds(1)
        publisher.world.cluster.opened[0].finish(error)
        assert (await publisher.answer())[0] is code
        publisher.log.takes = True
        assert await publisher.send(batch(0)) == (ErrorCode.NONE, 0)
        assert len(publisher.world.cluster.opened) == 2


async def test_an_idle_producer_is_closed_and_opened_again() -> None:
    async with publishing() as publisher:
        await publisher.send(batch(0))
        assert len(publisher.world.home.producers) == 1
        publisher.world.timers.advance(IDLE_MS)
        await until(publisher.world.cluster.opened[0].end.done, DEADLINE_S)
        assert len(publisher.world.home.producers) == 0
        assert await publisher.send(batch(1)) == (ErrorCode.NONE, 1)


async def test_what_waits_for_an_owner_is_stored_when_there_is_one() -> None:
    cluster = FakeCluster()
    cluster.log().owned.clear()
    async with publishing(cluster) as publisher:
        publisher.begin(batch(0))
        publisher.begin(batch(1))
        await until(lambda: publisher.world.home.budget.total > 2 * len(batch(0)), DEADLINE_S)
        cluster.log().owned.set()
        assert [await publisher.answer(), await publisher.answer()] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]


async def test_without_acks_there_is_no_answer_and_an_error_ends_the_connection() -> None:
    async with publishing() as publisher:
        publisher.begin(batch(0), acks=0)
        await until(lambda: len(publisher.log.entries) == 1, DEADLINE_S)
        await publisher.client.ask("ApiVersions", 0, {})
        publisher.begin(b"nothing", acks=0)
        await publisher.client.closed()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (produce(batch(0), topic="unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(0), index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(0), topic="a b"), ErrorCode.INVALID_TOPIC),
        (produce(batch(0), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce(batch(0)) | {"transactional_id": "t"}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (produce(b""), ErrorCode.INVALID_RECORD),
    ],
)
async def test_what_cannot_be_stored_is_refused_at_once(asked: dict[str, Any], code: ErrorCode) -> None:
    async with publishing() as publisher:
        found = of_partition(await publisher.client.ask("Produce", 8, asked))
        assert (found["error_code"], found["base_offset"]) == (code, -1)
        assert not publisher.world.cluster.opened


async def test_a_role_without_the_right_is_refused() -> None:
    cluster = FakeCluster({"secret": "other"})
    async with publishing(cluster) as publisher:
        await publisher.client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
        await publisher.client.ask("SaslAuthenticate", 1, {"auth_bytes": b"\0\0secret"})
        cluster.denied.add("other")
        assert await publisher.send(batch(0)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


async def test_batches_of_earlier_formats_are_refused() -> None:
    """The lowest version is offered only to clients that look whether it is."""
    async with publishing() as publisher:
        found = of_partition(await publisher.client.ask("Produce", 2, produce(batch(0))))
        assert found["error_code"] == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def _connection(found: Any) -> Connection:
    assert isinstance(found, Connection)
    return found


async def test_a_connection_with_too_much_undecided_is_not_read_until_some_is() -> None:
    async with publishing(bytes_max=4_000) as publisher:
        publisher.log.takes = False
        [connection] = map(_connection, publisher.world.home.connections.values())
        for number in range(20):
            publisher.begin(batch(number))
        await until(lambda: "budget" in connection.holds, DEADLINE_S)
        assert 0 < len(publisher.log.waiting) < 20
        publisher.log.take()
        assert [(await publisher.answer())[1] for _ in range(20)] == list(range(20))
        await until(lambda: publisher.world.home.budget.total == 0, DEADLINE_S)


class SlowLookUps(FakeCluster):
    """They wait until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        await self.released.wait()
        return await super().partitions(topic, caller, may_create=may_create)


@pytest.mark.hazard("batch-before-the-close")
@pytest.mark.parametrize("behind", [b"", pack(">i", -1)])
async def test_batches_without_an_answer_are_stored_although_their_client_has_left(behind: bytes) -> None:
    """Also behind one with an answer, which ends with its client, and before bytes that no client sends. What the
    requests take is given back."""
    cluster = SlowLookUps()
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        asked = [request("Produce", 8, produce(batch_of(numbered(1)), acks=acks)) for acks in (0, -1, 0, 0)]
        client.write(b"".join(asked) + behind)
        await client.close()
        await until(lambda: not world.home.connections, DEADLINE_S)
        assert world.home.budget.total > 0
        cluster.released.set()
        await until(lambda: cluster.log().end == 3, DEADLINE_S)
        await until(lambda: world.home.budget.total == 0, DEADLINE_S)


async def test_producer_ids_are_new_or_have_a_higher_epoch() -> None:
    async with publishing() as publisher:
        ask = publisher.client.ask
        first, second = [await ask("InitProducerId", 0, {"transactional_id": None}) for _ in range(2)]
        assert (first["producer_id"], first["producer_epoch"]) == (1_001, 0)
        assert second["producer_id"] == 1_002
        mine = {"transactional_id": None, "producer_id": 1_001, "producer_epoch": 3}
        raised = await ask("InitProducerId", 4, mine)
        assert (raised["producer_id"], raised["producer_epoch"]) == (1_001, 4)
        foreign = await ask("InitProducerId", 4, mine | {"producer_id": 7})
        assert (foreign["producer_id"], foreign["producer_epoch"]) == (1_003, 0)
        publisher.world.cluster.list_error = ServiceUnavailable("no owner")
        later = await ask("InitProducerId", 4, {"transactional_id": None})
        assert later["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
