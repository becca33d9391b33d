"""The disks of all storage nodes are replaced in turn, each when it may be: every acknowledged message stays."""

import shutil
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.loads import Load, Loads, by_future, by_list, read_all
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

NODES = ("storage-1", "storage-2", "storage-3")
STORAGE = "/admin/v2/storage"
#: Far above the time that a few ledgers need on a busy machine, idle ones included.
REPAIR_S = 180.0
TOPICS = ("busy", "idle")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Ledgers roll often."""
    settings = {
        "session_timeout_ms": 2_000,
        "add_timeout_ms": 1_500,
        "ledger_entries_max": 100,
        "repair_interval_ms": 200,
    }
    with Cluster.running(tmp_path_factory.mktemp("disks"), **settings) as own:
        yield own


@pytest_asyncio.fixture
async def client(cluster: Cluster) -> AsyncIterator[oncelog.AsyncClient]:
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as own:
        yield own


async def may_replace(cluster: Cluster, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = await cluster.get(f"{STORAGE}/nodes/{cluster.serving(name, 'incarnation')}/may-replace")
    return answer


async def until_replaceable(cluster: Cluster, name: str) -> None:
    """Return when `may-replace` says yes. A failure shows what it says instead, and the ledgers."""
    last: dict[str, Any] = {}

    async def allowed() -> bool:
        last.update(await may_replace(cluster, name))
        return bool(last["may_replace"])

    try:
        await until(allowed, REPAIR_S, every_s=0.2, waiting_for=f"{name} to be replaceable")
    except AssertionError as error:
        error.add_note(f"{last}\n{await cluster.get(f'{STORAGE}/repair')}\n{await cluster.get(f'{STORAGE}/ledgers')}")
        raise


async def ledgers(cluster: Cluster) -> list[dict[str, Any]]:
    """Every ledger that a topic lists, with its copies."""
    page = await cluster.get(f"{STORAGE}/ledgers?limit=1000")
    assert page["next_after"] is None
    return [
        await cluster.get(f"{STORAGE}/ledgers/{one['ledger_id']}")
        for one in page["ledgers"]
        if one["health"] != "unlisted"
    ]


@pytest.mark.hazard(55)
async def test_disks_of_all_nodes_are_replaced_in_turn(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Each time all is green: `may-replace` says yes for the next node. Then every ledger is whole on three live nodes,
    and every acknowledged message is read."""
    loads = {topic: Loads(Load("futures", by_future(await client.create_producer(topic, producer_name="futures"))),
                          Load("lists", by_list(await client.create_producer(topic, producer_name="lists"))))
             for topic in TOPICS}  # fmt: skip
    async with loads["idle"].running():
        await loads["idle"].answered_more(200)
    async with loads["busy"].running():
        for name in NODES:
            await loads["busy"].answered_more(200)
            await until_replaceable(cluster, name)
            before = cluster.serving(name, "incarnation")
            with cluster.held():
                await cluster.kill(name)
                shutil.rmtree(cluster.data / name)
            await cluster.healed()
            assert cluster.serving(name, "incarnation") != before
    for name in NODES:
        await until_replaceable(cluster, name)

    live = {cluster.serving(name, "incarnation") for name in NODES}

    async def whole() -> bool:
        found = await ledgers(cluster)
        return all(one["health"] == "ok" and {copy["incarnation"] for copy in one["copies"]} == live for one in found)

    await until(whole, REPAIR_S, every_s=0.5, waiting_for="every ledger to be whole on the three new disks")
    for topic in TOPICS:
        loads[topic].check(await read_all(client, topic))
