"""The report of a run: the matrix of kills and the verdict of each journey, as tables or as one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.spark_proof.consumption import Acknowledged
from tests.spark_proof.journey_run import Outcome
from tests.spark_proof.source_topic import Filled

COUNTS = ("wanted", "stored", "lost", "duplicated", "foreign", "out_of_order")


def as_json(seed: int, filled: Filled, acknowledged: Acknowledged, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """kills: {label of a fault: {journey: how often it was injected}}."""
    return {
        "proven": acknowledged.good and all(outcome.good for outcome in outcomes),
        "seed": seed,
        "source": asdict(filled),
        "subscriptions": asdict(acknowledged),
        "journeys": {outcome.journey.name: _journey(outcome) for outcome in outcomes},
        "kills": {
            fault: {o.journey.name: o.hits[fault] for o in outcomes if fault in o.hits} for fault in _faults(outcomes)
        },
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
    names = [outcome.journey.name for outcome in outcomes]
    kills = [[fault, *(str(o.hits.get(fault, "")) for o in outcomes)] for fault in _faults(outcomes)]
    counts = [
        [what.replace("_", " "), *(str(getattr(outcome.verdict, what)) for outcome in outcomes)] for what in COUNTS
    ]
    own = [
        ["batches", *(str(outcome.batches) for outcome in outcomes)],
        ["starts of the driver", *(str(outcome.starts) for outcome in outcomes)],
        ["seconds", *(f"{outcome.seconds:.0f}" for outcome in outcomes)],
        ["verdict", *(_verdict(outcome) for outcome in outcomes)],
    ]
    said = [f"{outcome.journey.name}: {text}" for outcome in outcomes for text in _wrong(outcome)]
    return "\n".join(
        [
            f"seed {seed}: {filled.sent} messages sent to the source, {filled.refused} of them refused as duplicates",
            *aligned([["SIGKILL to", *names], *kills]),
            "",
            *aligned([["messages", *names], *counts, *own]),
            *said,
            _acknowledged(acknowledged),
            *acknowledged.complaints,
            "PROVEN" if acknowledged.good and all(outcome.good for outcome in outcomes) else "NOT PROVEN",
        ]
    )


def _acknowledged(found: Acknowledged) -> str:
    equal = f"{found.equal} of {found.subscriptions} subscriptions are the fold of their ack chain"
    return f"{found.messages} acknowledgements meanwhile: {equal}"


def _faults(outcomes: Sequence[Outcome]) -> list[str]:
    """In the order of the journeys."""
    return list(dict.fromkeys(fault for outcome in outcomes for fault in sorted(outcome.hits)))


def _verdict(outcome: Outcome) -> str:
    if not outcome.good:
        return "BAD"
    return "once" if outcome.journey.protected else "doubled, as expected"


def _wrong(outcome: Outcome) -> list[str]:
    found = [f"planned, but not injected: {fault}" for fault in outcome.missed]
    found += outcome.complaints
    if outcome.journey.protected and not outcome.verdict.perfect:
        found.append("the target is not the reference")
    if not outcome.journey.protected and not outcome.verdict.duplicated:
        found.append("the control shows no duplicate: the faults prove nothing")
    return found


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
