"""The cluster of this folder's tests, and a server that records what commands ask."""

from collections.abc import Iterator

import pytest

from tests.cluster.cli.recorded_rest import RecordingServer, served
from tests.cluster.cluster_fixture import shared_cluster

cluster = pytest.fixture(scope="package")(shared_cluster)


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        yield server
