"""Folds changes into the durable state, without an ack log around them."""

from collections.abc import Sequence

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import Change
from oncelog.core.ids import EntryId, LedgerId, Position


def fold_changes(state: SubscriptionsState, changes: Sequence[Change]) -> None:
    """The changes are durable, as one entry."""
    state.fold_changes(Position(LedgerId(1), EntryId(state.position.entry_id + 1)), changes)
    state.check_invariants()
