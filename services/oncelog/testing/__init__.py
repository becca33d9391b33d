"""Fixtures for the tests of programs that use Oncelog. In `conftest.py`: pytest_plugins = ["oncelog.testing"]

oncelog_cluster     one throw-away cluster for the whole run, started by the first test that needs one
oncelog_url         its URL, for oncelog.connect and oncelog.Client
oncelog_topic       the name of a new topic, for each test
oncelog_namespace   the name of a new, empty namespace, for each test: topics are f"{oncelog_namespace}/orders"
oncelog_client      a connected oncelog.Client, closed after the test

The cluster is `oncelog standalone --light`: it keeps one copy of each message, listens on free ports of 127.0.0.1, and
its directory is deleted at the end. It ends with pytest, also if pytest is killed. With pytest-xdist each worker has a
cluster of its own. Without pytest: `with LocalCluster() as cluster`. Functions with effects are proved by
`oncelog_effects.testing`.

PYTEST_DONT_REWRITE: pytest would warn where `conftest.py` imports LocalCluster before it loads this plugin.
"""

from collections.abc import Iterator

import pytest

from oncelog.client.sync import Client
from oncelog.testing.local_cluster import ClusterNotStarted, LocalCluster
from oncelog.testing.messages import messages

__all__ = [
    "ClusterNotStarted",
    "LocalCluster",
    "messages",
    "oncelog_client",
    "oncelog_cluster",
    "oncelog_namespace",
    "oncelog_topic",
    "oncelog_url",
]


@pytest.fixture(scope="session")
def oncelog_cluster() -> Iterator[LocalCluster]:
    """One cluster for the run. Define a fixture of this name in `conftest.py` to give it options or settings."""
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def oncelog_url(oncelog_cluster: LocalCluster) -> str:
    return oncelog_cluster.url


@pytest.fixture
def oncelog_topic(oncelog_cluster: LocalCluster) -> str:
    """The full name of a topic that no other test has. It is created by its first use."""
    return oncelog_cluster.new_topic()


@pytest.fixture
def oncelog_namespace(oncelog_cluster: LocalCluster) -> str:
    """tenant/namespace, without topics."""
    return oncelog_cluster.new_namespace()


@pytest.fixture
def oncelog_client(oncelog_cluster: LocalCluster) -> Iterator[Client]:
    with Client(oncelog_cluster.url) as client:
        yield client
