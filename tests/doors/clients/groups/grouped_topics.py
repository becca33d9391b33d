"""Topics whose partitions the members of a group share, and the members of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.groups.members import Members

PARTITIONS = 4


@pytest.fixture
def members(tmp_path: Path, servers: str) -> Iterator[Members]:
    with Members.of(tmp_path, servers) as own:
        yield own


def new_topic(cluster: Cluster, name: str) -> str:
    assert cluster.run("admin", "topics", "create", name, "--partitions", str(PARTITIONS)).returncode == 0
    return name
