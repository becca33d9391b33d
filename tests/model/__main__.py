"""`python -m tests.model` explores every variant and prints a table; `--trace` also the steps to each violation."""

import argparse
import sys
import time

from tests.model.explorer import breadth_first, walk
from tests.model.state import Rules
from tests.model.variants import BROKEN, CLEAN, LIFE, STATES_MAX, WALK_LENGTH, WALKS


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--states", type=int, help="explore up to this number of states of each scenario")
    arguments.add_argument("--walks", type=int, default=WALKS, help="number of random walks (default: %(default)s)")
    arguments.add_argument("--trace", action="store_true", help="print the steps to each violation")
    given = arguments.parse_args()
    wrong = 0
    print("| variant | scenario | states | steps | seconds | result |\n|---|---|---:|---:|---:|---|")
    for scenario, states_max in CLEAN.items():
        began = time.monotonic()
        found = breadth_first(scenario, Rules(), states_max=given.states or states_max)
        wrong += found.violation is not None
        result = found.violation or ("safe, all states" if found.complete else "safe so far")
        row("all rules", scenario.name, found.states, found.steps, began, result)
    began, steps = time.monotonic(), 0
    violations = set[str]()
    for seed in range(given.walks):
        walked = walk(LIFE, Rules(), seed=seed, length=WALK_LENGTH)
        steps += walked.steps
        violations |= {f"seed {seed}: {walked.violation}"} if walked.violation else set()
    wrong += bool(violations)
    row(f"all rules, {given.walks} walks", LIFE.name, 0, steps, began, ", ".join(violations) or "safe and healed")
    for broken in BROKEN:
        began = time.monotonic()
        found = breadth_first(broken.scenario, broken.rules, states_max=given.states or STATES_MAX)
        wrong += found.violation is None
        result = f"{found.violation} ({len(found.trace)} steps)" if found.violation else "NOT FOUND"
        row(broken.name, broken.scenario.name, found.states, found.steps, began, result)
        if given.trace:
            print(*(f"    {label}" for label in found.trace), sep="\n")
    return 1 if wrong else 0


def row(variant: str, scenario: str, states: int, steps: int, began: float, result: str) -> None:
    seconds = time.monotonic() - began
    print(f"| {variant} | {scenario} | {states or ''} | {steps} | {seconds:.1f} | {result} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
