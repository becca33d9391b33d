"""The plan of a run, how the stages of a job are detected, and the report."""

from dataclasses import replace

import pytest

from tests.jobs_proof.audited import Audited
from tests.jobs_proof.jobs import Checked
from tests.jobs_proof.plan import Fault, Job, JobState, Stage, Victim, plans, reached
from tests.proofs.flights import Verdict

PARTITIONS = 3
TOTAL = 100
PERFECT = Verdict(10, 10, 0, 0, 0, 0)
DOUBLED = replace(PERFECT, stored=12, duplicated=2)
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


FAULTLESS = Checked(PERFECT, 0, DOUBLED, ())


@pytest.mark.parametrize(
    ("checked", "wrong"),
    [
        (FAULTLESS, []),
        (replace(FAULTLESS, control=None), []),
        (replace(FAULTLESS, added=3), ["one more run added 3 messages"]),
        (replace(FAULTLESS, control=PERFECT), ["the control has no duplicates: the kills prove nothing"]),
        (replace(FAULTLESS, complaints=("verify: a file",)), ["verify: a file"]),
    ],
)
def test_a_job_is_proven_by_a_run_that_adds_nothing_and_a_control_that_fails(
    checked: Checked, wrong: list[str]
) -> None:
    """A run that could not have failed is no proof."""
    assert checked.wrong == wrong


@pytest.mark.parametrize(
    ("audited", "good"),
    [
        (AUDITED, True),
        (replace(AUDITED, verdict="incomplete"), False),
        (replace(AUDITED, topics=0), False),
        (replace(AUDITED, picture_bytes=0), False),
    ],
)
def test_the_audit_is_good_when_it_saw_topics_and_drew_them(audited: Audited, good: bool) -> None:
    assert audited.besides.good is good
    assert audited.besides.lines[0].startswith(f"audit: {audited.verdict}, {audited.topics} topics")
