"""ZooKeeper and more disks than the bound are lost at once: what is lost with them is told, and nothing else is."""

from typing import Any

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.rebuild.restore_plan import Restore
from oncelog.metadata.restore import new_tree as trees
from tests.simulation.histories.directed import without
from tests.simulation.histories.lost_disks import LostDisks
from tests.simulation.run import outcome_of

SEEDS = range(8)
_counted = Restore._counted


def _forget_the_absent(restore: Restore, *, absent: bool = False) -> list[Incarnation]:
    """Nodes that are named absent were never there, so nothing is missing."""
    return _counted(restore)


#: (rule, swaps, what is found)
CONTROLS: tuple[tuple[str, tuple[tuple[Any, str, Any], ...], str], ...] = (
    ("nothing is given up", ((trees, "topic_of", lambda topic, _: topic.record),), "given up"),
    ("generations go on", ((DedupState, "fold_given_up", DedupState._step),), "state is the fold"),
    ("absent nodes are not missing", ((Restore, "_counted", _forget_the_absent),), "rights"),
)


@pytest.mark.hazard("index-given-twice")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_lost_with_the_disks_is_told(seed: int) -> None:
    outcome = outcome_of(LostDisks(seed))
    assert outcome.problem is None
    assert outcome.counts["messages lost with their disks"] == 1
    assert outcome.counts["instance of a lost message refused"] >= 1


@pytest.mark.parametrize(("name", "swaps", "found"), CONTROLS, ids=[each[0] for each in CONTROLS])
def test_run_without_the_rule_fails(name: str, swaps: tuple[tuple[Any, str, Any], ...], found: str) -> None:
    with without(*swaps):
        problem = outcome_of(LostDisks(0)).problem
    assert problem is not None, name
    assert found in problem
