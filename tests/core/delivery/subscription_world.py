"""One topic's subscriptions without a topic: a log in memory, an ack log that a test writes or fails, and consumers.

The ack log is a list of changes. `write` makes them durable, as one entry; `fail` drops them; `take_over` puts a new
owner on the durable state. Consumers keep what they were sent; nothing is acknowledged unless a test does it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from oncelog.core.acks.ack_state import SubscriptionsState, SubscriptionState
from oncelog.core.acks.changes import Change, IndexRange, SubscriptionType
from oncelog.core.acks.index_ranges import bits_of, ranges_of
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerOpening,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    HeldMessages,
    MessagesRead,
    NackRequested,
    ReadMessages,
    RecallMessages,
    SeekRequested,
    StoredEntry,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.limits import NO_LIMITS, AckStateCheck
from oncelog.core.delivery.subscription import Subscription
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.errors import OncelogError
from oncelog.core.formats.columns import encode_keys, encode_values
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch, SubscriptionNumber
from tests.core.acks.subscription_fold import fold_changes
from tests.core.builders import LogOf, batch

EXCLUSIVE, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER
SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED
EffectOf = TypeVar("EffectOf")


@dataclass
class Step:
    now_ms: int = 0
    effects: list[ConsumerEffect] = field(default_factory=list)

    def emit(self, effect: ConsumerEffect) -> None:
        self.effects.append(effect)


@dataclass
class Client:
    """One attachment of a consumer, and what it was sent. got: (index, delivery count), in order."""

    opening: ConsumerOpening
    answer: Subscribed | OncelogError | None = None
    got: list[tuple[int, int]] = field(default_factory=list)
    generation: int = 0
    seek_epoch: int = 0
    #: messages of the stream so far
    sent: int = 0
    #: {index: the newest delivery count}, of those above 1
    counts: dict[int, int] = field(default_factory=dict)
    recalled: list[int] = field(default_factory=list)
    ended: OncelogError | None = None

    @property
    def subscribed(self) -> Subscribed:
        assert isinstance(self.answer, Subscribed), self.answer
        return self.answer

    @property
    def number(self) -> ConsumerNumber:
        return self.subscribed.consumer

    @property
    def indexes(self) -> list[int]:
        return [index for index, _ in self.got]

    def take(self) -> list[int]:
        """The indexes that have arrived since the last call."""
        taken = self.indexes
        self.got.clear()
        return taken


class RangeLimit:
    """Withholds new messages above so many acknowledged ranges, until there are none. ranges -1: always."""

    def __init__(self, ranges: int = 1, *, full: bool = False) -> None:
        self.ranges = ranges
        self.is_full = full

    def pause_reason(self, state: SubscriptionState, *, paused: bool) -> str:
        return "ranges" if state.acks.range_count > (min(0, self.ranges) if paused else self.ranges) else ""

    def full(self, state: SubscriptionsState) -> bool:
        return self.is_full


def ranges(*indexes: int) -> tuple[IndexRange, ...]:
    return tuple(ranges_of(bits_of((index, index) for index in indexes)))


class World:
    """One topic."""

    def __init__(self, *, messages: Sequence[int] = (), partition: int = 0) -> None:
        """messages: counts of the entries that the log begins with."""
        self.step = Step()
        self.log = LogOf()
        self.state = SubscriptionsState()
        self.chain: list[tuple[Change, object]] = []
        self.partition = partition
        self.clients: dict[ConsumerNumber, Client] = {}
        self.openings: dict[int, Client] = {}
        self.answers: list[AnswerAck] = []
        self.others: list[ConsumerEffect] = []
        #: whether reads are answered at once
        self.reads_answered = True
        self.reads: list[ReadMessages] = []
        #: whether more acknowledgements may wait for the ack log
        self.has_room = True
        self._calls = 0
        self.ack_limit: AckStateCheck = NO_LIMITS
        self._ids = count(1)
        for each in messages:
            self.store(each)
        self.topic = self._owner(taken_over=False)

    def _owner(self, *, taken_over: bool) -> Subscriptions:
        self._calls += 1000
        return Subscriptions(
            self.step, self.state, lambda change, token: self.chain.append((change, token)), first_index=0,
            next_index=self.log.next_index, first_consumer=ConsumerNumber(self._calls),
            new_id=lambda: f"{next(self._ids):032x}", partition=self.partition, taken_over=taken_over,
            ack_limit=self.ack_limit, has_room=lambda: self.has_room,
        )  # fmt: skip

    # --- what a test does ---------------------------------------------------------------------------------------------

    def post(self, event: ConsumerEvent) -> None:
        self.topic.handle(event)
        self.settle()

    def settle(self) -> None:
        """End the step and perform its effects."""
        while True:
            self.topic.end_step()
            self.topic.check_invariants()
            effects, self.step.effects = self.step.effects, []
            for effect in effects:
                self._perform(effect)
            if not effects:
                return

    def store(self, messages: int, keys: Sequence[str | None] | None = None) -> None:
        """An entry of messages is durable."""
        payload = encode_values([b"v"] * messages)
        if keys is not None:
            payload += encode_keys([None if key is None else key.encode() for key in keys])
        first = self.log.next_index + 1
        data = batch(range(first, first + messages), payload=payload)
        self.log.add(EntryKind.MESSAGES, data, count=messages)
        if hasattr(self, "topic"):
            self.topic.messages_end(self.log.next_index)
            self.settle()

    def pass_time(self, ms: int) -> None:
        """Ticks come each second at least, as a serving topic's do."""
        while ms > 0:
            self.step.now_ms += min(ms, 1_000)
            ms -= 1_000
            self.topic.tick()
            self.settle()

    def write(self, count: int = 0) -> None:
        """What was appended so far becomes durable, until nothing is left to write. count: only so many changes."""
        while self.chain:
            chain, self.chain = (self.chain[:count], self.chain[count:]) if count else (self.chain, [])
            fold_changes(self.state, [change for change, _ in chain])
            self.topic.settled([token for _, token in chain])
            self.settle()
            if count:
                return

    def fail(self) -> None:
        """The ack ledger fails: what was appended is dropped."""
        chain, self.chain = self.chain, []
        self.topic.dropped([token for _, token in chain])
        self.settle()

    def take_over(self) -> None:
        """Another owner begins with the durable state; nothing in flight is settled."""
        self.chain.clear()
        self.reads.clear()
        self.topic = self._owner(taken_over=True)
        self.settle()

    def subscribe(
        self,
        name: str = "c",
        type_: SubscriptionType = EXCLUSIVE,
        *,
        window: int = 0,
        first_index: int | None = 0,
        instance: str | None = None,
        resume: HeldMessages | None = None,
        subscription: str = "s",
        written: bool = True,
        **settings: object,
    ) -> Client:
        """A consumer asks to attach. window: reports a flow once it is attached."""
        self._calls += 1
        opening = ConsumerOpening(
            self._calls, subscription, type_, name, (instance or name).encode(), first_index, resume,
            **settings,  # type: ignore[arg-type]
        )  # fmt: skip
        client = self.openings[self._calls] = Client(opening)
        self.post(opening)
        if written:
            self.write()
        if window:
            self.flow(client, window)
        return client

    def reconnect(
        self,
        client: Client,
        held: Sequence[int] = (),
        *,
        window: int = 0,
        written: bool = True,
        begun: Sequence[int] = (),
        counts: dict[int, int] | None = None,
    ) -> Client:
        """The consumer resumes with what it holds. counts: which delivery of them, of those above 1."""
        was = client.subscribed
        resume = HeldMessages(
            was.subscription_id, SeekEpoch(client.seek_epoch), Generation(client.generation), ranges(*held),
            ranges(*begun), counts or {},
        )  # fmt: skip
        return self.subscribe(
            client.opening.consumer_name, client.opening.type, resume=resume, first_index=None, window=window,
            written=written, instance=client.opening.instance_id.decode(), ack_timeout_ms=client.opening.ack_timeout_ms,
            max_deliveries=client.opening.max_deliveries, dead_letter_topic=client.opening.dead_letter_topic,
            store_id=client.opening.store_id, effect=client.opening.effect, whole_entries=client.opening.whole_entries,
        )  # fmt: skip

    def flow(
        self,
        client: Client,
        window: int,
        handed_out: int = 0,
        begun: Sequence[int] = (),
        *,
        arrived: int | None = None,
        epoch: int | None = None,
    ) -> None:
        """arrived: messages of the stream that had reached the client when it reported; None: all. epoch: of what it
        holds; None: the latest."""
        arrived = client.sent if arrived is None else arrived
        seek_epoch = SeekEpoch(client.seek_epoch if epoch is None else epoch)
        self.post(FlowReported(client.number, handed_out, window, ranges(*begun), arrived, seek_epoch))

    def receive(self, client: Client, *indexes: int, window: int = 0) -> None:
        """The application receives these messages, and the client reports it; nothing else is begun."""
        self.flow(client, window, handed_out=client.sent, begun=indexes)

    def detach(self, client: Client, *, lost: bool = True) -> None:
        del self.clients[client.number]
        self.post(ConsumerDetached(client.number, lost))

    def ack(self, client: Client, *indexes: int, epoch: int | None = None, below: int | None = None,
            generation: int | None = None, written: bool = True) -> OncelogError | str | None:  # fmt: skip
        """Acknowledge; returns the error, None for success, or "waits"."""
        self._calls += 1
        self.post(
            AckRequested(
                client.number, self._calls, SeekEpoch(client.seek_epoch if epoch is None else epoch), ranges(*indexes),
                below, Generation(client.generation if generation is None else generation),
            )
        )  # fmt: skip
        if written:
            self.write()
        return self.answer(self._calls)

    def nack(
        self,
        client: Client,
        *indexes: int,
        delay_ms: int | None = None,
        written: bool = True,
        counts: dict[int, int] | None = None,
    ) -> OncelogError | str | None:
        """counts: which delivery is meant, of those above 1; None: the newest one that the client has."""
        self._calls += 1
        if counts is None:
            counts = {index: count for index, count in client.counts.items() if index in indexes}
        epoch = SeekEpoch(client.seek_epoch)
        self.post(NackRequested(client.number, self._calls, epoch, ranges(*indexes), delay_ms, counts))
        if written:
            self.write()
        return self.answer(self._calls)

    def answer(self, request: int) -> OncelogError | str | None:
        for answer in self.answers:
            if answer.request == request:
                return answer.error
        return "waits"

    def seek(self, index: int, *, written: bool = True) -> None:
        self._calls += 1
        self.post(SeekRequested(self._calls, SubscriptionNumber(self.number), index))
        if written:
            self.write()

    # --- what a test looks at -----------------------------------------------------------------------------------------

    @property
    def number(self) -> SubscriptionNumber:
        return self.state.names["s"]

    @property
    def subscription(self) -> Subscription:
        return next(iter(self.topic))

    def acked(self) -> list[int]:
        """The durably acknowledged messages."""
        acks = self.state.subscriptions[self.number].acks
        return [index for index in range(self.log.next_index) if acks.contains(index)]

    def other(self, kind: type[EffectOf]) -> list[EffectOf]:
        """Effects of this kind since the last call."""
        found: list[EffectOf] = [effect for effect in self.others if isinstance(effect, kind)]
        self.others = [effect for effect in self.others if not isinstance(effect, kind)]
        return found

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effect: ConsumerEffect) -> None:
        match effect:
            case AnswerSubscribe(call, result):
                client = self.openings[call]
                client.answer = result
                if isinstance(result, Subscribed):
                    client.generation, client.seek_epoch = result.generation, result.seek_epoch
                    self.clients[result.consumer] = client
            case DeliverMessages():
                self._delivered(effect)
            case ReadMessages():
                self.reads.append(effect)
                if self.reads_answered:
                    self.answer_reads()
            case AnswerAck():
                self.answers.append(effect)
            case RecallMessages(consumer, recalled):
                self.clients[consumer].recalled += [i for first, last in recalled for i in range(first, last + 1)]
            case EndConsumer(consumer, error):
                self.clients.pop(consumer).ended = error
            case SubscriptionSought(consumer, seek_epoch):
                self.clients[consumer].seek_epoch = seek_epoch
                self.clients[consumer].got.clear()
                self.clients[consumer].counts.clear()
            case _:
                self.others.append(effect)

    def _delivered(self, frame: DeliverMessages) -> None:
        client = self.clients[frame.consumer]
        for entry, delivered in ((each.entry, each.ranges) for each in frame.entries):
            for first, last in delivered:
                assert entry.base_index <= first <= last < entry.base_index + entry.count
                client.got += [(index, frame.delivery_counts.get(index, 1)) for index in range(first, last + 1)]
                client.sent += last - first + 1
        client.counts.update(frame.delivery_counts)

    def answer_reads(self) -> None:
        """Give what the reads ask for, two entries at a time."""
        reads, self.reads = self.reads, []
        for read in reads:
            found = [
                StoredEntry(header.position, header.base_index, header.count, header.skip_first, data)
                for header, data in self.log.entries
                if header.kind == EntryKind.MESSAGES and header.base_index + header.count > read.first_index
            ]
            self.topic.handle(MessagesRead(read.number, read.first_index, tuple(found[:2])))
