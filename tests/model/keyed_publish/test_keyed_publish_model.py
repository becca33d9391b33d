"""Publishing with an idempotency key under random faults: each key once, and each planted bug is found by its seed."""

from collections import Counter

import pytest

from tests.model.keyed_publish.mutants import KEYED_MUTANTS
from tests.model.keyed_publish.run import KeyedRun, problem_of
from tests.simulation.planted.planted_bug import Mutant

#: Without their bugs, the seeds that find planted bugs pass, too.
SEEDS = sorted({*range(60), *(mutant.first_seed or 0 for mutant in KEYED_MUTANTS)})
#: What must happen in these runs, or they prove nothing of it.
OCCURS = {
    "refused", "unanswered", "lost", "late", "crash", "stop", "cancel", "restart of Redis", "forget",
    "answered", "replayed", "idempotency_key_reused", "publish_in_progress", "invalid_argument",
    "idempotency_unavailable", "service_unavailable",
}  # fmt: skip


@pytest.mark.hazard("key-without-message")
def test_no_seed_loses_doubles_or_mixes_up_a_key() -> None:
    """Whatever fails or is delayed; and every fault and every kind of answer occurs."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        run = KeyedRun(seed)
        run.run()
        seen.update(run.seen)
    assert set(seen) >= OCCURS, sorted(OCCURS - set(seen))


def test_run_of_a_seed_is_repeated_exactly() -> None:
    """The same seed leaves the same log and the same faults."""

    def left(seed: int) -> object:
        run = KeyedRun(seed)
        run.run()
        return [values for _, _, values in run.log.entries], run.seen, run.now_ms

    assert left(6) == left(6)


@pytest.mark.hazard("key-without-message")
@pytest.mark.parametrize("mutant", KEYED_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_planted_bug_of_keyed_publish_is_found(mutant: Mutant) -> None:
    """With the bug the seed fails; without it the same seed passes, as above."""
    assert mutant.first_seed is not None
    with mutant.planted():
        assert problem_of(mutant.first_seed) is not None
