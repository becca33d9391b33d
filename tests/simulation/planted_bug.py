"""A planted bug: it removes one rule from a core or a shell, by replacing a function for one run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.run import Outcome, run


@dataclass(frozen=True, slots=True)
class Mutant:
    """swaps: (object, attribute, replacement). rules: other rules of the shells; None: their own. runs: one seed.

    `first_seed` is the first seed that finds the bug, kept by hand: a test holds that it still does. `hazard` names the
    history that the rule closes, empty where it has no name.
    """

    name: str
    hazard: str
    first_seed: int
    swaps: tuple[tuple[Any, str, Any], ...] = ()
    rules: Any = None
    runs: Callable[[int, Any], Outcome] = run

    @contextmanager
    def planted(self) -> Iterator[Any]:
        """Plant the bug while the context is open. Yields the rules of the run."""
        before = [(where, name, vars(where)[name]) for where, name, _ in self.swaps]
        for where, name, instead in self.swaps:
            setattr(where, name, instead)
        try:
            yield self.rules
        finally:
            for where, name, original in before:
                setattr(where, name, original)

    def run(self, seed: int) -> Outcome:
        """The run of this seed with the bug."""
        with self.planted() as rules:
            return self.runs(seed, rules)
