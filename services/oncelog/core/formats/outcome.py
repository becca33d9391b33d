"""What an owner answers to one batch: per message exact, as a short list of parts in the order of the batch."""

from enum import IntEnum
from typing import NamedTuple

from oncelog.core.ids import Position


class PartKind(IntEnum):
    """STORED: written now. DUPLICATE: stored before (or by a write that was in flight), success.

    BELOW_MARK: a monotonic id older than the recent batches: success, not stored now, existence not verified (hazard
    9). STALE_SEQUENCE: a monotonic id below the mark that was never stored, beside others of its batch that were or are
    now: refused for this message alone.
    """

    STORED = 1
    DUPLICATE = 2
    BELOW_MARK = 3
    STALE_SEQUENCE = 4


class Part(NamedTuple):
    """`count` consecutive messages of the batch with one fate.

    position: the entry that holds them, None where not remembered. offset: batch_index of the first of them in that
    entry.
    """

    kind: PartKind
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody counts with
    position: Position | None
    offset: int


#: The fate of a whole batch: parts whose counts sum to the batch's count.
Outcome = tuple[Part, ...]

#: A batch whose stale messages cut it into more parts than this is refused as a whole: its answer would outgrow a
#: frame. Nobody who resends what was sent before comes near it.
REFUSED_PARTS_MAX = 65_536


def refuses(parts: Outcome) -> bool:
    """Whether some message of the batch is refused."""
    return any(part.kind is PartKind.STALE_SEQUENCE for part in parts)
