"""Producers over real sockets, with clients of all families, in front of a cluster in memory."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from oncelog_doors.core.pulsar.send_budget import SendLimits
from oncelog_doors.core.pulsar.verdicts import Accepted
from oncelog_doors.core.shared.pace import PER_SECOND
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import CLOSE_PRODUCER, PING, body, command, entry, frame
from tests.doors.pulsar.fake_cluster import FakeCluster, FakeTopic
from tests.doors.pulsar.raw_client import DoorWorld, RawClient, door_world, producer, raw_client, send
from tests.doors.raw_connection import DEADLINE_S

JAVA, CPP, GO, OLD = b"Pulsar-Java-v4.0.7", b"Pulsar-CPP-v4.2.0", b"Pulsar-Go-v0.18.0", b"2.8.0"
each_family = pytest.mark.parametrize("version", [JAVA, CPP, GO, OLD], ids=["java", "cpp", "go", "unknown"])
each_other_family = pytest.mark.parametrize("version", [CPP, GO, OLD], ids=["cpp", "go", "unknown"])
ORDERS = "public/default/orders"
PING_FRAME = frame(command(PING))
EPOCH, TOKEN = 8, 11
close = frame(command(CLOSE_PRODUCER, (1, 1), (2, 9)))


async def names(client: RawClient, count: int) -> list[str]:
    return [(await client.read()).name for _ in range(count)]


# --- sending ----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@each_family
async def test_sends_are_stored_and_answered_in_order(version: bytes) -> None:
    """Each receipt names the place; the same message again gets the first one's."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect(version)
        opened = await client.open_producer()
        assert (opened.request_id, opened.name, opened.last_sequence_id) == (77, "importer", -1)
        assert opened.HasField("topic_epoch")
        assert opened.ready
        for number in range(50):
            client.write(send(number, b"%d" % number))
        client.write(send(3, b"3"))
        receipts = [(await client.read()).command.send_receipt for _ in range(51)]
        assert [each.sequence_id for each in receipts] == [*range(50), 3]
        assert [each.message_id.entry_id for each in receipts] == [*range(50), 3]
        assert not any(each.HasField("highest_sequence_id") for each in receipts)
        stored = world.cluster.topic(ORDERS).entries
        assert [each.entry for each in stored] == [
            entry(body((1, b"importer"), (2, number), (3, 1)), b"%d" % number) for number in range(50)
        ]


@pytest.mark.asyncio
async def test_receipt_of_a_batch_repeats_its_highest_id() -> None:
    """As it was sent."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect(JAVA)
        await client.open_producer()
        receipt = await client.answer(send(10, b"batch", (3, 5), (6, 14)))
        assert (receipt.sequence_id, receipt.highest_sequence_id) == (10, 14)


@pytest.mark.asyncio
async def test_large_entry_is_checked_beside_the_loop_and_keeps_its_place() -> None:
    """Those behind it wait for it."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await client.open_producer()
        client.write(send(1, b"x" * 1_000_000) + send(2) + send(3, b"y" * 300_000) + send(4))
        receipts = [(await client.read()).command.send_receipt for _ in range(4)]
        assert [each.sequence_id for each in receipts] == [1, 2, 3, 4]
        assert world.home.budget.total == 0


