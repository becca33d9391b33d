"""The audit of subscriptions: the snapshot and the ack log behind it are folded up to the position that the owner
reports, and every difference is a violation."""

import asyncio

import pytest

import oncelog
from oncelog.core.ids import Position
from oncelog_spark.audit import ack_log
from oncelog_spark.audit.topic_plan import TopicPlan, plan_topic
from oncelog_spark.cluster import run_connected
from oncelog_spark.options import ConnectionOptions
from tests.cluster.cluster_fixture import Cluster

TOPIC = "public/default/audited-acks"


async def consume(cluster: Cluster) -> None:
    """Two subscriptions, one of them with holes; the ledgers of the ack log roll meanwhile."""
    async with await oncelog.connect(cluster.url) as client, await client.create_producer(TOPIC) as producer:
        await producer.send_many([b"%d" % number for number in range(200)])
        shared = await client.subscribe(TOPIC, subscription="billing", type="shared", start=oncelog.EARLIEST)
        exclusive = await client.subscribe(TOPIC, subscription="search", start=oncelog.EARLIEST)
        async with shared, exclusive:
            for number in range(200):
                message = await shared.receive()
                if number % 3:
                    shared.ack_nowait(message)
                if number % 5 == 0:
                    await exclusive.ack_cumulative(await exclusive.receive())
            await shared.flush()


def planned(cluster: Cluster) -> TopicPlan:
    connection = ConnectionOptions(cluster.url)
    return run_connected(
        connection, lambda own: plan_topic(own, connection, TOPIC, entries_max=1_000, all_copies=False)
    )


def test_state_of_the_owner_is_the_fold_of_the_ack_log(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a state that is not, or that lacks a subscription, is a violation that names it."""
    asyncio.run(consume(cluster))
    compared = planned(cluster).subscriptions
    assert (compared.count, compared.equal, compared.findings, compared.unchecked) == (2, 2, [], "")
    ask = ack_log._ask_owner

    async def with_one_ack_less(*request: object) -> tuple[Position | None, dict[str, str]]:
        position, reported = await ask(*request)  # type: ignore[arg-type]
        return position, {"billing": "0" * 32, "another": "1" * 32} | {
            name: digest for name, digest in reported.items() if name != "billing"
        }

    monkeypatch.setattr(ack_log, "_ask_owner", with_one_ack_less)
    found = [finding.message for finding in planned(cluster).subscriptions.findings]
    assert found[0] == "the owner has subscription another, which the ack log does not have"
    assert "the owner's state of subscription billing is not the fold of the ack log" in found[1]
    assert len(found) == 2
