"""The cluster of this folder's tests, another one that is mirrored, and the programs of the pages."""

import pytest

from tests.cluster.clients.conftest import source, there
from tests.cluster.cluster_fixture import shared_cluster
from tests.cluster.conftest import client, free_port
from tests.cluster.recipes.conftest import programs, watched

__all__ = ["client", "cluster", "free_port", "programs", "source", "there", "watched"]

cluster = pytest.fixture(scope="package")(shared_cluster)
