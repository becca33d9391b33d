"""A topic of a running cluster gets more partitions: real processes, with a topic owner killed behind it."""

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.kills import idle

pytestmark = pytest.mark.asyncio


@pytest.mark.hazard("resent-to-another-partition")
async def test_nothing_is_stored_twice_or_missed_when_a_topic_grows(cluster: Cluster) -> None:
    """A producer that sends everything again finds its messages, also at the next owner, and a subscription whose
    consumers were away gets every message of every partition once."""
    path = f"{rest_path('growing')}/partitions"
    ids, values = range(40), [b"%d" % number for number in range(40)]
    await cluster.change("PUT", path, json=2)
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        importer = await client.create_producer("growing", producer_name="importer")
        await importer.send_many(values[:20], sequence_ids=ids[:20])
        await (await client.subscribe("growing", subscription="billing", start=oncelog.EARLIEST)).close()
    await cluster.change("POST", path, json=5)
    for name in ("owner-1", "owner-2"):
        await cluster.kill(name, once=idle)
    await cluster.healed()
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        for expected in ([range(20)], [range(40)]):
            again = await client.create_producer("growing", producer_name="importer")
            result = await again.send_many(values, sequence_ids=ids)
            assert result.duplicate_ranges == expected
        later = await client.create_producer("growing", producer_name="later")
        await later.send_many(values, sequence_ids=ids)
        assert later.last_sequence_ids == (35, 36, 37, 38, 39)
        consumer = await client.subscribe("growing", subscription="billing")
        found: list[tuple[str | None, int, int]] = []
        while len(found) < 80:
            message = await consumer.receive(timeout=DEADLINE_S)
            found.append((message.producer_name, message.sequence_id, message.partition))
        assert sorted(found, key=str) == sorted(
            [("importer", number, number % 2) for number in ids] + [("later", number, number % 5) for number in ids],
            key=str,
        )
