"""The plan of the proof, and what else it looks at."""

import pytest

from tests.proofs.flights import Verdict
from tests.proofs.report import Outcome, Report
from tests.proofs.source_topic import Filled
from tests.spark_proof.consumption import Acknowledged
from tests.spark_proof.journey_run import recut_batches
from tests.spark_proof.plan import Victim, journeys

BATCHES = 8


@pytest.mark.parametrize("seed", range(20))
def test_every_plan_has_every_fault(seed: int) -> None:
    """Each victim, in both modes where possible; every fault at a batch of its own, none at the last one."""
    planned = journeys(seed, BATCHES)
    victims = {fault.victim for journey in planned for fault in journey.faults}
    assert victims == set(Victim)
    for journey in planned:
        batches = [fault.batch for fault in journey.faults]
        assert len(set(batches)) == len(batches)
        assert 0 <= min(batches) <= max(batches) < BATCHES - 1
        if journey.recut:
            assert len(journey.cuts) == 2, "each start of the driver cuts otherwise than the one before"
    assert {journey.mode for journey in planned if journey.protected} == {"position", "batch"}
    assert [journey.protected for journey in planned].count(False) == 1


def test_a_batch_is_recut_when_its_commits_had_other_numbers_of_tasks() -> None:
    """A batch that was committed twice with the same tasks does not count."""
    told = ['{"batch": 0, "tasks": 4}', '{"batch": 1, "tasks": 4}', '{"batch": 1, "tasks": 4}']
    assert recut_batches(told) == 0
    assert recut_batches([*told, '{"batch": 1, "tasks": 1}']) == 1


def test_subscription_that_is_not_the_fold_of_its_chain_is_not_proven() -> None:
    """Neither is one that nobody acknowledged anything in, or that is missing."""
    outcome = Outcome("copy", Verdict(10, 10, 0, 0, 0, 0), [], {}, [], [], 3, 0, 9.0)
    assert Report(1, Filled(), "journeys", [outcome], Acknowledged(1_000, 6, 6).besides).proven
    wrong = (Acknowledged(1_000, 5, 6, ("flights: it differs",)), Acknowledged(0, 6, 6), Acknowledged(1_000, 4, 4))
    for each in wrong:
        assert not Report(1, Filled(), "journeys", [outcome], each.besides).proven
    assert "flights: it differs" in str(Report(1, Filled(), "journeys", [outcome], wrong[0].besides))
