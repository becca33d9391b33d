"""The report of a run: the matrix of kills and the verdict of each job, as tables or as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.jobs_proof.job_run import Outcome
from tests.proofs.report import Part, as_text, kills_of, sent_and_refused
from tests.spark_proof.source_topic import Filled

GOOD = "good"


@dataclass(frozen=True, slots=True)
class Audited:
    """The result of `oncelog pipeline audit` for all topics. picture_bytes: size of its picture."""

    verdict: str
    topics: int
    messages: int
    violations: int
    takeovers: int
    picture_bytes: int

    @classmethod
    def of(cls, report: dict[str, Any], picture_bytes: int) -> "Audited":
        topics = report["topics"]
        return cls(
            report["verdict"],
            len(topics),
            sum(topic["messages"] for topic in topics),
            sum(topic["violations_count"] for topic in topics),
            sum(len(topic["takeovers"]) for topic in topics),
            picture_bytes,
        )

    @property
    def good(self) -> bool:
        return self.verdict == GOOD and self.topics > 0 and self.picture_bytes > 0


def proven(outcomes: Sequence[Outcome], audited: Audited) -> bool:
    return bool(outcomes) and all(outcome.good for outcome in outcomes) and audited.good


def as_json(seed: int, filled: Filled, outcomes: Sequence[Outcome], audited: Audited) -> dict[str, Any]:
    """kills: {label of a fault: {job: how often it was injected}}."""
    return {
        "proven": proven(outcomes, audited),
        "seed": seed,
        "source": asdict(filled),
        "jobs": {outcome.plan.job: _job(outcome) for outcome in outcomes},
        "kills": kills_of([_part(outcome) for outcome in outcomes]),
        "audit": asdict(audited) | {"good": audited.good},
    }


def _job(outcome: Outcome) -> dict[str, Any]:
    checked = outcome.checked
    return {
        "good": outcome.good,
        **asdict(checked.verdict),
        "added_by_one_more_run": checked.added,
        "control": None if checked.control is None else asdict(checked.control),
        "starts": outcome.starts,
        "failed_starts": outcome.failures,
        "missed": list(outcome.missed),
        "complaints": list(checked.complaints),
        "seconds": round(outcome.seconds, 1),
    }


def as_table(seed: int, filled: Filled, outcomes: Sequence[Outcome], audited: Audited) -> str:
    """The matrix, the counts, and the verdict."""
    audit = (
        f"audit: {audited.verdict}, {audited.topics} topics with {audited.messages} messages and "
        f"{audited.takeovers} takeovers, {audited.violations} violations"
    )
    parts = [_part(outcome) for outcome in outcomes]
    return as_text(sent_and_refused(seed, filled), parts, [audit], proven=proven(outcomes, audited))


def _part(outcome: Outcome) -> Part:
    checked = outcome.checked
    rows = {
        "added by one more run": str(checked.added),
        "doubled without protection": "" if checked.control is None else str(checked.control.duplicated),
        "starts": str(outcome.starts),
        "of them failed": str(outcome.failures),
        "seconds": f"{outcome.seconds:.0f}",
        "verdict": "once" if outcome.good else "BAD",
    }
    faults = [fault.label for fault in outcome.plan.faults]
    return Part(str(outcome.plan.job), checked.verdict, outcome.hits, faults, rows, _wrong(outcome))


def _wrong(outcome: Outcome) -> list[str]:
    checked = outcome.checked
    found = [f"planned, but not injected: {fault}" for fault in outcome.missed]
    found += checked.complaints
    if not checked.verdict.perfect:
        found.append("the result differs from the reference")
    if checked.added:
        found.append(f"one more run added {checked.added} messages")
    if checked.control is not None and not checked.control.duplicated:
        found.append("the control has no duplicates: the kills prove nothing")
    return found
