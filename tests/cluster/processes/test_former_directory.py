"""This version serves a directory that the former one has written. That the former one serves it again is a proof:
`test_golden.py`."""

import json
from pathlib import Path

import pytest

from tests.cluster.cluster_fixture import Cluster
from tests.golden.contents import seen
from tests.upgrade_proof.mixed_cluster import GOLDEN, unpacked

pytestmark = pytest.mark.asyncio


@pytest.mark.hazard("changed-default")
async def test_directory_of_the_former_version_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Messages of each kind, marks, generations, subscriptions with holes, policies; what was deleted stays deleted."""
    unpacked(GOLDEN / "data.tar.xz", tmp_path)
    with Cluster.running(tmp_path) as cluster:
        assert await seen(cluster) == json.loads((GOLDEN / "expected.json").read_text())
