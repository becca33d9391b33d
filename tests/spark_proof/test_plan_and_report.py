"""The plan of the proof, and its report."""

from dataclasses import replace

import pytest

from tests.spark_proof.consumption import Acknowledged
from tests.spark_proof.flights import Verdict
from tests.spark_proof.journey_run import Outcome, recut_batches
from tests.spark_proof.plan import Journey, Victim, journeys
from tests.spark_proof.report import as_json, as_table
from tests.spark_proof.source_topic import Filled

BATCHES = 8
PERFECT = Verdict(10, 10, 0, 0, 0, 0)
DOUBLED = replace(PERFECT, stored=12, duplicated=2)
FILLED = Filled(30, 10)
ACKNOWLEDGED = Acknowledged(1_000, 6, 6)


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


def outcome(name: str, verdict: Verdict, *, missed: bool = False, complaint: str = "") -> Outcome:
    """Of the journey with this name, with all its faults injected, except the first if it was missed."""
    journey: Journey = next(each for each in journeys(1, BATCHES) if each.name == name)
    faults = [fault.label for fault in journey.faults]
    lacking = tuple(faults[:1]) if missed else ()
    hits = {fault: 1 for fault in faults if fault not in lacking}
    return Outcome(journey, verdict, hits, lacking, BATCHES, 3, 0, 9.0, (complaint,) if complaint else ())


@pytest.mark.parametrize(
    ("found", "proven", "said"),
    [
        (outcome("copy", PERFECT), True, "PROVEN"),
        (outcome("copy", DOUBLED), False, "the target is not the reference"),
        (outcome("copy", replace(PERFECT, lost=1)), False, "the target is not the reference"),
        (outcome("copy", replace(PERFECT, out_of_order=1)), False, "the target is not the reference"),
        (outcome("copy", PERFECT, missed=True), False, "planned, but not injected"),
        (outcome("shuffle", PERFECT, complaint="ids are not dense"), False, "ids are not dense"),
        (outcome("no protection", DOUBLED), True, "doubled, as expected"),
        (outcome("no protection", PERFECT), False, "the control shows no duplicate"),
    ],
)
def test_the_verdict_needs_every_fault_every_row_and_a_control_that_fails(
    found: Outcome, proven: bool, said: str
) -> None:
    """A run that could not have failed is no proof."""
    assert found.good is proven
    assert as_json(1, FILLED, ACKNOWLEDGED, [found])["proven"] is proven
    text = as_table(1, FILLED, ACKNOWLEDGED, [found])
    assert said in text
    assert text.splitlines()[-1] == ("PROVEN" if proven else "NOT PROVEN")


def test_a_batch_is_recut_when_its_commits_had_other_numbers_of_tasks() -> None:
    """A batch that was committed twice with the same tasks does not count."""
    told = ['{"batch": 0, "tasks": 4}', '{"batch": 1, "tasks": 4}', '{"batch": 1, "tasks": 4}']
    assert recut_batches(told) == 0
    assert recut_batches([*told, '{"batch": 1, "tasks": 1}']) == 1


def test_subscription_that_is_not_the_fold_of_its_chain_is_not_proven() -> None:
    """Neither is one that nobody acknowledged anything in, or that is missing."""
    wrong = (Acknowledged(1_000, 5, 6, ("flights: it differs",)), Acknowledged(0, 6, 6), Acknowledged(1_000, 4, 4))
    for each in wrong:
        assert as_json(1, FILLED, each, [])["proven"] is False
        assert as_table(1, FILLED, each, []).endswith("NOT PROVEN")
    assert "flights: it differs" in as_table(1, FILLED, wrong[0], [])
