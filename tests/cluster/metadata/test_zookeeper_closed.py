"""A cluster of real processes with a protected ZooKeeper, and an unreadable record in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import oncelog
from oncelog.metadata_store.session import paths
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.until import until_sync

CREDENTIALS = "oncelog:a password of the tests"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("closed")
    (directory / "auth").write_text(CREDENTIALS + "\n")
    settings: dict[str, Any] = {"zookeeper_auth_file": str(directory / "auth"), "zookeeper_exclusive": "true"}
    with Cluster.running(directory, storage_nodes=1, owners=2, **settings) as own:
        yield own


@contextmanager
def client(cluster: Cluster, *credentials: str) -> Iterator[KazooClient]:
    own = KazooClient(cluster.serving("zookeeper"), auth_data=[("digest", each) for each in credentials] or None)
    own.start(timeout=DEADLINE_S)
    try:
        yield own
    finally:
        own.stop()
        own.close()


def publish(cluster: Cluster, topic: str, value: bytes) -> None:
    with oncelog.Client(cluster.url) as own, own.create_producer(topic) as producer:
        producer.send(value)


def lives(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """{process: (its id, number of restarts)}."""
    return {name: (process["pid"], process["restarts"]) for name, process in cluster.processes.items()}


def test_processes_with_credentials_leave_no_node_readable(cluster: Cluster) -> None:
    """All processes, from the first start on: an anonymous client finds no node that it may read."""
    publish(cluster, "flights", b"1")

    def open_to_all() -> list[str]:
        with client(cluster, CREDENTIALS) as own, client(cluster) as anonymous:
            found: list[str] = []
            waiting = ["/"]
            while waiting:
                path = waiting.pop()
                waiting += [f"{path.rstrip('/')}/{name}" for name in own.get_children(path)]
                try:
                    anonymous.get(path)
                    found.append(path)
                except NoAuthError:
                    pass
        return found

    # Nodes that ZooKeeper creates, and nodes that show only its servers.
    until_sync(lambda: open_to_all() == ["/zookeeper/config"], DEADLINE_S)


def test_unreadable_record_does_not_end_a_process(cluster: Cluster) -> None:
    """Deeply nested JSON in the cluster's policies once ended both owners, again at each start."""
    publish(cluster, "flights", b"2")
    before = lives(cluster)
    with client(cluster, CREDENTIALS) as own:
        own.create(f"/oncelog{paths.CLUSTER_POLICIES}", b"[" * 100_000, acl=own.get_acls("/oncelog")[0])
        own.create(f"/oncelog{paths.OWNERS}/{'b' * 32}", b"x", acl=own.get_acls("/oncelog")[0])
    for _ in range(3):
        publish(cluster, "flights", b"3")
    assert lives(cluster) == before
