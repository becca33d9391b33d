"""The ways in which ZooKeeper is lost, each with what else happens then. Each ends when the records are restored.

emptied       its data is deleted
older         its former data comes back while all services run
absent        one storage node does not answer during the restore, and comes back later
went back     one storage node's directory is replaced by a former copy of it, and marked as restored
interrupted   the metadata service that restores is killed, again and again
two           it is not lost: it goes on with its services while the records are restored into a new ZooKeeper
repair        one storage node was replaced by an empty one shortly before
takeover      the owner of the topic was killed shortly before
deletion      a topic is being deleted
"""

import asyncio
import random
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

import oncelog
from oncelog.log_storage.directory.directory_starts import mark_restored
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.cluster.kills import any_time, idle
from tests.cluster.loads import Loads, passed, read_all
from tests.cluster.processes.service_process import processes
from tests.cluster.until import until
from tests.records_proof.losses import DEADLINE_S, NoReport, backup, lose_zookeeper, serves_a_restore, state_of
from tests.records_proof.planted_topics import plant

TOPIC = "lost-and-found"
#: The one that is missing. A node that was ever in limbo counts as missing in each later restore, and with three nodes
#: and an ack quorum of two only one may be.
MISSING = "storage-1"
#: What an answer says while storage nodes start.
_START_YET = (
    "storage nodes can be used",
    "no storage node with data has answered",
    "If storage nodes start yet, repeat this",
)
#: More than two ledgers.
_DELETED_MESSAGES = 120


