"""Compares the batches in a snapshot with the entries at their positions. Pure.

After a takeover, the position in the snapshot is the answer to a repeated id. A wrong position is a wrong answer, and
an id without a position is answered as never stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from oncelog.core.ids import Position, ProducerId
from oncelog.verify.stored_log import LoggedEntry


class RememberedBatch(NamedTuple):
    """`rows` messages of a producer with the ids first to last, in the snapshot at `position` from batch index
    `offset` on."""

    producer_id: ProducerId
    first: int
    last: int
    rows: int
    position: Position
    offset: int


RememberedAt = Mapping[Position, Sequence[RememberedBatch]]


def by_position(remembered: Iterable[RememberedBatch]) -> RememberedAt:
    found: dict[Position, list[RememberedBatch]] = {}
    for one in remembered:
        found.setdefault(one.position, []).append(one)
    return found


def difference(remembered: RememberedBatch, entry: LoggedEntry) -> str:
    """What the entry at the position contains instead; empty if it matches."""
    batch = entry.batch
    what = f"the snapshot has ids {remembered.first} to {remembered.last} of producer {remembered.producer_id} here"
    if batch is None:
        return f"{what}, and the entry has no messages"
    if batch.producer_id != remembered.producer_id:
        return f"{what}, and the entry is of producer {batch.producer_id}"
    rest = entry.ids[remembered.offset :]
    if not rest or (rest[0], rest[-1], len(rest)) != (remembered.first, remembered.last, remembered.rows):
        held = f"ids {entry.ids[0]} to {entry.ids[-1]}"
        where = f"{remembered.rows} from batch index {remembered.offset} on"
        return f"{what}, {where}, and the entry has {held}, {batch.count} in all"
    return ""