@pytest.mark.asyncio
async def test_sends_wait_for_room_in_the_session() -> None:
    """And come in their order."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await client.open_producer()
        topic = world.cluster.topic(ORDERS)
        topic.room = 0
        client.write(send(1) + send(2))
        await client.answer(PING_FRAME)
        assert topic.entries == []
        topic.room = 1 << 40
        topic.has_more_room.set()
        assert [(await client.read()).command.send_receipt.sequence_id for _ in range(2)] == [1, 2]


async def queued(world: DoorWorld, client: RawClient, sends: bytes) -> FakeTopic:
    """A topic that takes nothing until `has_more_room`, while a door has all of these SENDs."""
    await client.open_producer()
    topic = world.cluster.topic(ORDERS)
    topic.room = 0
    client.write(sends)
    await client.answer(PING_FRAME)
    topic.room = 1 << 40
    topic.has_more_room.set()
    return topic


@pytest.mark.asyncio
async def test_large_sends_that_wait_are_given_together() -> None:
    """Else each is a frame to the owner, and an append of its own to the storage nodes. How many of them the first
    check had is not known."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        topic = await queued(world, client, b"".join(send(number, b"x" * 100_000) for number in range(1, 9)))
        assert [(await client.read()).command.send_receipt.sequence_id for _ in range(8)] == [*range(1, 9)]
        assert sum(topic.together) == 8
        assert len(topic.together) <= 2


@pytest.mark.asyncio
async def test_last_id_is_what_is_stored() -> None:
    """At a connection of another door, too."""
    cluster = FakeCluster()
    async with door_world(cluster) as world, raw_client(world.port) as client:
        await client.connect()
        await client.open_producer()
        await client.answer(send(41))
        assert (await client.answer(close)).request_id == 9
        assert cluster.opened[0].gave_up_name
    async with door_world(cluster) as world, raw_client(world.port) as client:
        await client.connect()
        assert (await client.open_producer()).last_sequence_id == 41


@pytest.mark.asyncio
async def test_assigned_name_is_told() -> None:
    """The client sends it back from then on."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        assert (await client.open_producer(name=b"")).name == "assigned-0"


@pytest.mark.asyncio
async def test_sends_of_a_producer_that_is_not_open_are_ignored() -> None:
    """Before its success, after its close, and of a number that none has."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.owner_answers.clear()
        client.write(send(1) + producer() + send(2))
        await client.answer(PING_FRAME)
        world.cluster.owner_answers.set()
        assert (await client.read()).name == "producer_success"
        await client.answer(close)
        client.write(send(3) + send(4, producer_id=7))
        await client.answer(PING_FRAME)
        assert world.cluster.topic(ORDERS).entries == []
        assert world.home.budget.total == 0


@pytest.mark.asyncio
async def test_close_waits_for_the_receipts() -> None:
    """Its success comes behind them."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        await client.open_producer()
        topic = world.cluster.topic(ORDERS)
        topic.takes = False
        client.write(send(1) + send(2) + close)
        await client.answer(PING_FRAME)
        topic.take()
        assert await names(client, 3) == ["send_receipt", "send_receipt", "success"]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.hazard("refusal-names-the-lowest-id", "refusal-resent-for-ever")
@pytest.mark.parametrize(
    "bad",
    [send(5, b"other"), send(3), send(9, b"v", (4, 1)), send(2**63, b"v")],
    ids=["other-content", "stale", "transaction", "id-too-high"],
)
async def test_java_is_told_of_one_message(bad: bytes) -> None:
    """The others of the producer are not touched."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect(JAVA)
        await client.open_producer()
        client.write(send(5) + bad + send(10))
        assert (await client.read()).name == "send_receipt"
        error = (await client.read()).command.send_error
        assert error.error == 22
        assert error.producer_id == 1
        assert (await client.read()).command.send_receipt.sequence_id == 10


