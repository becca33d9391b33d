"""Reading ahead for a subscription: when the next read begins, and how long entries that nobody takes are kept."""

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import MessagesRead, ReadMessages, StoredEntry
from oncelog.core.delivery.look_ahead import READ_BYTES, UNUSED_MS_MAX, LookAhead
from oncelog.core.ids import EntryId, LedgerId, Position, SubscriptionNumber
from oncelog.core.stream_budget import NO_LIMIT
from tests.core.delivery.subscription_world import Step

NUMBER = SubscriptionNumber(1)
QUARTER = bytes(READ_BYTES // 4)


def entry(number: int) -> StoredEntry:
    """Ten messages, a quarter of what one read asks for."""
    return StoredEntry(Position(LedgerId(1), EntryId(number)), number * 10, 10, 0, QUARTER)


def reads(step: Step) -> list[int]:
    found = [effect.first_index for effect in step.effects if isinstance(effect, ReadMessages)]
    step.effects.clear()
    return found


def test_next_read_begins_before_the_last_one_is_used_up() -> None:
    step = Step()
    look_ahead = LookAhead(step, NUMBER)
    look_ahead.read(0, NO_LIMIT)
    look_ahead.arrived(MessagesRead(NUMBER, 0, tuple(map(entry, range(4)))))
    reads(step)
    used = []
    for number in range(4):
        held = look_ahead.holding(number * 10)
        assert held is not None
        look_ahead.drop(held)
        look_ahead.read_ahead((number + 1) * 10, end=100, acks=AckSet(), outbox=NO_LIMIT)
        used.append(reads(step))
    assert used == [[40], [], [], []], "a consumer may take all at once; and one at a time"
    assert look_ahead.arrived(MessagesRead(NUMBER, 40, (entry(4),))) == []
    assert look_ahead.holding(40) == entry(4)


def test_nothing_is_read_ahead_behind_the_end_of_the_log() -> None:
    step = Step()
    look_ahead = LookAhead(step, NUMBER)
    look_ahead.read_ahead(40, end=40, acks=AckSet(), outbox=NO_LIMIT)
    assert reads(step) == []
    acks = AckSet()
    acks.add([IndexRange(41, 60)])
    look_ahead.read_ahead(41, end=61, acks=acks, outbox=NO_LIMIT)
    assert reads(step) == [], "everything there is acknowledged"
    look_ahead.read_ahead(40, end=41, acks=acks, outbox=NO_LIMIT)
    assert reads(step) == [40]


def test_acknowledged_messages_are_passed() -> None:
    """They need not be readable: a consumer may have acknowledged them because they are not."""
    step = Step()
    look_ahead, acks = LookAhead(step, NUMBER), AckSet()
    acks.add([IndexRange(40, 59)])
    look_ahead.read_ahead(40, end=80, acks=acks, outbox=NO_LIMIT)
    assert reads(step) == [60]


def test_entries_that_nobody_takes_are_dropped_and_read_again() -> None:
    """A consumer that stopped reading must not keep its owner's memory."""
    step = Step()
    look_ahead = LookAhead(step, NUMBER)
    look_ahead.read(0, NO_LIMIT)
    look_ahead.arrived(MessagesRead(NUMBER, 0, (entry(0),)))
    step.now_ms = UNUSED_MS_MAX - 1
    look_ahead.drop_unused()
    assert look_ahead.holding(5) is not None
    step.now_ms = UNUSED_MS_MAX
    look_ahead.drop_unused()
    assert look_ahead.holding(5) is None
    assert look_ahead.bytes == 0
    look_ahead.read(5, NO_LIMIT)
    assert reads(step)[-1] == 5
