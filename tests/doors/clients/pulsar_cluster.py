"""A cluster with a door, for programs that publish through kills."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.cluster_fixture import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Sessions end later than any deadline of a test, so nothing waits for one to end."""
    with (
        claim_port("127.0.0.1") as claim,
        Cluster.running(tmp_path, pulsar_port=port_of(claim), session_timeout_ms=60_000) as own,
    ):
        yield own
