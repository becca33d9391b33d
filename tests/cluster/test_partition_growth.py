"""A topic of a running cluster gets more partitions: real processes, with a topic owner killed behind it."""

from pathlib import Path

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path

pytestmark = pytest.mark.asyncio


@pytest.mark.hazard(23)
async def test_nothing_is_stored_twice_or_missed_when_a_topic_grows(tmp_path: Path) -> None:
    """A producer that sends everything again finds its messages, also at the next owner, and a subscription whose
    consumers were away gets every message of every partition once."""
    path = f"{rest_path('orders')}/partitions"
    ids, values = range(40), [b"%d" % number for number in range(40)]
    with Cluster.running(tmp_path, storage_nodes=1, owners=1) as cluster:
        await cluster.change("PUT", path, json=2)
        async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
            importer = await client.create_producer("orders", producer_name="importer")
            await importer.send_many(values[:20], sequence_ids=ids[:20])
            await (await client.subscribe("orders", subscription="billing", start=oncelog.EARLIEST)).close()
        await cluster.change("POST", path, json=5)
        await cluster.kill("owner-1")
        async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
            for expected in ([range(20)], [range(40)]):
                again = await client.create_producer("orders", producer_name="importer")
                result = await again.send_many(values, sequence_ids=ids)
                assert result.duplicate_ranges == expected
            later = await client.create_producer("orders", producer_name="later")
            await later.send_many(values, sequence_ids=ids)
            assert later.last_sequence_ids == (35, 36, 37, 38, 39)
            consumer = await client.subscribe("orders", subscription="billing")
            found: list[tuple[str | None, int, int]] = []
            while len(found) < 80:
                message = await consumer.receive(timeout=DEADLINE_S)
                found.append((message.producer_name, message.sequence_id, message.partition))
            assert sorted(found, key=str) == sorted(
                [("importer", number, number % 2) for number in ids]
                + [("later", number, number % 5) for number in ids],
                key=str,
            )
