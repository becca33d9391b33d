"""The report of a run: the matrix of kills and the verdict of each journey, as tables or as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.proofs.report import Part, as_text, kills_of, sent_and_refused
from tests.spark_proof.consumption import Acknowledged
from tests.spark_proof.journey_run import Outcome
from tests.spark_proof.source_topic import Filled


def as_json(seed: int, filled: Filled, acknowledged: Acknowledged, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """kills: {label of a fault: {journey: how often it was injected}}."""
    return {
        "proven": acknowledged.good and all(outcome.good for outcome in outcomes),
        "seed": seed,
        "source": asdict(filled),
        "subscriptions": asdict(acknowledged),
        "journeys": {outcome.journey.name: _journey(outcome) for outcome in outcomes},
        "kills": kills_of([_part(outcome) for outcome in outcomes]),
    }


def _journey(outcome: Outcome) -> dict[str, Any]:
    return {
        "good": outcome.good,
        "mode": outcome.journey.mode,
        "protected": outcome.journey.protected,
        **asdict(outcome.verdict),
        "batches": outcome.batches,
        "driver_starts": outcome.starts,
        "failed_starts": outcome.failures,
        "missed": list(outcome.missed),
        "complaints": list(outcome.complaints),
        "seconds": round(outcome.seconds, 1),
    }


def as_table(seed: int, filled: Filled, acknowledged: Acknowledged, outcomes: Sequence[Outcome]) -> str:
    """The matrix, the counts, and the verdict."""
    equal = f"{acknowledged.equal} of {acknowledged.subscriptions} subscriptions are the fold of their ack log"
    tail = (f"{acknowledged.messages} acknowledgements meanwhile: {equal}", *acknowledged.complaints)
    proven = acknowledged.good and all(outcome.good for outcome in outcomes)
    return as_text(sent_and_refused(seed, filled), [_part(outcome) for outcome in outcomes], tail, proven=proven)


def _part(outcome: Outcome) -> Part:
    expected = "once" if outcome.journey.protected else "doubled, as expected"
    rows = {
        "batches": str(outcome.batches),
        "starts of the driver": str(outcome.starts),
        "seconds": f"{outcome.seconds:.0f}",
        "verdict": expected if outcome.good else "BAD",
    }
    name, faults = outcome.journey.name, sorted(outcome.hits)
    return Part(name, outcome.verdict, outcome.hits, faults, rows, _wrong(outcome))


def _wrong(outcome: Outcome) -> list[str]:
    found = [f"planned, but not injected: {fault}" for fault in outcome.missed]
    found += outcome.complaints
    if outcome.journey.protected and not outcome.verdict.perfect:
        found.append("the target is not the reference")
    if not outcome.journey.protected and not outcome.verdict.duplicated:
        found.append("the control shows no duplicate: the faults prove nothing")
    return found
