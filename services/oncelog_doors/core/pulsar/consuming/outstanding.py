"""What one consumer of Pulsar holds: which messages its ids mean, and what its acknowledgements are in the log.

An id of Pulsar names an entry, and a client acknowledges the entry as a whole. Here the same entry may come to several
consumers in parts, and to one consumer several times. So an id means what *this consumer* was sent under it, never "the
entry" (hazard ack-of-another-part).

    arrived ──▶ prepared ──▶ out ──▶ acknowledged: forgotten when that is durable
       ▲            │         │
       │            ▼         ▼
       └─────────── given back: by the client, or taken back by the owner

- A consumer holds one delivery of an entry at a time. What arrives of an entry that is out waits until that delivery is
  durably acknowledged in whole. Where the order of messages or keys is kept, everything behind it waits, too.
- What was given back may still be acknowledged by its id, at any time, also when it has come again. So of that entry
  only the same messages or fewer are sent. If others arrive, the client must subscribe again: then ids begin again.
- The numbers of messages in a batch, which acknowledgement sets use, stay those of the first delivery for a client that
  reads masks. For others fewer messages are a batch of their own. Then a set does not say which delivery it counts, and
  is ignored unless it has the size of the batch (hazard ack-of-another-part).
- Nothing that a client does acknowledges a message that was not sent to it on this connection. There is one exception,
  for messages that it had on a former one: `early_acks`.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Position, SeekEpoch
from oncelog_doors.core.pulsar.consuming.ack_sets import (
    Ranges,
    all_bits,
    bits_of_ranges,
    joined,
    size_of,
    without,
    words_of_bits,
)
from oncelog_doors.core.pulsar.consuming.acknowledgements import (
    IDS_MAX,
    AckAnswer,
    AckAnswers,
    AckAsked,
    AckDecision,
    GivenBack,
    NamedId,
    not_held,
    not_read,
    refusal_of_ack,
)
from oncelog_doors.core.pulsar.consuming.arrivals import Arrivals, Arrived
from oncelog_doors.core.pulsar.consuming.early_acks import EarlyAcks
from oncelog_doors.core.pulsar.consuming.held_entries import HeldEntry, State
from oncelog_doors.core.pulsar.message_ids import before
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError, refusal_of

#: Messages that a consumer holds. Above it nothing more is sent.
UNACKNOWLEDGED_MAX = 50_000
#: Entries that were given back are remembered until they are acknowledged; with more, the client must subscribe again.
GIVEN_BACK_MAX = 50_000
#: Entries that were acknowledged last: to acknowledge them again is no error.
RECENT_MAX = 1_000
_MEMORY_ONLY = Refusal(
    ServerError.PERSISTENCE_ERROR,
    "the acknowledgement is in the memory of the topic's owner alone, because the subscription has reached the limit "
    "of its state: acknowledge the oldest messages",
)

E = TypeVar("E")


class Arrival(Enum):
    TAKEN = auto()
    #: of a position before the last seek: it is dropped
    OLD = auto()
    #: somebody has sought the subscription, and this is the first that is heard of it. All that the client holds is
    #: void, and it must subscribe again.
    SOUGHT = auto()
    #: the client has acknowledged it before. It is not sent, and `acknowledge` is due for its position.
    ACKNOWLEDGED = auto()


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[E]):
    """An entry to be sent now. sends: the messages whose bytes are sent, in the order of batch_index (`parts.part_of`);
    all: the entry goes as `delivery_of` makes it. mask: ack_set of MESSAGE, empty for none: a bit that is clear hides a
    message. messages: what it costs the client's permits."""

    number: int
    arrived: Arrived[E]
    sends: Ranges
    all: bool
    mask: tuple[int, ...]
    messages: int


class _Taken(Generic[E]):
    """What one ACK acknowledges."""

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.parts: list[tuple[HeldEntry[E], Ranges]] = []
        #: earlier requests that acknowledge some of the same messages
        self.earlier: set[int] = set()
        #: ids of entries that were not sent
        self.early: list[NamedId] = []
        self.ignored = 0


