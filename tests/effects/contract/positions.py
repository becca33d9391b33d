"""A source, and what its row in a store says."""

from typing import Any

from oncelog_effects.core.effects.ordered import Rank, Source, StoredPosition
from oncelog_effects.store import EffectsStore, SourceNames

SOURCE = Source("invoices", "0f" * 16, -1)
NAMES = SourceNames("public/default/orders", "billing")
FIRST = StoredPosition(Rank(1, 0, 1), "c1" * 16, 0, "")


def at(position: int, claim: str = FIRST.claim) -> StoredPosition:
    return StoredPosition(FIRST.rank, claim, position, f"message {position - 1}" if position else "")


async def claimed(effects: EffectsStore[Any], row: StoredPosition = FIRST, source: Source = SOURCE) -> None:
    await effects.store_id()
    await effects.claim(source, NAMES, lambda _: row)


async def stored(effects: EffectsStore[Any], source: Source = SOURCE) -> StoredPosition:
    """What the store has; keeps it."""
    found: list[StoredPosition] = []

    def keep(row: StoredPosition | None) -> StoredPosition:
        assert row is not None
        found.append(row)
        return row

    await effects.claim(source, NAMES, keep)
    return found[0]
