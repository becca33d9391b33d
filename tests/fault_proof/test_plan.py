"""The order of the random faults."""

from itertools import islice

from tests.fault_proof.plan import FaultKind, plan_faults


def test_seed_repeats_the_faults() -> None:
    first, again, other = (list(islice(plan_faults(seed, nodes=3), 40)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_every_kind_comes_once_before_any_comes_again() -> None:
    kinds = [fault.kind for fault in islice(plan_faults(1, nodes=3), 2 * len(FaultKind))]
    assert set(kinds[: len(FaultKind)]) == set(kinds[len(FaultKind) :]) == set(FaultKind)


def test_each_node_is_a_victim() -> None:
    assert {fault.node for fault in islice(plan_faults(1, nodes=3), 40)} == {0, 1, 2}