class Outstanding(Generic[E]):
    """Of one consumer, from SUBSCRIBE on. A client that subscribes again gets a new one: what it still sends of the
    former one names nothing.

    Attributes:
        consumer_epoch: as the client counts its REDELIVERs of everything: MESSAGE repeats it.
        seek_epoch: of the messages that the client holds.
        unacknowledged: messages that were sent, and neither durably acknowledged nor given back.
        reads_masks: the client has sent an acknowledgement set, so masks are sent to it.
        must_close: the client must subscribe again: CLOSE_CONSUMER is due, and nothing is sent any more.
    """

    def __init__(self, *, cumulative: bool, keeps_order: bool, unacknowledged_max: int = UNACKNOWLEDGED_MAX) -> None:
        """cumulative: the type allows cumulative acknowledgements (exclusive, failover). keeps_order: of all messages
        or of keys, so all types but shared: an entry that waits stops those behind it."""
        self.consumer_epoch = 0
        self.seek_epoch: SeekEpoch | None = None
        self.unacknowledged = 0
        self.reads_masks = False
        self.must_close = False
        self._cumulative_allowed = cumulative
        self._keeps_order = keeps_order
        self._unacknowledged_max = unacknowledged_max
        self._arrivals = Arrivals[E]()
        #: messages that were prepared in vain, or of an old position
        self._never_sent = 0
        self._table: dict[Position, HeldEntry[E]] = {}
        #: whether the table is in the order of the log; its highest entry so far
        self._sorted = True
        self._highest: Position | None = None
        #: the lowest and the highest entry that was sent
        self._sent: tuple[Position, Position] | None = None
        self._given_back = 0
        self._recent: OrderedDict[Position, None] = OrderedDict()
        self._early = EarlyAcks()
        self._numbers = self._tickets = 0
        self._requests: dict[int, _Taken[E]] = {}
        self._answers = AckAnswers()

    def created(self) -> None:
        """The subscription was created for this consumer, so its client has had nothing of it before."""
        self._early.end()

    # --- delivery -----------------------------------------------------------------------------------------------------

    def arrived(self, arrived: Arrived[E]) -> Arrival:
        """The log has delivered messages of an entry. They wait until `next` returns them."""
        if self.seek_epoch is not None and arrived.seek_epoch != self.seek_epoch:
            if arrived.seek_epoch < self.seek_epoch:
                self._never_sent += size_of(arrived.ranges)
                return Arrival.OLD
            self.sought(arrived.seek_epoch)
            self.must_close = True
            return Arrival.SOUGHT
        self.seek_epoch = arrived.seek_epoch
        if arrived.position not in self._table and self._early.take(arrived):
            held = self._hold(arrived.position, arrived.ranges)
            held.state, held.was_sent, held.left = State.OUT, True, all_bits(held.count)
            self.unacknowledged += held.count
            self._never_sent += held.count
            return Arrival.ACKNOWLEDGED
        self._arrivals.add(arrived)
        return Arrival.TAKEN

    @property
    def blocked(self) -> bool:
        """So much is unacknowledged that nothing goes out."""
        return self.unacknowledged >= self._unacknowledged_max

    @property
    def waiting(self) -> int:
        """Messages that have arrived and wait to be prepared."""
        return self._arrivals.messages

    @property
    def unsent(self) -> int:
        """All messages so far that arrived, and are not sent for that arrival. The owner has counted them."""
        return self._never_sent + self._arrivals.unsent

    def next(self) -> Outgoing[E] | None:
        """The entry to be made ready and sent now. None: none may go before another event. The caller asks only while
        permits are left."""
        while not self.must_close and not self.blocked:
            arrived = self._arrivals.first
            if arrived is None:
                break
            held = self._table.get(arrived.position)
            may_go = arrived.ranges if held is None else _sent_again(held, arrived.ranges)
            if may_go:
                self._arrivals.take_first(may_go)
                return self._prepare(arrived if may_go == arrived.ranges else arrived._replace(ranges=may_go), held)
            assert held is not None, "what is not held may go"
            if held.state is State.BACK and not held.acking:
                self.must_close = True
            elif self._keeps_order:
                break
            else:
                self._arrivals.park_first()
        return None

    def _prepare(self, arrived: Arrived[E], held: HeldEntry[E] | None) -> Outgoing[E]:
        """These messages go out. held: what the client had of the entry."""
        whole = (IndexRange(arrived.base_index, arrived.base_index + arrived.count - 1),)
        masks = self.reads_masks or not arrived.can_be_cut
        if held is None:
            held = self._hold(arrived.position, whole if masks else arrived.ranges)
        else:
            self._given_back -= 1
            if held.sends != arrived.ranges and not masks:
                held.recount(arrived.ranges)
        held.is_part = arrived.ranges != whole
        self._numbers += 1
        held.number, held.arrived, held.state, held.recalled = self._numbers, arrived, State.PREPARED, 0
        held.left = bits_of_ranges(held.sends, arrived.ranges)
        messages = size_of(arrived.ranges)
        self.unacknowledged += messages
        mask = words_of_bits(held.left) if messages < held.count else ()
        return Outgoing(held.number, arrived, held.sends, held.sends == whole, mask, messages)

    def _hold(self, position: Position, sends: Ranges) -> HeldEntry[E]:
        if self._highest is None or position > self._highest:
            self._highest = position
        else:
            self._sorted = False
        held: HeldEntry[E] = HeldEntry(position, sends)
        self._table[position] = held
        return held

    def may_go(self, outgoing: Outgoing[E]) -> bool:
        """Its bytes are ready. True: they are sent now, and cost their permits. False: they are not sent: the messages
        were acknowledged, given back, recalled or sought meanwhile; what is still to be sent is in `next` again."""
        held = self._table.get(outgoing.arrived.position)
        if held is None or held.number != outgoing.number or held.state is not State.PREPARED or self.must_close:
            return False
        if held.left.bit_count() < outgoing.messages:
            self._unprepare(held, held.ranges(held.left))
            return False
        held.state, held.arrived, held.was_sent = State.OUT, None, True
        low, high = self._sent or (held.position, held.position)
        self._sent = min(low, held.position), max(high, held.position)
        return True

    def _unprepare(self, held: HeldEntry[E], again: Ranges = ()) -> None:
        """The prepared bytes are not sent. again: these of their messages are prepared again."""
        arrived = held.arrived
        assert arrived is not None, "it is prepared"
        self._never_sent += size_of(arrived.ranges) - size_of(again)
        self._give_back(held)
        if not held.was_sent:
            self._given_back -= 1
            del self._table[held.position]
        self._arrivals.unpark(held.position)
        self._arrivals.put_back(arrived, again)

    def _give_back(self, held: HeldEntry[E]) -> None:
        """It may be sent again."""
        self.unacknowledged -= held.left.bit_count()
        held.state, held.arrived, held.was_back = State.BACK, None, held.was_back or held.was_sent
        self._given_back += 1
        if self._given_back > GIVEN_BACK_MAX:
            self.must_close = True

    # --- acknowledgements ---------------------------------------------------------------------------------------------

    def acknowledge(self, asked: AckAsked) -> AckDecision:
        """What becomes of an ACK. Ids that name nothing are ignored, and make its answer an error."""
        refusal = refusal_of_ack(asked, cumulative_allowed=self._cumulative_allowed)
        if refusal is not None:
            answers = self._answers.open(asked.request_id, (), refusal)
            return AckDecision(answers=answers, ignored=len(asked.ids))
        if asked.unreadable and not asked.acks_unreadable:
            return self._unreadable(asked)
        if any(named.ack_set for named in asked.ids):
            self.reads_masks = True
        taken = _Taken[E](self._tickets + 1)
        if asked.cumulative:
            self._up_to(asked.ids[0], taken)
        else:
            for named in asked.ids:
                self._individual(named, taken)
        if asked.request_id is None:
            self._early.name(taken.early)
        tickets = taken.earlier
        if taken.parts:
            self._tickets += 1
            self._requests[taken.ticket] = taken
            tickets = tickets | {taken.ticket}
        refusal = not_held(taken.ignored) if taken.ignored else None
        return AckDecision(
            acknowledge=joined(each for _held, ranges in taken.parts for each in ranges),
            seek_epoch=self.seek_epoch or SeekEpoch(0),
            ticket=taken.ticket if taken.parts else 0,
            answers=self._answers.open(asked.request_id, tickets, refusal),
            ignored=taken.ignored,
            unreadable=len({held.position for held, _ranges in taken.parts}) if asked.unreadable else 0,
        )

    def _individual(self, named: NamedId, taken: _Taken[E]) -> None:
        position = named.position
        held = self._table.get(position)
        if held is None or not held.was_sent:
            if position not in self._recent:
                taken.ignored += 1
                taken.early.append(named)
            return
        bits = held.named(named)
        if bits is None:
            taken.ignored += 1
        else:
            self._take(held, bits, taken)

    def _up_to(self, named: NamedId, taken: _Taken[E]) -> None:
        """All that is out in front of the named entry, and what is named of it. What the client gave back stays."""
        position = named.position
        if self._sent is None or not before(self._sent[0]) <= position <= self._sent[1]:
            taken.ignored += 1
            return
        for held in self._in_order():
            if held.position > position:
                break
            if held.state is State.OUT:
                bits = all_bits(held.count) if held.position < position else held.named(named, up_to=True)
                if bits is None:
                    taken.ignored += 1
                else:
                    self._take(held, bits, taken)

    def _take(self, held: HeldEntry[E], bits: int, taken: _Taken[E]) -> None:
        if bits & ~held.left:
            taken.earlier.update(ticket for ticket, _ranges in held.acking if ticket != taken.ticket)
        bits &= held.left
        if not bits:
            return
        if held.state is State.BACK:
            self.unacknowledged += bits.bit_count()
        ranges = held.ranges(bits)
        held.left &= ~bits
        held.acking.append((taken.ticket, ranges))
        taken.parts.append((held, ranges))
        self._taken_back(held)

    def _taken_back(self, held: HeldEntry[E]) -> bool:
        """Whether the owner has all that the client has not acknowledged."""
        taken_back = held.state is State.OUT and held.left != 0 and not held.left & ~held.recalled
        if taken_back:
            self._give_back(held)
        return taken_back

    def settled(self, ticket: int, error: OncelogError | None = None, *, durable: bool = True) -> list[AckAnswer]:
        """The request of `AckDecision.acknowledge` is over. durable: as `AckResult.durable`. Returns the answers due.

        After an error it is not known what the log has acknowledged, so the client must subscribe again."""
        refusal = refusal_of(error) if error is not None else None if durable else _MEMORY_ONLY
        taken = self._requests.pop(ticket, None)
        if taken is not None:
            self.must_close = self.must_close or error is not None
            acknowledged: dict[Position, Ranges] = {}
            for held, ranges in taken.parts:
                self.unacknowledged -= size_of(ranges)
                earlier = acknowledged.get(held.position)
                acknowledged[held.position] = ranges if earlier is None else joined((*earlier, *ranges))
            self._arrivals.drop(acknowledged)
            for position in acknowledged:
                self._settle(self._table[position], ticket)
        return self._answers.settled(ticket, refusal)

    def _settle(self, held: HeldEntry[E], ticket: int) -> None:
        held.acking = [each for each in held.acking if each[0] != ticket]
        if held.acking:
            return
        if not held.left:
            if held.state is State.PREPARED:
                self._unprepare(held)
            if held.may_be_named_again:
                if held.state is State.OUT:
                    self._give_back(held)
            else:
                self._forget(held)
        if held.state is State.BACK or not held.left:
            self._arrivals.unpark(held.position)

    def _forget(self, held: HeldEntry[E]) -> None:
        """All of it is durably acknowledged."""
        self._given_back -= held.state is State.BACK
        del self._table[held.position]
        self._recent[held.position] = None
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)

    # --- given back, and taken back -----------------------------------------------------------------------------------

    def redeliver(self, ids: Sequence[NamedId]) -> GivenBack:
        """REDELIVER with ids. Those that name nothing are passed over; more than IDS_MAX mean everything."""
        if len(ids) > IDS_MAX:
            return self.redeliver_all(self.consumer_epoch)
        nack, later, _entries = self._back_of({named.position for named in ids})
        return GivenBack(nack, later)

    def _back_of(self, positions: set[Position]) -> tuple[Ranges, Ranges, int]:
        """The client gives these entries back: (what it had, what waits for it, how many entries)."""
        held = (self._table[each] for each in positions if each in self._table)
        out = {each.position: each for each in held if each.state is State.OUT and each.left}
        for each in out.values():
            self._give_back(each)
        nack = joined(part for each in out.values() for part in each.ranges(each.left))
        return nack, self._not_acknowledged(self._arrivals.take_away(out)), len(out)

    def _not_acknowledged(self, ranges: Ranges) -> Ranges:
        """Without the messages whose acknowledgement is on its way."""
        if not ranges or not self._requests:
            return ranges
        parts = (part for taken in self._requests.values() for _held, parts in taken.parts for part in parts)
        return without(ranges, joined(parts))

    def redeliver_all(self, consumer_epoch: int = 0) -> GivenBack:
        """REDELIVER without ids: everything, also what waits. What the SDK still holds is to be taken to `arrived`
        before, else it goes out in front of the redelivered messages."""
        self.consumer_epoch = max(self.consumer_epoch, consumer_epoch)
        nack: list[IndexRange] = []
        for held in list(self._in_order()):
            if held.state is State.BACK:
                continue
            nack += held.ranges(held.left)
            if held.state is State.PREPARED:
                self._unprepare(held)
            elif held.left:
                self._give_back(held)
        return GivenBack(joined((*nack, *self._not_acknowledged(self._arrivals.clear()))))

    def recalled(self, ranges: Sequence[IndexRange]) -> GivenBack:
        """The owner has taken messages back, and delivers them again, here or elsewhere. What was not sent is dropped.
        What was sent may still be acknowledged. Returns what waits for it, and is to be delivered again, too."""
        gone = joined(ranges)
        self._arrivals.drop({each.position: gone for each in self._arrivals})
        back: set[Position] = set()
        for held in list(self._table.values()):
            bits = held.left & bits_of_ranges(held.sends, gone) if held.state is not State.BACK else 0
            if bits and held.state is State.PREPARED:
                self._unprepare(held, held.ranges(held.left & ~bits))
            elif bits:
                held.recalled |= bits
                if self._taken_back(held):
                    back.add(held.position)
        return GivenBack((), self._not_acknowledged(self._arrivals.take_away(back)))

    def sought(self, seek_epoch: SeekEpoch) -> None:
        """The subscription begins elsewhere: all is void, and what arrives of a lower epoch is dropped."""
        self.lost()
        self.seek_epoch = seek_epoch

    def lost(self) -> None:
        """Another consumer is the active one: all that this one had is void. Answers that wait still come."""
        prepared = (each.arrived for each in self._table.values() if each.arrived is not None)
        self._never_sent += sum(size_of(each.ranges) for each in prepared)
        self._arrivals.clear()
        self._table.clear()
        self._recent.clear()
        self._early.clear()
        self._requests.clear()
        self._sent = self._highest = None
        self._sorted = True
        self._given_back = self.unacknowledged = 0

    def _unreadable(self, asked: AckAsked) -> AckDecision:
        """The client would lose what it could not read. It comes again, later."""
        positions = {named.position for named in asked.ids}
        nack, later, entries = self._back_of(positions)
        return AckDecision(
            nack=joined((*nack, *later)),
            answers=self._answers.open(asked.request_id, (), not_read()),
            ignored=len(positions) - entries,
            unreadable=entries,
        )

    def _in_order(self) -> Iterable[HeldEntry[E]]:
        """The table, in the order of the log."""
        if not self._sorted:
            self._table = dict(sorted(self._table.items()))
            self._sorted = True
        return self._table.values()


def _sent_again(held: HeldEntry[E], ranges: Ranges) -> Ranges:
    """Of messages that have arrived, those which may go although the client has had the entry."""
    if held.state is not State.BACK or not held.left:
        return ()
    return held.ranges(held.left & bits_of_ranges(held.sends, ranges))
