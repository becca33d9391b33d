"""Planted mistakes of a model: which rules a variant lacks; and a table of what was explored, for people."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from tests.model.explorer import Exploration


class Named(Protocol):
    @property
    def name(self) -> str: ...


ScenarioT = TypeVar("ScenarioT", bound=Named)


@dataclass(frozen=True, slots=True)
class Mistake(Generic[ScenarioT]):
    """hazard: its history; empty: it has no name. without: the rules that it lacks; those behind the first one would
    make up for it."""

    hazard: str
    name: str
    scenario: ScenarioT
    without: tuple[str, ...]

    def of(self, rules: Any) -> Any:
        """These rules without those that it lacks."""
        return replace(rules, **dict.fromkeys(self.without, False))

    @property
    def alone(self) -> "Mistake[ScenarioT]":
        """It lacks the first of its rules only."""
        return replace(self, without=self.without[:1])


def print_table(
    about: str | None,
    explored: Callable[..., Exploration],
    rules: object,
    clean: Mapping[ScenarioT, int],
    mistakes: Sequence[Mistake[ScenarioT]],
    mistake_states_max: int,
) -> int:
    """The main program of a model. Returns its exit code: 1 if a rule is broken, or a mistake is not found."""
    arguments = argparse.ArgumentParser(description=about)
    arguments.add_argument("--states", type=int, help="explore up to this number of states of each scenario")
    arguments.add_argument("--trace", action="store_true", help="print the steps to each violation")
    given = arguments.parse_args()

    def violated(hazard: str, variant: str, scenario: ScenarioT, lacking: object, states_max: int) -> bool:
        began = time.monotonic()
        found = explored(scenario, lacking, states_max=given.states or states_max)
        result = found.violation or ("none, all states" if found.complete else "none so far")
        seconds = time.monotonic() - began
        print(f"| {hazard} | {variant} | {scenario.name} | {found.states} | {seconds:.1f} | {result} |", flush=True)
        if given.trace:
            print(*(f"    {label}" for label in found.trace), sep="\n")
        return found.violation is not None

    print("| hazard | variant | scenario | states | seconds | result |\n|---|---|---|---:|---:|---|")
    broken = [violated("", "all rules", scenario, rules, states_max) for scenario, states_max in clean.items()]
    found = [violated(each.hazard, each.name, each.scenario, each.of(rules), mistake_states_max) for each in mistakes]
    return int(any(broken) or not all(found))
