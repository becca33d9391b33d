"""Disks of storage nodes are lost: with a wait for permission nothing is lost, without it readers get an error."""

from collections.abc import Iterator

import pytest

import oncelog
from oncelog.core.errors import EntriesLost
from tests.cluster.cluster_fixture import DEADLINE_S, rest_path
from tests.cluster.kills import idle
from tests.cluster.loads import Load, Loads, by_list, read_all
from tests.cluster.until import until
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.lost_disks import first_error, replace_all_disks
from tests.fault_proof.random_faults import SETTINGS

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with FaultyCluster.running(tmp_path_factory.mktemp("disks"), **SETTINGS) as own:
        yield own


@pytest.mark.hazard("replaced-member-erased-early", "flapping-node")
async def test_disks_replaced_in_turn_lose_no_message(cluster: FaultyCluster) -> None:
    """Each time when the cluster says that the node may be replaced. All copies are restored in between, also those of
    a topic that is not written any more; at the end every ledger that a topic lists is whole on the three new disks."""
    former = {cluster.serving(name, "incarnation") for name in cluster.storage_names}
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        idle = Loads(Load("idle", by_list(await client.create_producer("idle", producer_name="idle"))))
        async with idle.running():
            await idle.answered_more(200)
        watch = await replace_all_disks(cluster, "three-disks")
        print(watch.table())
        idle.check(await read_all(client, "idle"))
    live = {cluster.serving(name, "incarnation") for name in cluster.storage_names}
    assert not live & former

    async def whole() -> bool:
        page = await cluster.get("/admin/v2/storage/ledgers?limit=1000")
        assert page["next_after"] is None
        listed = [one["ledger_id"] for one in page["ledgers"] if one["health"] != "unlisted"]
        found = [await cluster.get(f"/admin/v2/storage/ledgers/{ledger_id}") for ledger_id in listed]
        return all(one["health"] == "ok" and {copy["incarnation"] for copy in one["copies"]} == live for one in found)

    await until(whole, 4 * DEADLINE_S, every_s=0.5, waiting_for="every ledger to be whole on the three new disks")


@pytest.mark.hazard("lost-too-early")
async def test_disks_lost_at_once_are_reported(cluster: FaultyCluster) -> None:
    """The control: nobody waits for permission, so a reader gets an error, and never hangs. The loss is proved when
    all three have joined again."""
    topic = "all-disks-at-once"
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        producer = await client.create_producer(topic, producer_name="importer")
        for first in range(0, 1_000, 10):
            await producer.send_many([b"%d" % number for number in range(first, first + 10)])
        # The next owner has none of the entries in its memory.
        epoch = (await cluster.stats(topic))["owner_epoch"]
        await cluster.change("PUT", f"{rest_path(topic)}/unload")
        await cluster.served_by_another(topic, epoch)
        with cluster.held():
            for node in cluster.storage_names:
                await cluster.kill(node, once=idle)
                cluster.wipe(node)
        await cluster.healed()

        async def lost() -> bool:
            return isinstance(await first_error(client, topic), EntriesLost)

        await until(lost, 4 * DEADLINE_S, every_s=0.5, waiting_for="the loss to be proved")
