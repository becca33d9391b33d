"""`python -m tests.fault_proof [--seed N] [--seconds S] [--only PART …]`: storage faults with real processes.

random: faults of a seeded plan, in rounds with a topic each. The plan of a seed is the same in every run.
node: one of four nodes is lost and never returns; prints the copies of all entries over time.
disks: the disks of the three nodes are replaced in turn; prints the copies of all entries over time.
space: a topic is written and deleted again and again; prints the space on the disks over time.
retention: a topic under constant load with retention by size; prints the space on the disks over time.

The exit code is 0 when every acknowledged message was read once and in order, the oracles of `oncelog.verify` found
nothing, every entry has all its copies again, and the disks stayed flat.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path

import oncelog
from tests.fault_proof.disk_space import SETTINGS as SPACE_SETTINGS
from tests.fault_proof.disk_space import write_and_delete
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.lost_disks import STORAGE_NODES, lose_node, replace_all_disks
from tests.fault_proof.plan import FaultKind, plan_faults
from tests.fault_proof.random_faults import DEADLINE_S, SETTINGS, RandomFaults
from tests.fault_proof.retained_space import RETAINED_MB, load_with_retention
from tests.fault_proof.retained_space import SETTINGS as RETENTION_SETTINGS
from tests.proofs.command import proof_directory

#: Settings of single parts, on top of those of all.
OF_PARTS = {"space": SPACE_SETTINGS, "retention": RETENTION_SETTINGS}


def tell(line: str) -> None:
    print(line, flush=True)


async def random_faults(seed: int, seconds: float, cluster: FaultyCluster) -> None:
    """Rounds until the time is over. Raises AssertionError."""
    tell(f"random faults for {seconds:.0f} s, seed {seed}")
    ends_at_s = time.monotonic() + seconds
    plan = plan_faults(seed, nodes=len(cluster.storage_names))
    injected = 0
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        run = RandomFaults(cluster, client, tell)
        while time.monotonic() < ends_at_s:
            faults = chain([next(plan)], islice(plan, len(FaultKind) - 1))
            result = await run.round(f"round-{injected + 1}", faults, ends_at_s=ends_at_s)
            injected += len(result.faults)
            tell(
                f"round of {len(result.faults)} faults in {result.seconds:.0f} s: {result.messages:,} messages, each "
                f"once; longest pause {result.gap_max_s:.1f} s; entries with 3, 2, 1, 0 copies: {result.copies.row()}"
            )
    tell(f"{injected} faults injected")


async def three_disks(cluster: FaultyCluster) -> None:
    """Raises AssertionError."""
    tell("the disks of the three storage nodes are replaced in turn; entries of closed ledgers by their copies:")
    tell((await replace_all_disks(cluster, "three-disks")).table())


async def lost_node(cluster: FaultyCluster) -> None:
    """Raises AssertionError."""
    tell("one of four storage nodes is lost and never returns; entries of closed ledgers by their copies:")
    tell((await lose_node(cluster, "lost-node")).table())


async def disk_space(seconds: float, cluster: FaultyCluster) -> None:
    """Raises AssertionError."""
    tell(f"a topic is written and deleted for {seconds:.0f} s")
    await write_and_delete(cluster, seconds, tell)


async def retained_space(seconds: float, cluster: FaultyCluster) -> None:
    """Raises AssertionError."""
    tell(f"a topic is written for {seconds:.0f} s, and {RETAINED_MB} MiB of it are retained")
    await load_with_retention(cluster, seconds, tell)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_proof", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the random faults")
    parser.add_argument("--seconds", type=float, default=1200.0, help="duration of the random faults [1200]")
    parser.add_argument("--directory", type=Path, help="empty directory for data and logs, kept [a temporary one]")
    parser.add_argument("--space-seconds", type=float, default=150.0, help="duration of the part space [150]")
    parser.add_argument(
        "--retention-seconds", type=float, default=180.0, help="duration of the part retention [180]; 1800: the table"
    )
    parts = ("random", "node", "disks", "space", "retention")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="these parts [all]")
    given = parser.parse_args()
    proofs: dict[str, Callable[[FaultyCluster], Coroutine[None, None, None]]] = {
        "random": partial(random_faults, given.seed, given.seconds),
        "node": lost_node,
        "disks": three_disks,
        "space": partial(disk_space, given.space_seconds),
        "retention": partial(retained_space, given.retention_seconds),
    }
    with ExitStack() as stack:
        directory = proof_directory(stack, given.directory, "fault-proof-")
        for part in given.only:
            place = directory / part
            place.mkdir(parents=True)
            settings = SETTINGS | OF_PARTS.get(part, {})
            nodes = STORAGE_NODES if part == "node" else 3
            with FaultyCluster.running(place, storage_nodes=nodes, metadata=2, **settings) as cluster:
                asyncio.run(proofs[part](cluster))
    return 0


if __name__ == "__main__":
    sys.exit(main())
