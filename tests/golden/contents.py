"""What a golden directory has: filled once, by the version that it is of, and seen the same by every later one."""

import hashlib
from collections.abc import Sequence
from typing import Any

import oncelog
from oncelog.client.producing.leases import LeaseWanted, ProducerLease
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.loads import read_all

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default"
READ = ("plain", "codecs", "parts-partition-0", "parts-partition-1", "leased", "trimmed")
SUBSCRIPTIONS = {"plain": ("work", "left")}
#: Of a message in chunks: as much as makes three of them, which packs well.
LONG = b"a long message " * 150_000
#: What of a producer is lasting.
_PRODUCER = ("name", "producer_id", "generation", "mode", "accepted", "persisted")


async def fill(cluster: Cluster) -> None:
    """Every kind of entry and record that a program or an operator can bring about."""
    await cluster.change("POST", f"{NAMESPACE}/retention", json={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    await cluster.change("PUT", f"{TOPIC}/parts/partitions", json=2)
    async with await oncelog.connect(cluster.url) as client:
        await _plain(client, cluster)
        for name in ("zlib", "zstd", "lz4"):
            producer = await client.create_producer("codecs", producer_name=name, compression=name)
            await producer.send_many([b"%d of a batch that is compressed" % number for number in range(50)])
        chunked = await client.create_producer("codecs", producer_name="long", chunking=True)
        await chunked.send(LONG)
        parts = await client.create_producer("parts", producer_name="parts")
        for number in range(20):
            await parts.send(b"%d" % number, key=b"key-%d" % (number % 5))
        (lease,) = await client.lease_producer_ids([LeaseWanted("leased")])
        assert isinstance(lease, ProducerLease), lease
        leased = await client.create_producer("leased", lease=lease)
        await leased.send_many([b"leased %d" % number for number in range(10)])
        for topic in ("gone", "trimmed"):
            await (await client.create_producer(topic, producer_name="short")).send_many([b"one", b"two"])
        await _subscriptions(client)
    await cluster.change("DELETE", f"{TOPIC}/gone")
    await cluster.change("DELETE", f"{TOPIC}/trimmed/truncate")
    await cluster.change("POST", f"{TOPIC}/plain/messageTTL", json=0)


async def _plain(client: oncelog.AsyncClient, cluster: Cluster) -> None:
    """Gaps, a new instance of a producer, a snapshot in the middle, and a ledger of each owner."""
    first = await client.create_producer("plain", producer_name="gaps", sequence_mode="monotonic")
    for number in (3, 5, 1_000):
        await first.send(b"at %d" % number, sequence_id=number, key=b"k", properties={"number": str(number)})
    strict = await client.create_producer("plain", producer_name="strict", sequence_mode="contiguous")
    await strict.send_many([b"strict %d" % number for number in range(100)])
    answer = await cluster.request("POST", f"{TOPIC}/plain/deduplication/snapshot")
    assert answer.status_code == 200, answer.text
    await cluster.change("PUT", f"{TOPIC}/plain/unload")
    again = await client.create_producer("plain", producer_name="gaps")
    repeated = await again.send(b"at 1000", sequence_id=1_000, key=b"k", properties={"number": "1000"})
    assert repeated.duplicate
    await again.send(b"at 1001", sequence_id=1_001)


async def _subscriptions(client: oncelog.AsyncClient) -> None:
    """One with holes, one with a position."""
    work = await client.subscribe("plain", subscription="work", type="shared", start=oncelog.EARLIEST)
    received = [await work.receive(timeout=30) for _ in range(60)]
    await work.ack(received[::2])
    await work.close()
    left = await client.subscribe("plain", subscription="left", start=oncelog.EARLIEST)
    taken = [await left.receive(timeout=30) for _ in range(40)]
    await left.ack_cumulative(taken[-1])
    await left.close()


async def seen(cluster: Cluster) -> dict[str, Any]:
    """What the cluster has, as JSON: the messages of each topic, its producers, subscriptions and policies."""
    found: dict[str, Any] = {}
    async with await oncelog.connect(cluster.url, max_message_bytes=1 << 30) as client:
        for topic in READ:
            messages = await read_all(client, topic)
            producers = await cluster.get(f"{TOPIC}/{topic}/producers")
            found[topic] = {
                "messages": len(messages),
                "digest": digest_of(messages),
                "producers": sorted(
                    ({name: one.get(name) for name in _PRODUCER} for one in producers["producers"]),
                    key=lambda one: str(one["name"]),
                ),
                "backlog": {
                    name: sum(
                        one["msg_backlog"]
                        for one in (await cluster.get(f"{TOPIC}/{topic}/subscription/{name}")).values()
                    )
                    for name in SUBSCRIPTIONS.get(topic, ())
                },
            }
    found["topics"] = sorted(await cluster.get(TOPIC))
    found["retention"] = await cluster.get(f"{NAMESPACE}/retention")
    found["ttl"] = await cluster.get(f"{TOPIC}/plain/messageTTL")
    return found


def digest_of(messages: Sequence[oncelog.Message]) -> str:
    """Of all that a reader gets of them."""
    whole = hashlib.sha256()
    for one in messages:
        parts = (one.index, one.key, one.value, one.producer_name, one.sequence_id, sorted(one.properties.items()))
        whole.update(repr(parts).encode())
    return whole.hexdigest()
