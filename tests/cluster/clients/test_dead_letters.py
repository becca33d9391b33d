"""Dead letters on a real cluster: each message that nobody can handle is stored once in another topic."""

import asyncio

import pytest

import oncelog
from oncelog.core.errors import InvalidArgument
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import just_seen
from tests.cluster.loads import read_all
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
DEADLINE_S = 60.0


async def backlog(cluster: Cluster, topic: str) -> int:
    found = (await cluster.stats(topic)).get("subscriptions", {}).get("billing", {})
    return int(found.get("msg_backlog", -1))


@pytest.mark.hazard("dead-letter-number-lost")
async def test_dead_letters_are_stored_once_in_order(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Also when the owner is killed while they are published: with key, properties, and where they come from."""
    producer = await client.create_producer("returns", producer_name="importer")
    values = [b"%d" % number for number in range(60)]
    await producer.send_many(values, keys=[b"k%d" % (n % 3) for n in range(60)], properties=[{"a": "b"}] * 60)
    bad = {n for n in range(60) if n % 2}
    async with await client.subscribe(
        "returns", subscription="billing", type="shared", start=oncelog.EARLIEST, max_deliveries=2
    ) as consumer:
        refused = 0
        while refused < len(bad):
            message = await consumer.receive(timeout=DEADLINE_S)
            if message.index in bad:
                refused += message.delivery_count == 1
                await consumer.nack(message, delay=0)
            else:
                await consumer.ack(message)
        owner = await cluster.owner_of("returns")
        owner_is_dead = asyncio.Event()

        async def handle() -> None:
            """Half of the letters come before the kill of the owner, and half after it."""
            handled = 0
            async for message in consumer:
                await (consumer.nack(message, delay=0) if message.index in bad else consumer.ack(message))
                handled += 1
                if handled == len(bad) // 2:
                    await owner_is_dead.wait()

        async def some_are_stored() -> bool:
            answer = await cluster.request("GET", "/admin/v2/persistent/public/default/returns-billing-DLQ/stats")
            return answer.status_code == 200 and answer.json().get("message_count", 0) > 0

        handling = asyncio.ensure_future(handle())
        await cluster.kill(owner, once=some_are_stored)
        owner_is_dead.set()

        async def done() -> bool:
            return await backlog(cluster, "returns") == 0

        await until(done, DEADLINE_S, every_s=0.2, waiting_for="every message to be handled")
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)
    letters = await read_all(client, "returns-billing-DLQ")
    assert sorted(int(letter.value) for letter in letters) == sorted(bad)
    assert [letter.sequence_id for letter in letters] == list(range(len(bad)))
    first = letters[0]
    assert first.key == b"k%d" % (int(first.value) % 3)
    origin = {"dead_letter.topic": "public/default/returns", "dead_letter.subscription": "billing"}
    assert dict(first.properties) | origin == dict(first.properties)
    assert first.properties["a"] == "b"
    assert first.properties["dead_letter.index"] == first.value.decode()


@pytest.mark.hazard("pending-dead-letter-trimmed")
async def test_deleted_dead_letter_topic_is_made_again(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """What was pending goes to the new one, from its first number on."""
    producer = await client.create_producer("jobs", producer_name="importer")

    async def bury(value: bytes) -> None:
        await producer.send(value)
        async with await client.subscribe(
            "jobs", subscription="billing", type="shared", start=oncelog.EARLIEST, max_deliveries=1,
            dead_letter_topic="jobs-dead",
        ) as consumer:  # fmt: skip
            message = await consumer.receive(timeout=DEADLINE_S)
            await consumer.nack(message, delay=0)

            async def done() -> bool:
                return await backlog(cluster, "jobs") == 0

            await until(done, DEADLINE_S, every_s=0.2, waiting_for="the dead letter")

    await bury(b"one")
    await bury(b"two")
    await cluster.change("DELETE", "/admin/v2/persistent/public/default/jobs-dead")
    await bury(b"three")
    assert [letter.value for letter in await read_all(client, "jobs-dead")] == [b"three"]


@pytest.mark.hazard("oversized-dead-letters")
@pytest.mark.hazard("poisonous-dead-letter")
async def test_every_message_becomes_a_dead_letter(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Those of large batches, together far above the limit of a request; one of the largest size, without room for the
    properties of a dead letter; and one with a time that `datetime` cannot express."""
    producer = await client.create_producer("parcels", producer_name="importer")
    small = [b"%05d" % number + bytes(20_000) for number in range(200)]
    await producer.send_many(small)
    await producer.send_many([b"timeless"], event_times_ms=[2**62])  # as one that an older client has stored
    large = bytes(producer.message_bytes_max)
    await producer.send(large, properties={"a": "b" * 65_400})
    await producer.send(b"last")
    count = len(small) + 3
    async with await client.subscribe(
        "parcels", subscription="billing", type="shared", start=oncelog.EARLIEST, max_deliveries=1
    ) as consumer:
        for _ in range(count):
            await consumer.nack(await consumer.receive(timeout=DEADLINE_S), delay=0)

        async def done() -> bool:
            return await backlog(cluster, "parcels") == 0

        await until(done, DEADLINE_S, every_s=0.2, waiting_for="every dead letter")
    letters = {
        int(each.properties["dead_letter.index"]): each for each in await read_all(client, "parcels-billing-DLQ")
    }
    assert sorted(letters) == list(range(count))
    assert [letters[number].value for number in range(200)] == small
    ids = {letter.properties["dead_letter.message_id"] for letter in letters.values()}
    assert len(ids) == count
    assert (letters[200].value, letters[200].event_time_ms) == (b"timeless", 2**62)
    assert letters[201].value == b""
    assert "limit is" in letters[201].properties["dead_letter.omitted"]
    assert letters[202].value == b"last"


@pytest.mark.hazard("foreign-producer-name")
async def test_message_of_another_program_does_not_count_as_a_dead_letter(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """Without authentication nothing keeps a program from the name. The letters wait, the statistics say for what, and
    they are stored once the topic is replaced."""
    producer = await client.create_producer("bills", producer_name="importer")
    stored = (await producer.send(b"unpaid")).message_id
    assert stored is not None
    for number in range(3):
        name = f"dead-letters/{stored.topic_id}/{number}"
        foreign = await client.create_producer("bills-dead", producer_name=name, sequence_mode="contiguous")
        await foreign.send(b"mine", sequence_id=0)
        await foreign.close()
    async with await client.subscribe(
        "bills", subscription="billing", type="shared", start=oncelog.EARLIEST, max_deliveries=1,
        dead_letter_topic="bills-dead",
    ) as consumer:  # fmt: skip
        await consumer.nack(await consumer.receive(timeout=DEADLINE_S), delay=0)

        async def waits_for(reason: str | None) -> bool:
            found = (await cluster.stats("bills"))["subscriptions"]["billing"]["dead_letters_wait_for"]
            return (reason or "") in (found or "") and bool(found) == bool(reason)

        await until(lambda: waits_for("another program"), DEADLINE_S, every_s=0.2)
        assert await backlog(cluster, "bills") == 1
        await cluster.change("DELETE", "/admin/v2/persistent/public/default/bills-dead")
        await until(lambda: waits_for(None), DEADLINE_S, every_s=0.2)
    assert [letter.value for letter in await read_all(client, "bills-dead")] == [b"unpaid"]


@pytest.mark.hazard("redrive-killed-before-acknowledgement")
async def test_redrive_that_is_killed_and_repeated_publishes_each_letter_once(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """The metadata service is killed as soon as the first letter is in its topic again, and that topic's owner."""
    producer = await client.create_producer("claims", producer_name="importer")
    values = [b"%03d" % number + bytes(40_000) for number in range(80)]
    await producer.send_many(values)
    async with await client.subscribe(
        "claims", subscription="billing", type="shared", start=oncelog.EARLIEST, max_deliveries=1
    ) as consumer:
        for _ in values:
            await consumer.nack(await consumer.receive(timeout=DEADLINE_S), delay=0)

        async def buried() -> bool:
            return await backlog(cluster, "claims") == 0

        await until(buried, DEADLINE_S, every_s=0.2, waiting_for="every dead letter")
    path = "/admin/v2/persistent/public/default/claims/subscription/billing/redrive"
    owner = await cluster.owner_of("claims")
    redriving = asyncio.ensure_future(cluster.request("POST", path))
    async with await client.create_reader("claims", start=oncelog.LATEST) as reader:
        await reader.read_next(timeout=DEADLINE_S)
    await asyncio.gather(cluster.kill("metadata-1", once=just_seen), cluster.kill(owner, once=just_seen))
    await asyncio.gather(redriving, return_exceptions=True)
    await cluster.healed()

    async def redriven() -> bool:
        answer = await cluster.request("POST", path)
        return answer.status_code == 200 and answer.json()["left"] == answer.json()["kept_count"] == 0

    await until(redriven, DEADLINE_S, every_s=0.2, waiting_for="a redrive of all letters")
    stored = await read_all(client, "claims")
    assert [message.value for message in stored] == [*values, *values]
    assert (await cluster.request("POST", path)).json()["redriven"] == 0


async def test_topic_is_not_its_own_dead_letter_topic(client: oncelog.AsyncClient) -> None:
    """Its dead letters would be delivered again and again."""
    with pytest.raises(InvalidArgument) as caught:
        await client.subscribe("loop", subscription="billing", max_deliveries=1, dead_letter_topic="loop")
    assert caught.value.details["field"] == "dead_letter_topic"
