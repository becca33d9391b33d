"""`oncelog mirror` between two real clusters: killed, in both directions, and what it refuses."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import oncelog
from oncelog.client.client import network_of
from oncelog.client.producing.producer import sender_of
from oncelog.client.rest_calls import rest
from oncelog.core.effect_errors import PartitionsDiffer, SourceDiverged, SourceTrimmed
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.formats.columns import encode_origin, encode_values
from oncelog.core.formats.origin import pack_origin
from oncelog.core.names import KAFKA_GROUPS, parse_namespace, parse_topic
from oncelog.testing import LocalCluster
from oncelog_effects.mirror.positions import Origins, copy_positions, subscriptions_of
from oncelog_effects.mirror.topics import Choice, subscription_of
from oncelog_effects.topic_store import topic_id_of
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.lost_tail import lose_tail, new_ledger
from tests.cluster.programs import running
from tests.cluster.until import until
from tests.effects.cluster.mirroring import acknowledge, connected, connected_mirror, once, read_all, start

pytestmark = pytest.mark.asyncio


def of_partition(messages: list[oncelog.Message], partition: int) -> list[oncelog.Message]:
    return [message for message in messages if message.partition == partition]


def content(message: oncelog.Message) -> tuple[object, ...]:
    return (message.value, message.key, dict(message.properties), message.event_time_ms)


def assert_copies(copies: list[oncelog.Message], originals: list[oncelog.Message], cluster_id: str) -> None:
    """Message by message."""
    assert list(map(content, copies)) == list(map(content, originals))
    for copy, original in zip(copies, originals, strict=True):
        origin = copy.origin
        assert origin is not None
        assert (origin.cluster_id, origin.index, origin.message_id) == (cluster_id, original.index, original.message_id)
        assert (origin.producer_name, origin.sequence_id) == (original.producer_name, original.sequence_id)
        assert origin.checksum == original.batch_checksum
        assert origin.publish_time_ms == original.publish_time_ms
        assert copy.sequence_id == original.index


async def publish(client: oncelog.AsyncClient, topic: str, name: str, first: int, count: int) -> None:
    """Batches of several sizes, ids with holes, and every column."""
    producer = await client.create_producer(topic, producer_name=name, compression="zlib" if first % 2 else None)
    numbers = range(first, first + count)
    ids = [3 * number for number in numbers]
    for at in range(0, count, 7):
        part = slice(at, at + 7)
        await producer.send_many(
            [b"%s %d" % (name.encode(), number) for number in numbers[part]],
            sequence_ids=ids[part],
            keys=[None if number % 3 else f"key-{number}" for number in numbers[part]],
            properties=[{"n": str(number)} if number % 2 else None for number in numbers[part]],
            event_times_ms=[number if number % 5 else None for number in numbers[part]],
        )
    await producer.close()


async def test_killed_mirrors_in_both_directions(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """Each topic has the messages of both, once, the copies in the order of their source, with their origin."""
    await rest(source, "PUT", "/admin/v2/persistent/public/default/lines/partitions", 2)
    await publish(source, "lines", "importer", 0, 120)
    forth = ["--from", there.url, "--to", cluster.url, "--topic", "lines"]
    back = ["--from", cluster.url, "--to", there.url, "--topic", "lines"]

    async def has(found: oncelog.AsyncClient, count: int) -> bool:
        return len(await read_all(found, "lines")) >= count

    async with running(start(tmp_path, *forth, "--compression", "zstd")) as first:
        await first.kill(once=lambda: _copied_some(client))
    await publish(client, "lines", "local", 0, 60)
    async with running(start(tmp_path, *forth)) as second, running(start(tmp_path, *back)) as third:
        await publish(source, "lines", "importer", 120, 60)
        await second.kill(once=lambda: _has_value(client, b"importer 120"))
        await third.kill(once=lambda: _has_value(source, b"local 0"))
    async with running(start(tmp_path, *forth)) as fourth, running(start(tmp_path, *back)) as fifth:
        owner = await cluster.owner_of("lines-partition-0")
        await publish(source, "lines", "importer", 180, 60)
        await cluster.kill(owner, once=lambda: _has_value(client, b"importer 180"))
        await publish(client, "lines", "local", 60, 60)
        await until(lambda: has(client, 360), DEADLINE_S, every_s=0.2)
        await until(lambda: has(source, 360), DEADLINE_S, every_s=0.2)
        assert fourth.runs(), fourth.log.read_text()[-3000:]  # what has an origin was passed
        assert fifth.runs(), fifth.log.read_text()[-3000:]
    ended = await asyncio.gather(
        *(asyncio.to_thread(lambda words: start(tmp_path, *words, "--once").process.wait(), w) for w in (forth, back))
    )
    assert ended == [0, 0]
    here, at_source = await read_all(client, "lines"), await read_all(source, "lines")
    assert (len(here), len(at_source)) == (360, 360)
    ids = [network_of(each).lookup.cluster_id for each in (source, client)]
    for number in range(2):
        for copies, originals, cluster_id in ((here, at_source, ids[0]), (at_source, here, ids[1])):
            own = [message for message in of_partition(originals, number) if message.origin is None]
            assert_copies([m for m in of_partition(copies, number) if m.origin is not None], own, cluster_id)


async def _copied_some(client: oncelog.AsyncClient) -> bool:
    try:
        return any([await client.last_message_id(f"lines-partition-{number}") for number in range(2)])
    except OncelogError:
        return False  # it does not exist yet


async def _has_value(client: oncelog.AsyncClient, value: bytes) -> bool:
    """Whether this message is there, which a mirror that has just been started has to copy."""
    return value in [message.value for message in await read_all(client, "lines")]


@pytest.mark.hazard("restored-target")
async def test_what_the_target_lacks_is_copied_again(client: oncelog.AsyncClient, source: oncelog.AsyncClient) -> None:
    """Although it is acknowledged at the source: the position is what the target has."""
    producer = await source.create_producer("backups")
    await producer.send_many([b"%d" % number for number in range(10)])
    await once(source, client, "backups")
    await producer.send_many([b"%d" % number for number in range(10, 20)])
    async with connected_mirror(source, client, "backups") as consumer:
        first = (await consumer.receive()).delivery
        # as if the target had had them, and was restored
        await consumer.ack_below(first.seek_epoch, first.generation, 20)
    found = await once(source, client, "backups")
    [topic] = found.topics.values()
    assert sum(status.rewound for status in topic.statuses.values()) == 10
    assert (await once(source, client, "backups")).topics["public/default/backups"].effects.counts.copied == 0
    assert_copies(
        await read_all(client, "backups"), await read_all(source, "backups"), network_of(source).lookup.cluster_id
    )


@pytest.mark.hazard("restored-source")
async def test_source_with_another_message_at_the_index_is_refused(
    client: oncelog.AsyncClient, source: oncelog.AsyncClient
) -> None:
    """The newest copy has the checksum of another batch, as after a restore of the source that has gone on since. Or it
    is no copy at all."""
    producer = await source.create_producer("restored")
    await producer.send_many([b"%d" % number for number in range(5)])
    await once(source, client, "restored")
    newest = (await read_all(client, "restored"))[-1]
    assert newest.origin is not None
    await producer.send(b"another timeline")
    other = await client.create_producer("restored", producer_name=newest.producer_name)
    original = (await read_all(source, "restored"))[-1]
    run = oncelog_origin(newest, index=original.index, message_id=original.message_id)
    await sender_of(other).send_payloads([(encode_values([b"lost timeline"]) + encode_origin(run), [original.index])])
    with pytest.raises(SourceDiverged, match="it was restored to an older state"):
        await once(source, client, "restored")
    await producer.send_many([b"more", b"and more"])
    foreign = await client.create_producer("restored", producer_name=newest.producer_name)
    await foreign.send(b"no copy", sequence_id=original.index + 1)
    with pytest.raises(SourceDiverged, match="is not the copy of index 6"):
        await once(source, client, "restored")


def oncelog_origin(copy: oncelog.Message, *, index: int, message_id: oncelog.MessageId) -> bytes:
    """The record of another message of the same topic, with the checksum of this one's."""
    batch = copy._batch.origin
    assert batch is not None
    place = {"position": message_id.position, "batch_index": message_id.batch_index, "first_index": index}
    return pack_origin(replace(batch, **place, sequence_ids=[index]))  # type: ignore[arg-type]


