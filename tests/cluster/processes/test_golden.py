"""A directory that the former version has written: this one serves it, writes to it, and the former one goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.golden.contents import seen
from tests.upgrade_proof.mixed_cluster import GOLDEN, FormerCluster, MixedCluster, unpacked

pytestmark = pytest.mark.asyncio
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())


async def published(cluster: Cluster, sequence_id: int) -> None:
    """By a producer that the directory knows, behind its last id; that id again is a duplicate."""
    async with await oncelog.connect(cluster.url) as client:
        producer = await client.create_producer("plain", producer_name="gaps", on_content_differs="accept")
        assert (await producer.send(b"known", sequence_id=sequence_id - 1)).duplicate is True
        assert (await producer.send(b"new", sequence_id=sequence_id)).duplicate is False


@pytest.mark.hazard("changed-default")
async def test_former_directory_is_served_written_and_served_by_the_former_version_again(tmp_path: Path) -> None:
    """Messages of each kind, marks, generations, subscriptions with holes, policies; what was deleted stays deleted. A
    node that was marked as restored is in limbo, and repaired."""
    unpacked(GOLDEN / "data.tar.xz", tmp_path)
    with MixedCluster.running(tmp_path) as cluster:
        assert await seen(cluster) == EXPECTED
        await cluster.healed()
        await published(cluster, 1_002)
        after = await seen(cluster)
        assert after["plain"]["messages"] == EXPECTED["plain"]["messages"] + 1
        assert cluster.stop() == 0
    with FormerCluster.running(tmp_path) as former:
        assert await seen(former) == after
        await published(former, 1_003)
