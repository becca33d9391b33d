"""Deduplication enabled and disabled at its three levels, on a running cluster."""

import pytest

import oncelog
from oncelog.core.errors import ProducerFenced
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.kills import idle
from tests.cluster.loads import read_all
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio


async def judged(cluster: Cluster, topic: str, *, on: bool) -> None:
    """Return once the topic's owner has deduplication enabled, or disabled."""

    async def told() -> bool:
        return (await cluster.stats(topic)).get("deduplication_enabled") is on

    await until(told, DEADLINE_S, waiting_for=f"deduplication of {topic}: {on}")


async def switch(cluster: Cluster, topic: str, *, on: bool) -> None:
    await cluster.change("POST", f"{rest_path(topic)}/deduplicationEnabled", json=on)
    await judged(cluster, topic, on=on)


@pytest.mark.hazard("dedup-toggled")
async def test_disabled_dedup_stores_duplicates_and_still_records_ids(
    cluster: Cluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Disabling skips only the check: ids published meanwhile are known when it is enabled again, also after a
    takeover."""
    topic = "off-and-on"
    producer = await client.create_producer(topic, producer_name="importer")
    first = await producer.send_many([b"%d" % number for number in range(5)], sequence_ids=range(5))
    assert (await producer.send(b"4", sequence_id=4)).duplicate
    assert producer.deduplication
    await switch(cluster, topic, on=False)
    await until(lambda: not producer.deduplication, DEADLINE_S)  # reported although nothing is sent
    (warning,) = [record.message for record in caplog.records if record.name == "oncelog.client.producing.sender"]
    assert "'importer' on public/default/off-and-on: deduplication is disabled" in warning
    late = await client.create_producer(topic, producer_name="another")
    assert not late.deduplication  # reported at once
    again = await producer.send(b"4 again", sequence_id=4)
    assert not again.duplicate
    assert not (await producer.send(b"9", sequence_id=9)).duplicate
    await switch(cluster, topic, on=True)
    for told in (producer, late):
        await until(lambda: told.deduplication, DEADLINE_S)  # noqa: B023  # asked at once
    for _ in range(2):
        assert (await producer.send(b"9", sequence_id=9)).duplicate
        assert (await producer.send(b"3", sequence_id=3)).message_id == first.message_ids[3]
        assert producer.last_sequence_id == 9
        epoch = (await cluster.stats(topic))["owner_epoch"]
        await cluster.kill(await cluster.owner_of(topic), once=idle)
        await cluster.served_by_another(topic, epoch)
    assert not (await producer.send(b"10", sequence_id=10)).duplicate
    stored = await read_all(client, topic)
    assert [message.sequence_id for message in stored] == [0, 1, 2, 3, 4, 4, 9, 10]
    assert [message.index for message in stored] == list(range(8))
    assert stored[5].value == b"4 again"


async def test_switch_of_a_partitioned_topic_applies_to_all_partitions(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """To partitions that are open already, and to those that are first used afterwards."""
    topic = "switched-parts"
    whole = f"{rest_path(topic)}/deduplicationEnabled"
    await cluster.change("PUT", f"{rest_path(topic)}/partitions", json=2)
    early = await client.create_producer(f"{topic}-partition-0", producer_name="importer")
    await early.send(b"0", sequence_id=0)
    await cluster.change("POST", whole, json=False)
    late = await client.create_producer(f"{topic}-partition-1", producer_name="importer")
    await late.send(b"0", sequence_id=0)
    for number, producer in enumerate((early, late)):
        await judged(cluster, f"{topic}-partition-{number}", on=False)
        assert not (await producer.send(b"0 again", sequence_id=0)).duplicate
    await cluster.change("DELETE", whole)
    for number, producer in enumerate((early, late)):
        await judged(cluster, f"{topic}-partition-{number}", on=True)
        assert (await producer.send(b"0", sequence_id=0)).duplicate


@pytest.mark.hazard("dedup-toggled")
async def test_fences_hold_while_dedup_is_disabled(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Generations do not depend on sequence ids (hazard dedup-toggled)."""
    topic = "fenced-while-off"
    old = await client.create_producer(topic, producer_name="importer")
    await old.send(b"old", sequence_id=0)
    await switch(cluster, topic, on=False)
    new = await client.create_producer(topic, producer_name="importer")
    with pytest.raises(ProducerFenced):
        await old.send(b"zombie", sequence_id=1)
    await new.send(b"new", sequence_id=0)
    assert [message.value for message in await read_all(client, topic)] == [b"old", b"new"]


async def test_most_specific_level_decides_and_is_named(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Cluster, namespace, topic: each overrides the one before. Once unset, the less specific level applies again.
    The owner follows."""
    topic = "three-levels"
    (cluster_id,) = await cluster.get("/admin/v2/clusters")
    of_cluster = f"/admin/v2/clusters/{cluster_id}/deduplication"
    of_namespace = "/admin/v2/namespaces/public/default/deduplication"
    of_topic = f"{rest_path(topic)}/deduplicationEnabled"
    producer = await client.create_producer(topic, producer_name="importer")
    await producer.send(b"0", sequence_id=0)

    async def holds(*, value: bool, source: str) -> None:
        assert await cluster.get(f"{of_topic}?applied=true") == {"value": value, "source": source}
        await judged(cluster, topic, on=value)
        assert (await producer.send(b"0", sequence_id=0)).duplicate is value

    await holds(value=True, source="default")
    for path, value, source in (
        (of_cluster, False, "cluster"),
        (of_namespace, True, "namespace"),
        (of_topic, False, "topic"),
    ):
        await cluster.change("POST", path, json=value)
        assert await cluster.get(path) is value
        await holds(value=value, source=source)
    for path, value, source in (
        (of_topic, True, "namespace"),
        (of_namespace, False, "cluster"),
        (of_cluster, True, "default"),
    ):
        await cluster.change("DELETE", path)
        assert await cluster.get(path) is None
        await holds(value=value, source=source)
