"""Runs that look for one history: only the faults that lead to it, frequently; and the control without the rule."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from oncelog.core.formats.entry import SequenceMode
from tests.simulation.clients.producer_client import Input
from tests.simulation.cluster import Rules
from tests.simulation.faults.faults import Faults
from tests.simulation.network import NetworkFaults
from tests.simulation.planted.planted_bug import Mutant
from tests.simulation.run import Run, outcome_of
from tests.simulation.servers.store.store import StoreFaults
from tests.simulation.shapes import Shape

OFTEN = (40, 400)


class Directed(Run):
    """A run with chosen faults. Only the schedule is random."""

    def __init__(
        self, seed: int, kinds: Iterable[str] = (), rules: Rules | None = None, *, store: StoreFaults | None = None,
        network: NetworkFaults | None = None, shape: Shape | None = None, stale: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(seed, rules, shape)
        self.faults = Faults(self.cluster, tuple(kinds) or ("nothing",))
        self.faults.every = OFTEN
        self.cluster.store.faults = store or StoreFaults()
        self.cluster.network.faults = network or NetworkFaults()
        self.cluster.stale.probability = stale


def fails_only_with(
    rules: AbstractContextManager[Rules], seeds: Iterable[int], kinds: Iterable[str], **how: Any
) -> bool:
    """Whether one of the seeds fails with these rules, and the same seed passes without them."""

    def fails(seed: int, rules: Rules | None = None) -> bool:
        return outcome_of(Directed(seed, kinds, rules, **how)).problem is not None

    with rules as broken:
        failing = next((seed for seed in seeds if fails(seed, broken)), None)
    return failing is not None and not fails(failing)


@contextmanager
def without(*swaps: tuple[Any, str, Any]) -> Iterator[Rules]:
    """Replace a rule while the context is open."""
    with Mutant("control", "", 0, swaps).planted() as rules:
        yield rules


def steady(world_settings: Shape, names: int = 1, count: int = 200) -> Shape:
    """The same shape, with producers that continue for the whole run."""
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(count)), 1) for n in range(names)]
    return replace(world_settings, inputs=inputs, topics=1, readers=0)


__all__ = ["Directed", "Faults", "fails_only_with", "steady", "without"]
