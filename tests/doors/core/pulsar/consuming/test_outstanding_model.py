"""The table of a consumer against a naive model: sets of messages, an owner, and clients that are honest or not.

Whatever happens in whatever order, the log is given no acknowledgement of a message that the client was not sent on
this connection, unless it has named an entry with this message alone; and none that an honest client has not processed.
An honest client acknowledges an entry when it has processed all messages of one delivery of it, perhaps of a former
connection, and sends sets only of messages that it has processed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.acks.ack_state import FIRST_EPOCH
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import LedgerUnavailable
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.consuming.acknowledgements import AckAsked, NamedId
from oncelog_doors.core.pulsar.consuming.arrivals import Arrived
from oncelog_doors.core.pulsar.consuming.outstanding import Arrival, Outgoing, Outstanding
from tests.doors.core.pulsar.message_sets import indexes, ranges, set_bits, words

#: {entry id: (index of its first message, messages)}
SIZES = (1, 3, 5, 3, 2, 70, 3, 2, 4, 1, 6, 3, 3, 2, 9, 3)
ENTRIES = {2 * number: (100 + sum(SIZES[:number]), size) for number, size in enumerate(SIZES)}
ENCRYPTED = 6
EPOCH = FIRST_EPOCH
FREE, HERE, ELSEWHERE, DONE = "free", "here", "elsewhere", "acknowledged"


@dataclass
class Delivered:
    """As the client has it. places: the message of each batch_index. named: its acknowledged messages."""

    entry: int
    places: list[int]
    shown: set[int]
    processed: set[int] = field(default_factory=set)
    named: set[int] = field(default_factory=set)

    @property
    def acknowledged(self) -> bool:
        return self.named == self.shown


class World:
    """One topic, its owner, one consumer at a door, and other consumers."""

    def __init__(self, *, keeps_order: bool, cumulative: bool, sets: bool, honest: bool) -> None:
        self.at = dict.fromkeys((i for first, n in ENTRIES.values() for i in range(first, first + n)), FREE)
        self.keeps_order, self.cumulative, self.sets, self.honest = keeps_order, cumulative, sets, honest
        self.processed: set[int] = set()
        #: entries of which all messages of a delivery were processed, also on former connections
        self.completed: set[int] = set()
        self.requests = 0
        self.connect()

    def connect(self) -> None:
        """The client subscribes, for the first time or again."""
        self.table = Outstanding[int](cumulative=self.cumulative, keeps_order=self.keeps_order)
        self.deliveries: list[Delivered] = []
        self.had: set[int] = set()
        self.prepared: Outgoing[int] | None = None
        #: entries that the client has named, and wanted no answer
        self.named: set[int] = set()
        #: {entry: messages at the client, neither durably acknowledged nor given back}
        self.live: dict[int, set[int]] = {}
        self.tickets: dict[int, set[int]] = {}
        self.in_flight: set[int] = set()
        self.expected: set[int] = set()
        self.arrived = self.sent = 0
        for index, where in self.at.items():
            self.at[index] = FREE if where == HERE else where

    # --- actions ------------------------------------------------------------------------------------------------------

    def deliver(self, number: int) -> None:
        """The owner gives the consumer messages that no one has."""
        entry, (first, count) = list(ENTRIES.items())[number % len(ENTRIES)]
        free = [i for i in range(first, first + count) if self.at[i] == FREE]
        chosen = [i for place, i in enumerate(free) if number >> (place % 11) & 1] or free
        if not chosen:
            return
        position = Position(LedgerId(5), EntryId(entry))
        arrived = Arrived(entry, position, first, count, ranges(chosen), EPOCH, entry != ENCRYPTED)
        arrival = self.table.arrived(arrived)
        self.arrived += len(chosen)
        self.move(chosen, HERE)
        if arrival is not Arrival.TAKEN:
            assert (arrival, count, entry in self.named) == (Arrival.ACKNOWLEDGED, 1, True)
            self.had.update(chosen)
            self.ack(set(chosen), NamedId(5, entry), wants_answer=False)

    def prepare(self, _number: int) -> None:
        if self.prepared is None:
            self.prepared = self.table.next()

    def send(self, _number: int) -> None:
        out, self.prepared = self.prepared, None
        if out is None or not self.table.may_go(out):
            return
        places = list(indexes(out.sends))
        shown = {places[bit] for bit in set_bits(out.mask)} if out.mask else set(places)
        first, count = ENTRIES[out.arrived.entry]
        assert out.all == (places == list(range(first, first + count)))
        assert (bool(out.mask), out.messages) == (shown != set(places), len(shown))
        assert not out.mask or self.table.reads_masks or out.arrived.entry == ENCRYPTED
        assert {self.at[i] for i in shown} == {HERE}, "a message was sent that is acknowledged, or another's"
        assert not self.live.get(out.arrived.entry, set()) - self.in_flight, "an entry that the client has was sent"
        self.live[out.arrived.entry] = set(shown)
        self.had |= shown
        self.sent += len(shown)
        self.deliveries.append(Delivered(out.arrived.entry, places, shown))

    def pass_on(self, number: int) -> None:
        self.prepare(number)
        self.send(number)

    def acknowledge(self, number: int) -> None:
        """The client has processed some messages of a delivery, perhaps of an old one."""
        one = self.pick(number)
        if one is None or one.acknowledged:
            return
        chosen = [i for place, i in enumerate(sorted(one.shown)) if number >> (4 + place % 9) & 1] or sorted(one.shown)
        one.processed.update(chosen)
        self.processed.update(chosen)
        if one.processed == one.shown:
            self.completed.add(one.entry)
            one.named |= self.ack(one.shown, NamedId(5, one.entry))
        elif self.sets and number & 1:
            clear = set(chosen) if number & 2 else one.processed
            size = len(one.places) if number & 4 else 0
            one.named |= self.ack(clear, NamedId(5, one.entry, ack_set=words(one.places, clear), batch_size=size))
        elif number & 8 and not self.sets:
            one.named |= self.ack({chosen[0]}, NamedId(5, one.entry, one.places.index(chosen[0])))

    def acknowledge_again(self, number: int) -> None:
        """An entry that the client has completed, perhaps on a former connection. It wants no answer."""
        entries = sorted(self.completed if self.honest else ENTRIES)
        if entries:
            entry = entries[number % len(entries)]
            self.named.add(entry)
            self.ack(set(), NamedId(5, entry), wants_answer=False)

    def acknowledge_up_to(self, number: int) -> None:
        one = self.pick(number)
        if one is None or one.acknowledged or not self.cumulative:
            return
        earlier = {i for each in self.deliveries if each.entry < one.entry for i in each.shown}
        upto = one.places[: 1 + number % len(one.places)]
        kind = number >> 8 & 3
        id_ = NamedId(5, one.entry)
        if kind == 0:
            id_, upto = NamedId(5, one.entry - 1 if one.entry else 2**64 - 1), []
        elif kind == 1 and self.sets:
            id_ = NamedId(5, one.entry, ack_set=words(one.places, set(upto)))
        elif kind == 2:
            id_ = NamedId(5, one.entry, len(upto) - 1)
        else:
            upto = [i for each in self.deliveries if each.entry == one.entry for i in each.shown]
        means = earlier | (set(upto) & self.had)
        self.processed |= means
        named = self.ack(means, id_, cumulative=True)
        for each in self.deliveries:
            each.processed |= each.shown & means
            each.named |= each.shown & named

    def settle(self, number: int) -> None:
        """The log has made an acknowledgement durable."""
        if not self.tickets:
            return
        ticket = list(self.tickets)[number % len(self.tickets)]
        messages = self.tickets.pop(ticket)
        if number % 37 == 36:
            self.answered(self.table.settled(ticket, LedgerUnavailable("away")))
            assert self.table.must_close
            self.in_flight -= messages
            return
        self.in_flight -= messages
        self.move(messages, DONE)
        for live in self.live.values():
            live.difference_update(messages)
        self.answered(self.table.settled(ticket))

    def redeliver(self, number: int) -> None:
        one, other = self.pick(number), self.pick(number >> 3)
        if one is not None and other is not None:
            given = self.table.redeliver([NamedId(5, one.entry), NamedId(5, other.entry), NamedId(5, one.entry)])
            self.gone([*given.nack, *given.later])

    def redeliver_all(self, _number: int) -> None:
        given = self.table.redeliver_all()
        assert not given.later
        self.gone(given.nack)
        assert self.table.waiting == 0

    def unreadable(self, number: int) -> None:
        one = self.pick(number)
        if one is not None:
            decision = self.table.acknowledge(AckAsked([NamedId(5, one.entry)], unreadable=True))
            assert not decision.acknowledge
            self.gone(decision.nack)

    def recall(self, number: int) -> None:
        here = [i for i, where in self.at.items() if where == HERE and i not in self.in_flight]
        start = number % (len(here) + 1)
        chosen = here[start : start + 1 + number % 5]
        self.move(chosen, FREE)
        for live in self.live.values():
            live.difference_update(chosen)
        given = self.table.recalled(ranges(chosen))
        assert not given.nack
        self.gone(given.later)

    def elsewhere(self, number: int) -> None:
        """Other consumers take messages, give them back, or acknowledge them."""
        index = sorted(self.at)[(number >> 1) % len(self.at)]
        following = {FREE: ELSEWHERE, ELSEWHERE: FREE if number & 1 else DONE}
        self.at[index] = following.get(self.at[index], self.at[index])

    def lie(self, number: int) -> None:
        """What no honest client sends."""
        if self.honest:
            self.acknowledge(number)
            return
        entry = number % 10
        sets: list[tuple[int, ...]] = [
            (), (0,), (-1,), (2**63,), (number, 0), (0,) * 3000, (1,) * 1025, (-(2**63),), (number & 7,)
        ]  # fmt: skip
        one = NamedId(5 + (number >> 4) % 2, entry, number % 7 - 2, sets[number % len(sets)], (number >> 5) % 6 - 1)
        self.ack(set(), one, NamedId(2**64 - 1, 2**64 - 1), one, NamedId(5, entry), cumulative=number % 11 == 0)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def ack(self, means: set[int], *ids: NamedId, cumulative: bool = False, wants_answer: bool = True) -> set[int]:
        """means: by the client. Returns the same; nothing if the answer is that some of it comes again."""
        self.requests += 1
        self.expected.update([self.requests] if wants_answer else [])
        decision = self.table.acknowledge(AckAsked(ids, cumulative, self.requests if wants_answer else None))
        messages = set(indexes(decision.acknowledge))
        assert messages <= self.had, "a message was acknowledged that the client was not sent"
        assert not self.honest or messages <= self.processed, "a message was acknowledged that was not processed"
        assert not messages & self.in_flight, "a message was acknowledged twice"
        assert all(self.at[i] != DONE or i not in self.live.get(ids[0].entry_id, ()) for i in messages)
        assert bool(messages) == bool(decision.ticket)
        assert decision.ignored <= len(ids)
        if messages:
            self.tickets[decision.ticket] = messages
            self.in_flight |= messages
        self.answered(decision.answers)
        return set() if decision.ignored else set(means)

    def answered(self, answers: Iterable[tuple[int, object]]) -> None:
        for request_id, _refusal in answers:
            self.expected.remove(request_id)

    def gone(self, parts: Iterable[IndexRange]) -> None:
        """The door has given these back to the owner."""
        messages = set(indexes(parts))
        assert not messages & self.in_flight, "what is being acknowledged was given back"
        self.move((i for i in messages if self.at[i] == HERE), FREE)
        for live in self.live.values():
            live.difference_update(messages)

    def move(self, messages: Iterable[int], where: str) -> None:
        for index in messages:
            self.at[index] = where

    def pick(self, number: int) -> Delivered | None:
        """A delivery: often the newest one."""
        if not self.deliveries:
            return None
        return self.deliveries[-1 - (number % len(self.deliveries) if number & 64 else 0)]

    def check(self) -> None:
        if self.table.must_close:
            self.connect()
        elif self.prepared is None:
            assert self.arrived == self.sent + self.table.unsent + self.table.waiting
            assert self.table.unacknowledged >= 0

    def drain(self) -> None:
        """The client processes all that it has, until nothing is left."""
        for _ in range(3 * len(self.at)):
            self.prepare(0)
            self.send(0)
            for one in self.deliveries:
                if self.live.get(one.entry) and not one.acknowledged:
                    self.processed |= one.shown
                    one.named |= self.ack(one.shown, NamedId(5, one.entry))
            while self.tickets and not self.table.must_close:
                self.settle(0)
            self.check()
        assert (self.table.waiting, self.table.unacknowledged) == (0, 0)
        assert not self.expected, "a command was not answered"


ACTIONS = (
    World.deliver, World.deliver, World.deliver, World.pass_on, World.pass_on, World.pass_on, World.pass_on,
    World.prepare, World.send, World.acknowledge, World.acknowledge, World.acknowledge, World.settle, World.settle,
    World.redeliver, World.redeliver, World.redeliver_all, World.recall, World.elsewhere, World.unreadable,
    World.acknowledge_up_to, World.acknowledge_again, World.acknowledge_again, World.lie,
)  # fmt: skip
STEPS = st.lists(st.tuples(st.integers(0, len(ACTIONS) - 1), st.integers(0, 2**13 - 1)), max_size=80)


@settings(max_examples=400)
@given(st.booleans(), st.booleans(), st.booleans(), st.booleans(), STEPS)
def test_nothing_is_acknowledged_that_its_sender_has_not_had(
    keeps_order: bool,
    cumulative: bool,
    sets: bool,
    honest: bool,
    steps: list[tuple[int, int]],
) -> None:
    """And by an honest client, nothing that it has not processed. Then nothing is left over."""
    world = World(keeps_order=keeps_order, cumulative=cumulative, sets=sets, honest=honest)
    for action, number in steps:
        ACTIONS[action](world, number)
        world.check()
    if honest:
        world.drain()
