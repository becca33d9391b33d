"""Clusters with a door, for tests with client libraries: an own one for each test, or one for all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.cluster_fixture import Cluster

#: Sessions end later than any deadline of a test, so nothing waits for one to end.
LASTING_MS = 60_000


@contextmanager
def cluster_with_door(directory: Path, clients_of: Literal["kafka", "pulsar"], **shape: int | str) -> Iterator[Cluster]:
    """shape: of `Cluster.running`."""
    with claim_port("127.0.0.1") as claim:
        given: dict[str, int | str] = {f"{clients_of}_port": port_of(claim), **shape}
        with Cluster.running(directory, **given) as own:  # type: ignore[arg-type]
            yield own


@pytest.fixture(name="cluster")
def lasting_pulsar_cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_with_door(tmp_path, "pulsar", session_timeout_ms=LASTING_MS) as own:
        yield own


@pytest.fixture(name="cluster")
def lasting_kafka_cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_with_door(tmp_path, "kafka", session_timeout_ms=LASTING_MS) as own:
        yield own


@pytest.fixture(name="cluster", scope="session")
def small_kafka_cluster(one_kafka_cluster: Cluster) -> Cluster:
    """One for all files, so each topic is of one test."""
    return one_kafka_cluster


@pytest.fixture
def servers(cluster: Cluster) -> str:
    """What clients of Kafka connect to."""
    return str(cluster.status()["kafka_servers"])
