"""The cluster of this folder's tests."""

import pytest

from tests.cluster.cluster_fixture import shared_cluster
from tests.cluster.conftest import client

__all__ = ["client", "cluster"]

cluster = pytest.fixture(scope="package")(shared_cluster)
