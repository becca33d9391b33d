"""Where two folds of one log differ: the owner's, and that of the snapshot and the log behind it.

Exempt is what the law of the fold exempts (`dedup_state`): batches at or below the higher one of both recent floors,
because memory decides how many are remembered; and the ids of batches with holes, which their entries have.
"""

from dataclasses import fields
from typing import NamedTuple

from oncelog.core.ids import ProducerId
from oncelog.core.publishing.producer_record import decode_row, read_record
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import RecentBatch

#: The fields of a producer that a fold determines; memory decides how many batches are remembered.
_FIELDS = tuple(
    each.name for each in fields(ProducerState) if each.name not in ("producer_id", "recent_batches", "recent_floor")
)


#: What a fold determines besides the producers.
TOPIC_FIELDS = ("position", "next_index", "time_ms", "lifetimes")


class Difference(NamedTuple):
    """expected: what snapshot and log say. found: what the owner has. producer "": of the topic as a whole."""

    producer: str
    producer_id: int
    field: str
    expected: str
    found: str


def producer_of(record: bytes) -> ProducerState | None:
    """The producer of a record in a snapshot; None: it has expired."""
    row, _ = read_record(record, 0)
    return decode_row(row.name, row.row) if row.row else None


def differences(pid: ProducerId, expected: bytes, found: bytes) -> list[Difference]:
    """Between two records of a producer."""
    if expected == found:
        return []
    first, second = producer_of(expected), producer_of(found)
    known = first or second
    name = known.name if known is not None else ""
    if first is None or second is None:
        return [Difference(name, pid, "producer", _presence(first), _presence(second))]
    differ = [
        Difference(name, pid, field, _shown(getattr(first, field)), _shown(getattr(second, field)))
        for field in _FIELDS
        if getattr(first, field) != getattr(second, field)
    ]
    floor = max(first.recent_floor, second.recent_floor)
    batches = _above(first, floor), _above(second, floor)
    if batches[0] != batches[1]:
        at = next((i for i, pair in enumerate(zip(*batches, strict=False)) if pair[0] != pair[1]), None)
        at = min(map(len, batches)) if at is None else at
        differ.append(Difference(name, pid, "recent_batches", *(_batch(each, at) for each in batches)))
    return differ


def _above(producer: ProducerState, floor: int) -> list[RecentBatch]:
    return [
        batch._replace(deltas=b"" if batch.dense else None) for batch in producer.recent_batches if batch.first > floor
    ]


def _batch(batches: list[RecentBatch], at: int) -> str:
    """The first batch that differs."""
    if at >= len(batches):
        return f"{len(batches)} batches"
    batch = batches[at]
    return f"ids {batch.first} to {batch.last} ({batch.count}) at {batch.position}, checksum {batch.checksum:#x}"


def _presence(producer: ProducerState | None) -> str:
    return "unknown" if producer is None else f"generation {producer.generation}, persisted {producer.persisted}"


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
