"""An owner's answer to one batch: a result for each message, as a short list of ranges in the order of the batch."""

from enum import IntEnum
from typing import NamedTuple

from oncelog.core.ids import Position


class ResultKind(IntEnum):
    """What happened to a message.

    STORED: written now. DUPLICATE: stored before, or by a write that was in flight; a success. BELOW_MARK: a monotonic
    id older than the recent batches; a success, not stored now, existence not verified (hazard id-between-stored-ids).
    STALE_SEQUENCE: a monotonic id below the mark that was never stored, in a batch that has other results too; an error
    of this message only. CHUNK: of a chunk: it is written, and its message is not stored yet.
    """

    STORED = 1
    DUPLICATE = 2
    BELOW_MARK = 3
    STALE_SEQUENCE = 4
    CHUNK = 5


class ResultRange(NamedTuple):
    """`count` consecutive messages of the batch with the same result.

    position: the entry that holds them, None when it is not remembered. offset: batch_index of the first of them in
    that entry. content_differs: of duplicates that are a whole batch: True: at least one of them has other content than
    the stored ones; False: none has; None: unknown. index: number in the topic of the first of them; None: not known
    without a look at the entry, as of all duplicates.
    """

    kind: ResultKind
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    position: Position | None
    offset: int
    content_differs: bool | None = None
    index: int | None = None  # type: ignore[assignment]  # hides tuple.index, which has no use here


#: The result of a whole batch: ranges whose counts add up to the batch's count.
Outcome = tuple[ResultRange, ...]

#: A batch whose stale messages cut it into more ranges than this is refused as a whole, because its answer would not
#: fit into a frame. A client that resends what it sent before stays far below this.
RESULT_RANGES_MAX = 65_536


def refuses(outcome: Outcome) -> bool:
    """Whether some message of the batch is refused."""
    return any(result.kind is ResultKind.STALE_SEQUENCE for result in outcome)
