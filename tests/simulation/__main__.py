"""`python -m tests.simulation SEED [--steps]` replays a run; `--shrink` looks for the least of it that still fails;
`--seeds N` sweeps; `--mutants` finds each planted bug.
"""

import argparse
import sys
import time
from multiprocessing import get_context

from tests.simulation.planted.mutants import MUTANTS
from tests.simulation.run import Run, outcome_of, run
from tests.simulation.shrinking import shrunk_report

PROCESSES = 2


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


def sweep(first: int, count: int) -> int:
    """Many runs on two processes, up to the first failing seed, and the least of that one that still fails."""
    began, steps = time.monotonic(), 0
    with get_context("spawn").Pool(PROCESSES) as pool:
        for done, outcome in enumerate(pool.imap_unordered(run, range(first, first + count), chunksize=8), start=1):
            steps += outcome.steps
            if outcome.problem:
                print(f"seed {outcome.seed}: {outcome.problem}", flush=True)
                pool.terminate()
                print(shrunk_report(outcome.seed), flush=True)
                return 1  # which ends the pool, and so the other runs
            if done % 200 == 0 or done == count:
                seconds = time.monotonic() - began
                print(
                    f"{done} seeds, {done / seconds:.1f} seeds/s, {steps // done} steps a seed, none failed",
                    flush=True,
                )
    return 0


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
    parser.add_argument("--seeds", type=int, metavar="N", help="sweep N seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed of a sweep, or of --mutants")
    parser.add_argument("--mutants", type=int, nargs="?", const=500, metavar="LIMIT", help="find each planted bug")
    parser.add_argument("--only", default="", metavar="TEXT", help="of --mutants: those whose name contains TEXT")
    parser.add_argument("--traces", type=int, metavar="N", help="print the trace hash of N seeds")
    arguments = parser.parse_args()
    if arguments.mutants is not None:
        return find_mutants(arguments.first, arguments.mutants, arguments.only)
    if arguments.seeds is not None:
        return sweep(arguments.first, arguments.seeds)
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
