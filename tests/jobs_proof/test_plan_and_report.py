"""Which strikes a run plans, how their moments are known, and what it says at its end."""

from dataclasses import replace

import pytest

from tests.jobs_proof.job_run import Outcome
from tests.jobs_proof.jobs import Judged
from tests.jobs_proof.plan import Job, JobPlan, Moment, Sight, Strike, Victim, amid, plans
from tests.jobs_proof.report import Audited, as_json, as_table
from tests.spark_proof.flights import Verdict
from tests.spark_proof.source_topic import Filled

PARTS = 3
TOTAL = 100
PERFECT = Verdict(10, 10, 0, 0, 0, 0)
DOUBLED = replace(PERFECT, stored=12, duplicated=2)
FILLED = Filled(30, 10)
AUDITED = Audited("good", 4, 40, 0, 7, 1000)


@pytest.mark.parametrize("seed", range(20))
def test_every_plan_kills_each_job_at_each_stage_and_an_owner_during_each(seed: int) -> None:
    """In a possible order: faults at the end of the work come last, and shares ascend."""
    planned = {plan.job: plan for plan in plans(seed, PARTS)}
    assert set(planned) == set(Job)
    assert {strike.moment for plan in planned.values() for strike in plan.strikes} == set(Moment)
    for plan in planned.values():
        victims = [strike.victim for strike in plan.strikes]
        assert victims.count(Victim.JOB) >= 3
        assert Victim.OWNER in victims
        assert plan.strikes[-1].moment in {Moment.NAMED, Moment.WHOLE}
        for moment in (Moment.PUBLISHING, Moment.COPYING):
            shares = [strike.share for strike in plan.strikes if strike.moment is moment]
            assert shares == sorted(shares)
    waves = [{strike.moment for strike in planned[Job.EXPORT].of_wave(wave)} for wave in range(2)]
    assert all({Moment.WRITING, Moment.WRITTEN} <= moments for moments in waves), "each wave is killed in"
    assert planned[Job.EXPORT].waves == len(waves)


@pytest.mark.parametrize(
    ("moment", "yes", "no"),
    [
        (Moment.WRITING, [Sight(tasks=40)], [Sight(), Sight(tasks=39), Sight(tasks=40, in_place=True)]),
        (Moment.WRITTEN, [Sight(in_place=True)], [Sight(tasks=99), Sight(in_place=True, manifests=1)]),
        (Moment.NAMED, [Sight(manifests=1)], [Sight(in_place=True)]),
        (Moment.NOTED, [Sight(records=1)], [Sight(), Sight(records=1, rows=1)]),
        (Moment.PUBLISHING, [Sight(rows=40), Sight(rows=99)], [Sight(rows=39), Sight(rows=100)]),
        (Moment.STAGING, [Sight(staged=40)], [Sight(staged=39), Sight(staged=40, records=1)]),
        (Moment.RECORDED, [Sight(records=1), Sight(records=1, rows=99)], [Sight(), Sight(records=1, rows=100)]),
        (Moment.COPYING, [Sight(rows=40)], [Sight(rows=39), Sight(rows=100)]),
        (Moment.WHOLE, [Sight(rows=100)], [Sight(rows=99), Sight(rows=101)]),
    ],
)
def test_a_stage_is_detected_by_its_results(moment: Moment, yes: list[Sight], no: list[Sight]) -> None:
    """Neither too early nor too late: otherwise the kill would not be in the stage that the matrix names."""
    strike = Strike(Victim.JOB, moment, 0.4)
    assert all(amid(strike, sight, TOTAL) for sight in yes)
    assert not any(amid(strike, sight, TOTAL) for sight in no)


def outcome(job: Job, judged: Judged, missed: str = "") -> Outcome:
    plan: JobPlan = next(each for each in plans(1, PARTS) if each.job is job)
    hits = {strike.fault: 1 for strike in plan.strikes if strike.fault != missed}
    return Outcome(plan, judged, hits, (missed,) if missed else (), 5, 0, 9.0)


FAULTLESS = Judged(PERFECT, 0, DOUBLED, ())


@pytest.mark.parametrize(
    ("found", "audited", "proven", "said"),
    [
        (outcome(Job.EXPORT, FAULTLESS), AUDITED, True, "once"),
        (outcome(Job.IMPORT_CSV, replace(FAULTLESS, control=None)), AUDITED, True, "once"),
        (outcome(Job.EXPORT, replace(FAULTLESS, verdict=DOUBLED)), AUDITED, False, "is not the reference"),
        (outcome(Job.EXPORT, replace(FAULTLESS, verdict=replace(PERFECT, lost=1))), AUDITED, False, "not the ref"),
        (outcome(Job.EXPORT, replace(FAULTLESS, added=3)), AUDITED, False, "one more run added 3 messages"),
        (outcome(Job.EXPORT, replace(FAULTLESS, control=PERFECT)), AUDITED, False, "the kills prove nothing"),
        (outcome(Job.EXPORT, replace(FAULTLESS, complaints=("verify: a file",))), AUDITED, False, "verify: a file"),
        (outcome(Job.EXPORT, FAULTLESS, "job: manifest there"), AUDITED, False, "planned and never struck: job: man"),
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
