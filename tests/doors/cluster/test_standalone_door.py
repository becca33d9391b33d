"""`oncelog standalone --pulsar-port`: a door among the processes of one machine."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.commands import environment
from tests.cluster.kills import idle
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import LOOKUP, command, frame
from tests.doors.pulsar.raw_client import raw_client, send

TOPIC = b"persistent://public/default/alone"


@pytest.fixture
def standalone(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[tuple[Cluster, int]]:
    """A light cluster with a door, and the port of the door."""
    port = free_port()
    ports = ["--port=0", "--http-port=0", f"--pulsar-port={port}", f"--pulsar-rest-port={free_port()}"]
    arguments = ["--light", *ports]
    own = Cluster(tmp_path / "data", arguments, environment())
    try:
        own.start()
        yield own, port
    finally:
        own._end_all()


async def published(port: int, sequence_id: int) -> int:
    """The last stored id at the opening, before this message was stored."""
    async with raw_client(port) as client:
        await client.connect()
        opened = await client.open_producer(topic=TOPIC)
        await client.answer(send(sequence_id))
        return int(opened.last_sequence_id)


@pytest.mark.asyncio
async def test_door_is_one_of_the_processes(standalone: tuple[Cluster, int]) -> None:
    """Its address is printed, and it is started again when it dies."""
    cluster, port = standalone
    status = cluster.status()
    assert status["pulsar_url"] == f"pulsar://127.0.0.1:{port}"
    assert cluster.serving("door-1", "pulsar") == f"127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=status["pulsar_rest_url"], trust_env=False) as rest:
        assert (await rest.get("/admin/v2/tenants")).json() == ["public"]
    assert await published(port, 1) == -1
    await cluster.kill("door-1", once=idle)
    await until(lambda: cluster.processes["door-1"]["restarts"] == 1, DEADLINE_S)
    await cluster.healed()
    assert await published(port, 2) == 1


@pytest.mark.asyncio
async def test_rest_says_that_no_metadata_service_answers(standalone: tuple[Cluster, int]) -> None:
    """The caller is asked to repeat the request, and is answered once there is one again."""
    cluster, _ = standalone
    url = cluster.status()["pulsar_rest_url"]
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=DEADLINE_S) as rest:
        with cluster.held():
            await cluster.kill("metadata-1", once=idle)
            answer = await rest.get("/admin/v2/tenants")
            assert (answer.status_code, [*answer.json()]) == (503, ["reason"])
            assert answer.headers["retry-after"] == "1"
        await cluster.healed()
        assert (await rest.get("/admin/v2/tenants")).json() == ["public"]


@pytest.mark.asyncio
async def test_door_ends_before_the_owners(standalone: tuple[Cluster, int]) -> None:
    """So what it has taken is stored, and its clients know it."""
    cluster, port = standalone
    async with raw_client(port) as client:
        await client.connect()
        await client.answer(frame(command(LOOKUP, (1, TOPIC), (2, 5))))
        cluster.stop()
        assert await client.names_until_closed() == []
    ends = {name: draining(cluster, name) for name in ("door-1", "owner-1", "metadata-1")}
    assert sorted(ends, key=lambda name: ends[name]) == ["door-1", "owner-1", "metadata-1"]


def draining(cluster: Cluster, name: str) -> str:
    """When the process was asked to end."""
    lines = map(json.loads, (cluster.data / f"logs/{name}.log").read_text().splitlines())
    [when] = [line["ts"] for line in lines if line["msg"] == "draining" and "signal" in line]
    return str(when)
