"""`python -m tests.upgrade_proof`: upgrades and roll-backs under load, in random order and with random mixes between.

Each round upgrades every process and rolls every process back, one at a time; half of the rounds turn round half way.
Two producers of this version send all the time, and programs of the former version publish and read in each round.
In the end every process gets the next version, and the level is raised. Every message is stored once, in order, at the
place that its answer named.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import oncelog
from tests.cluster.loads import Loads
from tests.upgrade_proof.mixed_cluster import FormerCluster, Version
from tests.upgrade_proof.next_version import NEXT_LEVEL

TOPIC, OLD_TOPIC = "upgraded", "by-the-former-version"
COMMAND_TIMEOUT_S = 120


class Proof:
    """The cluster, what was done to it, and what the former version's programs have sent."""

    def __init__(self, cluster: FormerCluster, chosen: random.Random) -> None:
        self._cluster = cluster
        self._chosen = chosen
        self._names = sorted(name for name, one in cluster.processes.items() if one["role"] != "zookeeper")
        self._lines: list[str] = []
        self.upgrades = self.roll_backs = 0

    async def run(self, rounds: int) -> None:
        async with (
            await oncelog.connect(self._cluster.url) as client,
            Loads.checked(client, TOPIC, slow=True) as loads,
        ):
            for number in range(rounds):
                await self._round(number, loads)
                print(f"round {number + 1} of {rounds}: longest pause {loads.gap_max_s:.1f} s", flush=True)
            await self._to_the_next_level(loads)
        done = f"{self.upgrades} upgrades, {self.roll_backs} roll-backs of a process"
        print(f"{done}; {len(loads.stored)} messages, each once")
        print(f"{len(self._lines)} messages by programs of the former version, each once")

    async def _round(self, number: int, loads: Loads) -> None:
        turns = number % 2 == 1
        await self._through(Version.CURRENT, len(self._names) // 2 if turns else len(self._names), loads)
        await self._by_former_programs(number)
        await self._through(Version.FORMER, len(self._names), loads)

    async def _to_the_next_level(self, loads: Loads) -> None:
        """Each process from the former version to the one of this tree, then to the next; then the level is raised."""
        for version in (Version.CURRENT, Version.NEXT):
            await self._through(version, len(self._names), loads)
        done = await self._cluster.request("POST", "/admin/v2/cluster/finalize")
        assert (done.status_code, done.json().get("level")) == (200, NEXT_LEVEL), done.text
        await loads.answered_more(20)
        print(f"the level is {NEXT_LEVEL}", flush=True)

    async def _through(self, version: Version, count: int, loads: Loads) -> None:
        for name in self._chosen.sample(self._names, count):
            await self._cluster.change_version(name, version)
            await loads.answered_more(self._chosen.randint(1, 20))
            if version is Version.FORMER:
                self.roll_backs += 1
            else:
                self.upgrades += 1

    async def _by_former_programs(self, number: int) -> None:
        """Publish, and read all that these programs have published."""
        lines = [f"round {number}, line {line}" for line in range(200)]
        self._lines += lines
        given = "".join(f"{line}\n" for line in lines)
        await self._former("produce", OLD_TOPIC, "--stdin", "--producer-name", f"round-{number}", given=given)
        assert (await self._former("read", OLD_TOPIC)).splitlines() == self._lines

    async def _former(self, *words: str, given: str = "") -> str:
        own = {"ONCELOG_URL": self._cluster.url, "PYTHONPATH": str(self._cluster.former_package)}
        command = [sys.executable, "-m", "oncelog.cli", *words]
        done = await asyncio.to_thread(
            subprocess.run, command, input=given, capture_output=True, text=True, env={**os.environ, **own},
            timeout=COMMAND_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, FormerCluster.running(Path(place)) as cluster:
        asyncio.run(Proof(cluster, random.Random(given.seed)).run(given.rounds))


if __name__ == "__main__":
    main()
