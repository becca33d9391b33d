"""Consumers with subscriptions of a client of Pulsar in front of a cluster of real processes."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import idle, just_seen, kill
from tests.cluster.until import until
from tests.doors.cluster.conftest import NewDoor
from tests.doors.cluster.door_client import (
    NOT_FOUND,
    UNAUTHORIZED,
    Place,
    connected,
    published,
    sdk,
    topic,
)
from tests.doors.cluster.door_program import DoorProgram
from tests.doors.pulsar.bytes_of_clients import ACK, FLOW, SUBSCRIBE, command, frame
from tests.doors.pulsar.entries_at_clients import read
from tests.doors.pulsar.raw_client import RawClient
from tests.doors.pulsar.reader_client import STATS
from tests.doors.raw_connection import DEADLINE_S

EXCLUSIVE, SHARED = 0, 1
CONSUMER_BUSY, CONSUMER_NOT_FOUND, NOT_ALLOWED = 5, 13, 22
SUBSCRIPTION = "/admin/v2/persistent/public/default/{}/subscription/billing"


def subscribe(name: str, kind: int, *more: tuple[int, int | bytes]) -> bytes:
    return frame(
        command(SUBSCRIBE, (1, topic(name)), (2, b"billing"), (3, kind), (4, 1), (5, 50), (13, 1), *more)
    )  # fmt: skip


@asynccontextmanager
async def consuming(door: DoorProgram, name: str, kind: int = SHARED) -> AsyncIterator[RawClient]:
    """With permits for a thousand messages."""
    async with connected(door, "billing") as client:
        success = await client.answer(subscribe(name, kind))
        assert success.request_id == 50, success
        client.write(frame(command(FLOW, (1, 1), (2, 1000))))
        yield client


async def delivered(client: RawClient, count: int) -> list[tuple[Place, int, list[bytes | None]]]:
    """(place, redelivery count, values) of the next entries."""
    found = []
    for _ in range(count):
        got = await client.read()
        assert got.entry is not None, got
        message = got.command.message
        at = Place(message.message_id.ledger_id, message.message_id.entry_id)
        found.append((at, message.redelivery_count, [each.value for each in read(got.entry)[1]]))
    return found


def ack(place: Place, request_id: int, *more: tuple[int, int | bytes]) -> bytes:
    return frame(command(ACK, (1, 1), (2, 0), (3, place.body()), *more, (8, request_id)))


async def closed(client: RawClient) -> bool:
    """Whether the next command closes the consumer."""
    return (await client.read()).name == "close_consumer"


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-another-part")
async def test_acknowledged_entries_do_not_come_again_at_another_door(new_door: NewDoor) -> None:
    """Once the client has the receipt. What it held comes again; an acknowledgement of before says that it is void."""
    with new_door() as one, new_door() as other:
        await published(one, "moved-consumer", [(1,), (2, 3), (4,)])
        async with consuming(one, "moved-consumer", EXCLUSIVE) as client:
            first, second, third = await delivered(client, 3)
            receipt = await client.answer(ack(second[0], 70))
            assert (receipt.request_id, receipt.HasField("error")) == (70, False)
            await kill(one.process, once=idle)
            await client.names_until_closed()
        async with consuming(other, "moved-consumer", EXCLUSIVE) as client:
            assert [each[0] for each in await delivered(client, 2)] == [first[0], third[0]]
            assert (await client.answer(ack(second[0], 71))).error == CONSUMER_NOT_FOUND


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-another-part")
async def test_acknowledgements_that_a_client_still_holds_are_taken_at_another_door(
    cluster: Cluster, new_door: NewDoor
) -> None:
    """Of an entry with one message, without a receipt. A batch comes again."""
    with new_door() as one, new_door() as other:
        await published(one, "held-acks", [(1,), (2, 3), (4,)])
        async with consuming(one, "held-acks", EXCLUSIVE) as client:
            first, second, third = [each[0] for each in await delivered(client, 3)]
            await kill(one.process, once=just_seen)
            await client.names_until_closed()
        async with connected(other, "billing") as client:
            held = command(ACK, (1, 1), (2, 0), (3, first.body()), (3, second.body()))
            client.write(subscribe("held-acks", EXCLUSIVE) + frame(held))
            assert (await client.read()).command.success.request_id == 50
            client.write(frame(command(FLOW, (1, 1), (2, 1000))))
            assert [each[0] for each in await delivered(client, 2)] == [second, third]
            path = SUBSCRIPTION.format("held-acks")

            async def acknowledged() -> bool:
                stats: dict[str, Any] = await cluster.get(path)
                return bool(stats["public/default/held-acks"]["msg_backlog"] == 3)

            await until(acknowledged, DEADLINE_S)


@pytest.mark.asyncio
@pytest.mark.hazard("ack-of-the-unreadable")
async def test_policy_acknowledges_what_a_client_cannot_decode(cluster: Cluster, door: DoorProgram) -> None:
    """By default its receipt is an error. A consumer that is open follows a change within seconds."""
    undecodable = (4, 1)
    await published(door, "undecodable", [(1,), (2,)])
    async with consuming(door, "undecodable") as client:
        (first, _, _), (second, _, _) = await delivered(client, 2)
        assert (await client.answer(ack(first, 70, undecodable))).error == NOT_ALLOWED
        path = "/admin/v2/persistent/public/default/undecodable/pulsarAckUndecodable"
        (await cluster.request("POST", path, json=True)).raise_for_status()

        async def acknowledged() -> bool:
            return not (await client.answer(ack(second, 71, undecodable))).HasField("error")

        await until(acknowledged, DEADLINE_S)
        stats: dict[str, Any] = await cluster.get(SUBSCRIPTION.format("undecodable"))
        assert stats["public/default/undecodable"]["msg_backlog"] == 1


@pytest.mark.asyncio
async def test_consumer_is_blocked_while_the_owner_withholds_messages(cluster: Cluster, door: DoorProgram) -> None:
    """PIP-299, with a limit of no ranges: one message is acknowledged out of order, then the one before it."""
    topic_path = "/admin/v2/persistent/public/default/withheld"
    await published(door, "withheld", [(1,), (2,), (3,)])
    (await cluster.request("POST", f"{topic_path}/maxUnackedRangesToPersist", json=0)).raise_for_status()
    (await cluster.request("POST", f"{topic_path}/dispatcherPauseOnAckStatePersistent", json=True)).raise_for_status()
    async with consuming(door, "withheld") as client:

        async def blocked() -> bool:
            return bool((await client.answer(frame(command(STATS, (1, 71), (4, 1))))).blocked)

        async def goes_on() -> bool:
            return not await blocked()

        (first, _, _), (second, _, _), _ = await delivered(client, 3)
        assert not await blocked()
        await client.answer(ack(second, 72))
        await until(blocked, DEADLINE_S)
        await client.answer(ack(first, 73))
        await until(goes_on, DEADLINE_S)


@pytest.mark.asyncio
async def test_rights_are_those_of_the_role(door: DoorProgram) -> None:
    """The right to consume makes subscriptions, and no topics; a role without it learns nothing."""
    await published(door, "consumer-rights", [(1,)])
    async with connected(door, "importer") as client:
        assert (await client.answer(subscribe("consumer-rights", SHARED))).error == UNAUTHORIZED
    async with connected(door, "billing") as client:
        assert (await client.answer(subscribe("missing-consumed", SHARED))).error == NOT_FOUND
        assert (await client.answer(subscribe("consumer-rights", SHARED))).request_id == 50
    async with connected(door, "root") as client:
        assert (await client.answer(subscribe("made-by-consumer", SHARED))).request_id == 50
        assert (await client.answer(subscribe("not-to-be-made", SHARED, (15, 0)))).error == NOT_FOUND


@pytest.mark.asyncio
@pytest.mark.hazard("half-open-holder")
async def test_half_open_holder_at_another_door_loses_an_exclusive_subscription(new_door: NewDoor) -> None:
    """Its door asks it, and it does not answer for 5 s. One that answers keeps it."""
    with new_door() as one, new_door() as other:
        await published(one, "half-open", [(1,)])
        async with consuming(one, "half-open", EXCLUSIVE) as holder, connected(other, "billing") as client:
            await delivered(holder, 1)
            client.write(subscribe("half-open", EXCLUSIVE))
            assert (await holder.read()).name == "ping"
            holder.write(frame(command(19)))
            refused = await client.read()
            assert refused.command.error.error == CONSUMER_BUSY
            assert (await client.answer(subscribe("half-open", EXCLUSIVE))).request_id == 50
            assert await holder.names_until_closed() == ["ping"]


@pytest.mark.asyncio
async def test_door_that_ends_gives_back_what_its_clients_hold(new_door: NewDoor) -> None:
    """At once, and it counts no delivery: a restart of doors is no fault of a message."""
    with new_door() as one, new_door() as other:
        await published(one, "ended-consumer", [(1,), (2,)])
        async with consuming(one, "ended-consumer") as client, consuming(other, "ended-consumer") as second:
            await delivered(client, 2)
            os.kill(one.process.pid, signal.SIGTERM)
            assert [count for _, count, _ in await delivered(second, 2)] == [0, 0]
            assert one.process.wait(60) == 0


@pytest.mark.asyncio
@pytest.mark.hazard("seek-behind-old-messages")
async def test_seek_of_an_administrator_closes_the_consumer(cluster: Cluster, door: DoorProgram) -> None:
    """Its client shows messages that are void; what comes then begins at the sought place."""
    await published(door, "reset", [(1,), (2,)])
    async with consuming(door, "reset") as client:
        await delivered(client, 2)
        await cluster.change("POST", SUBSCRIPTION.format("reset") + "/resetcursor", json={"index": 1})
        assert await closed(client)
        await client.answer(subscribe("reset", SHARED))
        client.write(frame(command(FLOW, (1, 1), (2, 1000))))
        assert [values for _, _, values in await delivered(client, 1)] == [[b"pulsar 2"]]


@pytest.mark.asyncio
async def test_consumer_of_a_deleted_subscription_is_closed(cluster: Cluster, door: DoorProgram) -> None:
    """A client that comes back makes it again, as at first."""
    await published(door, "deleted-consumer", [(1,)])
    async with consuming(door, "deleted-consumer") as client:
        [(place, _, _)] = await delivered(client, 1)
        assert not (await client.answer(ack(place, 70))).HasField("error")
        path = SUBSCRIPTION.format("deleted-consumer")
        await cluster.change("DELETE", path, params={"force": "true"})
        assert await closed(client)
        await client.answer(subscribe("deleted-consumer", SHARED))
        client.write(frame(command(FLOW, (1, 1), (2, 1000))))
        assert (await delivered(client, 1))[0][0] == place


@pytest.mark.asyncio
async def test_message_that_is_too_large_stays_and_others_come(
    cluster: Cluster, door: DoorProgram, files: Path
) -> None:
    """It is too large for clients of Pulsar, and is tried again; it is never left out without a trace."""
    async with sdk(cluster, files) as client:
        producer = await client.create_producer("large-consumed")
        await producer.send(b"small")
        await producer.send(Random(1).randbytes(5_240_000))
        await producer.send(b"behind")
    async with consuming(door, "large-consumed") as consumer:
        assert [values for _, _, values in await delivered(consumer, 2)] == [[b"small"], [b"behind"]]
        stats: dict[str, Any] = await cluster.get(SUBSCRIPTION.format("large-consumed"))
        assert stats["public/default/large-consumed"]["msg_backlog"] == 3
