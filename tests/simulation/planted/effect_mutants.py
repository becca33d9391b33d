"""Planted bugs of ordered effects, each found by a run whose messages take effect in a store."""

from dataclasses import replace
from typing import Any

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery import delivery_gate
from oncelog.core.delivery.delivery_gate import Needs
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog_effects.core.effects import comparison, ordered
from oncelog_effects.core.effects.ordered import Rank, StoredPosition
from tests.core.delivery.test_delivery_gate import test_answer_about_the_log_waits_for_a_proof_of_its_own
from tests.effects.core.effects.test_comparison import test_where_a_program_would_go_on
from tests.simulation.consumers import effects_client
from tests.simulation.consumers.effects_client import EffectsClient, Waits

_claimed = ordered.claimed


def _redone_from_mark_delete(row: Any, effects: SubscriptionEffects, *others: Any) -> StoredPosition:
    return _claimed(row, replace(effects, redo_index=effects.mark_delete), *others)


def _below_mark_delete(stored: StoredPosition, effects: SubscriptionEffects) -> tuple[IndexRange, ...]:
    lost = IndexRange(max(stored.position, effects.first_index), effects.mark_delete - 1)
    return (lost,) if effects.store_id and lost.first <= lost.last else ()


def _rank_without_number(effects: SubscriptionEffects) -> Rank:
    return Rank(1, effects.redo_epoch, effects.generation)


def _nothing(*_: Any) -> tuple[IndexRange, ...]:
    return ()


def _not_settled(client: EffectsClient) -> Waits:
    client._acknowledge()
    yield lambda: True


def _never(*_: Any) -> bool:
    return False


def _always(*_: Any) -> bool:
    return True


def _needs_nothing(_: object) -> Needs:
    return Needs.NOTHING


EFFECT_MUTANTS: tuple[tuple[Any, ...], ...] = (
    (
        "a redo begins at mark_delete", "redo-restored-to-before", None,
        ((comparison, "claimed", _redone_from_mark_delete),), None, test_where_a_program_would_go_on,
    ),
    (
        "what is below mark_delete is lost", "skipped-message-rewound", 3_000_005,
        ((ordered, "lost", _below_mark_delete),),
    ),
    (
        "rank without the subscription's number", "recreated-subscription-outranked", 3_000_008,
        ((ordered, "rank_of", _rank_without_number),),
    ),
    (
        "a consumer claims with the grant of another", "claim-under-the-grant-of-another", 3_000_015,
        ((ordered, "is_under_grant", _always),),
    ),
    (
        "an owner says what the log knows without a proof", "log-known-by-a-deposed-owner", None,
        ((delivery_gate, "needs_of", _needs_nothing),), None, test_answer_about_the_log_waits_for_a_proof_of_its_own,
    ),
    ("a store that forgets is not noticed", "", 3_000_005, ((ordered, "lost", _nothing),)),
    (
        "the log is asked while acknowledgements are under way", "acknowledgement-under-way", 3_000_011,
        (
            (EffectsClient, "_settle", _not_settled), (ordered, "went_back", _never),
            (effects_client, "VERIFY_TICKS", 1 << 40),
        ),
    ),
)  # fmt: skip
