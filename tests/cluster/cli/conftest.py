"""The cluster of this folder's tests."""

import pytest

from tests.cluster.cluster_fixture import shared_cluster

cluster = pytest.fixture(scope="package")(shared_cluster)
