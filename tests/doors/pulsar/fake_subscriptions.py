"""Subscriptions of a topic in memory, and their consumers in the form that a door needs, with the rules of a real one.
Keys are not looked at: whoever takes first has the messages of an entry that are free."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import Conflict, ConsumerBusy, ConsumerClosed, OncelogError, SubscriptionTypeMismatch
from oncelog.core.ids import SeekEpoch
from oncelog_doors.core.pulsar.deliveries import RawBatch, last_id_of
from oncelog_doors.core.pulsar.message_ids import DeliveredId, FromEnd, FromEntry, FromFirst, FromTime, Start
from oncelog_doors.core.pulsar.subscribing import Subscription
from oncelog_doors.pulsar.ports import ConsumerCallbacks, Settled, TakenEntry
from tests.cluster.until import yield_to_loop
from tests.doors.pulsar.chunks.fake_chunks import FakeChunks, FakeMessage

FIRST_EPOCH = SeekEpoch(0)
ORDERED = ("exclusive", "failover")


class Ack(NamedTuple):
    """One that waits."""

    consumer: "FakeConsumer"
    indexes: list[int]
    seek_epoch: SeekEpoch
    then: Settled


def _is_set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class FakeSubscription:
    """acks_at_once: False: acknowledgements wait until `settle`. durable: of their answers. delays_ms: of what was
    given back, in order."""

    batches: list[RawBatch]
    chunks: FakeChunks
    begins: Start
    type: str = ""
    acked: set[int] = field(default_factory=set)
    held: dict[int, "FakeConsumer"] = field(default_factory=dict)
    deliveries: Counter[int] = field(default_factory=Counter)
    consumers: list["FakeConsumer"] = field(default_factory=list)
    opened: list["FakeConsumer"] = field(default_factory=list)
    seek_epoch: SeekEpoch = FIRST_EPOCH
    starts: list[Start] = field(default_factory=list)
    waiting: list[Ack] = field(default_factory=list)
    acks_at_once: bool = True
    durable: bool = True
    delays_ms: list[int] = field(default_factory=list)
    delayed: set[int] = field(default_factory=set)
    acks_undecodable: bool = False
    #: set: policies are answered
    answers_policies: asyncio.Event = field(default_factory=_is_set)
    paused: bool = False
    fails: OncelogError | None = None
    deleted: bool = False

    def place(self, start: Start) -> None:
        """Everything in front of it counts as acknowledged."""
        indexes = [(each, number) for each in self.batches for number in _indexes(each)]
        before: list[tuple[RawBatch, int]] = []
        match start:
            case FromFirst():
                pass
            case FromEnd():
                before = indexes
            case FromEntry(position):
                before = [each for each in indexes if each[0].entry.position < position]
            case FromTime(time_ms):
                before = [each for each in indexes if each[0].entry.append_time_ms < time_ms]
        self.acked = {number for _, number in before}
        self.starts.append(start)

    def seek(self, start: Start) -> None:
        self.place(start)
        self.held.clear()
        self.seek_epoch = SeekEpoch(self.seek_epoch + 1)
        for consumer in list(self.consumers):
            consumer.callbacks.sought(self.seek_epoch)
        self.changed()

    def changed(self) -> None:
        for consumer in self.consumers:
            consumer.woken.set()

    def come_due(self) -> None:
        """All delays are over."""
        self.delayed.clear()
        self.changed()

    def settle(self, error: OncelogError | None = None) -> None:
        """Answer all that waits."""
        waiting, self.waiting = self.waiting, []
        for ack in waiting:
            self.answer(ack, error)

    def answer(self, ack: Ack, error: OncelogError | None = None) -> None:
        if error is None:
            self.acked.update(ack.indexes)
            for index in ack.indexes:
                self.held.pop(index, None)
        ack.then(error, error is None and self.durable)

    def recall(self, consumer: "FakeConsumer", *ranges: IndexRange) -> None:
        """The owner takes messages back."""
        for index in _each(ranges):
            self.held.pop(index, None)
        consumer.callbacks.recalled(ranges)
        self.changed()


class FakeConsumer:
    """Has the form of `ConsumerPort`. given: of all entries that it has taken."""

    def __init__(
        self, subscription: FakeSubscription, name: str, wanted: Subscription, callbacks: ConsumerCallbacks
    ) -> None:
        self.subscription, self.name, self.wanted, self.callbacks = subscription, name, wanted, callbacks
        self.woken = asyncio.Event()
        self.total = self.given = 0
        self.failure: OncelogError | None = None
        #: what `arrival` raises next, once
        self.trouble: OncelogError | None = None
        #: what `take` raises next, once
        self.damage: list[OncelogError] = []
        self.said_alive = 0
        self.closes = asyncio.Event()
        self.closes.set()
        self.client_lost: bool | None = None
        self.created = not subscription.opened

    @property
    def active(self) -> bool:
        return self.subscription.type not in ORDERED or self.subscription.consumers[:1] == [self]

    @property
    def seek_epoch(self) -> SeekEpoch:
        return self.subscription.seek_epoch

    def permits(self, total: int) -> None:
        self.total = max(self.total, total)
        self.woken.set()

    def take(self) -> TakenEntry | None:
        own = self.subscription
        if self.failure is not None:
            raise self.failure
        if self.damage:
            raise self.damage.pop()
        if self.given >= self.total or not self.active:
            return None
        gone = own.acked | own.delayed | own.held.keys()
        for raw in own.batches:
            free = [each for each in _indexes(raw) if each not in gone]
            if free:
                own.held.update(dict.fromkeys(free, self))
                own.deliveries.update(free)
                self.given += len(free)
                return TakenEntry(raw, _ranges(free), max(own.deliveries[each] for each in free), own.seek_epoch)
        return None

    def chunks_of(self, taken: TakenEntry) -> FakeMessage | None:
        return self.subscription.chunks.of_entry(taken.raw)

    async def arrival(self) -> None:
        await self.woken.wait()
        self.woken.clear()
        if self.failure is not None:
            raise self.failure
        if self.trouble is not None:
            error, self.trouble = self.trouble, None
            raise error

    def fail(self, error: OncelogError) -> None:
        self.failure = error
        self.woken.set()

    def ack(self, ranges: Sequence[IndexRange], seek_epoch: SeekEpoch, then: Settled) -> None:
        ack = Ack(self, list(_each(ranges)), seek_epoch, then)
        if self.subscription.acks_at_once:
            self.subscription.answer(ack)
        else:
            self.subscription.waiting.append(ack)

    async def acks_undecodable(self) -> bool:
        await self.subscription.answers_policies.wait()
        return self.subscription.acks_undecodable

    async def is_paused(self) -> bool:
        if self.subscription.fails is not None:
            raise self.subscription.fails
        return self.subscription.paused

    def nack(self, ranges: Sequence[IndexRange], *, delay_ms: int) -> None:
        own = self.subscription
        own.delays_ms.append(delay_ms)
        for index in _each(ranges):
            if own.held.get(index) is self:
                del own.held[index]
                own.delayed.update([index] if delay_ms else [])
        own.changed()

    def redeliver(self) -> None:
        self._give_back()

    def _give_back(self) -> None:
        own = self.subscription
        own.held = {index: holder for index, holder in own.held.items() if holder is not self}
        own.changed()

    async def seek(self, start: Start) -> None:
        if self.subscription.fails is not None:
            raise self.subscription.fails
        self.subscription.seek(start)

    async def unsubscribe(self) -> None:
        if len(self.subscription.consumers) > 1:
            raise Conflict("the subscription has another consumer")
        await self.close(client_lost=False)
        for _ in range(10):  # the answer of the owner
            await yield_to_loop()
        if self.subscription.fails is not None:
            raise self.subscription.fails
        self.subscription.deleted = True

    async def last_id(self) -> DeliveredId | None:
        if self.subscription.fails is not None:
            raise self.subscription.fails
        return last_id_of(self.subscription.batches[-1]) if self.subscription.batches else None

    def holder_lives(self) -> None:
        self.said_alive += 1

    async def close(self, *, client_lost: bool) -> None:
        await self.closes.wait()
        if self in self.subscription.consumers:
            was_active = self.active
            self.client_lost = client_lost
            self.subscription.consumers.remove(self)
            self._give_back()
            if was_active and self.subscription.type == "failover" and self.subscription.consumers:
                self.subscription.consumers[0].callbacks.active(True)
        self.fail(self.failure or ConsumerClosed("closed"))


def attach(
    subscriptions: dict[str, FakeSubscription],
    batches: list[RawBatch],
    chunks: FakeChunks,
    subscription: str,
    name: str,
    wanted: Subscription,
    callbacks: ConsumerCallbacks,
) -> FakeConsumer:
    """Raises ConsumerBusy, SubscriptionTypeMismatch."""
    own = subscriptions.get(subscription)
    if own is None or own.deleted:
        own = subscriptions[subscription] = FakeSubscription(batches, chunks, wanted.start)
        own.place(wanted.start)
    if own.consumers and own.type != wanted.type:
        raise SubscriptionTypeMismatch(f"the subscription has consumers of type {own.type}")
    if own.consumers and wanted.type == "exclusive":
        own.consumers[0].callbacks.wanted()
        raise ConsumerBusy("another consumer is connected")
    own.type = wanted.type
    consumer = FakeConsumer(own, name, wanted, callbacks)
    own.consumers.append(consumer)
    own.opened.append(consumer)
    return consumer


def _indexes(raw: RawBatch) -> range:
    return range(raw.entry.base_index, raw.entry.base_index + raw.entry.count)


def _each(ranges: Sequence[IndexRange]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


def _ranges(indexes: list[int]) -> tuple[IndexRange, ...]:
    found: list[IndexRange] = []
    for index in indexes:
        if found and found[-1].last == index - 1:
            found[-1] = IndexRange(found[-1].first, index)
        else:
            found.append(IndexRange(index, index))
    return tuple(found)
