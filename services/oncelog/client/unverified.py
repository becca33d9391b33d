"""Unverified messages: not stored by this send, and possibly never stored. Counted, with one warning per producer.

A monotonic sequence id below everything that the owner remembers of its producer is answered as a success that is not
verified. For a producer that repeats what it sent long ago that is right. For one whose ids began again from below it
is the loss of every message, so nobody may have to look at each result to learn of it.
"""

import logging
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice

from oncelog.core.formats.outcome import ResultKind
from oncelog.core.producer.events import Complete
from oncelog.core.producer.sequence_ids import ids_of

logger = logging.getLogger(__name__)
_IDS_SHOWN_MAX = 5


class OnUnverified(StrEnum):
    """ACCEPT: a success with verified=False. RAISE: UnverifiedSequence, for this message."""

    ACCEPT = "accept"
    RAISE = "raise"


class Unverified:
    """What one producer was told so far."""

    def __init__(self, topic: str) -> None:
        self.count = 0
        self._topic = topic

    def note(self, producer_name: str, answer: Complete) -> None:
        """Count the unverified messages of a batch; the first time log them, as a warning."""
        count = sum(part.count for part in answer.outcome if part.kind is ResultKind.BELOW_MARK)
        if count and not self.count:
            batch = sum(part.count for part in answer.outcome)
            # They are the lowest of their batch.
            shown = _said(ids_of(answer.ids, batch)[:count])
            logger.warning(
                "producer %r on %s: %d messages were not stored, for their sequence ids are older than everything that "
                "the log remembers of this name: %s. Whether they ever were stored is not known; if they are new, they "
                "are lost: send them under ids above last_sequence_id, or under another name. Said once a producer; "
                "unverified_count counts on, and on_unverified='raise' makes it an error",
                producer_name, self._topic, count, shown,
            )  # fmt: skip
        self.count += count


def _said(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, islice(ids, _IDS_SHOWN_MAX)))
    return shown if len(ids) <= _IDS_SHOWN_MAX else f"{shown} … {ids[-1]}"
