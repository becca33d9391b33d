"""A planted bug: it removes one rule from a core or a shell, by replacing a function for one run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.run import Outcome, run


@dataclass(frozen=True, slots=True)
class Mutant:
    """swaps: (object, attribute, replacement). rules: other rules of the shells; None: their own. core_test: a test of
    the core that finds the bug, where no run does in reasonable time; then `first_seed` is None.

    `first_seed` is the first seed that finds the bug, or one that takes less time to find it. It is kept by hand: a
    test holds that it still does. `hazard` names the history that the rule closes, empty where it has no name.
    """

    name: str
    hazard: str
    first_seed: int | None
    swaps: tuple[tuple[Any, str, Any], ...] = ()
    rules: Any = None
    core_test: Callable[..., None] | None = None
    core_arguments: tuple[str, ...] = ()

    @property
    def found_by(self) -> str:
        """The first seed, or the test of the core."""
        if self.core_test is None:
            return str(self.first_seed)
        arguments = f"[{'-'.join(self.core_arguments)}]" if self.core_arguments else ""
        module = self.core_test.__module__.removeprefix("tests.").replace(".", "/")
        return f"`{module}.py::{self.core_test.__name__}{arguments}`"

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
            return run(seed, rules)