class Ways:
    """Of one run. restored_s: when the last restore was begun and committed; answered: what producers had then."""

    def __init__(self, cluster: Cluster, place: Path, client: oncelog.AsyncClient, loads: Loads) -> None:
        self._cluster = cluster
        self._place = place
        self._client = client
        self._loads = loads
        self.restored_s = (0.0, 0.0)
        self.answered = 0

    async def planted(self, topics: int) -> None:
        """The storage nodes have many more topics after it."""
        nodes = [name for name, each in self._cluster.processes.items() if each["role"] == "storage"]
        with self._cluster.held():
            for name in nodes:
                await self._cluster.kill(name, once=any_time)
            await plant([self._cluster.data / name for name in nodes], topics)
            await lose_zookeeper(self._cluster)
        await self._restore()

    async def emptied(self, _: random.Random) -> None:
        await lose_zookeeper(self._cluster)
        await self._restore()

    async def older(self, chosen: random.Random) -> None:
        former = self._place / "zookeeper"
        with self._cluster.held():
            await self._cluster.kill("zookeeper", once=any_time)
            shutil.copytree(state_of(self._cluster), former)
        await self._cluster.healed()
        await self._loads.answered_more(chosen.randint(100, 400))
        # A storage node that no ledger has used since has seen nothing newer. The others prove it.
        unused = {name for name, each in self._cluster.processes.items() if each["role"] == "storage"}
        await lose_zookeeper(self._cluster, older=former, away=unused)
        shutil.rmtree(former)
        await self._restore("--take-over")

    async def absent(self, _: random.Random) -> None:
        with self._cluster.stopped(MISSING):
            await lose_zookeeper(self._cluster, away={MISSING})
            await self._restore()

    async def went_back(self, chosen: random.Random) -> None:
        former, directory = self._place / "node", self._cluster.data / MISSING
        with self._cluster.held():
            await self._cluster.kill(MISSING, once=any_time)
            shutil.copytree(directory, former)
        await self._cluster.healed()
        await self._loads.answered_more(chosen.randint(100, 400))

        def put_back() -> None:
            shutil.copytree(former, directory)
            mark_restored(directory)

        await self._replace(put_back)
        shutil.rmtree(former)
        await lose_zookeeper(self._cluster, away={MISSING})  # it may have seen nothing yet
        await self._restore()

    async def interrupted(self, chosen: random.Random) -> None:
        await lose_zookeeper(self._cluster)

        async def restored() -> bool:
            """An operator repeats the command if it says that the service does not answer."""
            try:
                await self._restore()
            except NoReport:
                return False
            return True

        restoring = asyncio.create_task(until(restored, DEADLINE_S, waiting_for="the end of the restore"))
        for _ in range(chosen.randint(1, 3)):
            await asyncio.wait((restoring,), timeout=chosen.uniform(0.5, 4.0))
            if not restoring.done():
                await self._cluster.has_id("metadata-1")
                await self._cluster.kill("metadata-1", once=any_time)
        await restoring

    async def two(self, chosen: random.Random) -> None:
        """The former owners serve until their era is raised at the storage nodes. Then they end, and nothing that they
        are sent is answered. At last all services move to the new ZooKeeper."""
        cluster, place = self._cluster, self._place / "new"
        before = {name: each["restarts"] for name, each in cluster.processes.items() if each["role"] == "owner"}
        nodes = [each["serving"]["health"] for each in cluster.processes.values() if each["role"] == "storage"]
        server = await ZooKeeperServer.start(place)
        try:
            with claim_port("127.0.0.1") as claim, processes(place, server.address) as start:
                start("metadata", "--http-port", str(port_of(claim)))
                url = f"http://127.0.0.1:{port_of(claim)}"
                await until(lambda: serves_a_restore(url), DEADLINE_S, waiting_for="the routes of a restore")
                await self._loads.answered_more(chosen.randint(1, 40))
                await self._restore("--nodes", ",".join(nodes), admin_url=url)
                await until(
                    lambda: all(cluster.processes[name]["restarts"] > count for name, count in before.items()),
                    DEADLINE_S,
                    waiting_for="the owners of the former era to end",
                )
                assert self._loads.answered == self.answered, "an owner of the former era has answered"
            with cluster.held():
                running = [name for name in cluster.processes if cluster.runs(name)]
                for name in running:
                    await cluster.kill(name, once=idle)
                await server.stop()
                shutil.rmtree(state_of(cluster))
                shutil.copytree(place / "state", state_of(cluster))
        finally:
            await server.stop()
        shutil.rmtree(place)

    async def repair(self, chosen: random.Random) -> None:
        await self._replace(lambda: None)
        await passed(time.monotonic() + chosen.uniform(0.0, 10.0))
        await lose_zookeeper(self._cluster, away={MISSING})
        await self._restore()

    async def takeover(self, chosen: random.Random) -> None:
        owner = await self._cluster.owner_of(TOPIC)
        await self._cluster.kill(owner, once=self._loads.under_way)
        await passed(time.monotonic() + chosen.uniform(0.0, 5.0))
        await lose_zookeeper(self._cluster, away={owner})
        await self._restore()

    async def deletion(self, chosen: random.Random) -> None:
        """If it was answered, the topic stays deleted. Otherwise it is deleted, or whole."""
        name = f"gone-{chosen.getrandbits(64):x}"
        values = [b"%d" % number for number in range(_DELETED_MESSAGES)]
        async with await self._client.create_producer(name) as producer:
            for value in values:
                await producer.send(value)
        deleting = asyncio.create_task(self._delete(name))
        await asyncio.wait((deleting,), timeout=chosen.uniform(0.0, 0.3))
        await lose_zookeeper(self._cluster)
        status = await deleting
        await self._restore()
        await self._cluster.healed()
        there = (await self._cluster.request("GET", f"{rest_path(name)}/stats")).status_code != 404
        print(f"(answered {status or 'nothing'}, {'there' if there else 'gone'})", end=" ", flush=True)
        assert not (there and status == 204), f"{name} was deleted, and is back"
        if there:
            stored = await read_all(self._client, name)
            assert [message.value for message in stored] == values

            async def deleted() -> bool:
                return await self._delete(name) in {204, 404}

            await until(deleted, DEADLINE_S, waiting_for=f"the deletion of {name}")

    async def _delete(self, name: str) -> int:
        """The status; 0: no answer."""
        try:
            return (await self._cluster.request("DELETE", rest_path(name))).status_code
        except httpx.TransportError:
            return 0

    async def _replace(self, put_back: Callable[[], None]) -> None:
        """Delete the directory of the storage node while it does not run."""
        pid, directory = self._cluster.processes[MISSING]["pid"], self._cluster.data / MISSING
        with self._cluster.held():
            await self._cluster.kill(MISSING, once=any_time)
            shutil.rmtree(directory)
            put_back()
        await until(lambda: self._cluster.processes[MISSING]["pid"] not in {None, pid}, DEADLINE_S)

    async def _restore(self, *words: str, admin_url: str = "") -> None:
        began_s = time.monotonic()

        async def taken() -> tuple[int, dict[str, Any]] | None:
            """None: storage nodes start yet, and the answer says so. An operator repeats the command then."""
            code, report = await backup(self._cluster, "restore", "--yes", *words, admin_url=admin_url)
            message = report.get("message", "")
            return None if any(each in message for each in _START_YET) else (code, report)

        code, report = await until(taken, DEADLINE_S, waiting_for="enough storage nodes for a restore")
        self.restored_s, self.answered = (began_s, time.monotonic()), self._loads.answered
        assert (code, report["state"], report["reviews"], report["gives_up"]) == (0, "done", [], False), report


#: A way, for one seed.
Way = Callable[[Ways, random.Random], Awaitable[None]]
WAYS: dict[str, Way] = {
    "emptied": Ways.emptied,
    "older": Ways.older,
    "absent": Ways.absent,
    "went back": Ways.went_back,
    "interrupted": Ways.interrupted,
    "two": Ways.two,
    "repair": Ways.repair,
    "takeover": Ways.takeover,
    "deletion": Ways.deletion,
}
