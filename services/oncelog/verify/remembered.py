"""The batches that a snapshot remembers, held against the entries at their positions. Pure.

A takeover answers a repeated id with the position that the snapshot remembers. A wrong one is a wrong answer, and an id
that stands at none is called "never stored".
"""

from typing import NamedTuple

from oncelog.core.ids import Position, ProducerId
from oncelog.verify.stored_log import LoggedEntry


class RememberedBatch(NamedTuple):
    """Ids first to last of a producer, `rows` of them, which the snapshot has at `position` from batch index
    `offset` on."""

    producer_id: ProducerId
    first: int
    last: int
    rows: int
    position: Position
    offset: int


def difference(told: RememberedBatch, entry: LoggedEntry) -> str:
    """What the entry at the position holds instead; empty: it is as remembered."""
    batch = entry.batch
    what = f"the snapshot remembers ids {told.first} to {told.last} of producer {told.producer_id} here"
    if batch is None:
        return f"{what}, and the entry holds no messages"
    if batch.producer_id != told.producer_id:
        return f"{what}, and the entry is of producer {batch.producer_id}"
    rest = entry.ids[told.offset :]
    if not rest or (rest[0], rest[-1], len(rest)) != (told.first, told.last, told.rows):
        held = f"ids {entry.ids[0]} to {entry.ids[-1]}"
        return (
            f"{what}, {told.rows} from batch index {told.offset} on, and the entry holds {held}, {batch.count} in all"
        )
    return ""
