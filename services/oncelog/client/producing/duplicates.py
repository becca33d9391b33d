"""Which answers of the log are errors although nothing failed: a message was not stored, and may be in no log.

What may be lost is an error unless the application accepts it. A monotonic sequence id below everything that the owner
remembers of its producer is answered as a success that is not verified. That is right for a program that repeats what
it sent long ago. For a program whose ids started again below that point it means the loss of every message.
"""

from dataclasses import dataclass
from enum import StrEnum

from oncelog.client.values.results import AnsweredRange
from oncelog.core.errors import UnverifiedSequence
from oncelog.core.formats.outcome import ResultKind

_UNVERIFIED = (
    "the sequence id is older than all ids that the log remembers of this producer: the message was not stored now, it "
    "is unknown whether it was ever stored, and sending it again gives the same answer. If the message is new, send it "
    "with an id above last_sequence_id, or under another producer name. If your program sends everything again from a "
    "source that keeps it, begin behind last_sequence_id, or use on_unverified='accept'"
)


class OnUnverified(StrEnum):
    """RAISE: an unverified message fails with UnverifiedSequence. ACCEPT: it is a success with verified=False."""

    RAISE = "raise"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class DuplicateRules:
    """What a producer accepts."""

    on_unverified: OnUnverified = OnUnverified.RAISE

    def applied(self, ranges: list[AnsweredRange]) -> list[AnsweredRange]:
        """The results of consecutive messages, with an error for each that these rules refuse."""
        return [self._applied(answered) for answered in ranges]

    def _applied(self, answered: AnsweredRange) -> AnsweredRange:
        stored = answered.stored
        if stored is None or stored.kind is not ResultKind.BELOW_MARK or self.on_unverified is OnUnverified.ACCEPT:
            return answered
        return AnsweredRange(answered.size, None, error=UnverifiedSequence(_UNVERIFIED))


REFUSE_ALL = DuplicateRules()
ACCEPT_ALL = DuplicateRules(OnUnverified.ACCEPT)
