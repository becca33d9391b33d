"""What a run says at its end: the matrix of kills and the verdict on each job, as tables or as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.jobs_proof.job_run import Outcome
from tests.spark_proof.report import COUNTS, aligned
from tests.spark_proof.source_topic import Filled

GOOD = "good"


@dataclass(frozen=True, slots=True)
class Audited:
    """What `oncelog pipeline audit` says of all topics. picture_bytes: of the picture that it drew."""

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
    """kills: {fault: {job: how often it struck}}."""
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
    judged = outcome.judged
    return {
        "good": outcome.good,
        **asdict(judged.verdict),
        "added_by_one_more_run": judged.added,
        "control": None if judged.control is None else asdict(judged.control),
        "starts": outcome.starts,
        "failed_starts": outcome.failures,
        "missed": list(outcome.missed),
        "complaints": list(judged.complaints),
        "seconds": round(outcome.seconds, 1),
    }


def as_table(seed: int, filled: Filled, outcomes: Sequence[Outcome], audited: Audited) -> str:
    """The matrix, the counts, and the verdict in words."""
    names = [str(outcome.plan.job) for outcome in outcomes]
    kills = [[fault, *(str(o.hits.get(fault, "")) for o in outcomes)] for fault in _faults(outcomes)]
    counts = [[what.replace("_", " "), *(str(getattr(o.judged.verdict, what)) for o in outcomes)] for what in COUNTS]
    own = [
        ["added by one more run", *(str(o.judged.added) for o in outcomes)],
        ["doubled without its rule", *(_doubled(o) for o in outcomes)],
        ["starts", *(str(o.starts) for o in outcomes)],
        ["of them failed", *(str(o.failures) for o in outcomes)],
        ["seconds", *(f"{o.seconds:.0f}" for o in outcomes)],
        ["verdict", *("once" if o.good else "BAD" for o in outcomes)],
    ]
    said = [f"{outcome.plan.job}: {text}" for outcome in outcomes for text in _wrong(outcome)]
    return "\n".join(
        [
            f"seed {seed}: {filled.sent} messages sent to the source, {filled.refused} of them refused as known",
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
    return "" if outcome.judged.control is None else str(outcome.judged.control.duplicated)


def _faults(outcomes: Sequence[Outcome]) -> list[str]:
    """In the order in which jobs name them."""
    return list(dict.fromkeys(strike.fault for outcome in outcomes for strike in outcome.plan.strikes))


def _wrong(outcome: Outcome) -> list[str]:
    judged = outcome.judged
    found = [f"planned and never struck: {fault}" for fault in outcome.missed]
    found += judged.complaints
    if not judged.verdict.perfect:
        found.append("what it made is not the reference")
    if judged.added:
        found.append(f"one more run added {judged.added} messages")
    if judged.control is not None and not judged.control.duplicated:
        found.append("nothing is doubled without its rule: the kills prove nothing")
    return found
