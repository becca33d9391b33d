"""What a consumer would find if it began now: for operators, who look at log and store and change neither.

The log must have been asked before the store was read, as a consumer does it (`ordered`). A transaction that is under
way is not waited for, so nothing is concluded from the answer: a program claims, and decides.
"""

from dataclasses import dataclass, replace

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.errors import EffectsError, OncelogError
from oncelog.core.ids import Generation
from oncelog_effects.core.effects.ordered import Outranked, StoredPosition, claimed, lost, outranked_by


@dataclass(frozen=True, slots=True)
class Comparison:
    """position: from where on it would apply; None: it would end with `trouble`. lost: what the store has forgotten,
    which is delivered again first."""

    position: int | None
    lost: tuple[IndexRange, ...] = ()
    trouble: OncelogError | None = None

    @property
    def lost_count(self) -> int:
        return sum(last - first + 1 for first, last in self.lost)


def compared(stored: StoredPosition | None, effects: SubscriptionEffects, store_id: str) -> Comparison:
    """stored: the row of the source; None: the store has none. effects: with the consumed messages from its position
    on."""
    granted = replace(effects, generation=Generation(effects.generation + 1))
    try:
        row = claimed(stored, granted, store_id, "")
        return Comparison(row.position, lost(row, effects))
    except Outranked as error:
        return Comparison(None, trouble=outranked_by(error.stored, granted))
    except EffectsError as error:
        return Comparison(None, trouble=error)
