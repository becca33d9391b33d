"""Owners that claim blocks of producer ids from one counter in ZooKeeper, side by side, and are killed.

    python -m tests.contract.owner.id_contention ADDRESS DIRECTORY [--owners 8] [--kills 40] [--seed 1]

Each owner is a process of its own. It writes each id that it gets into a file; an owner that is killed is replaced by a
new one. Prints how many ids were issued, how many of them twice (there must be none), and how many were wasted: claimed
with a block, and lost with its owner.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter as Counts
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from oncelog.core.ids import Incarnation
from oncelog.core.records.id_claim import Counter, IdClaim
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.topic_owner.shell.id_source import PREFETCH_BELOW, IdSource
from tests.cluster.until import until

BLOCK = 100
DEADLINE_S = 120.0
ID_BYTES = 9


class Contention(NamedTuple):
    """issued: to an owner that noted it. repeated: issued again. wasted: of the claimed ones, never issued."""

    issued: int
    repeated: int
    wasted: int
    kills: int


async def own(address: str, path: Path) -> None:
    """One owner, until it is killed."""
    session = await ZooKeeperSession.connect(address)
    claim = IdClaim(Incarnation(uuid4().hex), block=BLOCK, prefetch_below=PREFETCH_BELOW)
    ids = IdSource(claim, CounterStore(session, Counter.PRODUCER))
    noted = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        os.write(noted, f"{await ids.next_id():{ID_BYTES - 1}}\n".encode())


class Owners:
    """The processes, and the file of each."""

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory
        self._started = 0
        self.running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self) -> None:
        self._started += 1
        path = self._directory / f"owner-{self._started}"
        command = [sys.executable, "-m", "tests.contract.owner.id_contention", self._address, str(path), "--own"]
        self.running.append((subprocess.Popen(command), path))

    async def kill(self, place: int, *, after_ids: int) -> None:
        """Kill an owner with SIGKILL once it has so many ids."""
        process, path = self.running.pop(place)

        def ready() -> bool:
            assert process.poll() is None, "an owner has ended by itself"
            return path.exists() and path.stat().st_size >= after_ids * ID_BYTES

        try:
            await until(ready, DEADLINE_S, waiting_for=f"an owner to get {after_ids} ids")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def noted(self) -> list[int]:
        return [int(line) for path in self._directory.glob("owner-*") for line in path.read_text().splitlines()]


async def contend(address: str, directory: Path, *, owners: int, kills: int, seed: int) -> Contention:
    session = await ZooKeeperSession.connect(address)
    await ClusterStore(session).establish("contention")
    rng, running = random.Random(seed), Owners(address, directory)
    try:
        for _ in range(owners):
            running.start()
        for _ in range(kills):
            await running.kill(rng.randrange(owners), after_ids=rng.randrange(1, 4 * BLOCK))
            running.start()
    finally:
        while running.running:
            await running.kill(0, after_ids=1)
    stored = await CounterStore(session, Counter.PRODUCER).read()
    await session.close()
    assert stored is not None, "nothing was claimed"
    issued = running.noted()
    repeated = sum(count - 1 for count in Counts(issued).values())
    return Contention(len(issued), repeated, stored.value.next - 1 - len(set(issued)), kills + owners)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--owners", type=int, default=8)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own", action="store_true")
    given = parser.parse_args()
    if given.own:
        asyncio.run(own(given.address, given.directory))
        return
    given.directory.mkdir(parents=True)
    found = asyncio.run(
        contend(given.address, given.directory, owners=given.owners, kills=given.kills, seed=given.seed)
    )
    print(found)
    sys.exit(1 if found.repeated else 0)


if __name__ == "__main__":
    main()
