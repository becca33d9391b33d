"""A disk is replaced, and ZooKeeper is lost while another storage node is silent: no message is left out."""

from collections.abc import Mapping
from typing import Any

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.restore_events import Knowledge
from tests.simulation.histories.directed import without
from tests.simulation.histories.replaced_disk import ReplacedDisk
from tests.simulation.run import outcome_of
from tests.simulation.servers.metadata import emptied_nodes
from tests.simulation.servers.metadata.restorer import Restorer

#: In which a ledger is at two nodes only. Those in CONTROLS are of the first one.
SEEDS = (8, 9, 12, 16, 18, 3)
_noted_nodes = Restorer._noted_nodes


def _settled(restorer: Restorer) -> Knowledge:
    """A retired node is never missing."""
    found = _noted_nodes(restorer)
    nodes: Mapping[Incarnation, bool] = {node: found.nodes[node] and node not in found.replaced for node in found.nodes}
    return found._replace(nodes=nodes)


#: (rule, swap, whether the directory is emptied before the loss, what is found)
CONTROLS: tuple[tuple[str, tuple[Any, str, Any], bool, str], ...] = (
    ("a retired node is missing", (Restorer, "_noted_nodes", _settled), False, "of the log are not listed"),
    ("a record that names it keeps it", (emptied_nodes, "may_need", lambda *_, **__: False), True, "asks its operator"),
)


@pytest.mark.hazard("replaced-disk-is-missing")
@pytest.mark.parametrize("seed", SEEDS)
def test_restore_waits_for_a_node_that_may_have_a_ledger_alone(seed: int) -> None:
    outcome = outcome_of(ReplacedDisk(seed, emptied=False))
    assert outcome.problem is None
    assert outcome.counts["disk replaced before a restore"] == 1
    assert outcome.counts["restored with the silent node"] == 1


@pytest.mark.hazard("replaced-disk-is-missing")
@pytest.mark.parametrize("seed", SEEDS)
def test_restore_does_not_wait_for_what_repair_has_copied(seed: int) -> None:
    outcome = outcome_of(ReplacedDisk(seed, emptied=True))
    assert outcome.problem is None
    assert outcome.counts["restored without the silent node"] == 1


@pytest.mark.parametrize(("name", "swap", "emptied", "found"), CONTROLS, ids=[each[0] for each in CONTROLS])
def test_run_without_the_rule_fails(name: str, swap: tuple[Any, str, Any], emptied: bool, found: str) -> None:
    with without(swap):
        problem = outcome_of(ReplacedDisk(SEEDS[0], emptied=emptied)).problem
    assert problem is not None, name
    assert found in problem
