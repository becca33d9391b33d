"""What `--shrink` leaves of a failing run."""

import pytest

from tests.simulation.run import Outcome
from tests.simulation.seeds.shrinking import Tried, Variant, report, rule_of, run_of, shrink
from tests.simulation.shapes import Shape

FAULTS = [(number, 10 * number, f"kind {number % 3}") for number in range(12)]


def tried(variant: Variant) -> Tried:
    """Fails as it should with faults 2 and 7 and two producers; with fault 7 alone another rule is broken."""
    faults = [fault for fault in FAULTS if fault[0] not in variant.without]
    left, problem = {number for number, _, _ in faults}, None
    if {2, 7} <= left and dict(variant.clients).get("producers", 3) >= 2:
        problem = f"Violation: no loss: {sorted(left)}"
    elif 7 in left:
        problem = "Violation: liveness: not complete"
    return Tried(variant, Outcome(5, 0, 100, 100, {}, problem), faults, ["the last step"])


def test_only_what_breaks_the_same_rule_is_left() -> None:
    """Without fault 2 the run fails, too, but not by the rule that is looked for."""
    least = shrink(tried(Variant()), tried, Shape(readers=2, questioners=1, producers=3))
    assert [number for number, _, _ in least.faults] == [2, 7]
    assert dict(least.variant.clients) == {"questioners": 0, "readers": 0, "producers": 2}
    assert least.outcome.problem == "Violation: no loss: [2, 7]"
    told = "\n".join(report(5, least))
    assert "2 faults" in told
    assert "    20 fault kind 2" in told
    assert "the last step" in told


@pytest.mark.parametrize("seed", [12, 5_000_004])
def test_a_run_without_nothing_is_the_run_of_the_seed(seed: int) -> None:
    """To number the faults changes nothing. Left out, a fault is not injected, and the world goes on."""
    one = run_of(seed)
    first = one(Variant())
    assert (first.outcome.problem, len(first.steps)) == (None, 101)
    without = one(Variant(frozenset({first.faults[0][0]})))
    assert without.faults[0] == (1, *first.faults[1][1:])
    assert rule_of(first.outcome) is None
