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
  one that kills it. So after an interruption messages are taken one by one, and the first delivery does not count
  (hazard given-up-beside-a-poison).
- A redo begins anew: what was owed before it, is not.
"""

from dataclasses import replace

from oncelog.core.effects.ordered import StoredPosition


def attempts(delivery_count: int, failed_here: int) -> int:
    """How often the function has surely begun with a message and not ended.

    delivery_count: of its delivery to this process; 1: it was never begun by another one. failed_here: runs of the
    function that have raised in this process.
    """
    return max(0, delivery_count - 2) + failed_here


def gives_up(delivery_count: int, failed_here: int, attempts_max: int | None) -> bool:
    """Whether the function does not run again. attempts_max None: it always does."""
    return attempts_max is not None and attempts(delivery_count, failed_here) >= attempts_max


def taken_at_once(delivery_count: int, batch: int, attempts_max: int | None) -> int:
    """How many messages may be received together after one with this delivery_count; 0: none was received yet."""
    return batch if attempts_max is None or delivery_count == 1 else 1


def given_up(stored: StoredPosition, index: int, message_id: str) -> StoredPosition:
    """The row that passes the message and owes a dead letter."""
    assert stored.pending_dead is None, "one message is given up at a time"
    return replace(stored, position=index + 1, last_message=message_id, pending_dead=index)


def settled(stored: StoredPosition) -> StoredPosition:
    """The row when the log has the dead letter."""
    return replace(stored, pending_dead=None)