@pytest.mark.asyncio
@pytest.mark.hazard("send-error-closes-a-connection", "send-error-kills-the-client", "send-error-silences-a-producer")
@each_other_family
@pytest.mark.parametrize("wrong", ["content", "checksum"])
async def test_others_are_closed_fail_what_is_pending_and_go_on(version: bytes, wrong: str) -> None:
    """CLOSE_PRODUCER; 8 for the next PRODUCER, once; then success. What came behind the refusal is not stored, and
    comes again. Another producer of the connection notices nothing."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect(version)
        opened = await client.open_producer()
        await client.open_producer(producer_id=2, name=b"neighbour")
        bad = send(5, b"other")
        if wrong == "checksum":
            bad = send(6)[:-1] + b"?"
        client.write(send(5) + bad + send(7) + send(8, producer_id=2))
        assert await names(client, 3) == ["send_receipt", "close_producer", "send_receipt"]
        again = (EPOCH, 1), (TOKEN, opened.topic_epoch)
        failed = await client.open_producer(*again)
        assert failed.error == 8
        reopened = await client.open_producer(*again)
        assert reopened.topic_epoch == opened.topic_epoch
        assert reopened.last_sequence_id == 5
        assert (await client.answer(send(7))).sequence_id == 7
        assert len(world.cluster.topic(ORDERS).entries) == 3
        assert world.home.budget.total == 0


@pytest.mark.asyncio
@each_other_family
async def test_nothing_behind_a_refusal_reaches_the_log(version: bytes) -> None:
    """It was taken while the one before it was checked in another thread. The client fails both."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect(version)
        await client.open_producer()
        topic = world.cluster.topic(ORDERS)
        topic.takes = False
        client.write(send(1) + send(2, b"x" * 300_000)[:-1] + b"?" + send(3))
        [connection] = world.home.connections.values()
        [slot] = connection.slots.values()
        await until(lambda: slot.refused, DEADLINE_S)
        topic.take()
        assert await names(client, 2) == ["send_receipt", "close_producer"]
        await client.answer(PING_FRAME)
        assert len(topic.entries) == 1
        assert world.home.budget.total == 0


@pytest.mark.asyncio
@each_other_family
async def test_what_is_due_to_a_token_finds_it_on_another_connection(version: bytes) -> None:
    """The connection broke before the client could open the producer again."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        await client.connect(version)
        opened = await client.open_producer()
        client.write(send(5) + send(5, b"other"))
        await names(client, 2)
        client.abort()
        await other.connect(version)
        failed = await other.open_producer((EPOCH, 1), (TOKEN, opened.topic_epoch), producer_id=4)
        assert failed.error == 8


@pytest.mark.asyncio
async def test_opening_is_refused_with_its_code() -> None:
    """Names, topics, and what is not offered."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        cases = [
            (client.open_producer(topic=b"persistent://a/b"), 17),
            (client.open_producer(topic=b"non-persistent://a/b/c"), 22),
            (client.open_producer(name=b"pulsar.repl.west"), 22),
            (client.open_producer((10, 1)), 22),
            (client.open_producer((10, 9)), 22),
            (client.open_producer((12, 1)), 22),
        ]
        for opening, code in cases:
            refused = await opening
            assert (refused.request_id, refused.error) == (77, code)
        assert world.cluster.opened == []
        assert world.home.connections[1].slots == {}


