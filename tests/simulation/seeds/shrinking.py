"""The least that still fails: `python -m tests.simulation SEED --shrink`.

    all faults --none from number k on--> the shortest prefix --one by one left out--> the faults that are needed
               --fewer questioners, readers, producers--> the clients that are needed

A run without some of its faults goes on otherwise behind the first of them, so it may fail for another reason. Only the
same rule counts, by what the problem says in front of its details.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.run import Outcome, Run, outcome_of
from tests.simulation.shapes import Shape, draw_shape
from tests.simulation.world import World

#: The last steps that are shown.
STEPS_SHOWN = 100
#: Clients that a run may do without, and how few of them.
CLIENTS = (("questioners", 0), ("readers", 0), ("producers", 1))


class Variant(NamedTuple):
    """A run without these faults, and with so many of these clients."""

    without: frozenset[int] = frozenset()
    clients: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """A variant and what came of it. faults: (number, tick, kind) of those that were injected."""

    variant: Variant
    outcome: Outcome
    faults: Sequence[tuple[int, int, str]]
    steps: Sequence[str]


Try = Callable[[Variant], Tried]


def run_of(seed: int) -> Try:
    """Runs variants of this seed."""

    def attempt(variant: Variant) -> Tried:
        one = Run(seed, changes=dict(variant.clients))
        one.faults.without = variant.without
        steps = list[str]()
        step = one.world.step

        def noted() -> bool:
            before, went_on = len(one.faults.injected), step()
            left_out = any(number in variant.without for number in range(before, len(one.faults.injected)))
            told = f"{one.world.label}{' (left out)' if left_out else ''}"
            steps.append(f"{one.world.steps:6} {one.world.now:6} {told}")
            del steps[:-STEPS_SHOWN]
            return went_on

        one.world.step = noted  # type: ignore[method-assign]
        outcome = outcome_of(one)
        faults = [(number, *told) for number, told in enumerate(one.faults.injected) if number not in variant.without]
        return Tried(variant, outcome, faults, [*steps, one.state_line()])

    return attempt


def rule_of(outcome: Outcome) -> str | None:
    """The rule that was broken: what the problem says in front of its details."""
    return None if outcome.problem is None else ":".join(outcome.problem.split(":")[:2])


def shrink(first: Tried, attempt: Try, shape: Shape) -> Tried:
    """first: fails. shape: that of the seed."""
    rule, least = rule_of(first.outcome), first

    def fails(variant: Variant) -> bool:
        nonlocal least
        tried = attempt(variant)
        if rule_of(tried.outcome) != rule:
            return False
        least = tried
        return True

    _drop_faults(least, fails, lambda: least)
    _drop_clients(shape, fails, lambda: least)
    return least


def _drop_faults(first: Tried, fails: Callable[[Variant], bool], least: Callable[[], Tried]) -> None:
    low, high = 0, len(first.faults)  # the first `high` are enough
    while low < high:
        middle = (low + high) // 2
        if fails(Variant(_from(middle, first))):
            high = middle
        else:
            low = middle + 1
    for number, _, _ in reversed(list(least().faults)):
        fails(Variant(least().variant.without | {number}))


def _from(number: int, first: Tried) -> frozenset[int]:
    """Numbers of all faults from this one on, also of those that come in a longer run."""
    return frozenset(range(number, len(first.faults) + 10_000))


def _drop_clients(shape: Shape, fails: Callable[[Variant], bool], least: Callable[[], Tried]) -> None:
    for name, fewest in CLIENTS:
        kept = least().variant.clients
        for count in range(getattr(shape, name) - 1, fewest - 1, -1):
            if not fails(least().variant._replace(clients=(*kept, (name, count)))):
                break


def report(seed: int, shrunk: Tried) -> Iterable[str]:
    """Lines for people."""
    yield f"seed {seed}: {shrunk.outcome.problem}"
    yield f"the least that still fails: {shrunk.outcome.steps} steps, {len(shrunk.faults)} faults"
    yield from (f"    {tick:6} fault {kind}" for _, tick, kind in shrunk.faults)
    if shrunk.variant.clients:
        yield "    with only " + ", ".join(f"{count} {name}" for name, count in shrunk.variant.clients)
    yield f"its last {STEPS_SHOWN} steps, and the processes:"
    yield from (f"    {line}" for line in shrunk.steps)
    yield f"all steps of the seed: python -m tests.simulation {seed} --steps"


def shrunk_report(seed: int) -> str:
    """Of a seed that fails. It runs some dozens of variants."""
    attempt = run_of(seed)
    first = attempt(Variant())
    if first.outcome.problem is None:
        return f"seed {seed}: nothing wrong"
    return "\n".join(report(seed, shrink(first, attempt, draw_shape(World(seed)))))
