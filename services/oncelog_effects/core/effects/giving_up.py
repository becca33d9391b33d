"""Messages whose function fails again and again: when they are given up, and how they become dead letters.

    in work -> gives_up -> given_up is committed in the store, without the function
            -> the owner is asked for a dead letter -> its answer is durable -> settled is committed in the store

Rules
- The store decides first. Its position passes the message in the same transaction that says that a dead letter is
  owed. So a message never takes effect and becomes a dead letter, and never does neither (hazard
  dead-letter-beside-the-store).
- What the store owes is asked for again by the next claim, whoever makes it, before anything is received or
  acknowledged. It is never acknowledged as applied. The owner makes one dead letter of a message, however often it is
  asked.
- The owner gives nothing up by itself: a consumer that is only slow would have applied what becomes a dead letter.
- The log counts how often a message was begun, so the process that comes after a killed one knows, and gives up before
  the function runs again. A process that takes several messages at once begins all of them, though only one can be the
  one that kills it; and it may be killed before the log has learned what it began. So after an interruption the
  messages that may have been in its transaction are taken one by one, the log learns of each before the function runs,
  and the first delivery does not count (hazard given-up-beside-a-poison).
- The lowest message of a consumer that was lost counts in any case, so the next process knows of the interruption.
- A redo begins anew: what was owed before it, is not.
"""

from dataclasses import dataclass, replace

from oncelog_effects.core.effects.ordered import StoredPosition


def attempts(delivery_count: int, failed_here: int) -> int:
    """How often the function has surely begun with a message and not ended.

    delivery_count: of its delivery to this process; 1: it was never begun by another one. failed_here: runs of the
    function that have raised in this process.
    """
    return max(0, delivery_count - 2) + failed_here


def gives_up(delivery_count: int, failed_here: int, attempts_max: int | None) -> bool:
    """Whether the function does not run again. attempts_max None: it always does."""
    return attempts_max is not None and attempts(delivery_count, failed_here) >= attempts_max


@dataclass(slots=True)
class Care:
    """Whether messages are taken one by one, by one attachment of a consumer. batch: messages of one transaction.
    attempts_max None: nothing is given up, so nothing is counted."""

    batch: int
    attempts_max: int | None
    #: the delivery_count of the message that was received last; 0: none was
    _last_count: int = 0
    #: the index below which an interrupted transaction may have been
    _until: int = 0

    def attached(self) -> None:
        self._last_count = self._until = 0

    def received(self, delivery_count: int, position: int) -> None:
        """position: of the store."""
        if not self._last_count and delivery_count > 1:
            self._until = position + self.batch
        self._last_count = delivery_count

    def is_needed(self, position: int) -> bool:
        """Whether the next message is taken alone, and runs when the log knows that it was begun."""
        return self.attempts_max is not None and (self._last_count != 1 or position < self._until)

    def taken_at_once(self, position: int) -> int:
        """How many messages may be received together."""
        return 1 if self.is_needed(position) else self.batch


def given_up(stored: StoredPosition, index: int, message_id: str) -> StoredPosition:
    """The row that passes the message and owes a dead letter."""
    assert stored.pending_dead is None, "one message is given up at a time"
    return replace(stored, position=index + 1, last_message=message_id, pending_dead=index)


def settled(stored: StoredPosition) -> StoredPosition:
    """The row when the log has the dead letter."""
    return replace(stored, pending_dead=None)
