"""A metadata service says for good that a topic does not exist, or that a caller has no right, only if storage nodes
prove that its era had not ended when it read that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from oncelog.core.access import Caller
from oncelog.core.address import split_address
from oncelog.core.era import Era
from oncelog.core.errors import PermissionDenied, ServiceUnavailable, TopicNotFound
from oncelog.core.ids import OwnerEpoch
from oncelog.core.names import TopicName, parse_topic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from tests.cluster.metadata.metadata_world import Replica, World
from tests.contract.storage_client.ledger_world import Node

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("the-lost-ensemble-returns")]

FLIGHTS = parse_topic("flights")
NEXT = Era(2, "a" * 32)
STRANGER = Caller("stranger", superuser=False)


@dataclass(frozen=True, slots=True)
class Former:
    """A replica that may be of a former era, and the storage nodes that its ZooKeeper names."""

    world: World
    replica: Replica
    nodes: list[Node]

    @property
    def lookup(self) -> TopicLookup:
        return self.replica.coordination.lookup

    async def raise_eras(self, count: int) -> None:
        """So many storage nodes are of the era of a restore into another ZooKeeper."""
        for node in self.nodes[:count]:
            await node.runner.raise_era(node.incarnation, NEXT, committed=False)


@asynccontextmanager
async def former(path: Path, *, nodes: int = 3, ack_quorum: int = 2) -> AsyncIterator[Former]:
    """ack_quorum: 0: no topic owner ever started."""
    async with World.running() as world:
        one = Former(world, await world.replica(), [Node(path / f"node{number}") for number in range(nodes)])
        registry = Registry(one.replica.session)
        for node in one.nodes:
            await node.start()
            host, port = split_address(node.address)
            await registry.write_cookie(StorageCookie(node.incarnation, host, port), version=ABSENT_VERSION)
            await registry.register_storage_node(LiveStorageNode(node.incarnation, host, port, 1 << 30)).establish()
        if ack_quorum:
            await ClusterStore(one.replica.session).lower_ack_quorum(ack_quorum)
        try:
            yield one
        finally:
            for node in one.nodes:
                if node.running:
                    await node.stop()


async def final_answers(lookup: TopicLookup, name: TopicName) -> AsyncIterator[None]:
    """Each look-up of a topic that is missing, and one of a caller without rights."""
    for ask in (lookup.find(name), lookup.record(name), lookup.locate(name, create=False)):
        with pytest.raises(TopicNotFound):
            await ask
        yield
    with pytest.raises(PermissionDenied):
        await lookup.locate_for(STRANGER, name, create=False)
    yield


async def test_missing_topic_is_final_in_the_era_of_the_storage_nodes(tmp_path: Path) -> None:
    """Also while one of three storage nodes does not respond: a restore needs two of them."""
    async with former(tmp_path) as one:
        await one.nodes[2].stop()
        assert len([None async for _ in final_answers(one.lookup, FLIGHTS)]) == 4


async def test_topic_that_was_created_since_the_restore_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """The records were restored into another ZooKeeper, where the topic was created, or a right was granted. The error
    would be final for a producer of a topic that lives."""
    async with former(tmp_path) as one:
        await one.raise_eras(2)
        lookup = one.lookup
        asks = (
            lookup.find(FLIGHTS),
            lookup.record(FLIGHTS),
            lookup.locate(FLIGHTS, create=False),
            lookup.locate_for(STRANGER, FLIGHTS, create=True),
        )
        for ask in asks:
            with pytest.raises(
                ServiceUnavailable, match=r"fewer than 2 storage nodes .* \(1 of 3 that are registered\)"
            ):
                await ask


async def test_deletion_in_a_former_era_is_not_said_for_good(tmp_path: Path) -> None:
    """The former ZooKeeper was told of it after the restore, and no storage node has noted it."""
    async with former(tmp_path) as one:
        assert await one.lookup.create(FLIGHTS)
        await one.raise_eras(2)
        await DeletionStore(one.replica.session).begin(FLIGHTS)
        with pytest.raises(ServiceUnavailable):
            await one.lookup.locate(FLIGHTS, create=False)


async def test_owner_of_a_topic_that_had_the_name_before_is_not_given_to_a_client_of_a_newer_era(
    tmp_path: Path,
) -> None:
    """In the new era the topic was deleted and created again. The former id would end the clients of the new one."""
    async with former(tmp_path) as one:
        owner = await one.world.owner(one.replica)
        await one.replica.sees(owner)
        seen = OwnerEpoch(NEXT.first_epoch)
        assert (await one.lookup.locate(FLIGHTS, create=True)).owner == owner.incarnation
        assert (await one.lookup.locate(FLIGHTS, create=False, owner_epoch_seen=seen)).owner_epoch == 1
        await one.raise_eras(2)
        assert (await one.lookup.locate(FLIGHTS, create=False)).owner_epoch == 1
        with pytest.raises(ServiceUnavailable):
            await one.lookup.locate(FLIGHTS, create=False, owner_epoch_seen=seen)


async def test_storage_nodes_that_do_not_respond_prove_no_era(tmp_path: Path) -> None:
    """They may all be of a newer one."""
    async with former(tmp_path) as one:
        for node in one.nodes[1:]:
            await node.stop()
        with pytest.raises(ServiceUnavailable):
            await one.lookup.find(FLIGHTS)


@pytest.mark.parametrize(("ack_quorum", "final"), [(0, True), (2, False)])
async def test_without_storage_nodes_a_topic_is_missing_only_where_none_was_ever_written(
    tmp_path: Path, ack_quorum: int, final: bool
) -> None:
    """A cluster that has stored a message has storage nodes. If ZooKeeper names none, it has lost them."""
    async with former(tmp_path, nodes=0, ack_quorum=ack_quorum) as one:
        with pytest.raises(TopicNotFound if final else ServiceUnavailable):
            await one.lookup.find(FLIGHTS)
