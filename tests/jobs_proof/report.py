"""The report of a run: the matrix of kills and the verdict of each job, as tables or as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.jobs_proof.job_run import Outcome
from tests.spark_proof.report import COUNTS, aligned
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
        "kills": {
            fault: {o.plan.job: o.hits[fault] for o in outcomes if fault in o.hits} for fault in _faults(outcomes)
        },
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
    names = [str(outcome.plan.job) for outcome in outcomes]
    kills = [[fault, *(str(o.hits.get(fault, "")) for o in outcomes)] for fault in _faults(outcomes)]
    counts = [[what.replace("_", " "), *(str(getattr(o.checked.verdict, what)) for o in outcomes)] for what in COUNTS]
    own = [
        ["added by one more run", *(str(o.checked.added) for o in outcomes)],
        ["doubled without protection", *(_doubled(o) for o in outcomes)],
        ["starts", *(str(o.starts) for o in outcomes)],
        ["of them failed", *(str(o.failures) for o in outcomes)],
        ["seconds", *(f"{o.seconds:.0f}" for o in outcomes)],
        ["verdict", *("once" if o.good else "BAD" for o in outcomes)],
    ]
    said = [f"{outcome.plan.job}: {text}" for outcome in outcomes for text in _wrong(outcome)]
    return "\n".join(
        [
            f"seed {seed}: {filled.sent} messages sent to the source, {filled.refused} of them refused as duplicates",
            *aligned([["SIGKILL to", *names], *kills]),
            "",
            *aligned([["messages", *names], *counts, *own]),
            *said,
            _audit(audited),
            "PROVEN" if proven(outcomes, audited) else "NOT PROVEN",
        ]
    )


def _audit(audited: Audited) -> str:
    return (
        f"audit: {audited.verdict}, {audited.topics} topics with {audited.messages} messages and "
        f"{audited.takeovers} takeovers, {audited.violations} violations"
    )


def _doubled(outcome: Outcome) -> str:
    return "" if outcome.checked.control is None else str(outcome.checked.control.duplicated)


def _faults(outcomes: Sequence[Outcome]) -> list[str]:
    """In the order of the jobs."""
    return list(dict.fromkeys(fault.label for outcome in outcomes for fault in outcome.plan.faults))


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
