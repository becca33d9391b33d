"""Delivers the messages of a key_shared subscription: in order for each key (hazard key-moves-too-early).

    scanned -> queued by key -> outstanding -> acknowledged
                  ^                 | negative acknowledgement, time-out, loss of the consumer
                  |-----------------|  and what is outstanding of the same key behind it (recalled)

Messages are scanned in the order of the log, at most LOOK_AHEAD_MESSAGES that are not delivered; so every earlier
message of a key is known before a later one is looked at. The first queued message of a key may go when

    - it is not hidden, delayed or waiting; until then the later ones of its key wait behind it,
    - every outstanding message of the key is with the consumer that the key belongs to now, and none of them is on its
      way back; one that is acknowledged in memory only does not count, and
    - that consumer has credit, and its stream has room for the entry.

Keys are told apart by their hash: two keys of one hash wait for each other. A message without a key is alone in its
queue and goes to any consumer with credit. What happens to messages elsewhere is found in `Deliverable.changed`.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from pyroaring import BitMap64

from oncelog.core.acks.changes import IndexRange
from oncelog.core.acks.index_ranges import INDEX_END, bits_between, ranges_of
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Context
from oncelog.core.delivery.delivery import Delivery
from oncelog.core.delivery.events import RecallMessages, StoredEntry, cost_bytes
from oncelog.core.delivery.key_ranges import KeyRanges, slots_of
from oncelog.core.delivery.look_ahead import LookAhead
from oncelog.core.delivery.redelivery import Redeliveries
from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import ConsumerNumber

#: Messages that are known and wait for an earlier one of their key, or for credit.
LOOK_AHEAD_MESSAGES = 10_000


class _Picks:
    """What one run hands out. An outbox takes an entry once for all of the messages that are picked out of it."""

    __slots__ = ("_counts", "picked")

    def __init__(self) -> None:
        #: {consumer: {first index of an entry: the messages picked out of it}}
        self.picked: dict[ConnectedConsumer, dict[int, list[int]]] = {}
        self._counts: dict[ConnectedConsumer, int] = {}

    def may_take(self, consumer: ConnectedConsumer, entry: StoredEntry | None) -> bool:
        """Whether the consumer has credit for another message, and room for this entry."""
        of_picked = entry is not None and entry.base_index in self.picked.get(consumer, ())
        if of_picked and consumer.credit.whole_entries:
            return True
        if consumer.credit.left <= self._counts.get(consumer, 0):
            return False
        return of_picked or consumer.has_room

    def add(self, consumer: ConnectedConsumer, entry: StoredEntry, index: int) -> None:
        by_entry = self.picked.setdefault(consumer, {})
        if entry.base_index not in by_entry:
            by_entry[entry.base_index] = []
            consumer.opening.outbox.take(cost_bytes(entry))
        by_entry[entry.base_index].append(index)
        self._counts[consumer] = self._counts.get(consumer, 0) + 1


class KeyShared:
    """Queues of one subscription by the hash of the key."""

    def __init__(
        self,
        context: Context,
        look_ahead: LookAhead,
        redeliveries: Redeliveries,
        delivery: Delivery,
        *,
        in_memory: Callable[[], BitMap64],
    ) -> None:
        """in_memory: the messages that are acknowledged in memory only."""
        self._context = context
        self._in_memory = in_memory
        self._look_ahead = look_ahead
        self._redeliveries = redeliveries
        self._delivery = delivery
        self._ranges = KeyRanges()
        self.restart()

    def restart(self) -> None:
        """Begin at the mark_delete: the subscription was sought, or became key_shared."""
        #: every unacknowledged message below is known
        self._scanned = self._context.state.acks.mark_delete
        #: {index: slot} of the known messages; a message without a key has the slot -1 - index
        self._slot_of: dict[int, int] = {}
        self._known = BitMap64()
        #: {slot: heap of the indexes queued}; an index that is not in `_queued` any more is passed over
        self._queues: dict[int, list[int]] = {}
        self._queued = BitMap64()
        #: {slot: {index: consumer}} of the outstanding ones; None: with a consumer that was lost
        self._out: dict[int, dict[int, ConnectedConsumer | None]] = {}
        #: slots whose outstanding messages are with several consumers, which only a takeover can leave behind
        self._mixed: set[int] = set()
        #: heap of (first queued index, slot) of slots to look at, and their slots
        self._ready: list[tuple[int, int]] = []
        self._listed: set[int] = set()
        #: {consumer: slots that wait for its credit, or for room at its stream}
        self._stalled: dict[ConsumerNumber, dict[int, None]] = {}
        #: slots that wait for credit of any consumer
        self._stalled_anyhow: dict[int, None] = {}
        self._context.deliverable.changed = BitMap64()

    # --- what has happened --------------------------------------------------------------------------------------------

    def consumers_changed(self) -> None:
        """A consumer has come or gone: keys belong to other consumers."""
        self._ranges.assign(list(self._context.consumers.by_number.values()))
        self.look_again()

    def look_again(self) -> None:
        """Look at every queue."""
        self._stalled.clear()
        self._stalled_anyhow.clear()
        for slot in list(self._queues):
            self._list(slot)

    def credit_changed(self, consumer: ConnectedConsumer) -> None:
        """A consumer reported, or has room again: look at the queues that wait for it."""
        if consumer.left:
            for slot in (*self._stalled.pop(consumer.number, {}), *self._stalled_anyhow):
                self._list(slot)
            self._stalled_anyhow.clear()

    def recall(self, consumer: ConnectedConsumer, bits: BitMap64) -> None:
        """Messages of the consumer are on their way back: the later ones of their keys come back before them."""
        recalled = BitMap64()
        for index in bits:
            slot = self._slot_of.get(index)
            if slot is not None:
                out = self._out.get(slot, {})
                recalled |= BitMap64([i for i, holder in out.items() if i > index and holder is consumer])
        recalled -= bits
        recalled -= self._redeliveries.counting
        recalled -= self._context.deliverable.hidden
        if recalled:
            consumer.out.remove(recalled)
            self._context.deliverable.give_back(recalled)
            self._context.step.emit(RecallMessages(consumer.number, tuple(ranges_of(recalled))))

    def may_keep(self, bits: BitMap64, lost: BitMap64) -> BitMap64:
        """Of what a consumer presents, the messages whose keys no other consumer has. lost: what it cannot keep. The
        later ones of these keys come after it, and of a message that is not known so is the key."""
        lost = lost | BitMap64([i for i in bits & self._known if self._out.get(self._slot_of[i])])
        if not lost:
            return bits
        first: dict[int, int] = {}  # {slot: its first message that is lost}
        for index in lost & self._known:
            first.setdefault(self._slot_of[index], index)
        kept = BitMap64([i for i in (bits & self._known) - lost if i < first.get(self._slot_of[i], i + 1)])
        unknown = bits - self._known
        unknown.remove_range(lost.min(), INDEX_END)
        return kept | unknown

    def _review(self) -> None:
        """Bring the known messages up to date whose state has changed."""
        deliverable, acks = self._context.deliverable, self._context.state.acks
        changed = deliverable.changed
        if not changed:
            return
        deliverable.changed = BitMap64()
        for index in changed & self._known:
            slot = self._slot_of[index]
            if acks.contains(index) or index in deliverable.dead:
                self._forget(index, slot)
            elif index in deliverable.outstanding:
                self._queued.discard(index)
                self._hold(index, slot, self._holder(index))
            else:
                self._not_out(index, slot)
                self._queue(index, slot)
            self._list(slot)

    def _holder(self, index: int) -> ConnectedConsumer | None:
        return next((c for c in self._context.consumers.by_number.values() if index in c.out.bits), None)

    def _forget(self, index: int, slot: int) -> None:
        del self._slot_of[index]
        self._known.discard(index)
        self._queued.discard(index)
        self._not_out(index, slot)

    def _hold(self, index: int, slot: int, holder: ConnectedConsumer | None) -> None:
        out = self._out.setdefault(slot, {})
        if out and next(iter(out.values())) is not holder:
            self._mixed.add(slot)
        out[index] = holder

    def _not_out(self, index: int, slot: int) -> None:
        out = self._out.get(slot)
        if out is None:
            return
        out.pop(index, None)
        if not out:
            del self._out[slot]
            self._mixed.discard(slot)
        elif slot in self._mixed and len(dict.fromkeys(out.values())) == 1:
            self._mixed.discard(slot)

    def _queue(self, index: int, slot: int) -> None:
        if index not in self._queued:
            self._queued.add(index)
            heappush(self._queues.setdefault(slot, []), index)

    def _list(self, slot: int) -> None:
        """Look at the slot in the next run."""
        first = self._first(slot)
        if first is not None and slot not in self._listed:
            self._listed.add(slot)
            heappush(self._ready, (first, slot))

    def _first(self, slot: int) -> int | None:
        """The first queued message of a slot."""
        queue = self._queues.get(slot)
        if queue is None:
            return None
        while queue and queue[0] not in self._queued:
            heappop(queue)
        if not queue:
            del self._queues[slot]
            return None
        return queue[0]

    # --- delivery -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Deliver what may be delivered."""
        self._review()
        consumers = self._context.consumers
        while consumers.any_credit:
            unread = self._deliver_ready()
            self._review()
            if self._ready:
                continue
            if unread:
                for index, slot in unread:
                    self._listed.add(slot)
                    heappush(self._ready, (index, slot))
                self._read(unread[0][0])
                break
            if len(self._queued) >= LOOK_AHEAD_MESSAGES or not self._scan():
                break
        self._delivery.send()

    def _read(self, index: int) -> None:
        """Read on, for a consumer that takes something now; if there is none, the next one that does begins here."""
        receiver = self._context.consumers.first_with_credit()
        if receiver is not None:
            self._look_ahead.make_room(index)
            self._look_ahead.read(index, receiver.opening.outbox)

    def _deliver_ready(self) -> list[tuple[int, int]]:
        """Deliver from the listed slots, the lowest message first; returns those whose entries have to be read."""
        picks = _Picks()
        unread: list[tuple[int, int]] = []
        entries: dict[int, StoredEntry] = {}
        while self._ready:
            listed, slot = heappop(self._ready)
            self._listed.discard(slot)
            first = self._first(slot)
            if first is None:
                continue
            if first != listed:
                self._list(slot)
                continue
            entry = self._look_ahead.holding(first)
            consumer = self._receiver(first, slot, entry, picks)
            if consumer is None:
                continue
            if entry is None:
                unread.append((first, slot))
                continue
            entries[entry.base_index] = entry
            self._queued.discard(first)
            self._hold(first, slot, consumer)
            picks.add(consumer, entry, first)
            self._list(slot)
        for consumer, by_entry in picks.picked.items():
            for base, indexes in sorted(by_entry.items()):
                self._delivery.hand(consumer, entries[base], ranges_of(BitMap64(indexes)))
            self._context.consumers.credit_changed(consumer)
        for base, entry in entries.items():
            end = base + entry.count
            if end <= self._scanned and not bits_between(self._queued, base, end):
                self._look_ahead.drop(entry)
        unread.sort()
        return unread

    def _receiver(self, index: int, slot: int, entry: StoredEntry | None, picks: "_Picks") -> ConnectedConsumer | None:
        """The consumer that gets the first queued message of a slot now, out of this entry; None: it is not read."""
        deliverable = self._context.deliverable
        if index in deliverable.hidden or index in deliverable.delayed or index in deliverable.waiting:
            return None
        if deliverable.withheld(index) or self._delivery.bury([IndexRange(index, index)]):
            return None
        if slot < 0:
            consumer = self._with_credit(entry, picks)
            if consumer is None:
                self._stalled_anyhow[slot] = None
            return consumer
        owner, out, mixed = self._ranges.owner(slot), self._out.get(slot), slot in self._mixed
        counting = self._redeliveries.counting
        if out and (acknowledged := self._in_memory()):
            # No application works on these any more, and they may stay for as long as the ack state is full.
            out = {i: holder for i, holder in out.items() if i not in acknowledged}
            mixed = len(set(out.values())) > 1
        if owner is None or mixed or (out and counting and any(i in counting for i in out)):
            return None
        holder = next(iter(out.values())) if out else owner
        has_credit = picks.may_take(owner, entry)
        if deliverable.paused and not has_credit:
            # Any consumer with credit gets a hole (hazard dispatch-paused-for-ever), and the later ones of its key.
            consumer = self._with_credit(entry, picks, among=[holder] if out else ())
            if consumer is None:
                self._stalled_anyhow[slot] = None
            return consumer
        if holder is not owner:
            return None
        if not has_credit:
            self._stalled.setdefault(owner.number, {})[slot] = None
            return None
        return owner

    def _with_credit(
        self, entry: StoredEntry | None, picks: "_Picks", among: Sequence[ConnectedConsumer | None] = ()
    ) -> ConnectedConsumer | None:
        """The next consumer in turn that has credit left. among: only these; empty: all."""
        for each in self._context.consumers.with_credit():
            if (not among or each in among) and picks.may_take(each, entry):
                return each
        return None

    def _scan(self) -> bool:
        """Look at the next entry; returns whether messages became known."""
        acks, deliverable = self._context.state.acks, self._context.deliverable
        index = acks.next_unacked(self._scanned)
        if index >= deliverable.new_end:
            return False
        entry = self._look_ahead.holding(index)
        if entry is None:
            self._read(index)
            return False
        end = min(entry.base_index + entry.count, deliverable.new_end)
        bits = BitMap64()
        bits.add_range(index, end)
        bits = acks.unacked(bits) - deliverable.dead
        slots = slots_of(entry)
        for each in bits:
            found = None if slots is None else slots[each - entry.base_index]
            slot = -1 - each if found is None else found
            self._slot_of[each] = slot
            if each in deliverable.outstanding:
                self._hold(each, slot, self._holder(each))
            else:
                self._queue(each, slot)
                self._list(slot)
        self._known |= bits
        self._scanned = end
        return True

    def check_invariants(self) -> None:
        outstanding = BitMap64([index for out in self._out.values() for index in out])
        changed = self._context.deliverable.changed or BitMap64()
        if not outstanding.isdisjoint(self._queued) and (outstanding & self._queued) - changed:
            raise InvariantViolated(f"messages are queued and outstanding: {outstanding & self._queued}")
        if not ((outstanding | self._queued) ^ self._known).issubset(changed):
            raise InvariantViolated("a known message is neither queued nor outstanding")
