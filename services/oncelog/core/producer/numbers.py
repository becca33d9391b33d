"""Which sequence ids a producer's next batch gets, or may have.

Ids are all automatic or all explicit. Automatic ones go on after the last id of the log, or after the one the
application names as its last. A contiguous producer's explicit ids that leave a gap are refused here, before they cost
the session.
"""

from dataclasses import dataclass

from oncelog.core.errors import InvalidSequenceId, OncelogError, SequenceGap, SequenceIdRequired
from oncelog.core.ids import NO_SEQUENCE, SEQUENCE_ID_MAX, SequenceId
from oncelog.core.producer.sequence_ids import BatchIds


def check_initial(initial: int | None) -> None:
    """Raises InvalidSequenceId unless `initial` can be the last id used."""
    if initial is not None and (isinstance(initial, bool) or not NO_SEQUENCE <= initial < SEQUENCE_ID_MAX):
        message = f"initial_sequence_id must be the last id used, -1 to 2**63 - 2, not {initial!r}"
        raise InvalidSequenceId(message, field="initial_sequence_id")


@dataclass(slots=True)
class ProducerNumbers:
    """highest: the highest id granted or handed over. stored: the highest known to be stored.

    stored_before: the highest stored before this instance was granted; what is stored above it is this instance's own.
    known: the first grant has told where the log ends. explicit: None before the first batch.
    """

    contiguous: bool
    initial: int | None
    highest: int = NO_SEQUENCE
    stored: SequenceId = NO_SEQUENCE
    stored_before: SequenceId = NO_SEQUENCE
    known: bool = False
    explicit: bool | None = None

    def refuse_grant(self, last: SequenceId) -> OncelogError | None:
        """Why this producer cannot begin where the log ends, or None."""
        if self.known or self.initial is None or not self.contiguous or self.initial <= last:
            return None
        message = f"a contiguous producer goes on at {last + 1}, initial_sequence_id asks for {self.initial + 1}"
        return SequenceGap(message, expected=last + 1)

    def learn(self, last: SequenceId, *, final: bool) -> bool:
        """Take over what a grant says; whether it is the first. Never lowers the counter."""
        if final:
            self.stored = max(self.stored, last)
        if self.known:
            self.highest = max(self.highest, self.stored)
            return False
        self.stored_before = self.stored
        self.highest = self.stored if self.initial is None else self.initial
        self.known = True
        return True

    def refuse(self, ids: BatchIds | None, count: int) -> OncelogError | None:
        """Why a batch cannot have these ids (None: automatic ones), or None."""
        expected = self.highest + 1
        if self.explicit is not None and self.explicit != (ids is not None):
            given = "explicit" if self.explicit else "automatic"
            message = f"this producer's sequence ids are {given}: give every message one, or none"
            return SequenceIdRequired(message, field="sequence_id")
        if ids is None:
            if expected + count - 1 > SEQUENCE_ID_MAX:
                return InvalidSequenceId("the sequence ids are used up", field="sequence_id", limit=SEQUENCE_ID_MAX)
        elif self.contiguous and ids.deltas:
            return InvalidSequenceId("a contiguous producer's ids have no holes", field="sequence_ids")
        elif self.contiguous and ids.first > expected:
            return SequenceGap(
                f"expected sequence id {expected}, got {ids.first}: resend from there", expected=expected
            )
        return None

    def assign(self, ids: BatchIds | None, count: int) -> BatchIds:
        """The ids of a batch that was not refused."""
        self.explicit = ids is not None
        if ids is None:
            first = self.highest + 1
            ids = BatchIds(SequenceId(first), SequenceId(first + count - 1))
        self.highest = max(self.highest, ids.last)
        return ids
