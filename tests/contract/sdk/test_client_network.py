"""Producers and readers of one client share one live stream to each owner and keep none to dead owners."""

import pytest

from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.runtime.credentials import PLAIN
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0


def route(port: int) -> Route:
    return Route(TopicId("t"), f"127.0.0.1:{port}", OwnerEpoch(1), Incarnation(f"{port:032x}"))


async def test_streams_to_removed_owners_are_dropped() -> None:
    """Each replaced owner had its own address: a client that runs for months would keep all of them."""
    network = Network(("127.0.0.1:1",), PLAIN)
    dead = [network.publish_stream(route(port)) for port in (1, 2)]
    await until(lambda: not any(stream.alive for stream in dead), DEADLINE_S)
    living = network.publish_stream(route(3))
    assert [*network._publish_streams.values()] == [living]
    await until(lambda: not living.alive, DEADLINE_S)
    await network.close()
