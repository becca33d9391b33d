"""Consumers under faults: no seed breaks a promise, each planted bug is found, and the sweep reaches each condition."""

from functools import cache

import pytest

from tests.simulation.consuming.mutants import CONSUMING_MUTANTS
from tests.simulation.consuming.run import CI_RUNS, run
from tests.simulation.planted_bug import Mutant
from tests.simulation.run import Outcome

CHUNK = 40


@cache
def outcome_of(seed: int) -> Outcome:
    return run(seed)


def _counts() -> dict[str, int]:
    total: dict[str, int] = {}
    for seed in range(CI_RUNS):
        for what, times in outcome_of(seed).counts.items():
            total[what] = total.get(what, 0) + times
    return total


@pytest.mark.hazard(
    "failed-ack-write",
    "ack-before-delivery",
    "delivered-while-held",
    "late-ack-after-seek",
    "seek-below-a-trim",
    "recreated-subscription",
    "deposed-owner-delivers",
    "activation-not-durable",
    "former-consumer-acks",
    "key-moves-too-early",
    "relative-credit",
    "wrong-delivery-count",
    "dead-letter-number-lost",
    "dispatch-paused-for-ever",
    "ack-state-at-its-limit",
    "full-disk-refuses-acks",
    "wrong-clock-expires",
    "deposed-owner-acks",
    "unread-windows",
)
@pytest.mark.parametrize("first", range(0, CI_RUNS, CHUNK))
def test_no_seed_breaks_a_promise_to_consumers(first: int) -> None:
    """The failure names the seed: `python -m tests.simulation --consuming SEED` replays it."""
    failed = [outcome_of(seed) for seed in range(first, first + CHUNK) if outcome_of(seed).problem]
    failures = [f"python -m tests.simulation --consuming {o.seed}\n    {o.problem}" for o in failed]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("mutant", CONSUMING_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_planted_bug_of_consuming_is_found(mutant: Mutant) -> None:
    """With the bug the seed fails; without the bug the same seed passes."""
    assert mutant.run(mutant.first_seed).problem is not None
    assert outcome_of(mutant.first_seed).problem is None


@pytest.mark.parametrize("seed", [160])
def test_seed_of_consumers_that_failed_before_passes(seed: int) -> None:
    """160: room that an acknowledged message of a former stream left was not reported, and the consumer starved."""
    assert outcome_of(seed).problem is None


CONDITIONS = (
    "takeover", "owner crashed", "owner paused", "owner deposed", "topic moved", "client crashed", "client paused",
    "cut", "crash inside a step", "stream broken", "stale route", "message delayed", "ack entry failed", "deleted",
    "trimmed", "trimmed by retention", "messages evicted",
    "sought", "dead letter", "message forgotten", "cumulative acknowledgement", "ack durable",
    "cumulative acknowledgement ends early",
    "nack durable", "ack in memory", "dispatch paused",
    "report DeliverMessages", "report RecallMessages", "report ConsumerActive", "report EndConsumer",
    "ack refused: stale_seek_epoch", "ack refused: consumer_fenced", "ack refused: subscription_gone",
    "consumer failed: subscription_gone", "consumer failed: consumer_busy",
    "stream waits for room", "room returned",
)  # fmt: skip


@pytest.mark.parametrize("what", CONDITIONS)
def test_sweep_of_consumers_reaches_each_condition(what: str) -> None:
    """Each occurs at least three times, so that a small change of the schedule does not lose it."""
    assert _counts().get(what, 0) >= 3


@pytest.mark.parametrize("seed", [0, 7])
def test_run_of_consumers_is_its_seed(seed: int) -> None:
    """Everything that happens follows from the seed, so a failing one can be replayed."""
    assert run(seed).trace == outcome_of(seed).trace


@pytest.mark.parametrize("seed", [461, 749, 809, 1353, 1693, 1789, 1941, 710510])
def test_seed_that_failed_before_passes(seed: int) -> None:
    """1353: the run did not know that a subscription can be deleted while a dead letter of it is published. 710510: a
    delivery before a seek counted after it. The others: a consumer that was away worked on a message that had expired
    meanwhile, after later ones of its key."""
    assert run(seed).problem is None
