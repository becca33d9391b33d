"""`python -m tests.model.effects` explores the model of effects and prints a table; `--trace` also the steps to each
violation."""

import argparse
import sys
import time

from tests.model.effects_state import Rules
from tests.model.effects_variants import CLEAN, MISTAKES, STATES_MAX, EffectsScenario, explored


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--states", type=int, help="explore up to this number of states of each scenario")
    arguments.add_argument("--trace", action="store_true", help="print the steps to each violation")
    given = arguments.parse_args()
    wrong = 0
    print("| hazard | variant | scenario | states | seconds | result |\n|---|---|---|---:|---:|---|")
    for scenario, states_max in CLEAN.items():
        found = row("", "all rules", scenario, Rules(), given.states or states_max, trace=given.trace)
        wrong += found is not None
    for mistake in MISTAKES:
        states_max = given.states or STATES_MAX
        found = row(mistake.hazard, mistake.name, mistake.scenario, mistake.rules, states_max, trace=given.trace)
        wrong += found is None
    return 1 if wrong else 0


def row(
    hazard: str, variant: str, scenario: EffectsScenario, rules: Rules, states_max: int, *, trace: bool
) -> str | None:
    began = time.monotonic()
    found = explored(scenario, rules, states_max=states_max)
    result = found.violation or ("none, all states" if found.complete else "none so far")
    seconds = time.monotonic() - began
    print(f"| {hazard} | {variant} | {scenario.name} | {found.states} | {seconds:.1f} | {result} |", flush=True)
    if trace:
        print(*(f"    {label}" for label in found.trace), sep="\n")
    return found.violation


if __name__ == "__main__":
    sys.exit(main())
