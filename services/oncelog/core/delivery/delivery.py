"""Delivers the messages of one exclusive, failover or shared subscription.

Lowest first: the next message is the lowest deliverable one. If its entry is not in the look-ahead, the entry is read,
and delivery goes on when it has arrived. A frame holds entries as stored and the indexes that are meant for the
consumer. No consumer gets more than its credit, and none gets an entry for which the outbox of its stream has no room
(hazard unread-windows). Consumers of a shared subscription take turns with each entry; one without credit or room is
passed over.
"""

from dataclasses import dataclass, field

from oncelog.core.acks.changes import IndexRange
from oncelog.core.acks.index_ranges import bits_of, count_of, first_of
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Context
from oncelog.core.delivery.dead_letters import DeadLetters
from oncelog.core.delivery.events import DeliveredEntry, DeliverMessages, StoredEntry, cost_bytes
from oncelog.core.delivery.look_ahead import LookAhead
from oncelog.core.delivery.redelivery import Redeliveries

#: A frame ends with the entry that reaches this size.
FRAME_BYTES = 1024 * 1024


@dataclass(slots=True)
class _Frame:
    """What one consumer gets next."""

    entries: list[DeliveredEntry] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    bytes: int = 0


class Delivery:
    """Hands messages to consumers, as far as their credit and the room of their streams go."""

    def __init__(
        self, context: Context, look_ahead: LookAhead, redeliveries: Redeliveries, dead_letters: DeadLetters
    ) -> None:
        self._context = context
        self._look_ahead = look_ahead
        self._redeliveries = redeliveries
        self._dead_letters = dead_letters
        self._frames: dict[ConnectedConsumer, _Frame] = {}
        #: the consumer that was sent something last
        self._served: ConnectedConsumer | None = None

    def run(self, active: ConnectedConsumer | None) -> None:
        """Deliver to the active consumer; None: to all in turn."""
        end = 0
        while (delivered := self._step(active)) is not None:
            end = delivered or end
        if end and self._served is not None and self._served.has_room:
            outbox = self._served.opening.outbox
            self._look_ahead.read_ahead(end, self._context.deliverable.new_end, self._context.state.acks, outbox)
        self.send()

    def _step(self, active: ConnectedConsumer | None) -> int | None:
        """Deliver out of the entry of the lowest deliverable message. Returns the index behind an entry that is used
        up, else 0; None: nothing more can be delivered now."""
        context, look_ahead = self._context, self._look_ahead
        receiver = context.consumers.first_with_credit() if active is None else active
        if receiver is None or not receiver.left:
            return None
        index = context.deliverable.next()
        if index is None:
            return None
        entry = look_ahead.holding(index)
        if entry is None:
            look_ahead.drop_below(index)
            look_ahead.read(index, receiver.opening.outbox)
            return None
        ranges = context.deliverable.free(entry.base_index, entry.base_index + entry.count - 1)
        if self.bury(ranges):
            return 0
        count = count_of(ranges)
        if active is not None:
            consumer = active if active.takes(count) else None
        else:
            consumer = context.consumers.next_for(count)
        if consumer is None:
            return None
        taken = consumer.credit.of(count)
        self._served = consumer
        consumer.opening.outbox.take(cost_bytes(entry))
        self.hand(consumer, entry, ranges if taken == count else first_of(ranges, taken))
        context.consumers.credit_changed(consumer)
        if taken < count:
            return 0
        look_ahead.drop(entry)
        return entry.base_index + entry.count

    def bury(self, ranges: list[IndexRange]) -> bool:
        """Make dead letters of the messages that were delivered too often; returns whether there are any.

        Their counts may have been written under another owner, or before the limit was lowered.
        """
        if not self._redeliveries.counted or not self._dead_letters.takes(1 << 62):
            return False
        buried = [
            index
            for index in bits_of(ranges) & self._redeliveries.counted
            if self._dead_letters.takes(self._redeliveries.deliveries(index))
        ]
        for index in buried:
            self._dead_letters.decide(index)
        return bool(buried)

    def hand(self, consumer: ConnectedConsumer, entry: StoredEntry, ranges: list[IndexRange]) -> None:
        """These messages of the entry, which its outbox has taken, go to the consumer."""
        context, redeliveries = self._context, self._redeliveries
        frame = self._frames.get(consumer)
        if frame is None:
            frame = self._frames[consumer] = _Frame()
        frame.entries.append(DeliveredEntry(entry, tuple(ranges)))
        frame.bytes += len(entry.data)
        if redeliveries.counted:
            for index in bits_of(ranges) & redeliveries.counted:
                deliveries = redeliveries.deliveries(index)
                if deliveries:
                    frame.counts[index] = deliveries + 1
                    consumer.redelivered += 1
                    context.redelivered += 1
        again = context.deliverable.again
        repeated = bits_of(ranges) & again if again else None
        context.deliverable.delivered(ranges)
        consumer.out.add(ranges, context.running_ms())
        self._look_ahead.used()
        count = count_of(ranges)
        context.delivered += count
        consumer.credit.spend(count, len(entry.data))
        if repeated:
            consumer.out.came_again(repeated, consumer.credit.sent)
        if frame.bytes >= FRAME_BYTES:
            self._send(consumer)

    def send(self) -> None:
        """Send the frames begun."""
        for consumer in list(self._frames):
            self._send(consumer)

    def _send(self, consumer: ConnectedConsumer) -> None:
        frame = self._frames.pop(consumer)
        self._context.step.emit(
            DeliverMessages(
                consumer.number,
                self._context.state.seek_epoch,
                consumer.generation,
                tuple(frame.entries),
                frame.counts,
                consumer.opening.outbox,
            )
        )
