"""`python -m tests.records_proof [--seeds N]`: ZooKeeper is lost N times below a cluster under load, and restored.

Each seed draws how it is lost and what else happens (`ways`), and when.

Two producers and a consumer go on all the time. At the end every message is stored once, in order, at the place that
its answer named; nothing that was acknowledged was delivered again; and after each restore the drill finds no
difference but trims that no storage node has carried out yet. So the eras of one run follow each other.

With --ledgers storage nodes get so many ledgers before, in topics of ten (`planted_topics`), and ZooKeeper is lost at
once. Printed are the steps of that restore with what processes take for it, when some of these topics are read, and the
drill. All losses after it restore them, too.

Each line has three times in seconds: from the start of the command to the end of the restore, to the first message that
is acknowledged after it, and all of it.
"""

import argparse
import asyncio
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import oncelog
from tests.cluster.clients.consuming import Consumption
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.loads import Loads, read_all
from tests.cluster.sessions import AWAY_MS
from tests.cluster.until import until
from tests.records_proof.losses import DEADLINE_S, backup
from tests.records_proof.planted_topics import LEDGERS_OF_TOPIC, MESSAGES, name_of, value_of
from tests.records_proof.steps import Steps
from tests.records_proof.ways import TOPIC, WAYS, Ways

#: Ledgers change all the time.
SETTINGS = {"session_timeout_ms": AWAY_MS, "ledger_entries_max": 50, "ledger_age_max_ms": 2000}


#: Planted topics that are read after a restore.
ASKED, ASKED_AT_ONCE = 1_000, 16


class Times(NamedTuple):
    """Of one loss. In seconds, from the start of the restore."""

    commit_s: float
    served_s: float


async def prove(cluster: Cluster, place: Path, seeds: range, only: list[str], ledgers: int) -> None:
    times: dict[str, list[Times]] = {}
    async with (
        await oncelog.connect(cluster.url) as client,
        Consumption.running([client], TOPIC, "shared") as consumption,
    ):
        async with Loads.checked(client, TOPIC, slow=True) as loads:
            ways = Ways(cluster, place, client, loads)
            if ledgers:
                await _planted(cluster, ways, client, loads, ledgers // LEDGERS_OF_TOPIC)
            for seed in seeds:
                chosen = random.Random(seed)
                way = chosen.choice(only)
                print(f"seed {seed}: {way}", end=" ", flush=True)
                began_s = time.monotonic()
                await WAYS[way](ways, chosen)
                took = await _served(ways, loads)
                await cluster.healed()
                await loads.answered_more(chosen.randint(1, 40))
                await _nothing_differs(cluster)
                times.setdefault(way, []).append(took)
                all_s = time.monotonic() - began_s
                print(f"commit {took.commit_s:.1f} s, served {took.served_s:.1f} s, all {all_s:.0f} s", flush=True)
        await consumption.check_all(loads.stored)
    print(f"{len(seeds)} losses; {len(loads.stored)} messages, each stored once and acknowledged once")
    for way, each in times.items():
        commits, served = [one.commit_s for one in each], [one.served_s for one in each]
        print(f"{way:12} {len(each):3}: commit {_spread(commits)}, served {_spread(served)}")


async def _served(ways: Ways, loads: Loads) -> Times:
    """Once a message was acknowledged in the new era."""
    began_s, committed_s = ways.restored_s
    await until(lambda: loads.answered > ways.answered, DEADLINE_S, waiting_for="a message to be acknowledged")
    return Times(committed_s - began_s, time.monotonic() - began_s)


async def _nothing_differs(cluster: Cluster) -> None:
    """But for trims: a trimmed ledger returns until a storage node has erased its copy, and so noted the floor."""
    code, drill = await backup(cluster, "drill")
    different = [each for each in drill["differences"] if "would return to" not in each]
    assert (drill["reviews"], different) == ([], []), (code, drill)


async def _planted(cluster: Cluster, ways: Ways, client: oncelog.AsyncClient, loads: Loads, topics: int) -> None:
    planted = f"{topics:,} topics with {topics * LEDGERS_OF_TOPIC:,} ledgers"
    print(f"{planted} are planted, and ZooKeeper is lost", flush=True)
    async with Steps.watched(cluster) as steps:
        await ways.planted(topics)
        took = await _served(ways, loads)
    steps.tell()
    print(f"commit {took.commit_s:.1f} s, served {took.served_s:.1f} s", flush=True)
    asked = random.Random(topics).sample(range(topics), min(topics, ASKED))
    began_s = time.monotonic()
    turn = asyncio.Semaphore(ASKED_AT_ONCE)

    async def read(number: int) -> float:
        async with turn:
            found = await read_all(client, name_of(number))
        assert [message.value for message in found] == [value_of(number, index) for index in range(MESSAGES)]
        return time.monotonic() - began_s

    read_s = sorted(await asyncio.gather(*map(read, asked)))
    print(f"{len(asked)} planted topics are read after {read_s[0]:.1f} to {read_s[-1]:.1f} s", flush=True)
    await cluster.healed()
    began_s = time.monotonic()
    await _nothing_differs(cluster)
    print(f"drill {time.monotonic() - began_s:.1f} s", flush=True)


def _spread(values_s: list[float]) -> str:
    return f"{statistics.median(values_s):.1f} s (at most {max(values_s):.1f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.records_proof", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="first seed [1]")
    parser.add_argument("--seeds", type=int, default=50, help="losses [50]")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), help="these ways, by name; default: all")
    parser.add_argument("--ledgers", type=int, default=0, help="first plant so many ledgers, and lose ZooKeeper [0]")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="records-proof-"))
    print(f"logs are in {place / 'data' / 'logs'}, and stay if this fails", flush=True)
    with Cluster.running(place, storage_nodes=3, owners=2, **SETTINGS) as cluster:
        seeds = range(given.first, given.first + given.seeds)
        asyncio.run(prove(cluster, place, seeds, given.only or list(WAYS), given.ledgers))
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
