"""The plan of a run, how the stages of a job are detected, and the report."""

from dataclasses import replace

import pytest

from tests.jobs_proof.job_run import Outcome
from tests.jobs_proof.jobs import Checked
from tests.jobs_proof.plan import Fault, Job, JobPlan, JobState, Stage, Victim, plans, reached
from tests.jobs_proof.report import Audited, as_json, as_table
from tests.spark_proof.flights import Verdict
from tests.spark_proof.source_topic import Filled

PARTITIONS = 3
TOTAL = 100
PERFECT = Verdict(10, 10, 0, 0, 0, 0)
DOUBLED = replace(PERFECT, stored=12, duplicated=2)
FILLED = Filled(30, 10)
AUDITED = Audited("good", 4, 40, 0, 7, 1000)


@pytest.mark.parametrize("seed", range(20))
def test_every_plan_kills_each_job_at_each_stage_and_an_owner_during_each(seed: int) -> None:
    """In a possible order: faults at the end of the work come last, and shares ascend."""
    planned = {plan.job: plan for plan in plans(seed, PARTITIONS)}
    assert set(planned) == set(Job)
    assert {fault.stage for plan in planned.values() for fault in plan.faults} == set(Stage)
    for plan in planned.values():
        victims = [fault.victim for fault in plan.faults]
        assert victims.count(Victim.JOB) >= 3
        assert Victim.OWNER in victims
        assert plan.faults[-1].stage in {Stage.NAMED, Stage.WHOLE}
        for stage in (Stage.PUBLISHING, Stage.COPYING):
            shares = [fault.share for fault in plan.faults if fault.stage is stage]
            assert shares == sorted(shares)
    waves = [{fault.stage for fault in planned[Job.EXPORT].of_wave(wave)} for wave in range(2)]
    assert all({Stage.WRITING, Stage.WRITTEN} <= moments for moments in waves), "each wave is killed in"
    assert planned[Job.EXPORT].waves == len(waves)


@pytest.mark.parametrize(
    ("stage", "yes", "no"),
    [
        (Stage.WRITING, [JobState(tasks=40)], [JobState(), JobState(tasks=39), JobState(tasks=40, in_place=True)]),
        (Stage.WRITTEN, [JobState(in_place=True)], [JobState(tasks=99), JobState(in_place=True, manifests=1)]),
        (Stage.NAMED, [JobState(manifests=1)], [JobState(in_place=True)]),
        (Stage.NOTED, [JobState(records=1)], [JobState(), JobState(records=1, rows=1)]),
        (Stage.PUBLISHING, [JobState(rows=40), JobState(rows=99)], [JobState(rows=39), JobState(rows=100)]),
        (Stage.STAGING, [JobState(staged=40)], [JobState(staged=39), JobState(staged=40, records=1)]),
        (
            Stage.RECORDED,
            [JobState(records=1), JobState(records=1, rows=99)],
            [JobState(), JobState(records=1, rows=100)],
        ),
        (Stage.COPYING, [JobState(rows=40)], [JobState(rows=39), JobState(rows=100)]),
        (Stage.WHOLE, [JobState(rows=100)], [JobState(rows=99), JobState(rows=101)]),
    ],
)
def test_a_stage_is_detected_by_its_results(stage: Stage, yes: list[JobState], no: list[JobState]) -> None:
    """Neither too early nor too late: otherwise the kill would not be in the stage that the matrix names."""
    fault = Fault(Victim.JOB, stage, 0.4)
    assert all(reached(fault, state, TOTAL) for state in yes)
    assert not any(reached(fault, state, TOTAL) for state in no)


def outcome(job: Job, checked: Checked, missed: str = "") -> Outcome:
    plan: JobPlan = next(each for each in plans(1, PARTITIONS) if each.job is job)
    hits = {fault.label: 1 for fault in plan.faults if fault.label != missed}
    return Outcome(plan, checked, hits, (missed,) if missed else (), 5, 0, 9.0)


FAULTLESS = Checked(PERFECT, 0, DOUBLED, ())


@pytest.mark.parametrize(
    ("found", "audited", "proven", "said"),
    [
        (outcome(Job.EXPORT, FAULTLESS), AUDITED, True, "once"),
        (outcome(Job.IMPORT_CSV, replace(FAULTLESS, control=None)), AUDITED, True, "once"),
        (outcome(Job.EXPORT, replace(FAULTLESS, verdict=DOUBLED)), AUDITED, False, "differs from the reference"),
        (
            outcome(Job.EXPORT, replace(FAULTLESS, verdict=replace(PERFECT, lost=1))),
            AUDITED,
            False,
            "differs from the ref",
        ),
        (outcome(Job.EXPORT, replace(FAULTLESS, added=3)), AUDITED, False, "one more run added 3 messages"),
        (outcome(Job.EXPORT, replace(FAULTLESS, control=PERFECT)), AUDITED, False, "the kills prove nothing"),
        (outcome(Job.EXPORT, replace(FAULTLESS, complaints=("verify: a file",))), AUDITED, False, "verify: a file"),
        (outcome(Job.EXPORT, FAULTLESS, "job: manifest stored"), AUDITED, False, "planned, but not injected: job: man"),
        (outcome(Job.EXPORT, FAULTLESS), replace(AUDITED, verdict="incomplete"), False, "audit: incomplete"),
        (outcome(Job.EXPORT, FAULTLESS), replace(AUDITED, topics=0), False, "audit: good, 0 topics"),
        (outcome(Job.EXPORT, FAULTLESS), replace(AUDITED, picture_bytes=0), False, "audit: good"),
    ],
)
def test_the_verdict_needs_every_kill_every_message_and_a_control_that_fails(
    found: Outcome, audited: Audited, proven: bool, said: str
) -> None:
    """A run that could not have failed is no proof."""
    assert as_json(1, FILLED, [found], audited)["proven"] is proven
    text = as_table(1, FILLED, [found], audited)
    assert said in text
    assert text.splitlines()[-1] == ("PROVEN" if proven else "NOT PROVEN")


def test_a_run_of_no_job_proves_nothing() -> None:
    """Even with a good audit."""
    assert as_json(1, FILLED, [], AUDITED)["proven"] is False
