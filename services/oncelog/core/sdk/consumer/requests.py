"""What the application has asked for and the owner has not settled: acknowledgements, negative ones and seeks.

Acknowledgements are repeated on every new stream, in their order, until they are settled: a repeated one harms nothing.
A seek is sent once, because a second one would void what was acknowledged after the first. If its answer is lost, its
outcome is unknown, and the application decides. A seek that an owner refused is sent again: it was not written. What is
asked about effects is sent once, too.
"""

from dataclasses import replace

from oncelog.core import errors
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import AckRequested, NackRequested, SeekRequested
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import ConsumerNumber, SeekEpoch, SubscriptionNumber
from oncelog.core.sdk.consumer.attachment import Attachment
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    EffectsEnded,
    FlushEnded,
    NackWanted,
    SeekEnded,
    SeekWanted,
)
from oncelog.core.sdk.consumer.flushes import Flushes
from oncelog.core.sdk.consumer.index_set import IndexSet
from oncelog.core.sdk.owner_attempts import StartSessionTimer, TimerKey, TimerKind, retry_pause_ms

Repeatable = AckWanted | NackWanted


class PendingRequests:
    """Ordered by request number."""

    def __init__(self, requests_max: int) -> None:
        """requests_max: requests that are not settled, at most."""
        self._requests_max = requests_max
        #: {request: acknowledgement}
        self.acks: dict[int, Repeatable] = {}
        #: {request: (seek, whether it was sent)}
        self.seeks: dict[int, tuple[SeekWanted, bool]] = {}
        #: the requests of `acks` that the present stream has carried and that are unanswered on it
        self.sent: dict[int, None] = {}
        #: the requests about effects that the present stream has carried
        self.effects: dict[int, None] = {}
        self.flushes = Flushes()
        #: covered by single acknowledgements in flight, and by cumulative ones
        self._acked = IndexSet()
        self._below = 0
        #: whether a timer repeats what the owner could not do, and how often it was started in a row
        self.repeats_later = False
        self._repeats = 0

    def __len__(self) -> int:
        return len(self.acks) + len(self.seeks)

    @property
    def any_sent(self) -> bool:
        """Whether the present stream owes an answer."""
        return bool(self.sent or self.effects or self.flushes.asked) or any(sent for _, sent in self.seeks.values())

    def refuse_more(self) -> errors.TooManyRequests | None:
        """Why no further request may be added; None: it may."""
        limit = self._requests_max
        if len(self) < limit:
            return None
        message = f"{limit} acknowledgements are pending: wait for their results"
        return errors.TooManyRequests(message, field="requests_max", limit=limit)

    def add(self, request: Repeatable) -> None:
        self.acks[request.request] = request
        self._cover(request)

    def _cover(self, request: Repeatable) -> None:
        if isinstance(request, AckWanted):
            for first, last in request.ranges:
                self._acked.add(first, last)
            self._below = max(self._below, request.below or 0)

    def covered(self, first: int, last: int) -> list[IndexRange]:
        """The parts of this range whose acknowledgement is in flight."""
        if self._below <= first:
            return self._acked.overlap(first, last)
        covered = IndexSet(self._acked.overlap(first, last))
        covered.add(first, min(last, self._below - 1))
        return list(covered)

    def unsent(
        self, consumer: ConsumerNumber, number: SubscriptionNumber
    ) -> list[AckRequested | NackRequested | SeekRequested]:
        """What the present stream has not carried, in order. It counts as sent from now on. Nothing while a timer runs
        for what the owner could not do."""
        if self.repeats_later:
            return []
        messages: dict[int, AckRequested | NackRequested | SeekRequested] = {}
        for request, ack in self.acks.items():
            if request not in self.sent:
                self.sent[request] = None
                messages[request] = _message(ack, consumer)
        for request, (seek, sent) in self.seeks.items():
            if not sent:
                self.seeks[request] = (seek, True)
                messages[request] = SeekRequested(request, number, seek.index, seek.redo)
        return [messages[request] for request in sorted(messages)]

    def stream_lost(self) -> list[SeekEnded | EffectsEnded]:
        """Acknowledgements are sent again on the next stream. The outcome of other requests is unknown."""
        self.sent.clear()
        self.flushes.stream_lost()
        unknown = errors.DeadlineExceeded("the connection was lost, and the outcome of the seek is unknown")
        lost = [request for request, (_, sent) in self.seeks.items() if sent]
        for request in lost:
            del self.seeks[request]
        effects = self._drain_effects(errors.DeadlineExceeded("the connection was lost, and the outcome is unknown"))
        return [*(SeekEnded(request, unknown) for request in lost), *effects]

    def question(self, attachment: Attachment | None) -> list[AckRequested]:
        """Of the flushes. Nothing while the consumer is not attached, or a timer runs as for `unsent`."""
        if self.repeats_later or attachment is None or attachment.consumer is None:
            return []
        return self.flushes.question(attachment.consumer, attachment.seek_epoch)

    def question_answered(self, request: int, error: OncelogError | None, attempt: int) -> list[StartSessionTimer]:
        if error is None or not error.retriable:
            self._repeats = 0
            self.flushes.answered(request)
            return []
        self.flushes.ask_later(request)
        return self._pause(attempt)

    def flushed(self) -> list[FlushEnded]:
        """The flushes that are over now."""
        return self.flushes.ended(next(iter(self.acks), None))

    def effects_answered(self, request: int, result: SubscriptionEffects | OncelogError | None) -> list[EffectsEnded]:
        return [EffectsEnded(request, result)] if self.effects.pop(request, 0) is None else []

    def _drain_effects(self, error: OncelogError) -> list[EffectsEnded]:
        requests, self.effects = self.effects, {}
        return [EffectsEnded(request, error) for request in requests]

    def settle(self, request: int) -> Repeatable | None:
        """The acknowledgement was answered on the present stream. None: it is not pending."""
        if request not in self.sent:
            return None
        self._repeats = 0
        del self.sent[request]
        settled = self.acks.pop(request)
        if isinstance(settled, AckWanted):
            # Another request may cover the same messages; then they may be handed out while it is in flight.
            for first, last in settled.ranges:
                self._acked.remove(first, last)
            if settled.below is not None and settled.below == self._below:
                belows = (ack.below or 0 for ack in self.acks.values() if isinstance(ack, AckWanted))
                self._below = max(belows, default=0)
        return settled

    def repeat_later(self, request: int, attempt: int) -> list[StartSessionTimer]:
        """The owner could not make the acknowledgement durable."""
        return self._pause(attempt) if self.sent.pop(request, 0) is None else []

    def seek_later(self, request: int, attempt: int) -> list[StartSessionTimer]:
        """The owner refused the seek."""
        if request not in self.seeks:
            return []
        self.seeks[request] = (self.seeks[request][0], False)
        return self._pause(attempt)

    def _pause(self, attempt: int) -> list[StartSessionTimer]:
        if self.repeats_later:
            return []
        self._repeats += 1
        self.repeats_later = True
        key = TimerKey(TimerKind.REPEAT, attempt)
        return [StartSessionTimer(key, retry_pause_ms(self._repeats + 1), jitter=True)]

    def _cover_anew(self) -> None:
        self._acked.clear()
        self._below = 0
        for ack in self.acks.values():
            self._cover(ack)

    def sought(self, seek_epoch: SeekEpoch) -> list[AckEnded]:
        """Acknowledgements of lower epochs are void."""
        void = [request for request, ack in self.acks.items() if ack.seek_epoch < seek_epoch]
        for request in void:
            del self.acks[request]
            self.sent.pop(request, None)
        self._cover_anew()
        return [AckEnded(request, stale(seek_epoch)) for request in void]

    def drain(self, error: OncelogError) -> list[AckEnded | SeekEnded | EffectsEnded | FlushEnded]:
        """The consumer is over."""
        settled: list[AckEnded | SeekEnded | EffectsEnded | FlushEnded] = [
            AckEnded(request, error) for request in self.acks
        ]
        settled += self._drain_effects(error)
        settled += [SeekEnded(request, error) for request in self.seeks]
        settled += self.flushes.drain(error)
        self.acks.clear()
        self.seeks.clear()
        self.sent.clear()
        self._cover_anew()
        return sorted(settled, key=lambda each: each.request)

    def check_invariants(self) -> None:
        if any(request not in self.acks for request in self.sent):
            raise InvariantViolated("an acknowledgement was sent and is not pending")


