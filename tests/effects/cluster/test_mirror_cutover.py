"""`oncelog mirror cutover`: consumers and producers go on at the target, as planned and in a disaster."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

import oncelog
from oncelog.core.errors import Conflict, DeadlineExceeded, InvalidArgument, UnverifiedSequence
from oncelog.core.names import parse_topic
from oncelog.testing import LocalCluster
from oncelog_effects.mirror.cutover import Cutover, MovedProducer, cut_over, cut_over_forced
from oncelog_effects.mirror.topics import Choice
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.commands import COMMAND_TIMEOUT_S, environment
from tests.cluster.forked_program import run_forked
from tests.effects.cluster.mirroring import acknowledge, connected, connected_mirror, once, read_all

pytestmark = pytest.mark.asyncio
NOWHERE = "oncelog://127.0.0.1:1"


async def cutover(source_url: str, cluster: Cluster, *words: str) -> tuple[int, str]:
    """The exit code, and what is printed."""
    words = ("cutover", "--from", source_url, "--to", cluster.url, *words)
    done = await asyncio.to_thread(run_forked, ["mirror", *words], environment(), timeout_s=COMMAND_TIMEOUT_S)
    return done.returncode, (done.stdout or done.stderr).decode()


async def test_planned_cutover_moves_consumers_and_producers(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient
) -> None:
    """Once nobody uses the source, and everything is copied. Then each message is there once, and the next one has the
    next id. It may be repeated."""
    choice = Choice((parse_topic("crossing"),))

    def planned(wait_s: float = DEADLINE_S) -> Coroutine[Any, Any, Cutover]:
        return cut_over(source, client, choice, producers=True, wait_s=wait_s, timeout_ms=int(DEADLINE_S * 1000))

    importer = await source.create_producer("crossing", producer_name="importer")
    await importer.send_many([b"%d" % number for number in range(10)])
    consumer = await source.subscribe("crossing", subscription="billing", start=oncelog.EARLIEST)
    await acknowledge(consumer, 4)
    with pytest.raises(Conflict, match=r"the mirror needs help before a cutover: .*no mirror is connected"):
        await planned()
    await once(source, client, "crossing")
    with pytest.raises(Conflict, match=r"1 producer connected to .*crossing at the source \(importer\): stop them"):
        await planned()
    await importer.close()
    await connected(source, "crossing", producers=0, consumers=1)
    with pytest.raises(Conflict, match=r"are connected at the source \(subscriptions billing\): stop them"):
        await planned()
    await consumer.close()
    await connected(source, "crossing", producers=0, consumers=0)
    code, printed = await cutover(there.url, cluster, "--topic", "crossing", "--producers", "-o", "json")
    assert code == 0, printed
    [moved] = json.loads(printed)["partitions"]
    assert (moved["last_index"], moved["subscriptions"], moved["left_out"]) == (9, {"billing": 4}, {})
    assert moved["producers"] == [
        {
            "name": "importer",
            "last_sequence_id": 9,
            "mode": "monotonic",
            "role": "",
            "opened": True,
            "assigned": False,
        }
    ]
    again = await client.create_producer("crossing", producer_name="importer")
    assert again.last_sequence_id == 9
    await again.send(b"10")
    async with await client.subscribe("crossing", subscription="billing") as at_target:
        received = [await at_target.receive(timeout=DEADLINE_S) for _ in range(7)]
        await at_target.ack_cumulative(received[-1])
    assert [message.value for message in received] == [b"%d" % number for number in range(4, 11)]
    await connected(client, "crossing", producers=1, consumers=0)
    assert [moved.subscriptions for moved in (await planned()).partitions] == [{"billing": 11}]
    late = await source.create_producer("crossing", producer_name="importer")
    await late.send_many([b"late", b"later"])
    await late.close()
    await once(source, client, "crossing")
    await connected(source, "crossing", producers=0, consumers=0)
    with pytest.raises(Conflict, match=r"producer importer is at the target .* with sequence id 10 already"):
        await planned()


async def test_cutover_waits_only_so_long(client: oncelog.AsyncClient, source: oncelog.AsyncClient) -> None:
    """A mirror is connected, and copies nothing."""
    producer = await source.create_producer("halted")
    await producer.send(b"0")
    await once(source, client, "halted")
    await producer.send(b"1")
    await producer.close()
    await connected(source, "halted", producers=0, consumers=0)
    async with connected_mirror(source, client, "halted"):
        with pytest.raises(DeadlineExceeded, match=r"not everything was copied within 5 s .*halted: 1 message"):
            await cut_over(
                source, client, Choice((parse_topic("halted"),)), producers=True, wait_s=5, timeout_ms=30_000
            )


@pytest.mark.hazard("producer-fails-over")
async def test_producers_send_again_what_a_disaster_cost(
    cluster: Cluster, client: oncelog.AsyncClient, source: oncelog.AsyncClient
) -> None:
    """The source is lost with what was not copied. Its producer goes on behind what the target has, and may begin
    further in front: each message is there once."""
    importer = await source.create_producer("lost", producer_name="importer")
    await importer.send_many([b"%d" % number for number in range(10)], sequence_ids=range(10))
    await once(source, client, "lost")
    await importer.send_many([b"%d" % number for number in range(10, 15)], sequence_ids=range(10, 15))
    choice = Choice((parse_topic("lost"),))

    def forced(*, producers: bool = True) -> Coroutine[Any, Any, Cutover]:
        return cut_over_forced(client, choice, cluster_id=None, producers=producers, role="", timeout_ms=30_000)

    name = (await read_all(client, "lost"))[0].producer_name
    mirror = await client.create_producer("lost", producer_name=name)
    with pytest.raises(Conflict, match=r"a mirror copies into .*lost now"):
        await forced()
    await mirror.close()
    await connected(client, "lost", producers=0, consumers=0)
    told = (await forced(producers=False)).partitions
    assert told[0].producers == [MovedProducer("importer", 9, "monotonic", "", opened=False)]
    code, printed = await cutover(NOWHERE, cluster, "--topic", "lost", "--forced", "--producers")
    assert code == 0, printed
    assert "copied up to index 9 of the source" in printed
    assert "producer importer sends again what is behind sequence id 9: its name is at the target with it" in printed
    careful = await client.create_producer("lost", producer_name="importer")
    assert careful.last_sequence_id == 9
    with pytest.raises(UnverifiedSequence):
        await careful.send(b"5", sequence_id=5)
    sure = await client.create_producer("lost", producer_name="importer", on_unverified="accept")
    await sure.send_many([b"%d" % number for number in range(5, 15)], sequence_ids=range(5, 15))
    assert [message.value for message in await read_all(client, "lost")] == [b"%d" % number for number in range(15)]
    await (await client.create_producer("never-mirrored")).send(b"x")
    choice = Choice((parse_topic("never-mirrored"),))
    with pytest.raises(InvalidArgument, match="no mirror has copied them: say with --cluster"):
        await forced()


async def test_cutover_says_which_names_the_source_has_assigned(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient
) -> None:
    """They are opened at the target, where they never expire, and where a lease of the source is unknown."""
    unnamed = await source.create_producer("assigned-at-source")
    await unnamed.send(b"0")
    name = unnamed.producer_name
    await unnamed.close()
    await once(source, client, "assigned-at-source")
    for each in (source, client):
        await connected(each, "assigned-at-source", producers=0, consumers=0)
    words = ["--topic", "assigned-at-source", "--producers"]
    code, printed = await cutover(there.url, cluster, *words, "-o", "json")
    assert code == 0, printed
    [producer] = json.loads(printed)["partitions"][0]["producers"]
    assert (producer["name"], producer["assigned"], producer["opened"]) == (name, True, True)
    for more in ([], ["--forced"]):
        code, printed = await cutover(there.url, cluster, *words, *more)
        assert code == 0, printed
        assert "lease a new id there" in printed
