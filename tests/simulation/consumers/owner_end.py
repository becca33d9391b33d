"""The owner's end of the streams of consumers: performs what the core's subscriptions ask for."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import (
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerEffect,
    ConsumerOpening,
    ConsumerOpeningAbandoned,
    DeadLetterStored,
    DeadLetterTopicResolved,
    DeleteRequested,
    DeliverMessages,
    EndConsumer,
    MessagesEvicted,
    MessagesRead,
    PublishDeadLetter,
    ReadMessages,
    ResolveDeadLetterTopic,
    SeekRequested,
    Subscribed,
)
from oncelog.core.errors import ConsumerBusy, NotOwner
from oncelog.core.ids import ConsumerNumber, OwnerEpoch, SubscriptionNumber, TopicId
from oncelog.core.sdk.consumer.events import OwnerReport, OwnerRequest
from oncelog.verify.violation import Violation
from tests.oracles.consumption import KeyOrder
from tests.simulation.consumers.messages import DEAD_LETTERS
from tests.simulation.consumers.streams import ConsumerStream
from tests.simulation.consumers.withheld import WithheldReports
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.consumers.consumption import TopicConsumption
    from tests.simulation.servers.owners.owner_server import OwnerServer
    from tests.simulation.servers.owners.topic_shell import TopicShell

#: entries of one read
READ_ENTRIES = 5
#: how long a read, and a publish to another topic, may take
WORK_TICKS_MAX = 15


class ShellConsumers:
    """The streams of consumers of one topic at one owner."""

    def __init__(self, shell: "TopicShell") -> None:
        self._shell = shell
        self._calls = 0
        #: {call: (stream, the client's call, the subscription that it names)}
        self._asked: dict[int, tuple[ConsumerStream, int, str]] = {}
        self._streams: dict[ConsumerNumber, ConsumerStream] = {}
        #: what was attached here, for the oracle of key_shared
        self._numbers: dict[ConsumerNumber, SubscriptionNumber] = {}
        self._orders: dict[tuple[SubscriptionNumber, int], KeyOrder] = {}
        self.withheld = WithheldReports(shell, self._send_withheld, self._end_all)

    @property
    def _topic(self) -> "TopicConsumption":
        return self._shell.owner.parts.consumption[self._shell.topic_id]

    @property
    def any_attached(self) -> bool:
        return bool(self._streams)

    def request(self, stream: ConsumerStream, request: OwnerRequest) -> None:
        match request:
            case ConsumerDetached(consumer, True) if consumer in self._numbers:
                self._topic.acks.lost(self._numbers[consumer])
            case SeekRequested():
                request = replace(request, call=self._ask(stream, request.call))
            case ConsumerOpening():
                stream.call = self._ask(stream, request.call, request.subscription)
                stream.keyed = request.type is SubscriptionType.KEY_SHARED
                request = replace(request, call=stream.call)
                if self._shell.owner.waiting is not None:
                    request = replace(request, outbox=self._shell.owner.waiting.outbox(stream))
                self._open(stream, request)
                return
        self._shell.handle(request)

    def _ask(self, stream: ConsumerStream, call: int, subscription: str = "") -> int:
        self._calls += 1
        self._asked[self._calls] = (stream, call, subscription)
        return self._calls

    def _open(self, stream: ConsumerStream, opening: ConsumerOpening) -> None:
        """The rights of each request are looked up on their own, so a repeated one may overtake the first."""
        ticks_max = self._topic.check_ticks_max
        if not ticks_max:
            self._shell.handle(opening)
            return
        owner = self._shell.owner
        owner.post(
            owner.world.rng.randint(1, ticks_max), "rights are known",
            lambda: None if stream.over else self._shell.handle(opening),
        )  # fmt: skip

    def stream_broken(self, stream: ConsumerStream) -> None:
        stream.over = True
        if self._asked.pop(stream.call, None) is not None:
            self._shell.handle(ConsumerOpeningAbandoned(stream.call))
        for consumer in [each for each in stream.consumers if self._streams.pop(each, None) is not None]:
            self._topic.acks.lost(self._numbers[consumer])
            if self._shell.owner.alive:
                self._shell.handle(ConsumerDetached(consumer, lost=True))

    def delete(self, subscription: str) -> None:
        """An operator deletes a subscription."""
        self._calls += 1
        self._shell.handle(DeleteRequested(self._calls, subscription, force=True))

    # --- effects ------------------------------------------------------------------------------------------------------

    def perform(self, effect: ConsumerEffect) -> None:
        world = self._shell.owner.world
        match effect:
            case ReadMessages():
                self._later("messages read", lambda: self._read(effect))
            case AnswerSubscribe() | AnswerSeek():
                stream, call, name = self._asked.pop(effect.call, (None, 0, ""))
                if stream is not None:
                    if isinstance(effect, AnswerSubscribe) and isinstance(effect.result, Subscribed):
                        self._attached(stream, effect.result)
                    elif isinstance(effect.result, ConsumerBusy):
                        self._check_busy(name)
                    tell = self._report if isinstance(effect, AnswerSubscribe) else self.withheld.report
                    tell(stream, replace(effect, call=call))
            case MessagesEvicted():
                world.count("messages evicted", effect.count)
            case AnswerAdmin():
                world.count("subscription deleted" if effect.error is None else "subscription not deleted")
            case ResolveDeadLetterTopic():
                resolved = DeadLetterTopicResolved(effect.number, effect.topic, DEAD_LETTERS)
                self._later("dead-letter topic", lambda: self._shell.handle(resolved))
            case PublishDeadLetter():
                self._publish(effect)
            case _:
                target = self._streams.get(effect.consumer)
                if isinstance(effect, DeliverMessages):
                    self._check_order(effect)
                    if target is None:
                        effect.outbox.give_back(effect.cost_bytes)
                if target is not None and isinstance(effect, EndConsumer):
                    self._report(target, effect)
                elif target is not None:
                    self.withheld.report(target, effect)

    def _publish(self, effect: PublishDeadLetter) -> None:
        serving = self._shell.core.serving
        known = None if serving is None else serving.acks.state.subscriptions.get(effect.number)
        if known is None:
            return  # deleted in the same step: what is pending of it needs no topic any more
        self._topic.dead_letters.publish(known.subscription_id, effect.topic_id, effect.sequence, effect.index)
        self._shell.owner.world.count("dead letter")
        stored = DeadLetterStored(effect.number, effect.topic_id, effect.sequence)
        self._later("dead letter stored", lambda: self._shell.handle(stored))

    def _read(self, effect: ReadMessages) -> None:
        serving = self._shell.core.serving
        if serving is not None:
            end = serving.log.table.state.next_index
            entries = self._topic.log.read(effect.first_index, end, READ_ENTRIES)
            self._shell.handle(MessagesRead(effect.number, effect.first_index, entries))

    def _attached(self, stream: ConsumerStream, answer: Subscribed) -> None:
        self._streams[answer.consumer] = stream
        stream.consumers.append(answer.consumer)
        self._numbers[answer.consumer] = answer.number
        self._order(answer.number, answer.seek_epoch).kept(answer.consumer, answer.kept)

    def _later(self, label: str, do: Callable[[], None]) -> None:
        self._shell.owner.post(self._shell.owner.world.rng.randint(1, WORK_TICKS_MAX), label, do)

    def _send_withheld(self, stream: ConsumerStream, report: OwnerReport) -> None:
        """The consumer may have gone meanwhile."""
        if isinstance(report, AnswerSeek | AnswerSubscribe) or self._streams.get(report.consumer) is stream:
            self._report(stream, report)
        elif isinstance(report, DeliverMessages):
            report.outbox.give_back(report.cost_bytes)

    def _end_all(self) -> None:
        """This owner could not prove itself: every consumer looks the topic up again."""
        for consumer, stream in list(self._streams.items()):
            del self._streams[consumer]
            self._topic.acks.lost(self._numbers[consumer])
            self._report(stream, EndConsumer(consumer, NotOwner("nothing proves that this process owns the topic")))
            if not self._shell.over:
                self._shell.handle(ConsumerDetached(consumer, lost=True))

    def _report(self, stream: ConsumerStream, report: OwnerReport) -> None:
        owner, epoch, label = self._shell.owner, self._shell.epoch, type(report).__name__
        if isinstance(report, AnswerSubscribe) and isinstance(report.result, NotOwner):
            epoch = OwnerEpoch(0)
        moment = owner.world.steps
        owner.world.count(f"report {label}")

        def send() -> None:
            stream.stream.send(owner, label, lambda: stream.reported(epoch, report, moment))

        if owner.waiting is None:
            send()
        else:
            owner.waiting.report(stream, report, send)

    # --- oracles ------------------------------------------------------------------------------------------------------

    def _check_busy(self, name: str) -> None:
        """A subscription is busy with a consumer that is connected, never with one that may return."""
        serving = self._shell.core.serving
        if serving is not None and not any(
            each.has_consumers for each in serving.subscriptions if each.state.name == name
        ):
            raise Violation("consumer_busy", f"no consumer of {name} is connected")

    def _order(self, number: SubscriptionNumber, seek_epoch: int) -> KeyOrder:
        return self._orders.setdefault((number, seek_epoch), KeyOrder(self._topic.log.keys))

    def _check_order(self, effect: DeliverMessages) -> None:
        """The oracle of key_shared: by what this owner sends."""
        number, serving = self._numbers.get(effect.consumer), self._shell.core.serving
        state = None if number is None or serving is None else serving.acks.state.subscriptions.get(number)
        stream = self._streams.get(effect.consumer)
        if number is None or serving is None or state is None or stream is None or not stream.keyed:
            return
        order = self._order(number, effect.seek_epoch)
        # What is acknowledged in memory only is over for the application, too.
        known = next(each for each in serving.subscriptions if each.state.number == number)
        over = (state.acks, known._acks.in_memory)
        for first, last in (each for entry in effect.entries for each in entry.ranges):
            for index in range(first, last + 1):
                order.sent(
                    effect.consumer, index,
                    lambda i: not over[0].contains(i) and i not in over[1] and i not in state.dead_letters,
                )  # fmt: skip


class OwnerGate:
    """One topic at the process of an owner, whether or not that process serves the topic."""

    def __init__(self, owner: "OwnerServer", topic_id: TopicId) -> None:
        self.process: Process = owner
        self._owner = owner
        self._topic_id = topic_id

    def request(self, stream: ConsumerStream, request: OwnerRequest) -> None:
        if stream.stream not in self._owner.streams:
            self._owner.streams.append(stream.stream)
        shell = self._owner.topics.get(self._topic_id)
        if shell is not None:
            shell.consumers.request(stream, request)
        elif isinstance(request, ConsumerOpening):
            refused = AnswerSubscribe(request.call, NotOwner("this process does not serve the topic"))
            moment = self._owner.world.steps
            stream.stream.send(self._owner, "refused", lambda: stream.reported(OwnerEpoch(0), refused, moment))

    def stream_broken(self, stream: ConsumerStream) -> None:
        if stream.stream in self._owner.streams:
            self._owner.streams.remove(stream.stream)
        shell = self._owner.topics.get(self._topic_id)
        if shell is not None:
            shell.consumers.stream_broken(stream)
        if self._owner.waiting is not None:
            self._owner.waiting.close(stream)
