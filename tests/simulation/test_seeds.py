"""The sweep: no seed violates an invariant, and pending requests complete once faults stop."""

import pytest

from tests.simulation.seeds.shrinking import shrunk_report
from tests.simulation.shapes import ACK_SEEDS, CONSUMER_SEEDS, DOOR_SEEDS, EFFECT_SEEDS, LEASE_SEEDS, RESTORE_SEEDS
from tests.simulation.sweep import CHUNK, outcome_of, swept

RUNS = swept(0, ACK_SEEDS)


@pytest.mark.parametrize(
    "seeds", [RUNS[at : at + CHUNK] for at in range(0, len(RUNS), CHUNK)], ids=lambda each: each[0]
)
def test_no_seed_violates_an_invariant(seeds: tuple[int, ...]) -> None:
    """The failure shows the least of the first seed that still fails."""
    failed = [seed for seed in seeds if outcome_of(seed).problem]
    assert not failed, shrunk_report(failed[0])


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
@pytest.mark.parametrize("seed", swept(CONSUMER_SEEDS))
def test_no_seed_with_consumers_violates_an_invariant(seed: int) -> None:
    """An acknowledged message is not delivered again by any owner; all messages are delivered until acknowledged."""
    outcome = outcome_of(seed)
    assert outcome.problem is None, shrunk_report(seed)
    assert outcome.counts["message received"] >= 10


@pytest.mark.parametrize("seed", swept(EFFECT_SEEDS))
def test_no_seed_with_effects_violates_an_invariant(seed: int) -> None:
    """The store crashes, forgets and answers late, and has every effect once in the end that the ack log calls for."""
    outcome = outcome_of(seed)
    assert outcome.problem is None, shrunk_report(seed)
    assert outcome.counts["effect applied"] >= 5


@pytest.mark.hazard("renewal-fences-itself", "minimum-lifetime-shortened")
@pytest.mark.parametrize("seed", swept(LEASE_SEEDS))
def test_no_seed_with_leases_violates_an_invariant(seed: int) -> None:
    """Clocks jump, owners sleep, holders are away: no lease ends early, and no id comes back."""
    outcome = outcome_of(seed)
    assert outcome.problem is None, shrunk_report(seed)
    assert outcome.counts["producer expired"] >= 2


@pytest.mark.hazard(
    "gateway-opens-anew",
    "gateways-hold-one-producer",
    "half-open-session",
    "name-lost-by-a-restart",
    "zombie-takes-its-name-back",
    "sessions-end-each-other",
    "batches-of-keys",
    "place-of-another-batch",
    "receipt-out-of-order",
)
@pytest.mark.parametrize("seed", swept(DOOR_SEEDS))
def test_no_seed_with_doors_violates_an_invariant(seed: int) -> None:
    """Clients of Pulsar come back through other doors: each message is stored once, and each program ends."""
    outcome = outcome_of(seed)
    assert outcome.problem is None, shrunk_report(seed)
    assert outcome.counts["receipt"] >= 10


@pytest.mark.parametrize("seed", swept(RESTORE_SEEDS))
def test_no_seed_with_heads_violates_an_invariant(seed: int) -> None:
    """Of each closed ledger, the ledger behind it says where the fold of the chain stands: its end, for a rebuild. The
    store is lost or replaced, and what is restored from storage nodes is what was stored."""
    outcome = outcome_of(seed)
    assert outcome.problem is None, shrunk_report(seed)
    assert outcome.counts["ledger with a head"] >= 1
