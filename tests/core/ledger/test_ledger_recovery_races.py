"""Concurrent, interrupted and resumed recoveries: all agree on one end."""

import random

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.recovery import LedgerRecovered, RecoveryPhase
from oncelog.core.records.records import WriteRecord
from oncelog.core.records.status import WriteStatus
from tests.core.ledger.recovery_world import A, B, C, Run, World, check_log, entry

E0, E1, E2, E3 = (entry(i, last_add_confirmed=max(-1, i - 2)) for i in range(4))

LAYOUTS: list[tuple[dict[Incarnation, dict[int, bytes]], int]] = [
    # (what the members hold, the last acknowledged entry)
    ({A: {0: E0, 1: E1}, B: {0: E0, 1: E1}, C: {0: E0}}, 1),
    ({A: {0: E0, 1: E1, 2: E2}, B: {0: E0}, C: {0: E0}}, 0),
    ({A: {0: E0, 1: E1, 2: E2, 3: E3}, B: {0: E0, 1: E1, 2: E2, 3: E3}, C: {3: E3}}, 3),
    ({A: {}, B: {0: E0}, C: {}}, -1),
    ({A: {1: E1}, B: {0: E0, 2: E2}, C: {0: E0}}, 0),
]


@pytest.mark.parametrize(("copies", "acked"), LAYOUTS)
@pytest.mark.parametrize("hung", [None, A, B, C])
def test_another_recovery_completes_one_interrupted_after_any_step(
    copies: dict[Incarnation, dict[int, bytes]], acked: int, hung: Incarnation | None
) -> None:
    """The first stops after any step, a second completes the recovery, and then the first resumes. Both agree."""
    for steps in range(40):
        world = World(copies)
        first = Run(world, range_entries=2)
        for _ in range(steps):
            ready = [i for i, e in enumerate(first.open) if hung is None or getattr(e, "member", None) != hung]
            if not ready:
                break
            first.step(ready[0])
        # The second hears from other members first.
        Run(world, range_entries=3).finish(hung=hung, rng=random.Random(steps))
        decided = check_log(world)
        assert decided.end >= acked
        first.finish()
        assert world.record == decided
        assert {type(outcome) for outcome in world.outcomes} == {LedgerRecovered}
        assert all(isinstance(o, LedgerRecovered) and o.metadata == decided for o in world.outcomes)


@pytest.mark.parametrize("seed", range(150))
def test_concurrent_recoveries_converge(seed: int) -> None:
    """Two at once, answers in any order, some members hung: one end, at or above the last acknowledged entry."""
    rng = random.Random(seed)
    copies, acked = rng.choice(LAYOUTS)
    world = World(copies)
    runs = [Run(world, range_entries=rng.randint(1, 4)) for _ in range(2)]
    while active := [run for run in runs if run.open]:
        run = rng.choice(active)
        index = rng.randrange(len(run.open))
        if rng.random() < 0.15:
            effect = run.open[index]
            world.perform(effect)  # an effect done twice, its first answer lost
            if isinstance(effect, WriteRecord):
                run.open.pop(index)
                run.deliver(effect.answered(WriteStatus.UNKNOWN))
        else:
            run.step(index)
    decided = check_log(world)
    assert decided.end >= acked
    assert all(isinstance(o, LedgerRecovered) and o.metadata == decided for o in world.outcomes)
    assert {run.core.phase for run in runs} == {RecoveryPhase.RECOVERED}
