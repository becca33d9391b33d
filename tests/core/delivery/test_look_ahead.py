"""Reading ahead for a subscription: when the next read begins, and how long entries that nobody takes are kept."""

import pytest

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import MessagesRead, ReadMessages, StoredEntry
from oncelog.core.delivery.look_ahead import READ_AGAIN_BYTES, READ_BYTES, UNUSED_MS_MAX, LookAhead
from oncelog.core.ids import EntryId, LedgerId, Position, SubscriptionNumber
from oncelog.core.stream_budget import NO_LIMIT, Outbox, StreamBudget
from tests.core.delivery.subscription_world import SHARED, Step, World

NUMBER = SubscriptionNumber(1)
QUARTER = bytes(READ_BYTES // 4)


def entry(number: int) -> StoredEntry:
    """Ten messages, a quarter of what one read asks for."""
    return StoredEntry(Position(LedgerId(1), EntryId(number)), number * 10, 10, 0, QUARTER)


def asked(step: Step) -> list[ReadMessages]:
    found = [effect for effect in step.effects if isinstance(effect, ReadMessages)]
    step.effects.clear()
    return found


def reads(step: Step) -> list[int]:
    return [read.first_index for read in asked(step)]


def shared_limit(kept_bytes_max: int) -> tuple[StreamBudget, Outbox]:
    """A process that keeps so many bytes for all its subscriptions, and a stream of it."""
    budget = StreamBudget(4 * kept_bytes_max, caller_streams_max=100)
    return budget, budget.open("role a", woken=lambda _: None)


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


def test_entries_are_kept_while_messages_of_one_are_taken() -> None:
    """A slow consumer with a small window takes a large batch for minutes. The entry was read again every few
    seconds."""
    world = World(messages=[50])
    world.reads_answered = False
    consumer = world.subscribe("a", SHARED, window=1)
    world.answer_reads()
    world.settle()
    for received in range(1, 11):
        assert [index for index, _ in consumer.got] == list(range(received))
        world.pass_time(UNUSED_MS_MAX - 1_000)
        world.flow(consumer, 1, handed_out=received)
    assert world.reads == []


def test_little_is_read_again_after_nobody_took_what_was_read() -> None:
    """A consumer that takes a message now and then cost a read of the usual size for each. One that takes all of it
    soon gets the usual size again, and only then something ahead of it. The place of the entry is known."""
    step = Step()
    look_ahead = LookAhead(step, NUMBER)
    look_ahead.read(0, NO_LIMIT)
    look_ahead.arrived(MessagesRead(NUMBER, 0, (entry(0), entry(1))))
    step.now_ms = UNUSED_MS_MAX
    look_ahead.drop_unused()
    asked(step)
    sizes: list[int] = []
    index = 5
    while not sizes or sizes[-1] < READ_BYTES:
        look_ahead.read(index, NO_LIMIT)
        (read,) = asked(step)
        assert read.position == (entry(0).position if index == 5 else None)
        sizes.append(read.bytes_max)
        held = entry(index // 10)
        look_ahead.arrived(MessagesRead(NUMBER, index, (held,)))
        look_ahead.drop(held)
        index = held.base_index + held.count
        if sizes[-1] < READ_BYTES // 2:
            look_ahead.read_ahead(index, end=1_000, acks=AckSet(), outbox=NO_LIMIT)
            assert asked(step) == []
    assert sizes == [READ_AGAIN_BYTES << n for n in range(len(sizes))]
    look_ahead.read_ahead(index, end=1_000, acks=AckSet(), outbox=NO_LIMIT)
    assert reads(step) == [index]


@pytest.mark.hazard("unread-windows")
def test_subscriptions_read_no_more_than_they_may_keep() -> None:
    """Of many that begin together, each leaves something to the others; in the end one entry, which is needed now."""
    budget, outbox = shared_limit(READ_BYTES)
    step = Step()
    all_of_them = [LookAhead(step, SubscriptionNumber(number)) for number in range(30)]
    for each in all_of_them:
        each.read(0, outbox)
    sizes = [read.bytes_max for read in asked(step)]
    assert sizes[:3] == [READ_BYTES // 2, READ_BYTES // 4, READ_BYTES // 8]
    assert sizes[-1] == 1
    assert budget.kept_bytes == sum(sizes) < budget.kept_bytes_max + len(all_of_them)
    for number, each in enumerate(all_of_them):
        each.arrived(MessagesRead(SubscriptionNumber(number), 0, ()))
        each.close()
    assert budget.kept_bytes == 0


@pytest.mark.hazard("unread-windows")
def test_what_is_needed_first_is_kept_when_too_much_was_read() -> None:
    """Each step dropped all that it left, and read it again for the next entry."""
    budget, outbox = shared_limit(READ_BYTES)
    step = Step()
    look_ahead = LookAhead(step, NUMBER)
    look_ahead.read(0, outbox)
    look_ahead.arrived(MessagesRead(NUMBER, 0, tuple(map(entry, range(4)))))
    outbox.keep(READ_BYTES // 2)  # of another subscription
    look_ahead.end_step()
    assert [look_ahead.holding(index) is not None for index in (5, 15, 25, 35)] == [True, True, False, False]
    asked(step)
    look_ahead.read_ahead(20, end=40, acks=AckSet(), outbox=outbox)
    assert reads(step) == [], "it could not be kept"
    look_ahead.read(20, outbox)
    (read,) = asked(step)
    assert (read.bytes_max, read.position) == (1, entry(2).position)
    assert budget.kept_bytes == READ_BYTES + 1


@pytest.mark.hazard("unread-windows")
def test_subscription_without_consumers_keeps_nothing() -> None:
    """Its last consumer has left with entries read for it. Nothing happened to it any more, and it kept them until
    the owner ended: others could keep less and less."""
    budget, outbox = shared_limit(READ_BYTES)
    world = World(messages=[5] * 20)
    consumer = world.subscribe("a", SHARED, window=5, outbox=outbox)
    assert consumer.take() == list(range(5))
    assert budget.kept_bytes > 0
    world.detach(consumer, lost=False)
    world.pass_time(UNUSED_MS_MAX + 1_000)
    assert budget.kept_bytes == 0