@pytest.mark.asyncio
async def test_producers_of_a_connection_are_limited() -> None:
    """The one above the limit is refused; another one in its place is not."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        for first in range(0, 1000, PER_SECOND):
            some = range(first, first + PER_SECOND)
            client.write(b"".join(producer(producer_id=number, name=b"n%d" % number) for number in some))
            assert set(await names(client, PER_SECOND)) == {"producer_success"}
            world.timers.advance(1000)
        assert (await client.open_producer(producer_id=1000, name=b"more")).error == 22
        assert (await client.open_producer((EPOCH, 1), producer_id=3, name=b"n3b")).name == "n3b"
        [former] = [each for each in world.cluster.opened if each.name == "n3"]
        await until(lambda: former.gave_up_name is False, DEADLINE_S)


# --- instances --------------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def two_doors() -> AsyncIterator[tuple[RawClient, RawClient, FakeCluster]]:
    """Of one cluster, with a client at each."""
    cluster = FakeCluster()
    async with (
        door_world(cluster) as one, door_world(cluster) as two,
        raw_client(one.port) as client, raw_client(two.port) as other,
    ):  # fmt: skip
        yield client, other, cluster


@pytest.mark.asyncio
@each_family
async def test_client_continues_at_another_door(
    version: bytes, two_doors: tuple[RawClient, RawClient, FakeCluster]
) -> None:
    """Its token is the same instance, and what it sends again is known. The former door closes the producer."""
    client, other, cluster = two_doors
    await client.connect(version)
    opened = await client.open_producer()
    await client.answer(send(1))
    await other.connect(version)
    reopened = await other.open_producer((EPOCH, 1), (TOKEN, opened.topic_epoch))
    assert reopened.topic_epoch == opened.topic_epoch
    assert (await client.read()).name == "close_producer"
    assert (await other.answer(send(1))).message_id.entry_id == 0
    assert (await other.answer(send(2))).message_id.entry_id == 1
    client.write(send(3))
    await client.answer(PING_FRAME)
    assert len(cluster.topic(ORDERS).entries) == 2


@pytest.mark.asyncio
@pytest.mark.hazard("fenced-producer-reconnects")
@each_family
async def test_fenced_producer_is_closed_and_stopped(
    version: bytes, two_doors: tuple[RawClient, RawClient, FakeCluster]
) -> None:
    """A newer instance has the name; the former one comes back with its token, at any door, and gets 25."""
    client, other, cluster = two_doors
    cluster.topic(ORDERS).fences = True
    await client.connect(version)
    opened = await client.open_producer()
    await other.connect(version)
    newer = await other.open_producer()
    assert newer.topic_epoch > opened.topic_epoch
    assert (await client.read()).name == "close_producer"
    for back in (client, other):
        refused = await back.open_producer((EPOCH, 1), (TOKEN, opened.topic_epoch), producer_id=5)
        assert refused.error == 25
    assert (await other.answer(send(1))).sequence_id == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(("version", "code"), [(JAVA, 25), (CPP, 25), (GO, 25), (OLD, None)])
async def test_late_opening_of_an_abandoned_connection_does_not_win(
    version: bytes, code: int | None, two_doors: tuple[RawClient, RawClient, FakeCluster]
) -> None:
    """Its epoch is not above that of the session. Of a client that is not known to count, the later one wins."""
    client, other, _ = two_doors
    await client.connect(version)
    opened = await client.open_producer((EPOCH, 4))
    await other.connect(version)
    late = await other.open_producer((EPOCH, 4), (TOKEN, opened.topic_epoch))
    assert getattr(late, "error", None) == code


@pytest.mark.asyncio
@pytest.mark.hazard("token-of-a-deleted-topic")
async def test_topic_that_was_made_again_takes_its_old_producer() -> None:
    """As a new instance, which gets what the new topic has."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        opened = await client.open_producer()
        await client.answer(send(9))
        topic = world.cluster.topic(ORDERS)
        topic.incarnation = 2
        topic.names.clear()
        topic.entries.clear()
        reopened = await client.open_producer((EPOCH, 1), (TOKEN, opened.topic_epoch))
        assert reopened.last_sequence_id == -1
        assert reopened.topic_epoch != opened.topic_epoch


@pytest.mark.asyncio
@pytest.mark.hazard("half-open-holder")
async def test_name_that_is_wanted_pings_its_holder(two_doors: tuple[RawClient, RawClient, FakeCluster]) -> None:
    """A holder that lives answers; its door says so. The other one is refused with 16."""
    client, other, cluster = two_doors
    await client.connect()
    await client.open_producer()
    await other.connect()
    refused = await other.open_producer()
    assert refused.error == 16
    assert (await client.read()).name == "ping"
    client.write(frame(command(19)))
    await until(lambda: cluster.opened[0].said_alive == 1, DEADLINE_S)


