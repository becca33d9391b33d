"""A cluster that several files share."""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster_fixture import Cluster
from tests.doors.clients.door_clusters import cluster_with_door


@pytest.fixture(scope="session")
def one_kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_with_door(tmp_path_factory.mktemp("kafka"), "kafka", storage_nodes=1, owners=1) as own:
        yield own
