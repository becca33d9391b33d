"""`python -m tests.simulation SEED [--steps]` replays a run; `--shrink` looks for the least of it that still fails;
`--seeds N` runs N seeds of each kind; `--compare-slow N` does it in two ways; `--mutants` finds each planted bug.
"""

import argparse
import os
import sys
import time
from collections import Counter
from multiprocessing import get_context

from tests.simulation.planted.mutants import MUTANTS
from tests.simulation.run import Run, outcome_of, run
from tests.simulation.seeds.both_ways import compare
from tests.simulation.seeds.new_seeds import Fresh, first_of, open_finding
from tests.simulation.seeds.shrinking import shrunk_report
from tests.simulation.shapes import KIND_SEEDS, KINDS


def replay(seed: int, *, steps: bool) -> int:
    """One run; with `steps`, a line per step: number, tick, what happened, and the state of all processes."""
    one = Run(seed)
    if steps:
        step, state = one.world.step, [""]

        def told() -> bool:
            went_on = step()
            line = one.state_line()
            print(f"{one.world.steps:6} {one.world.now:6} {one.world.label:50} {line if line != state[0] else ''}")
            state[0] = line
            return went_on

        one.world.step = told  # type: ignore[method-assign]
    outcome = outcome_of(one)
    print(f"seed {seed}: {outcome.steps} steps, {outcome.ticks} ticks, trace {outcome.trace:08x}")
    print(outcome.problem or "nothing wrong")
    return 1 if outcome.problem else 0


def sweep(first: int, count: int, *, processes: int, show_counts: bool) -> int:
    """Seeds first .. first + count - 1 of each kind. Every failing one is told, and the least of the first one."""
    seeds = [kind + first + number for number in range(count) for kind in KINDS]
    print(f"{count} seeds of each kind, from {first} on: {', '.join(str(kind + first) for kind in KINDS)}", flush=True)
    began, failed, occurred = time.monotonic(), list[int](), {kind: Counter[str]() for kind in KINDS}
    with get_context("spawn").Pool(processes) as pool:
        for done, outcome in enumerate(pool.imap_unordered(run, seeds, chunksize=len(KINDS)), start=1):
            occurred[outcome.seed // KIND_SEEDS * KIND_SEEDS].update(outcome.counts.keys())
            if outcome.problem and (known := open_finding(outcome.seed, outcome.problem)):
                print(f"seed {outcome.seed}, as the open finding {known.seed}: {outcome.problem}", flush=True)
            elif outcome.problem:
                failed.append(outcome.seed)
                print(f"seed {outcome.seed}: {outcome.problem}", flush=True)
            if done % 600 == 0 or done == len(seeds):
                seconds = time.monotonic() - began
                said = f"{len(failed)} failed" if failed else "none failed"
                print(
                    f"{done} of {len(seeds)} runs from seed {first} of each kind on in {seconds:.0f} s, {said}",
                    flush=True,
                )
    if show_counts:
        print_counts(occurred, count)
    if failed:
        print(shrunk_report(min(failed)), flush=True)
        print(f"again: make sim FIRST={first} SEEDS={count}", flush=True)
    return 1 if failed else 0


def print_counts(occurred: dict[int, Counter[str]], count: int) -> None:
    """occurred: {first seed of a kind: {condition: in how many runs}}."""
    print(f"in how many of {count} runs of each kind each condition occurred:")
    print(f"{'kind of the seeds from':50}", *(f"{kind:8}" for kind in occurred))
    for what in sorted(set[str]().union(*occurred.values())):
        print(f"{what[:50]:50}", *(f"{runs[what]:8}" for runs in occurred.values()))


def find_mutants(first: int, limit: int, name: str) -> int:
    """The first seed from `first` on that finds each planted bug whose name contains `name`."""
    survived = 0
    for mutant in (m for m in MUTANTS if name in m.name and m.core_test is None):
        runs = (mutant.run(seed) for seed in range(first, first + limit))
        found = next((outcome for outcome in runs if outcome.problem), None)
        survived += found is None
        said = f"seed {found.seed}: {found.problem}" if found else f"survives {limit} seeds"
        print(f"{mutant.name:50} {said[:150]}", flush=True)
    return 1 if survived else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this run")
    parser.add_argument("--steps", action="store_true", help="a line for each step")
    parser.add_argument("--shrink", action="store_true", help="find the least that still fails, and its last steps")
    parser.add_argument("--seeds", type=int, metavar="N", help="run N seeds of each kind")
    parser.add_argument("--compare-slow", type=int, metavar="N", help="run N seeds of each kind in both ways")
    parser.add_argument("--first", type=int, help="their first one, below 1000000; by default other ones each day")
    parser.add_argument(
        "--new-each",
        choices=[each.value for each in Fresh],
        default=Fresh.DAY.value,
        help="without --first: when others come",
    )
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="that run seeds")
    parser.add_argument("--counts", action="store_true", help="show in how many runs each condition occurred")
    parser.add_argument("--mutants", type=int, nargs="?", const=500, metavar="LIMIT", help="find each planted bug")
    parser.add_argument("--only", default="", metavar="TEXT", help="of --mutants: those whose name contains TEXT")
    parser.add_argument("--traces", type=int, metavar="N", help="print the trace hash of N seeds")
    arguments = parser.parse_args()
    if arguments.mutants is not None:
        return find_mutants(arguments.first or 0, arguments.mutants, arguments.only)
    count = arguments.seeds if arguments.compare_slow is None else arguments.compare_slow
    if count is not None:
        fresh = Fresh(arguments.new_each)
        first = first_of(fresh, count) if arguments.first is None else arguments.first
        if count < 1 or not 0 <= first <= KIND_SEEDS - count:
            parser.error(f"--first and the number of seeds are of one kind, which has {KIND_SEEDS} seeds")
        if arguments.compare_slow is not None:
            return 1 if compare(first, count, processes=arguments.processes) else 0
        return sweep(first, count, processes=arguments.processes, show_counts=arguments.counts)
    if arguments.traces is not None:
        for seed in range(arguments.traces):
            outcome = run(seed)
            print(seed, f"{outcome.trace:08x}", outcome.steps, sorted(outcome.counts.items()))
        return 0
    if arguments.seed is None:
        parser.error("a seed, --seeds, --mutants or --traces")
    if arguments.shrink:
        print(shrunk_report(arguments.seed))
        return 0
    return replay(arguments.seed, steps=arguments.steps)


if __name__ == "__main__":
    sys.exit(main())
