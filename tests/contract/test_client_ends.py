"""A client whose thread is not there, and connections that are gone: nobody waits for them, nothing stays of them."""

import subprocess
import sys

import pytest

import oncelog
from oncelog.client.background import Background
from oncelog.client.epochs import OwnerEpochs
from oncelog.client.owner_connection import OwnerConnection
from oncelog.core.errors import ClientClosed
from oncelog.core.ids import SessionNumber
from oncelog.rpc.channel import Channel
from tests.cluster.until import until
from tests.contract.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.client_fixtures"]
NOBODY = "oncelog://127.0.0.1:1"
#: In a process of its own: gRPC's threads of the tests' process do not like to be forked.
FORKING = """
import os, signal, oncelog
with oncelog.Client("oncelog://127.0.0.1:1") as client:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            client.create_producer("flights")
        except oncelog.errors.ClientClosed:
            print("closed", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_closed_client_says_so() -> None:
    """Whatever is called; not that some event loop is closed, with a coroutine that nobody awaited."""
    client = oncelog.Client(NOBODY)
    client.close()
    with pytest.raises(ClientClosed):
        client.create_producer("flights")


def test_a_client_made_before_a_fork_says_so() -> None:
    """Its thread stayed in the parent: every call of the child, of a server that forks its workers, waited for ever."""
    script = [sys.executable, "-W", "ignore", "-c", FORKING]
    assert subprocess.run(script, check=True, capture_output=True, timeout=60).stdout == b"closed\n"


@pytest.mark.asyncio
async def test_what_was_not_written_goes_with_its_connection(cluster: FakeCluster) -> None:
    """The connection of an owner that never comes back is remembered by its address, but not megabytes of batches that
    others answered long ago."""
    assert cluster.owner is not None
    background = Background()
    connection = OwnerConnection(Channel(cluster.owner.address), background, OwnerEpochs())
    connection.send(SessionNumber(1), tuple((request, bytes(1 << 20)) for request in range(64)))
    full = not connection.has_room
    assert full
    connection.close()
    await until(lambda: connection.has_room and not connection.alive, 20)
    await background.close()