@pytest.mark.asyncio
@pytest.mark.hazard("half-open-holder")
async def test_holder_that_is_gone_loses_its_name() -> None:
    """No byte in 5 s: its connection is closed, and its name is kept for its token, not given up."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        await client.connect()
        await client.open_producer()
        await other.connect()
        assert (await other.open_producer()).error == 16
        world.timers.advance(5_000)
        assert await client.names_until_closed() == ["ping"]
        await until(lambda: world.cluster.opened[0].gave_up_name is False, DEADLINE_S)
        assert (await other.open_producer()).name == "importer"


@pytest.mark.asyncio
async def test_connection_that_breaks_ends_its_sessions() -> None:
    """Also of an opening that the owner has not answered; nothing stays behind in the budget."""
    async with door_world() as world:
        async with raw_client(world.port) as client:
            await client.connect()
            await client.open_producer()
            world.cluster.topic(ORDERS).takes = False
            client.write(send(1) + send(2))
            world.cluster.owner_answers.clear()
            client.write(producer(producer_id=2, name=b"later"))
            await client.answer(PING_FRAME)
            client.abort()
            await until(lambda: not world.home.connections, DEADLINE_S)
        await until(lambda: world.cluster.withdrawn == 1, DEADLINE_S)
        await until(lambda: world.cluster.opened[0].gave_up_name is False, DEADLINE_S)
        await until(lambda: world.home.budget.total == 0, DEADLINE_S)
        assert len(world.cluster.opened) == 1


# --- backpressure -----------------------------------------------------------------------------------------------------


SMALL = SendLimits(connection_bytes=4000, process_bytes=16_000, large_bytes=1000)


@pytest.mark.asyncio
@pytest.mark.hazard("unread-for-one-topic")
@each_family
async def test_topic_that_takes_nothing_stops_its_connection_for_5_s(version: bytes) -> None:
    """Then its producer is closed, its neighbour goes on, and its next PRODUCER is answered when the topic takes."""
    async with door_world(limits=SMALL) as world, raw_client(world.port) as client:
        await client.connect(version)
        opened = await client.open_producer()
        await client.open_producer(producer_id=2, name=b"neighbour", topic=b"persistent://public/default/returns")
        world.cluster.topic(ORDERS).takes = False
        for number in range(4):
            client.write(send(number, b"x" * 1000))
        client.write(send(1, b"v", producer_id=2) + PING_FRAME)
        [connection] = world.home.connections.values()
        await until(lambda: connection.holds, DEADLINE_S)
        world.timers.advance(5_000)
        assert await names(client, 3) == ["close_producer", "send_receipt", "pong"]
        client.write(producer((EPOCH, 1), (TOKEN, opened.topic_epoch)))
        await client.answer(PING_FRAME)
        world.timers.advance(19_000)
        await client.answer(PING_FRAME)
        world.timers.advance(1_000)
        assert (await client.read()).command.error.error == 2
        client.write(producer((EPOCH, 2), (TOKEN, opened.topic_epoch)))
        await client.answer(PING_FRAME)
        world.cluster.topic(ORDERS).take()
        assert (await client.read()).name == "producer_success"
        assert world.home.budget.total == 0


@pytest.mark.asyncio
async def test_door_that_ends_lets_receipts_out() -> None:
    """The connection is closed behind them; a topic that takes nothing has 5 s."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as stuck:
        for each, name in ((client, b"one"), (stuck, b"two")):
            await each.connect()
            await each.open_producer(name=name, topic=b"persistent://public/default/" + name)
            world.cluster.topic(f"public/default/{name.decode()}").takes = False
            each.write(send(1) + send(2))
            await each.answer(PING_FRAME)
        closing = asyncio.ensure_future(world.door.close())
        await until(lambda: all("draining" in each.holds for each in world.home.connections.values()), DEADLINE_S)
        for _, _, decided in reversed(world.cluster.topic("public/default/one").waiting):
            decided(Accepted())  # both receipts are due at the second one
        world.cluster.topic("public/default/one").waiting.clear()
        assert await client.names_until_closed() == ["send_receipt", "send_receipt"]
        assert not closing.done()
        world.timers.advance(5_000)
        assert await stuck.names_until_closed() == []
        await closing
