"""Messages that were delivered too often, or that a store of effects has given up: each becomes one message of the
dead-letter topic (hazards dead-letter-number-lost, pending-dead-letter-trimmed).

    too many deliveries, or requested -> wanted (waits for the topic's id) -> DeadLettered in flight
        -> durable: the request is answered; PublishDeadLetter
        DeadLetterStored -> DeadLetterPublished in flight -> acknowledged

DeadLettered holds the number of the message in the dead-letter topic, dense for the pair of both, and is durable before
anything is published. So every crash repeats a step that the state already knows: a new owner publishes again what the
state has as pending, in order, and the dead-letter topic drops what it has. Pending ones are published whatever happens
to the position of the subscription.

The limit is the one of the consumer that attached last, as in Pulsar. A subscription whose effects are in a store has
none: the store decides, and asks again until it is answered (hazard dead-letter-beside-the-store). What is pending or
acknowledged already is answered at once, so a message that is asked for twice becomes one dead letter.
"""

from dataclasses import dataclass
from typing import assert_never

from pyroaring import BitMap64

from oncelog.core.acks.changes import DeadLettered, DeadLetterPublished, IndexRange
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Context, stale_seek_epoch
from oncelog.core.delivery.events import (
    AnswerAck,
    ConsumerOpening,
    DeadLetterEvent,
    DeadLetterStored,
    DeadLettersWaiting,
    DeadLetterTopicReplaced,
    DeadLetterTopicResolved,
    PublishDeadLetter,
    ResolveDeadLetterTopic,
)
from oncelog.core.delivery.store_binding.events import DeadLetterRequested
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicId

#: When the id of a dead-letter topic is asked for again that could not be resolved.
RESOLVE_AGAIN_MS = 5_000


@dataclass(slots=True, eq=False)
class DeadLetterToken:
    """A DeadLettered in flight."""

    index: int
    topic_id: TopicId
    sequence: int


@dataclass(slots=True, eq=False)
class PublishedToken:
    """A DeadLetterPublished in flight. indexes: the messages that it acknowledges."""

    topic_id: TopicId
    sequence: int
    indexes: tuple[int, ...]


