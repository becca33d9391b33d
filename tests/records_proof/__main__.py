"""`python -m tests.records_proof [--seeds N]`: ZooKeeper is lost N times below a cluster under load, and restored.

Each seed draws how it is lost, what else happens, and when:

    emptied       its data is deleted
    older         its former data comes back while all services run
    absent        one storage node does not answer during the restore, and comes back later
    went back     one storage node's directory is replaced by a former copy of it, and marked as restored
    interrupted   the metadata service that restores is killed, again and again

Two producers and a consumer go on all the time. At the end every message is stored once, in order, at the place that
its answer named; nothing that was acknowledged was delivered again; and after each restore the drill finds no
difference but trims that no storage node has carried out yet. So the eras of one run follow each other.
"""

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import oncelog
from oncelog.log_storage.directory.directory_starts import mark_restored
from tests.cluster.clients.consuming import Consumption
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.loads import Loads, read_all
from tests.cluster.until import until
from tests.records_proof.losses import DEADLINE_S, backup, kill, lose_zookeeper, state_of

TOPIC = "lost-and-found"
#: The one that is missing. A node that was ever in limbo counts as missing in each later restore, and with three nodes
#: and an ack quorum of two only one may be.
MISSING = "storage-1"
#: Ledgers change all the time.
SETTINGS = {"session_timeout_ms": 2000, "ledger_entries_max": 50, "ledger_age_max_ms": 2000}


class Proof:
    def __init__(self, cluster: Cluster, place: Path) -> None:
        self._cluster = cluster
        self._place = place
        self._ways: dict[str, Callable[[random.Random], Awaitable[None]]] = {
            "emptied": self._emptied,
            "older": self._older,
            "absent": self._absent,
            "went back": self._went_back,
            "interrupted": self._interrupted,
        }

    @property
    def ways(self) -> list[str]:
        return list(self._ways)

    async def run(self, seeds: range, only: list[str]) -> None:
        cluster = self._cluster
        async with await oncelog.connect(cluster.url) as client:
            self._loads = loads = await Loads.of_two(client, TOPIC, slow=True)
            async with Consumption.running([client], TOPIC, "shared") as consumption:
                async with loads.running():
                    for seed in seeds:
                        chosen = random.Random(seed)
                        way = chosen.choice(only)
                        print(f"seed {seed}: {way}", end=" ", flush=True)
                        began_s = time.monotonic()
                        await self._ways[way](chosen)
                        await cluster.healed()
                        await loads.answered_more(chosen.randint(1, 40))
                        await self._nothing_differs()
                        print(f"{time.monotonic() - began_s:.0f} s", flush=True)
                stored = await read_all(client, TOPIC)
                loads.check(stored)
                await consumption.has_acked(len(stored))
                consumption.check({(message.partition, message.index) for message in stored})
        print(f"{len(seeds)} losses; {len(stored)} messages, each stored once and acknowledged once")

    async def _emptied(self, _: random.Random) -> None:
        await lose_zookeeper(self._cluster)
        await self._restore()

    async def _older(self, chosen: random.Random) -> None:
        former = self._place / "zookeeper"
        with self._cluster.held():
            await kill(self._cluster, "zookeeper")
            shutil.copytree(state_of(self._cluster), former)
        await self._cluster.healed()
        await self._loads.answered_more(chosen.randint(100, 400))
        await lose_zookeeper(self._cluster, older=former)
        shutil.rmtree(former)
        await self._restore("--take-over")

    async def _absent(self, _: random.Random) -> None:
        node = MISSING
        with self._cluster.stopped(node):
            await lose_zookeeper(self._cluster, away={node})
            await self._restore()

    async def _went_back(self, chosen: random.Random) -> None:
        node, former = MISSING, self._place / "node"
        directory = self._cluster.data / node
        with self._cluster.held():
            await kill(self._cluster, node)
            shutil.copytree(directory, former)
        await self._cluster.healed()
        await self._loads.answered_more(chosen.randint(100, 400))
        pid = int(self._cluster.processes[node]["pid"])

        with self._cluster.held():
            await kill(self._cluster, node)
            shutil.rmtree(directory)
            shutil.copytree(former, directory)
            mark_restored(directory)
        await until(lambda: self._cluster.processes[node]["pid"] not in {None, pid}, DEADLINE_S)
        shutil.rmtree(former)
        await lose_zookeeper(self._cluster)
        await self._restore()

    async def _interrupted(self, chosen: random.Random) -> None:
        await lose_zookeeper(self._cluster)
        restoring = asyncio.create_task(self._restore())
        for _ in range(chosen.randint(1, 3)):
            await asyncio.wait((restoring,), timeout=chosen.uniform(0.5, 4.0))
            if not restoring.done():
                await self._cluster.has_id("metadata-1")
                await self._cluster.kill("metadata-1")
        await restoring

    async def _restore(self, *words: str) -> None:
        code, report = await backup(self._cluster, "restore", "--yes", *words)
        assert (code, report["state"], report["reviews"], report["gives_up"]) == (0, "done", [], False), report

    async def _nothing_differs(self) -> None:
        """But for trims: a trimmed ledger returns until a storage node has erased its copy, and so noted the floor."""
        code, drill = await backup(self._cluster, "drill")
        different = [each for each in drill["differences"] if "would return to" not in each]
        assert (drill["reviews"], different) == ([], []), (code, drill)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.records_proof", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="first seed [1]")
    parser.add_argument("--seeds", type=int, default=50, help="losses [50]")
    parser.add_argument("--only", nargs="+", help="these ways, by name; default: all")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as place,
        Cluster.running(Path(place), storage_nodes=3, owners=2, **SETTINGS) as cluster,
    ):
        proof = Proof(cluster, Path(place))
        asyncio.run(proof.run(range(given.first, given.first + given.seeds), given.only or proof.ways))


if __name__ == "__main__":
    main()
