"""The sequence ids of a producer's next batch: assigned, or checked.

Ids are all automatic or all explicit. Automatic ids continue after the last id in the log, or after the id that the
application gives as its last. If that is behind the log, the next ids repeat what is stored, each of them, also over a
new session: an id that was skipped would store a repetition as a new message. Explicit ids of a contiguous producer
that leave a gap are refused here, before they would end the session; those of an epoched one may also begin a higher
epoch.
"""

from dataclasses import dataclass

from oncelog.core.errors import (
    EntriesLost,
    InvalidSequenceId,
    OncelogError,
    SequenceGap,
    SequenceIdRequired,
    StaleSequence,
)
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.epoched_ids import begins_epoch
from oncelog.core.ids import NO_SEQUENCE, SEQUENCE_ID_MAX, SequenceId
from oncelog.core.sdk.producer.sequence_ids import BatchIds


def check_initial(initial: int | None) -> None:
    """Raises InvalidSequenceId unless `initial` can be the last id used."""
    if initial is not None and (isinstance(initial, bool) or not NO_SEQUENCE <= initial < SEQUENCE_ID_MAX):
        message = f"initial_sequence_id must be the last id used, -1 to 2**63 - 2, not {initial!r}"
        raise InvalidSequenceId(message, field="initial_sequence_id")


@dataclass(slots=True)
class SequenceAssignment:
    """highest: the highest id assigned or accepted. stored: the highest id known to be stored.

    stored_before: the highest id stored before this instance's first grant; ids above it were stored by this instance.
    known: the first grant has arrived, so the end of the log is known. explicit: None before the first batch.
    """

    mode: SequenceMode
    initial: int | None
    highest: int = NO_SEQUENCE
    stored: SequenceId = NO_SEQUENCE
    stored_before: SequenceId = NO_SEQUENCE
    known: bool = False
    explicit: bool | None = None

    @property
    def contiguous(self) -> bool:
        """Whether ids have no gaps."""
        return self.mode is not SequenceMode.MONOTONIC

    def leaves_gap(self, error: OncelogError) -> bool:
        """Whether a batch that was refused with it leaves a gap, so that the producer cannot go on behind it. What is
        stale in mode EPOCHED is of an older epoch, and nothing follows it."""
        return self.contiguous and not (self.mode is SequenceMode.EPOCHED and isinstance(error, StaleSequence))

    @property
    def own_above(self) -> SequenceId:
        """Ids above it were stored by no earlier instance and in no earlier batch of this one."""
        return SequenceId(max(self.stored_before, self.highest))

    @property
    def repeats_ahead(self) -> int:
        """How many of the next ids are stored already, as far as is known: what gets them is taken as a repetition."""
        return max(0, self.stored - self.highest)

    def refuse_grant(self, last: SequenceId, *, resumed: bool) -> OncelogError | None:
        """The error when this producer cannot continue at the end of the log, or None.

        resumed: the instance goes on. If the log has less than it was told to be stored, its next message would raise
        the mark above the lost ones, and their repetition would count as stored.
        """
        if resumed and last < self.stored:
            return EntriesLost(
                f"this producer was told that its sequence ids up to {self.stored} are stored, and the topic has them "
                f"up to {last}: it was restored to an older state. Open the producer again, and send again what comes "
                "behind its last_sequence_id",
                acked=self.stored,
                stored=last,
            )
        if self.known or self.initial is None or not self.contiguous or self.initial <= last:
            return None
        message = f"a contiguous producer must continue at {last + 1}, initial_sequence_id asks for {self.initial + 1}"
        return SequenceGap(message, expected=last + 1)

    def learn(self, last: SequenceId, *, final: bool) -> bool:
        """Take over a grant's last sequence id; returns whether it is the first grant. Never lowers the counter.

        The first grant of a lease is not final: at least so much is stored.
        """
        before = self.stored
        if final or not self.known:
            self.stored = max(self.stored, last)
        if self.known:
            if self.stored > before:  # by an instance that had the name after this one had expired
                self.highest = max(self.highest, self.stored)
            return False
        self.stored_before = self.stored
        self.highest = self.stored if self.initial is None else self.initial
        self.known = True
        return True

    def refuse(self, ids: BatchIds | None, count: int) -> OncelogError | None:
        """The error when a batch cannot have these ids (None: automatic ids), or None."""
        expected = self.highest + 1
        if self.explicit is not None and self.explicit != (ids is not None):
            given = "explicit" if self.explicit else "automatic"
            message = f"this producer uses {given} sequence ids: give an id with every message or with none"
            return SequenceIdRequired(message, field="sequence_id")
        if ids is None:
            if expected + count - 1 > SEQUENCE_ID_MAX:
                return InvalidSequenceId(
                    "the sequence ids of this producer are used up", field="sequence_id", limit=SEQUENCE_ID_MAX
                )
        elif self.contiguous and ids.deltas:
            return InvalidSequenceId("the ids of a contiguous producer must have no holes", field="sequence_ids")
        elif self.contiguous and ids.first > expected and not self.begins_epoch(ids.first, after=self.highest):
            return SequenceGap(
                f"expected sequence id {expected}, got {ids.first}: resend from id {expected}", expected=expected
            )
        return None

    def begins_epoch(self, first: SequenceId, *, after: int) -> bool:
        """Whether a batch that begins with the id `first` may follow the id `after`, although it leaves ids out."""
        return self.mode is SequenceMode.EPOCHED and begins_epoch(first, after)

    def never_stored(self, error: OncelogError) -> bool:
        """Whether no sending of a batch that was refused with it has stored it: an id that was stored is never stale,
        but in an older epoch, of which the log may have forgotten it."""
        return isinstance(error, StaleSequence) and self.mode is not SequenceMode.EPOCHED

    def assign(self, ids: BatchIds | None, count: int) -> BatchIds:
        """The ids of a batch that `refuse` accepted."""
        self.explicit = ids is not None
        if ids is None:
            first = self.highest + 1
            ids = BatchIds(SequenceId(first), SequenceId(first + count - 1))
        self.highest = max(self.highest, ids.last)
        return ids