class DeadLetters:
    """Those of one subscription."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._deliveries_max = 0
        self._topic = ""
        self._topic_id: TopicId | None = None
        #: when to ask for the topic's id; None: it was asked for
        self._resolve_at_ms: int | None = 0
        #: {message: the requests for it that are not answered yet}
        self._requests: dict[int, list[tuple[ConnectedConsumer, int]]] = {}
        #: {message: why it was given up}, until it is published
        self._reasons: dict[int, str] = {}
        #: messages without a number yet
        self.wanted: dict[int, None] = {}
        #: {topic id: the next number}, where changes in flight have used some
        self._next: dict[TopicId, int] = {}
        #: {topic id: up to which number the messages are stored there}, where the change is in flight
        self._publishing: dict[TopicId, int] = {}
        #: why they could not be stored when they were last tried; empty: they could, or none was tried
        self.waiting_for = ""
        #: a seek is being written: what is wanted waits, because the seek would void it
        self._seeking = False
        #: {id of a deleted topic: of the one that has its name}
        self._replaced: dict[TopicId, TopicId] = {}

    def start(self) -> None:
        """A takeover: publish again what is pending."""
        for index, (topic_id, sequence) in sorted(self._context.state.dead_letters.items(), key=lambda item: item[1]):
            self._publish(index, topic_id, sequence)

    def set_policy(self, opening: ConsumerOpening) -> None:
        """A consumer has attached."""
        if opening.max_deliveries or opening.store_id:
            self._deliveries_max = opening.max_deliveries
        if opening.dead_letter_topic not in ("", self._topic):
            self._topic, self._topic_id, self._resolve_at_ms = opening.dead_letter_topic, None, 0

    @property
    def topic(self) -> str:
        """Where they are published, as the newest consumer with such a topic said; empty: none has said it here."""
        return self._topic

    @property
    def busy(self) -> bool:
        """Whether time may bring a dead letter, or an answer."""
        return bool(self.wanted or self._requests)

    def takes(self, deliveries: int) -> bool:
        """Whether a message that was delivered so often becomes a dead letter."""
        return 0 < self._deliveries_max <= deliveries

    def decide(self, index: int) -> None:
        """The message becomes a dead letter."""
        self._context.deliverable.wait(BitMap64([index]))
        self.wanted[index] = None
        self.work()

    def request(self, consumer: ConnectedConsumer, event: DeadLetterRequested) -> None:
        """A store has given the message up; the request was not refused."""
        self.set_policy(consumer.opening)
        self._requests.setdefault(event.index, []).append((consumer, event.request))
        if event.reason:
            self._reasons[event.index] = event.reason
        self.work()

    def _look_at_requests(self) -> None:
        state, deliverable = self._context.state, self._context.deliverable
        for index in list(self._requests):
            if index in state.dead_letters or state.acks.contains(index):
                self._answer(index, None)
            elif index not in self.wanted and index not in deliverable.waiting:
                self._context.leave_holders(index, index)
                deliverable.wait(BitMap64([index]))
                self.wanted[index] = None

    def _answer(self, index: int, error: OncelogError | None) -> None:
        for consumer, request in self._requests.pop(index, ()):
            if self._context.consumers.connected(consumer):
                self._context.step.emit(AnswerAck(consumer.number, request, error))

    def work(self) -> None:
        """Number the wanted ones, as soon as the topic's id is known."""
        context = self._context
        if self._requests and not self._seeking and not context.closing:
            self._look_at_requests()
        if not self.wanted or self._seeking:
            return
        if self._topic_id is None:
            if self._resolve_at_ms is not None and context.step.now_ms >= self._resolve_at_ms:
                self._resolve_at_ms = None
                context.step.emit(ResolveDeadLetterTopic(context.state.number, self._topic))
            return
        deliverable = context.deliverable
        for index in list(self.wanted):
            if index in deliverable.hidden:
                continue  # an acknowledgement is in flight: it comes first
            del self.wanted[index]
            if index in deliverable.waiting:
                self._number(index, self._topic_id)

    def _number(self, index: int, topic_id: TopicId) -> None:
        state = self._context.state
        sequence = self._next.get(topic_id, state.dead_letter_next.get(topic_id, 0))
        self._next[topic_id] = sequence + 1
        token = DeadLetterToken(index, topic_id, sequence)
        self._context.append(DeadLettered(state.number, index, topic_id, sequence), token)

    def _publish(self, index: int, topic_id: TopicId, sequence: int) -> None:
        reason = self._reasons.get(index, "")
        self._context.step.emit(PublishDeadLetter(self._context.state.number, index, topic_id, sequence, reason))

    def seek(self) -> None:
        """A seek is being written."""
        self._seeking = True

    def sought(self, *, written: bool) -> None:
        """The seek is over. written: no delivery of the former seek_epoch counts any more."""
        self._seeking = False
        if written:
            self.wanted.clear()
            for index in list(self._requests):
                self._answer(index, stale_seek_epoch(self._context.state.seek_epoch))
        else:
            self.work()

    # --- the dead-letter topic ----------------------------------------------------------------------------------------

    def handle(self, event: DeadLetterEvent) -> None:
        match event:
            case DeadLetterTopicResolved():
                self._resolved(event)
            case DeadLetterStored():
                self._stored(event)
            case DeadLettersWaiting():
                self.waiting_for = event.reason
            case DeadLetterTopicReplaced():
                self._replace(event)
            case _:
                assert_never(event)

    def _resolved(self, event: DeadLetterTopicResolved) -> None:
        if event.topic != self._topic or self._topic_id is not None:
            return
        self._topic_id = event.topic_id
        self._resolve_at_ms = self._context.step.now_ms + RESOLVE_AGAIN_MS
        self.work()

    def _stored(self, event: DeadLetterStored) -> None:
        """The dead-letter topic has messages: they count as acknowledged when that is durable. What a change in flight
        acknowledges is left to it: a seek behind that one may take it back."""
        self.waiting_for = ""
        in_flight = self._publishing.get(event.topic_id, -1)
        indexes = tuple(
            index
            for index, (topic_id, sequence) in self._context.state.dead_letters.items()
            if topic_id == event.topic_id and in_flight < sequence <= event.sequence
        )
        if indexes:
            self._append_published(event.topic_id, event.sequence, indexes)

    def _append_published(self, topic_id: TopicId, sequence: int, indexes: tuple[int, ...]) -> None:
        self._publishing[topic_id] = sequence
        change = DeadLetterPublished(self._context.state.number, topic_id, sequence)
        self._context.append(change, PublishedToken(topic_id, sequence, indexes))

    def _replace(self, event: DeadLetterTopicReplaced) -> None:
        """What is pending for a deleted topic is decided again: its numbers would be gaps in the new one."""
        self._replaced[event.topic_id] = event.new_topic_id
        if self._topic_id == event.topic_id:
            self._topic_id = event.new_topic_id
        pending = sorted(
            (s, i) for i, (topic, s) in self._context.state.dead_letters.items() if topic == event.topic_id
        )
        for _, index in pending:
            self._number(index, event.new_topic_id)

    # --- the ack log's answers --------------------------------------------------------------------------------------

    def settled(self, token: DeadLetterToken) -> None:
        self._context.deliverable.bury(token.index)
        self._answer(token.index, None)
        new_topic_id = self._replaced.get(token.topic_id)
        if new_topic_id is not None:
            self._number(token.index, new_topic_id)
        else:
            self._publish(token.index, token.topic_id, token.sequence)

    def published(self, token: PublishedToken) -> list[IndexRange]:
        """The messages that are acknowledged now."""
        if self._publishing.get(token.topic_id) == token.sequence:
            del self._publishing[token.topic_id]
        for index in token.indexes:
            self._reasons.pop(index, None)
        return [IndexRange(index, index) for index in token.indexes]

    def dropped(self, tokens: list[DeadLetterToken | PublishedToken]) -> None:
        """None of these was written: decide them again, with numbers from the durable state."""
        self._next.clear()
        self._publishing.clear()
        if self._context.closing:
            return
        for token in tokens:
            if isinstance(token, PublishedToken):
                if token.topic_id not in self._replaced:
                    self._append_published(token.topic_id, token.sequence, token.indexes)
            elif token.index in self._context.deliverable.dead:
                self._number(token.index, self._replaced.get(token.topic_id, token.topic_id))
            else:
                self.wanted[token.index] = None
        self.work()