def refusal(
    event: AckWanted | NackWanted, requests: PendingRequests, seek_epoch: SeekEpoch, *, is_ordered: bool
) -> OncelogError | None:
    """Why an acknowledgement is not sent; None: it is. seek_epoch: of the subscription. is_ordered: whether its type
    has cumulative ones."""
    if event.seek_epoch < seek_epoch:
        return stale(seek_epoch)
    refused: OncelogError | None = requests.refuse_more()
    if refused is None and isinstance(event, AckWanted) and event.below is not None and not is_ordered:
        message = "a cumulative acknowledgement needs an exclusive or failover subscription"
        refused = errors.InvalidArgument(message, field="below")
    return refused


def stale(seek_epoch: SeekEpoch) -> errors.StaleSeekEpoch:
    message = "the subscription was sought since this message was delivered, so the acknowledgement is void"
    return errors.StaleSeekEpoch(message, seek_epoch=seek_epoch)


def unreadable_messages(error: OncelogError) -> IndexRange | None:
    """The messages that an owner could not read, and no owner will; None: another error."""
    first, count = error.details.get("first_index"), error.details.get("count")
    if isinstance(error, errors.UnreadableEntry | errors.EntriesLost) and isinstance(first, int):
        return IndexRange(first, first + count - 1) if isinstance(count, int) and count > 0 else None
    return None


def up_to_nacked(request: AckWanted, nacked: IndexSet) -> AckWanted:
    """A cumulative acknowledgement ends before the first message in `nacked`: those that were negatively acknowledged
    here, and neither received again nor acknowledged otherwise since (hazard former-consumer-acks)."""
    over = nacked.overlap(0, (request.below or 0) - 1)
    return replace(request, below=over[0].first, complete=False) if over else request


def _message(request: Repeatable, consumer: ConsumerNumber) -> AckRequested | NackRequested:
    if isinstance(request, NackWanted):
        return NackRequested(
            consumer, request.request, request.seek_epoch, request.ranges, request.delay_ms, request.delivery_counts
        )
    return AckRequested(
        consumer, request.request, request.seek_epoch, request.ranges, request.below, request.generation
    )
