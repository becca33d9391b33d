"""Clients outside the cluster reach one port of a metadata service, or owners behind a proxy at another port.

A real cluster, whose addresses a client in a network of its own would not reach. Here they are on the same machine, so
each test looks at where the client connected to.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.commands import environment
from tests.cluster.forked_program import run_forked
from tests.cluster.kills import idle
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until
from tests.contract.stores.cut_proxy import CutProxy

pytestmark = pytest.mark.asyncio

TOPIC = "public/default/orders"
COUNT = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.running(
        tmp_path_factory.mktemp("outside"), storage_nodes=1, session_timeout_ms=SESSION_TIMEOUT_MS
    ) as own:
        yield own


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def run(url: str, *words: str, given: bytes = b"") -> bytes:
    """Standard output of a command that has one URL."""

    def go() -> "subprocess.CompletedProcess[bytes]":
        own = environment() | {"ONCELOG_URL": url}
        return run_forked(words, own, stdin=given, timeout_s=120)

    done = await asyncio.to_thread(go)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


async def test_clients_need_only_one_port(cluster: Cluster) -> None:
    """Publish, read and administer through one URL. The relay before the port stands for `kubectl port-forward`."""
    async with CutProxy.running(port_of(cluster.serving("metadata-1"))) as relay:
        url = f"oncelog+proxy://{relay.address}"
        await run(url, "admin", "topics", "create", "lines")
        await run(url, "produce", "lines", "--stdin", given=b"one\ntwo\n")
        assert await run(url, "read", "lines") == b"one\ntwo\n"
        stats = json.loads(await run(url, "admin", "topics", "stats", "lines", "-o", "json"))
        assert stats["phase"] == "serving"
        await cluster.healed()  # the service may not have seen the second owner yet: nothing has needed it
        brokers = json.loads(await run(url, "admin", "cluster", "show", "-o", "json"))["brokers"]
        assert len(brokers) == 2


async def test_outside_client_continues_after_the_owner_is_killed(cluster: Cluster) -> None:
    """Messages that it sends again under the same name are stored once, as inside the cluster."""
    async with CutProxy.running(port_of(cluster.serving("metadata-1"))) as relay:
        url = f"oncelog+proxy://{relay.address}"
        async with await oncelog.connect(url, operation_timeout=DEADLINE_S) as client:
            producer = await client.create_producer(TOPIC, producer_name="laptop")
            reader = await client.create_reader(TOPIC)
            killed = False
            for number in range(COUNT):
                await producer.send(f"{number}".encode(), sequence_id=number)
                if number == COUNT // 2:
                    await cluster.kill(await cluster.owner_of(TOPIC), once=idle)
                    killed = True
                if number == COUNT // 4:
                    await relay.cut()
            assert killed
            values = [(await reader.read_next(timeout=DEADLINE_S)).value for _ in range(COUNT)]
            assert values == [f"{number}".encode() for number in range(COUNT)]
            owners = {str(cluster.serving(name)) for name in cluster.processes if name.startswith("owner")}
            assert not owners & set(client._network._publish_streams), "an owner's own address was connected to"
    await cluster.healed()


async def test_owner_behind_a_proxy_is_reached_at_its_advertised_address(
    cluster: Cluster, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """With NAT or a NodePort, host and port differ from those that the owner listens on. Services connect to it
    directly."""
    port, listen = free_port(), free_port()
    zookeeper = cluster.processes["zookeeper"]["serving"]["address"]
    words = [sys.executable, "-m", "oncelog.topic_owner", "--zookeeper", zookeeper, "--write-quorum", "1"]
    words += ["--ack-quorum", "1", "--port", str(listen), "--advertised-host", "localhost"]
    words += ["--advertised-port", str(port), "--internal-host", "127.0.0.1"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("ONCELOG_")}
    with (tmp_path / "owner.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log, env=own)
    try:
        async with CutProxy.running(listen, port=port) as relay:

            async def seen() -> list[str]:
                return [one["address"] for one in await cluster.get("/admin/v2/brokers") if one["connected"]]

            async def is_seen() -> bool:
                return f"localhost:{port}" in await seen()

            await until(is_seen, DEADLINE_S, every_s=0.1, waiting_for="the owner to be known by its advertised address")
            assert f"127.0.0.1:{listen}" not in await seen()
            with cluster.held():
                for name in ("owner-1", "owner-2"):
                    await cluster.kill(name, once=idle)
                async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
                    producer = await client.create_producer("public/default/behind", producer_name="outside")
                    await producer.send(b"one")
                    reader = await client.create_reader("public/default/behind")
                    assert (await reader.read_next(timeout=DEADLINE_S)).value == b"one"
                    assert list(client._network._publish_streams) == [f"localhost:{port}"]
                stats = await cluster.stats("public/default/behind")
                assert stats["phase"] == "serving", "services reach the owner without its proxy"
                await relay.refuse()
                stats = await cluster.stats("public/default/behind")
                assert stats["phase"] == "serving"
    finally:
        process.terminate()
        await process.wait()
    await cluster.healed()
