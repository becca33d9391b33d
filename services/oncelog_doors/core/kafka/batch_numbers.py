"""What becomes of the batches of one producer of Kafka on one partition, by their numbers.

    the next one               given to the log
    given, not decided yet     joined: it has the answer of the batch that was given
    at or below the mark       given to the log, which knows whether it is stored
    above the next one         refused as a gap: with a code that clients try again for 10 s, then with one that they do
                               not
    of an older epoch          refused, which is final

A batch that was given is never given up: it is decided, or its producer ends. So a gap means that the client itself has
lost a batch, or that the log has refused one. A refused batch uses up no number: the next one that is taken is again
the one behind the last that was (hazard refused-batch-uses-a-number). The numbers on the wire have 31 bits; which
number is meant is in `epoched_ids`.
"""

from dataclasses import dataclass
from typing import NamedTuple, assert_never

from oncelog.core.formats.epoched_ids import Numbered, NumberGap, OldEpoch, unwrap
from oncelog.core.ids import NO_SEQUENCE, SequenceId
from oncelog_doors.core.kafka.error_codes import ErrorCode

#: A client that has lost a batch may send it again; after this it has not.
GAP_MS = 10_000


class GivenIds(NamedTuple):
    """Of the first and the last record of a batch."""

    first: SequenceId
    last: SequenceId


@dataclass(frozen=True, slots=True)
class Give:
    """Hand the batch to the log, then call `decided`."""

    ids: GivenIds


@dataclass(frozen=True, slots=True)
class Join:
    """The same batch was given, and is not decided."""

    ids: GivenIds


@dataclass(frozen=True, slots=True)
class Refuse:
    """final: the client does not send the batch again under these numbers."""

    code: ErrorCode
    final: bool


NumberVerdict = Give | Join | Refuse


class BatchNumbers:
    """mark: the highest id that is stored; NO_SEQUENCE: none."""

    def __init__(self, mark: SequenceId) -> None:
        self._mark = mark
        #: {ids: the mark before the batch was given}, in the order in which they were given
        self._given: dict[GivenIds, SequenceId] = {}
        self._gap_since_ms: int | None = None

    @property
    def mark(self) -> SequenceId:
        """The highest id that was given and not refused."""
        return self._mark

    def judge(self, epoch: int, sequence: int, count: int, now_ms: int) -> NumberVerdict:
        """epoch, sequence: of the batch, as it was sent. count: of its records, above 0."""
        found = unwrap(epoch, sequence, self._mark)
        match found:
            case OldEpoch():
                return Refuse(ErrorCode.INVALID_PRODUCER_EPOCH, final=True)
            case NumberGap():
                return self._gap(now_ms)
            case Numbered():
                return self._take(GivenIds(found.first, SequenceId(found.first + count - 1)))
            case _:
                assert_never(found)

    def _take(self, ids: GivenIds) -> Give | Join:
        if ids in self._given:
            return Join(ids)
        if ids.last > self._mark:
            self._gap_since_ms = None
        self._given[ids] = self._mark
        self._mark = max(self._mark, ids.last)
        return Give(ids)

    def _gap(self, now_ms: int) -> Refuse:
        if self._gap_since_ms is None:
            self._gap_since_ms = now_ms
        if now_ms < self._gap_since_ms + GAP_MS:
            return Refuse(ErrorCode.NOT_ENOUGH_REPLICAS, final=False)
        # Nothing of this producer is stored here: for clients that is another reason than a batch that was lost.
        unknown = self._mark == NO_SEQUENCE
        return Refuse(ErrorCode.UNKNOWN_PRODUCER_ID if unknown else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, final=True)

    def decided(self, ids: GivenIds, *, refused: bool) -> None:
        """The log has decided about a batch. refused: nothing of it was stored by this."""
        before = self._given.pop(ids)
        if refused and ids.last > before:  # else it did not raise the mark
            self._mark = min(self._mark, before)
