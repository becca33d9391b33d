"""`python -m tests.fault_proof [--seed N] [--seconds S] [--only PART …]`: storage faults with real processes.

random: faults of a seeded plan, in rounds with a topic each. The plan of a seed is the same in every run. The exit code
is 0 when every acknowledged message was read once and in order, and the oracles of `oncelog.verify` found nothing.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path

import oncelog
from tests.fault_proof.faulty_cluster import FaultyCluster
from tests.fault_proof.plan import DESTRUCTIVE, FaultKind, plan_faults
from tests.fault_proof.random_faults import DEADLINE_S, SETTINGS, RandomFaults

KINDS = tuple(kind for kind in FaultKind if kind not in DESTRUCTIVE)
REPAIRS = False


def tell(line: str) -> None:
    print(line, flush=True)


async def random_faults(seed: int, seconds: float, cluster: FaultyCluster) -> None:
    """Rounds until the time is over. Raises AssertionError."""
    tell(f"random faults for {seconds:.0f} s, seed {seed}")
    ends_at_s = time.monotonic() + seconds
    plan = plan_faults(seed, nodes=len(cluster.storage_names), kinds=KINDS)
    injected = 0
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        run = RandomFaults(cluster, client, tell, repairs=REPAIRS)
        while time.monotonic() < ends_at_s:
            faults = chain([next(plan)], islice(plan, len(KINDS) - 1))
            result = await run.round(f"round-{injected + 1}", faults, ends_at_s=ends_at_s)
            injected += len(result.faults)
            tell(
                f"round of {len(result.faults)} faults in {result.seconds:.0f} s: {result.messages:,} messages, each "
                f"once; longest pause {result.gap_max_s:.1f} s; entries with 3, 2, 1, 0 copies: {result.copies.row()}"
            )
    tell(f"{injected} faults injected")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_proof", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the random faults")
    parser.add_argument("--seconds", type=float, default=1200.0, help="duration of the random faults [1200]")
    parser.add_argument("--directory", type=Path, help="empty directory for data and logs, kept [a temporary one]")
    parts = ("random",)
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="these parts [all]")
    given = parser.parse_args()
    proofs: dict[str, Callable[[FaultyCluster], Coroutine[None, None, None]]] = {
        "random": partial(random_faults, given.seed, given.seconds),
    }
    with ExitStack() as stack:
        directory = given.directory
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="fault-proof-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(temporary))
        for part in given.only:
            place = directory / part
            place.mkdir(parents=True)
            with FaultyCluster.running(place.absolute(), metadata=2, **SETTINGS) as cluster:
                asyncio.run(proofs[part](cluster))
    return 0


if __name__ == "__main__":
    sys.exit(main())
