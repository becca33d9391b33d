"""Redrive: each dead letter is in its origin again once, whatever happens to the request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio

import oncelog
from oncelog.client.connecting import connect
from oncelog.core.delivery.events import StoredEntry
from oncelog.core.errors import ProducerFenced, SubscriptionNotFound
from oncelog.core.names import TopicName
from oncelog.metadata.dead_letters.redrive import Redrive
from oncelog.metadata.replica import Coordination
from oncelog.metadata.topics.subscription_calls import SubscriptionCalls
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.records.policy_store import PolicyStore
from tests.cluster.until import until
from tests.contract.rest.lent_apps import lent_app
from tests.contract.rest.publish_world import FakeLookup
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_owner import FakeOwner
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
LETTERS = "orders-billing-DLQ"
REDRIVE = "/admin/v2/persistent/public/default/orders/subscription/billing/redrive"
STORED_BY = "dead-letters/0f/1"


@dataclass
class FakeSubscriptions:
    """What an owner says of the subscriptions of its topics."""

    cluster: FakeCluster

    async def describe(self, topic: TopicName, subscription: str) -> dict[str, Any]:
        found = self.cluster.topics[str(topic)]
        number = found.ack_state.names.get(subscription)
        if number is None:
            raise SubscriptionNotFound
        acks = found.ack_state.subscriptions[number].acks
        return {"msg_backlog": found.table.state.next_index - acks.mark_delete - acks.acked_count}


@dataclass
class RedriveWorld:
    """A fake cluster with the topic `orders`, and the REST interface of one replica."""

    cluster: FakeCluster
    client: oncelog.AsyncClient
    http: httpx.AsyncClient
    partitions: dict[str, list[int]]
    redrive: Redrive

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["RedriveWorld"]:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(FakeCluster.running())
            client = await connect(cluster.url, operation_timeout=DEADLINE_S)
            stack.push_async_callback(client.close, flush=False)
            partitions: dict[str, list[int]] = {}
            lookup = cast("TopicLookup", FakeLookup(cluster, partitions))
            subscriptions = cast("SubscriptionCalls", FakeSubscriptions(cluster))
            policies = PolicyStore(MemorySession(MemoryTree(), root="/oncelog"))
            coordination = cast("Coordination", SimpleNamespace(policies=policies))
            redrive = Redrive(client, lookup, subscriptions)
            app = stack.enter_context(lent_app(coordination, redrive=redrive))
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=DEADLINE_S)
            world = cls(cluster, client, await stack.enter_async_context(http), partitions, redrive)
            await (await client.create_producer("orders")).close()  # creates the topic
            yield world

    async def bury(
        self, *values: bytes, origin: str = "orders", subscription: str = "billing", by: str = STORED_BY, **more: str
    ) -> None:
        """As the services do it, one message each."""
        producer = await self.client.create_producer(LETTERS, producer_name=by, sequence_mode="contiguous")
        for value in values:
            at = producer.last_sequence_id + 1
            place = {
                "dead_letter.topic": f"public/default/{origin}",
                "dead_letter.subscription": subscription,
                "dead_letter.index": str(at),
            }
            await producer.send(
                value, sequence_id=at, key=b"k", event_time_ms=7, properties={"a": "b", **place, **more}
            )
        await producer.close()

    async def redriven(self, *counts: int, **body: Any) -> list[dict[str, Any]]:
        """The letters that were kept. counts: expected, as (redriven, already, left)."""
        answer = await self.http.post(REDRIVE, json=body)
        assert answer.status_code == 200, answer.text
        done = answer.json()
        assert (done["redriven"], done["already"], done["left"]) == counts, done
        assert done["kept_count"] == len(done["kept"])
        kept: list[dict[str, Any]] = done["kept"]
        return kept

    async def refused(self, status: int, code: str, path: str = REDRIVE, **body: Any) -> str:
        answer = await self.http.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        return str(answer.json()["detail"])

    @asynccontextmanager
    async def unacknowledged(self, *stored: bytes, **body: Any) -> AsyncIterator["asyncio.Task[httpx.Response]"]:
        """The first redrive: it has published, so that these are stored; its acknowledgement is not durable yet."""
        cluster = self.cluster
        cluster.knobs.gate.clear()
        redriving = asyncio.ensure_future(self.http.post(REDRIVE, json=body))

        def consumes() -> bool:
            return any(each.generation for each in cluster.topic(LETTERS).ack_state.subscriptions.values())

        await until(consumes, DEADLINE_S, waiting_for="the consumer of the redrive")
        cluster.consume.writable.clear()
        cluster.knobs.gate.set()
        await until(lambda: self.values() == list(stored), DEADLINE_S, waiting_for="what is published")
        assert not redriving.done()
        yield redriving
        cluster.consume.writable.set()
        await asyncio.gather(redriving, return_exceptions=True)

    @property
    def owner(self) -> FakeOwner:
        assert self.cluster.owner is not None
        return self.cluster.owner

    def values(self, topic: str = "orders") -> list[bytes]:
        return self.cluster.topic(topic).values()


@pytest_asyncio.fixture
async def world() -> AsyncIterator[RedriveWorld]:
    async with RedriveWorld.running() as running:
        yield running


async def test_each_letter_is_published_once_with_all_that_it_has(world: RedriveWorld) -> None:
    """A repeat publishes nothing, and letters that come later are published by the next request."""
    await world.bury(b"one", b"two", b"three")
    assert (await world.http.get(REDRIVE)).json() == {"dead_letter_topic": f"public/default/{LETTERS}", "waiting": 3}
    assert await world.redriven(2, 0, 1, max=2) == []
    assert (await world.http.get(REDRIVE)).json()["waiting"] == 1
    assert await world.redriven(1, 0, 0) == await world.redriven(0, 0, 0) == []
    await world.bury(b"four")
    assert await world.redriven(1, 0, 0) == []
    assert world.values() == [b"one", b"two", b"three", b"four"]
    async with await world.client.create_reader("orders") as reader:
        first = await reader.read_next(timeout=DEADLINE_S)
    assert (first.key, first.event_time_ms, first.properties["a"]) == (b"k", 7, "b")
    assert first.properties["dead_letter.index"] == "0"
    assert first.producer_name == f"redrive/{world.cluster.topic(LETTERS).topic_id}/billing"


@pytest.mark.hazard("redrive-killed-before-acknowledgement")
async def test_letter_published_and_not_acknowledged_is_not_published_again(world: RedriveWorld) -> None:
    """The request ends between both, as with its process, and the acknowledgement is lost."""
    await world.bury(b"one", b"two", b"three")
    async with world.unacknowledged(b"one", b"two", max=2) as killed:
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)
        world.owner.consumers.blind = True  # it is killed
        await world.cluster.take_over()
    assert await world.redriven(3, 2, 0) == []
    assert world.values() == [b"one", b"two", b"three"]


async def test_second_redrive_of_the_same_letters_is_refused_while_one_is_running(world: RedriveWorld) -> None:
    """Nothing is published twice, also when the second one comes in the middle of the first."""
    await world.bury(b"one", b"two")
    async with world.unacknowledged(b"one", b"two") as first:
        assert "another redrive" in await world.refused(409, "conflict")
    assert (await first).json()["redriven"] == 2
    await world.redriven(0, 0, 0)
    assert world.values() == [b"one", b"two"]


@pytest.mark.hazard("redrive-killed-before-acknowledgement")
async def test_paused_redrive_publishes_nothing_after_another_one(world: RedriveWorld) -> None:
    """A stopped process has lost its consumer. When it goes on, the newer producer has fenced it."""
    await world.bury(b"one", b"two")
    await world.redriven(1, 0, 1, max=1)
    name = f"redrive/{world.cluster.topic(LETTERS).topic_id}/billing"
    paused = await world.client.create_producer("orders", producer_name=name)
    await world.redriven(1, 0, 0)
    with pytest.raises(ProducerFenced):
        await paused.send(b"two", sequence_id=1)
    assert world.values() == [b"one", b"two"]


async def test_letters_that_cannot_be_published_stay_and_are_named(world: RedriveWorld) -> None:
    """Each with its reason, also the next time. The others are published."""
    await world.bury(b"no origin", origin="gone")
    await world.bury(b"fine")
    await world.bury(b"", **{"dead_letter.omitted": "it was too large"})
    await world.bury(b"forged", by="a program")
    await world.bury(b"also fine")
    kept = await world.redriven(2, 0, 0)
    # Of a topic without content there is nothing that says whose it was.
    assert [each["index"] for each in kept] == [2, 3]
    assert "it was too large" in kept[0]["reason"]
    assert "a program" in kept[1]["reason"]
    assert await world.redriven(0, 0, 0) == kept
    assert world.values() == [b"fine", b"also fine"]


async def test_letter_that_is_too_large_for_its_topic_stays(world: RedriveWorld) -> None:
    """Later ones are published. Once the topic takes it again, its place in the order is gone, and that is said."""
    await world.bury(b"large" * 100, b"small")
    world.cluster.knobs.message_bytes_max = 100
    (kept,) = await world.redriven(1, 0, 0)
    assert kept == {"index": 0, "reason": "it has 500 bytes, and public/default/orders takes 100"}
    world.cluster.knobs.message_bytes_max = 1_000
    (kept,) = await world.redriven(0, 0, 0)
    assert "a later letter was published" in kept["reason"]
    assert world.values() == [b"small"]


async def test_letter_that_cannot_be_decoded_stays_and_holds_up_no_other(world: RedriveWorld) -> None:
    """It is named with its place, at each redrive."""
    await world.bury(b"one", b"two", b"three")

    def mangled(entry: StoredEntry) -> StoredEntry:
        return replace(entry, data=b"\0" * len(entry.data)) if entry.base_index == 1 else entry

    world.cluster.consume.mangle = mangled
    (kept,) = await world.redriven(2, 0, 0)
    assert kept["index"] == 1
    assert "cannot read" in kept["reason"]
    assert world.values() == [b"one", b"three"]
    assert await world.redriven(0, 0, 0) == [kept]


async def test_redrive_whose_topic_does_not_answer_ends_and_may_be_repeated(world: RedriveWorld) -> None:
    """Otherwise it would keep every later one out, for as long as a quota holds publishing."""
    await world.bury(b"one", b"two")
    world.redrive._give_up_s = 1.0
    world.cluster.knobs.gate.clear()
    assert "did not end within 1 s" in await world.refused(504, "deadline_exceeded")
    world.cluster.knobs.gate.set()
    world.redrive._give_up_s = DEADLINE_S
    await world.http.post(REDRIVE)
    assert await world.redriven(0, 0, 0) == []
    assert world.values() == [b"one", b"two"]


async def test_letters_whose_acknowledgement_is_not_durable_end_the_redrive(world: RedriveWorld) -> None:
    """More of them would be more than the log remembers."""
    await world.bury(b"one", b"two")
    world.cluster.consume.in_memory = True
    assert "ack state is at its limit" in await world.refused(409, "limit_reached")
    world.cluster.consume.in_memory = False
    await world.redriven(0, 0, 0)  # here the next acknowledgement was durable all the same
    assert world.values() == [b"one", b"two"]


async def test_letters_of_a_deleted_partition_stay_and_those_of_others_are_published(world: RedriveWorld) -> None:
    """All partitions share the letters. Nothing is created for a topic that is gone."""
    world.partitions["public/default/orders"] = [2]
    await (await world.client.create_producer("orders-partition-0")).close()
    for number in range(2):
        await world.bury(b"of %d" % number, origin=f"orders-partition-{number}")
    (kept,) = await world.redriven(1, 0, 0)
    assert kept == {"index": 1, "reason": "topic public/default/orders-partition-1 does not exist any more"}
    assert world.values("orders-partition-0") == [b"of 0"]
    assert "public/default/orders-partition-1" not in world.cluster.topics
    await (await world.client.create_producer("orders-partition-1")).close()
    assert await world.redriven(1, 0, 0) == []
    assert world.values("orders-partition-1") == [b"of 1"]


@pytest.mark.hazard("foreign-producer-name")
async def test_other_message_under_the_id_of_a_letter_does_not_count_as_the_letter(world: RedriveWorld) -> None:
    """Without authentication nothing keeps a program from the name."""
    await world.bury(b"one", b"two", b"three")
    name = f"redrive/{world.cluster.topic(LETTERS).topic_id}/billing"
    async with await world.client.create_producer("orders", producer_name=name) as foreign:
        await foreign.send(b"mine", sequence_id=0)
        await foreign.send(b"mine", sequence_id=2)
    kept = await world.redriven(0, 0, 0)
    assert [each["index"] for each in kept] == [0, 1, 2]
    assert "another message is stored" in kept[0]["reason"]
    assert "a later letter was published" in kept[1]["reason"]
    assert world.values() == [b"mine", b"mine"]


async def test_letter_older_than_all_that_is_remembered_is_not_published_again(world: RedriveWorld) -> None:
    """Its subscription was deleted, so nobody knows which letters are published."""
    count = 70
    for number in range(count):
        await world.bury(b"%d" % number)
        await world.redriven(1, 0, 0)
    letters = world.cluster.topic(LETTERS)
    (subscription,) = letters.ack_state.names
    world.owner.consumers.of(letters).delete(subscription)
    answer = (await world.http.post(REDRIVE)).json()
    assert answer["kept_count"] + answer["already"] == count
    assert answer["kept_count"] > 0
    assert "it is unknown whether it was published" in answer["kept"][0]["reason"]
    assert [int(value) for value in world.values()] == list(range(count))


async def test_letters_of_another_subscription_are_left_to_it(world: RedriveWorld) -> None:
    """Several may name one dead-letter topic."""
    await world.bury(b"theirs", subscription="shipping")
    await world.bury(b"ours")
    assert await world.redriven(1, 0, 0) == []
    assert world.values() == [b"ours"]
    theirs = REDRIVE.replace("billing", "shipping")
    answer = await world.http.post(theirs, json={"dead_letter_topic": LETTERS})
    assert answer.json()["redriven"] == 1, answer.text
    assert world.values() == [b"ours", b"theirs"]


async def test_bad_requests_are_refused_by_name(world: RedriveWorld) -> None:
    """Before anything is read or created."""
    assert f"public/default/{LETTERS} does not exist" in await world.refused(404, "topic_not_found")
    await (await world.client.create_producer(LETTERS)).close()
    assert await world.redriven(0, 0, 0) == []
    partition = REDRIVE.replace("orders", "orders-partition-1")
    assert "redrive those of public/default/orders" in await world.refused(422, "invalid_argument", partition)
    world.partitions["public/default/split"] = [2]
    assert "is partitioned" in await world.refused(422, "invalid_argument", dead_letter_topic="split")
    assert "max" in await world.refused(422, "invalid_argument", max=0)
    assert "its own dead-letter topic" in await world.refused(422, "invalid_argument", dead_letter_topic="orders")
    await world.refused(412, "invalid_name", dead_letter_topic="a/b")
    assert world.cluster.topic(LETTERS).ack_state.subscriptions == {}