async def test_what_was_skipped_before_it_was_copied_is_told(
    client: oncelog.AsyncClient, source: oncelog.AsyncClient
) -> None:
    """And passed, if gaps are allowed."""
    producer = await source.create_producer("skipped")
    await producer.send_many([b"0", b"1"])
    await once(source, client, "skipped")
    await producer.send(b"2")
    name = subscription_of(network_of(client).lookup.cluster_id)
    path = f"/admin/v2/persistent/public/default/skipped/subscription/{name}/skip_all"
    await rest(source, "POST", path)
    await producer.send(b"3")
    with pytest.raises(SourceTrimmed, match="messages 2 to 2 of the source were deleted or skipped"):
        await once(source, client, "skipped")
    await once(source, client, "skipped", allow_gap=True)
    assert [message.value for message in await read_all(client, "skipped")] == [b"0", b"1", b"3"]


async def test_chosen_topics_and_those_that_cannot_be(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """By pattern, without dead-letter topics; one that cannot be copied stops no other one, and the health check says
    so. A cluster is no copy of itself."""
    for topic in ("chosen-a", "chosen-b", "other-a", "chosen-a-sub-DLQ"):
        await (await source.create_producer(topic)).send(b"x")
    await cluster.change("PUT", "/admin/v2/persistent/public/default/chosen-b/partitions", json=2)
    words = ["--from", there.url, "--to", cluster.url, "--pattern", "chosen-.*", "--health-port", "0"]
    async with running(start(tmp_path, *words)) as process:
        await process.reaches(lambda: "PartitionsDiffer" in process.log.read_text(), "the topic that cannot be copied")

        async def copied() -> bool:
            listed = await rest(client, "GET", "/admin/v2/persistent/public/default")
            return "public/default/chosen-a" in listed and len(await read_all(client, "chosen-a")) == 1

        await until(copied, DEADLINE_S, every_s=0.1)
    listed = await rest(client, "GET", "/admin/v2/persistent/public/default")
    assert not [name for name in listed if name.endswith(("other-a", "chosen-a-sub-DLQ"))]
    with pytest.raises(PartitionsDiffer, match="0 partitions at the source and 2 at the target"):
        await once(source, client, "chosen-b")
    with pytest.raises(InvalidArgument, match="cannot be a copy of itself"):
        await once(client, client, "chosen-a")
    assert not Choice(namespace=parse_namespace("public/default")).takes(parse_topic("orders-billing-DLQ"))
    assert not Choice(namespace=parse_namespace("public/default")).takes(parse_topic(KAFKA_GROUPS))


async def test_once_ends_where_nothing_is_left_to_copy(
    cluster: Cluster, there: LocalCluster, source: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """Of one topic, of several where one has something new, and of one that is empty."""
    producer = await source.create_producer("again-a")
    await producer.send_many([b"0", b"1"])
    await rest(source, "PUT", "/admin/v2/persistent/public/default/again-b")

    async def copied(*words: str) -> list[str]:
        run = start(tmp_path, "--from", there.url, "--to", cluster.url, "--once", *words)
        async with running(run):
            await until(lambda: not run.runs(), DEADLINE_S, waiting_for="the end of the mirror", every_s=0.1)
        assert run.process.returncode == 0, run.log.read_text()
        lines = run.log.read_text().splitlines()
        run.log.unlink()
        return lines

    assert await copied("--pattern", "again-.*") == [
        "public/default/again-a: 2 messages copied", "public/default/again-b: 0 messages copied",
    ]  # fmt: skip
    await (await source.create_producer("again-b")).send_many([b"0", b"1"])
    assert await copied("--pattern", "again-.*") == [
        "public/default/again-a: 0 messages copied", "public/default/again-b: 2 messages copied",
    ]  # fmt: skip
    assert await copied("--topic", "again-b") == ["public/default/again-b: 0 messages copied"]


async def test_copies_are_compressed_if_that_is_asked_for(
    cluster: Cluster, client: oncelog.AsyncClient, there: LocalCluster, source: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """By the option of the command, which is that of `oncelog produce`; the source's are not."""
    for topic in ("squeezed-zstd", "squeezed-lz4"):
        await (await source.create_producer(topic)).send(bytes(100_000))
    words = ["--topic", "squeezed-zstd", "--once", "--compression", "zstd"]
    run = start(tmp_path, "--from", there.url, "--to", cluster.url, *words)
    async with running(run):
        await until(lambda: not run.runs(), DEADLINE_S, waiting_for="the end of the mirror", every_s=0.1)
    assert run.process.returncode == 0, run.log.read_text()
    await once(source, client, "squeezed-lz4", compression="lz4")
    for topic in ("squeezed-zstd", "squeezed-lz4"):
        path = f"/admin/v2/persistent/public/default/{topic}/internalStats"
        sizes = [(await rest(each, "GET", path))["open_ledger"]["bytes"] for each in (source, client)]
        assert sizes[0] > 100_000, sizes
        assert sizes[1] < 10_000, sizes
        assert [message.value for message in await read_all(client, topic)] == [bytes(100_000)]


@pytest.mark.hazard("position-of-a-lost-part")
async def test_mirror_of_a_log_that_lost_its_newest_part(
    cluster: Cluster, client: oncelog.AsyncClient, source: oncelog.AsyncClient
) -> None:
    """In a restore of the source. What was copied stays at the target. What was not is told, and nothing is copied
    until gaps are allowed. Messages published anew are copied, each once."""
    producer = await client.create_producer("lost-part", producer_name="importer")
    await producer.send_many([b"%d" % number for number in range(10)])
    await new_ledger(cluster, "lost-part")
    await producer.send_many([b"%d" % number for number in range(10, 20)])
    await once(client, source, "lost-part")
    await producer.send_many([b"%d" % number for number in range(20, 30)])
    await producer.close()
    await lose_tail(cluster, "lost-part", kept=1)
    # Under another name: a snapshot that was not lost may know the sequence ids of lost messages.
    async with await client.create_producer("lost-part", producer_name="importer-2") as again:
        await again.send_many([b"anew %d" % number for number in range(10, 30)])
    with pytest.raises(SourceTrimmed, match=r"messages 20 to \d+ of the source .*allow gaps"):
        await once(client, source, "lost-part")
    copied = [b"%d" % number for number in range(20)]
    assert [message.value for message in await read_all(source, "lost-part")] == copied
    await once(client, source, "lost-part", allow_gap=True)
    copied += [b"anew %d" % number for number in range(10, 30)]
    assert [message.value for message in await read_all(source, "lost-part")] == copied
    assert (await once(client, source, "lost-part")).topics["public/default/lost-part"].effects.counts.copied == 0


@pytest.mark.hazard("position-ahead-of-the-copy")
async def test_consumers_go_on_at_the_target(client: oncelog.AsyncClient, source: oncelog.AsyncClient) -> None:
    """Behind what they have acknowledged at the source, and never behind what is not copied. A connected consumer is
    left alone, and a message that was published at the target is not passed."""
    producer = await source.create_producer("moved")
    await producer.send_many([b"%d" % number for number in range(10)])
    await once(source, client, "moved")
    await producer.send_many([b"%d" % number for number in range(10, 20)])
    async with (
        await source.subscribe("moved", subscription="ahead", start=oncelog.EARLIEST) as ahead,
        await source.subscribe("moved", subscription="behind", start=oncelog.EARLIEST) as behind,
        await source.subscribe("moved", subscription="new", start=oncelog.EARLIEST),
    ):
        await acknowledge(ahead, 15)
        await acknowledge(behind, 4)
        topic = parse_topic("moved")
        origins = Origins(network_of(source).lookup.cluster_id, await topic_id_of(source, topic))

        async def moved() -> dict[str, int]:
            return await asyncio.wait_for(copy_positions(source, client, topic, origins), DEADLINE_S)

        assert await moved() == {"ahead": 10, "behind": 4, "new": 0}  # ten are copied
        assert await moved() == {}
        await (await client.create_producer("moved")).send(b"published at the target")
        async with await client.subscribe("moved", subscription="behind") as at_target:
            first = await at_target.receive(timeout=DEADLINE_S)
            assert (first.value, first.delivery_count) == (b"4", 1)
            await acknowledge(behind, 16)
            await acknowledge(ahead, 5)
            mirror_ = await once(source, client, "moved", subscriptions=True)
            assert next(iter(mirror_.topics.values())).positions == {"public/default/moved": {}}
        await connected(client, "moved", consumers=0)
        assert await moved() == {"behind": 10}
    found = await subscriptions_of(client, topic)
    assert {name: one["mark_delete"] for name, one in found.items()} == {"ahead": 10, "behind": 10, "new": 0}
    assert found["ahead"]["msg_out_counter"] == 0  # moving it counts as no delivery
