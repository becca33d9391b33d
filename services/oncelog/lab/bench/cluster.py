"""The cluster a bench runs against: one of its own in a temporary directory, or a running one that its url names.

Rules
- A cluster of its own is the product's as shipped: `oncelog standalone`, every setting at its default.
- Its figures are only as good as the machine is quiet, and its disk is the one that the temporary directory is on.
- Only a cluster of its own has processes that a bench may kill.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from oncelog.client.addresses import parse_url
from oncelog.client.client import AsyncClient, connect
from oncelog.client.lookup import OwnerLookup, Route
from oncelog.core.names import parse_topic
from oncelog.lab.bench.processes import BenchFailed, Child
from oncelog.rpc.channel import Channel
from oncelog.rpc.owner_codec import TOPIC_STATES
from oncelog.runtime.credentials import PLAIN
from oncelog.wire.owner_pb2 import TopicStatesRequest

START_DEADLINE_S = 120.0
#: What a bench may write at most; it refuses to start where less is free.
DISK_BYTES_NEEDED = 12 * 1024**3
_CALL_TIMEOUT_MS = 5_000
_SERVING_DEADLINE_S = 60.0
_CONNECT_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.05


class Process(NamedTuple):
    """One process of the cluster. address: of its gRPC port."""

    name: str
    role: str
    pid: int
    address: str


class Cluster:
    """Where it is, and, for a cluster of its own, which processes it consists of."""

    def __init__(self, url: str, admin_url: str, data: Path | None = None) -> None:
        self.url = url
        self.admin_url = admin_url
        self._data = data

    async def connect(self) -> AsyncClient:
        """A client that gives up early: a bench without a cluster has nothing to wait for."""
        return await connect(self.url, operation_timeout=_CONNECT_TIMEOUT_S)

    def processes(self) -> list[Process]:
        """Those that serve now. Raises BenchFailed for a cluster that is not the bench's own."""
        if self._data is None:
            raise BenchFailed("this bench kills processes, so it needs a cluster of its own: leave --url out")
        status: dict[str, Any] = json.loads((self._data / "standalone.json").read_text())
        return [
            Process(each["name"], each["role"], each["pid"], str(each["serving"].get("address", "")))
            for each in status["processes"]
            if each["pid"] is not None and each["state"] == "serving"
        ]

    async def route(self, topic: str) -> Route:
        """Who serves a topic now, by a look-up that remembers nothing."""
        lookup = OwnerLookup(parse_url(self.url), PLAIN)
        try:
            return await lookup.find(parse_topic(topic))
        finally:
            await lookup.close()

    async def stats(self, topic: str) -> dict[str, Any]:
        """What the topic's owner tells of it, internals included, under "internal"."""
        route = await self.route(topic)
        async with Channel(route.address, metadata=route.metadata) as channel:
            request = TopicStatesRequest(topic_ids=[route.topic_id], internal=True)
            answer = await channel.call(TOPIC_STATES, request, timeout_ms=_CALL_TIMEOUT_MS)
        if not answer.states:
            raise BenchFailed(f"the owner of {topic} tells nothing of it")
        state = answer.states[0]
        return {**json.loads(state.stats_json), "internal": json.loads(state.internal_stats_json or "{}")}

    async def owner_of(self, topic: str) -> Process:
        """The process that serves a topic. Raises BenchFailed."""
        route = await self.route(topic)
        for process in self.processes():
            if process.address == route.address:
                return process
        raise BenchFailed(f"no process of the cluster is at {route.address}, where {topic} is served")

    async def until_all_serve(self, count_by_role: dict[str, int]) -> None:
        """Wait until so many of each role serve. Raises BenchFailed."""
        ends_at = time.monotonic() + _SERVING_DEADLINE_S
        while True:
            serving = [process.role for process in self.processes()]
            missing = {role: count for role, count in count_by_role.items() if serving.count(role) < count}
            if not missing:
                return
            if time.monotonic() > ends_at:
                raise BenchFailed(f"not serving again after {_SERVING_DEADLINE_S:.0f} s: {missing}")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def set_deduplication(self, namespace: str, *, enabled: bool) -> None:
        """Switch deduplication of a namespace, which is created when missing. Raises BenchFailed."""
        path = f"{self.admin_url}/admin/v2/namespaces/{namespace}"
        try:
            async with httpx.AsyncClient(timeout=_CALL_TIMEOUT_MS / 1000, trust_env=False) as http:
                created = await http.put(path)
                switched = await http.post(f"{path}/deduplication", json=enabled)
        except httpx.HTTPError as error:
            raise BenchFailed(f"{self.admin_url} does not answer: {error!r}; is --admin-url right?") from error
        for response in (created, switched):
            if response.is_error and response.status_code != httpx.codes.CONFLICT:
                raise BenchFailed(f"{response.request.url} answers {response.status_code}: {response.text[:500]}")


def kill(process: Process) -> float:
    """kill -9. Returns the moment, of time.perf_counter."""
    moment = time.perf_counter()
    os.kill(process.pid, signal.SIGKILL)
    return moment


def freeze(process: Process) -> float:
    """Stop it for ever: connections stay open and nothing comes back, as from a host that is gone."""
    moment = time.perf_counter()
    os.kill(process.pid, signal.SIGSTOP)
    return moment


@contextmanager
def bench_directory(data: Path | None) -> Iterator[Path]:
    """A directory that is gone at the end, in `data` or where temporary files are. Raises BenchFailed: too small."""
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="oncelog-bench-", dir=data))
    try:
        free = shutil.disk_usage(directory).free
        if free < DISK_BYTES_NEEDED:
            raise BenchFailed(
                f"{directory.parent} has {free / 1e9:.1f} GB free, a bench may write {DISK_BYTES_NEEDED / 1e9:.0f} GB: "
                "name another directory with --data"
            )
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def own_cluster(directory: Path, *, owners: int) -> AsyncIterator[Cluster]:
    """Start a standalone cluster with 3 storage nodes, give it, end it. Raises BenchFailed."""
    data = directory / "cluster"
    options = ("--data", str(data), "--owners", str(owners), "--port", "0", "--http-port", "0", "-o", "json")
    child = await Child.start(
        "the standalone cluster",
        (sys.executable, "-m", "oncelog.cli", "standalone", *options),
        log=directory / "standalone.log",
        announces="url",
        deadline_s=START_DEADLINE_S,
    )
    try:
        yield Cluster(str(child.announced["url"]), str(child.announced["admin_url"]), data)
    finally:
        await child.stop()
        shutil.rmtree(data, ignore_errors=True)
