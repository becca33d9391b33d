"""A storage node is removed from a cluster whose owners were killed: `oncelog admin storage decommission --wait`."""

from collections.abc import Iterator
from typing import Any

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.kills import idle
from tests.cluster.loads import read_all


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.running(tmp_path_factory.mktemp("removed"), storage_nodes=4) as own:
        yield own


async def ledgers(cluster: Cluster) -> list[dict[str, Any]]:
    page = await cluster.get("/admin/v2/storage/ledgers?limit=1000")
    assert page["next_after"] is None
    return [await cluster.get(f"/admin/v2/storage/ledgers/{one['ledger_id']}") for one in page["ledgers"]]


@pytest.mark.asyncio
async def test_node_is_removed_although_empty_ledgers_of_killed_owners_name_it(cluster: Cluster) -> None:
    """Each takeover of an idle topic leaves a closed, empty ledger that no list names. Nobody moves it, and the floor
    of an idle topic does not rise: the removal hung at "0 copies of ledgers to move"."""
    topic = "idle"
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        async with await client.create_producer(topic, producer_name="importer") as producer:
            await producer.send_many([b"%d" % number for number in range(100)])
        node = ""

        async def empty_one() -> str:
            for one in await ledgers(cluster):
                if one["health"] == "unlisted" and one["state"] == "closed" and one["last_entry"] == -1:
                    return str(one["copies"][0]["incarnation"])
            return ""

        for _ in range(5):
            stats = await cluster.stats(topic)
            await cluster.kill_and_expire(await cluster.owner_of(topic), once=idle)
            await cluster.served_by_another(topic, stats["owner_epoch"])
            await cluster.healed()
            if node := await empty_one():
                break
        assert node, "\n".join(map(repr, await ledgers(cluster)))
        done = cluster.run("admin", "storage", "decommission", node, "--wait", "--wait-seconds", str(int(DEADLINE_S)))
        assert done.returncode == 0, (done.stdout, done.stderr)
        left = await ledgers(cluster)
        members = {copy["incarnation"] for one in left if one["health"] != "unlisted" for copy in one["copies"]}
        assert node not in members
        assert [message.value for message in await read_all(client, topic)] == [b"%d" % number for number in range(100)]
