"""A restore of a cluster whose notes have garbage of records."""

import asyncio
from pathlib import Path

import pytest

from oncelog.core.ids import TopicId
from oncelog.core.rebuild.restore_events import RestoreRequest
from oncelog.core.rebuild.result import ReviewReason
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata.restore.restoring import Work
from oncelog.metadata_store.records.policies import Policies, decode_policies, encode_policies
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from tests.contract.restore.restoring_world import NAME, TOPIC, RestoringWorld, restoring_world

pytestmark = pytest.mark.asyncio
GARBAGE = b"garbage"
NAMES = paths.NAMES
PARTS, NAMESPACE, SET = f"{NAMES}/public/default/parts", f"{paths.NAMESPACES}/public/default", paths.CLUSTER_POLICIES


async def damaged(world: RestoringWorld) -> None:
    """The name of a partitioned topic and the policies of the namespace are garbage at all nodes, the cluster's
    policies at one of three, and the name of a topic at all."""
    await world.note_cluster()
    await world.write(4, 3, to=world.nodes)
    for number in (0, 2):
        await world.note(f"{PARTS}-partition-{number}", encode_name(NameRecord(TopicId(f"{number}" * 32))))
    for path in (PARTS, NAMESPACE, f"{NAMES}/{NAME}"):
        await world.note(path, GARBAGE, version=1)
    await world.note(SET, encode_policies(Policies(message_ttl_s=7)))
    await world.note(SET, GARBAGE, version=1, to=world.nodes[:1])


@pytest.mark.hazard("damaged-record-is-noted")
async def test_lost_record_is_accepted_by_its_path_and_an_older_state_is_taken(tmp_path: Path) -> None:
    """A dry run says the same as the restore. Partitions are counted from those that exist."""
    async with restoring_world(tmp_path) as world:
        await damaged(world)
        dry = await world.restore(dry_run=True)
        refused = await world.restore()
        assert refused.state is RestoreState.REFUSED
        lost = {PARTS, NAMESPACE, f"{NAMES}/{NAME}"}
        assert {review.name for review in refused.reviews} == lost
        assert {review.reason for review in refused.reviews} == {ReviewReason.DAMAGED}
        assert (dry.reviews, dry.warnings) == (refused.reviews, refused.warnings)
        assert any(f"{SET} was damaged, and an older state of it is taken" in each for each in dry.warnings)
        assert any("it has 3 partitions, because" in review.message for review in dry.reviews)
        done = await world.restore(accepted=tuple(lost))
        assert (done.state, done.message) == (RestoreState.DONE, "")
        assert world.record(f"/era-2{PARTS}")["partitions"] == 3
        assert world.record(f"/era-2{NAMES}/{NAME}")["topic_id"] == TOPIC
        assert world.record(f"/era-2{SET}")["message_ttl_s"] == 7
        assert decode_policies(world.tree.nodes[f"/oncelog/era-2{NAMESPACE}"].data) == Policies()
        assert GARBAGE not in {node.data for node in world.tree.nodes.values()}


@pytest.mark.hazard("damaged-record-is-noted")
async def test_drill_tells_the_lost_records_and_those_that_are_damaged_in_zookeeper(tmp_path: Path) -> None:
    async with restoring_world(tmp_path) as world:
        await world.note_cluster()
        await world.note(PARTS, encode_name(NameRecord(TOPIC, 3)))
        assert (await world.restore()).state is RestoreState.DONE
        path = f"/oncelog/era-2{PARTS}"
        world.tree.nodes[path] = world.tree.nodes[path]._replace(data=GARBAGE)
        request = RestoreRequest(restore_id="3" * 32, dry_run=True)
        drill = world.restoring()
        progress = await drill.begin(Work.DRILL, request, given=[node.address for node in world.nodes], by="ann")
        await asyncio.gather(*world.tasks)
        assert (progress.state, progress.reviews) == (RestoreState.DONE, [])
        assert any(f"{PARTS}: it cannot be read in ZooKeeper" in each for each in progress.differences)
