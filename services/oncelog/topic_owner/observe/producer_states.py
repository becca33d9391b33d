"""Producers of a topic as JSON, for operators."""

import time
from collections.abc import Mapping
from itertools import islice

from oncelog.core.ids import ProducerId
from oncelog.core.publishing.generation_history import GenerationRecord
from oncelog.core.publishing.openings import Openings
from oncelog.core.publishing.producer_listing import ListedProducer, producer_of

Json = Mapping[str, object]


def producer_json(listed: ListedProducer) -> Json:
    """null: it has none, or it is not known."""
    return {**listed._asdict(), "role": listed.role or None, "connected_from": listed.connected_from or None}


def generations_json(generations: list[GenerationRecord]) -> list[Json]:
    """The newest first. fenced_generation: the one before it; null: there was none, or it is not known."""
    former = [None, *(each.generation for each in generations)]
    return [
        {
            "generation": each.generation,
            "at_ms": each.at_ms,
            "role": each.role or None,
            "from": each.address or None,
            "leased": each.leased,
            "fenced_generation": fenced,
        }
        for each, fenced in zip(reversed(generations), reversed(former[:-1]), strict=True)
    ]


def some_producers(openings: Openings, count_max: int) -> list[Json]:
    """At most so many, those without recent batches first."""
    return _shown(openings, list(islice(openings.table.state.producers, count_max)))


def producers_behind(openings: Openings, after: int, count_max: int) -> tuple[list[Json], int | None]:
    """(at most so many, by id, from the first id above `after` on; the last id of them if there are more)."""
    known = openings.table.state.producers
    some = known.after(after, count_max)
    return _shown(openings, some), some[-1] if some and known.after(some[-1], 1) else None


def _shown(openings: Openings, some: list[ProducerId]) -> list[Json]:
    now_ms = time.time_ns() // 1_000_000
    found = (producer_of(openings, pid, now_ms=now_ms) for pid in some)
    return [producer_json(listed) for listed in found if listed is not None]
