"""Folds changes into the durable state, without an ack chain around them."""

from collections.abc import Sequence

from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.subscriptions.changes import Change
from oncelog.core.subscriptions.state import SubscriptionsState


def fold_changes(state: SubscriptionsState, changes: Sequence[Change]) -> None:
    """The changes are durable, as one entry."""
    state.fold_changes(Position(LedgerId(1), EntryId(state.position.entry_id + 1)), changes)
    state.check_invariants()
