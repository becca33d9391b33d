"""Commits and raised generations of one subscription that a group uses (hazards former-member-commits,
commit-for-a-deleted-topic).

    OffsetCommitRequested     judged -> OffsetCommitted in flight -> durable: answered
    GenerationRaiseRequested  judged -> ConsumerActivated in flight -> durable: answered
        dropped -> answered with a retriable error
    OffsetAsked -> answered when nothing of the above is in flight

Commits that arrive together become one entry of the ack log. Each may step back, which only the fold knows: what is in
flight in front of it moves the position, too. So while one is in flight, everything waits that waits for a seek, and no
seek begins. Behind a step back the subscription is as after a seek.

A generation is judged with those in flight: what follows them in the ack log is folded behind them. So the fold takes
each commit that was appended here.
"""

from dataclasses import dataclass, field

from oncelog.core.acks.changes import ConsumerActivated, OffsetCommitted
from oncelog.core.delivery.acknowledging import SHARED_TYPES
from oncelog.core.delivery.attachments import Attachments
from oncelog.core.delivery.context import Context, outcome_unknown
from oncelog.core.delivery.deliverable import LogRange
from oncelog.core.delivery.events import AnswerAdmin, DeleteRequested
from oncelog.core.delivery.group_offsets.events import (
    GROUPS,
    GenerationRaiseRequested,
    GroupRequest,
    OffsetAsked,
    OffsetCommitRequested,
)
from oncelog.core.delivery.seeking import Seeking
from oncelog.core.errors import (
    Conflict,
    ConsumerBusy,
    ConsumerFenced,
    InvalidArgument,
    OncelogError,
    ServiceUnavailable,
    SubscriptionTypeMismatch,
)
from oncelog.core.ids import Generation


@dataclass(slots=True, eq=False)
class OffsetToken:
    """A commit, or a raised generation, in flight. offset None: it is no commit. calls: that are answered with it."""

    calls: list[int]
    generation: Generation
    offset: int | None = None
    #: of the requests that only wait for it
    waiting: list[int] = field(default_factory=list)


def refuse_offset(event: GroupRequest, log: LogRange) -> InvalidArgument | None:
    """Why the topic cannot have this offset; None: it has."""
    if not isinstance(event, OffsetCommitRequested) or 0 <= event.offset <= log.next_index:
        return None
    message = f"offset {event.offset} is above the end of the topic, {log.next_index}: it may have been created again"
    return InvalidArgument(message, field="offset", limit=log.next_index)


class Committing:
    """Of one subscription."""

    def __init__(
        self,
        context: Context,
        log: LogRange,
        attachments: Attachments,
        seeking: Seeking,
    ) -> None:
        self._context = context
        self._log = log
        self._attachments = attachments
        self._seeking = seeking
        #: in order
        self._in_flight: dict[OffsetToken, None] = {}

    @property
    def step_back(self) -> int | None:
        """The lowest offset in flight that is below the position; None: none is."""
        mark_delete = self._context.state.mark_delete
        offsets = (token.offset for token in self._in_flight if token.offset is not None)
        return min((offset for offset in offsets if offset < mark_delete), default=None)

    # --- requests -----------------------------------------------------------------------------------------------------

    def request(self, event: GroupRequest) -> None:
        if isinstance(event, OffsetAsked):
            if self._in_flight:
                next(reversed(self._in_flight)).waiting.append(event.call)
            else:
                self._answer(event.call)
            return
        error = self._refusal()
        if error is not None:
            self._answer(event.call, error)
        elif isinstance(event, GenerationRaiseRequested):
            self._raise(event)
        else:
            self._commit(event)

    def _refusal(self) -> OncelogError | None:
        """Why no group may use the subscription now."""
        state, attachments = self._context.state, self._attachments
        if len(self._context.consumers) or attachments.any_opening:
            return ConsumerBusy(f"subscription {state.name} has consumers: close them, or use another group")
        if attachments.type in SHARED_TYPES:
            kind = attachments.type.name.lower()
            return SubscriptionTypeMismatch(
                f"subscription {state.name} is {kind}, and a group needs one that has a position: use another group",
                type=kind,
            )
        if state.binding is not None or self._context.rebinding:
            return Conflict(f"the effects of subscription {state.name} are kept in a store: use another group")
        return None

    def refuse_deletion(self, event: DeleteRequested) -> OncelogError | None:
        """Why the subscription is not deleted; None: it is."""
        if len(self._context.consumers) and not event.force:
            return Conflict("the subscription has connected consumers: close them, or use force")
        newest = self._newest()
        if event.generation is not None and event.generation < newest:
            return ConsumerFenced(f"the subscription is used since: generation {event.generation} is below {newest}")
        return self._refuse_as_used(event.unused_for_ms) if event.unused_for_ms else None

    def _refuse_as_used(self, unused_for_ms: int) -> ConsumerFenced | None:
        committed = self._context.state.committed
        if committed is None:
            return ConsumerFenced("no group has committed to the subscription, so it may belong to other consumers")
        age_ms = self._context.step.now_ms - committed.time_ms
        if age_ms < unused_for_ms or self._in_flight:
            return ConsumerFenced(f"the subscription is used: its newest commit is less than {unused_for_ms} ms old")
        if not self._context.state.generation and committed.position != self._context.state.mark_delete:
            # Consumers of a shared subscription leave no other trace. A group with members has a generation.
            return ConsumerFenced("the position was moved since the newest commit, so it may belong to other consumers")
        return None

    def _newest(self) -> Generation:
        """The generation, once everything in flight is durable."""
        granting = self._attachments.activation.granting
        return max(
            self._context.state.generation,
            Generation(0) if granting is None else granting.generation,
            *(token.generation for token in self._in_flight),
        )

    def _commit(self, event: OffsetCommitRequested) -> None:
        newest = self._newest()
        generation = newest if event.generation is None else event.generation
        if generation < newest:
            why = f"another member has the partition since: generation {generation} is below {newest}"
            self._answer(event.call, ConsumerFenced(why, generation=newest))
        elif (refused := refuse_offset(event, self._log)) is not None:
            self._answer(event.call, refused)
        elif self._seeking.token is not None:
            self._answer(event.call, ServiceUnavailable("a seek of the subscription is being written: try again"))
        else:
            self._seeking.commits_begin()
            offset = max(event.offset, self._log.first_index)
            state, now_ms = self._context.state, max(0, self._context.step.now_ms)
            change = OffsetCommitted(state.number, generation, offset, event.metadata, now_ms)
            self._append(change, OffsetToken([event.call], generation, offset))

    def _raise(self, event: GenerationRaiseRequested) -> None:
        state, generation = self._context.state, event.generation
        if state.generation == generation and state.active_consumer not in ("", GROUPS):
            generation = Generation(generation + 1)  # a consumer that was attached has this one
        newest = self._newest()
        if state.generation >= generation:
            self._answer(event.call)
        elif (raising := self._raising(generation)) is not None:
            raising.calls.append(event.call)
        else:
            if newest >= generation:  # of a grant in flight to a consumer that is gone
                generation = Generation(newest + 1)
            self._append(ConsumerActivated(state.number, GROUPS, generation), OffsetToken([event.call], generation))

    def _raising(self, generation: Generation) -> OffsetToken | None:
        """What is in flight and raises the generation so far."""
        return next((token for token in self._in_flight if token.generation >= generation), None)

    def _append(self, change: OffsetCommitted | ConsumerActivated, token: OffsetToken) -> None:
        self._in_flight[token] = None
        self._context.raising = max(self._context.raising, token.generation)
        self._context.append(change, token)

    # --- the ack log's answers ----------------------------------------------------------------------------------------

    def settled(self, token: OffsetToken) -> None:
        """It is durable and folded."""
        self._in_flight.pop(token)
        if token.offset is not None:
            self._seeking.committed()
        for call in (*token.calls, *token.waiting):
            self._answer(call)
        self._end()

    def dropped(self, tokens: list[OffsetToken]) -> None:
        """These were not written."""
        for token in tokens:
            self._in_flight.pop(token)
            for call in token.calls:
                self._answer(call, ServiceUnavailable("the change was not written: try again"))
            for call in token.waiting:
                self._answer(call)
        if tokens:
            self._end()

    def _end(self) -> None:
        if not self._in_flight:
            self._context.raising = Generation(0)
        if all(token.offset is None for token in self._in_flight):
            self._seeking.commits_end()

    def end(self, error: OncelogError) -> None:
        """The outcome of what is in flight is unknown."""
        for token in self._in_flight:
            for call in token.calls:
                self._answer(call, outcome_unknown())
            for call in token.waiting:
                self._answer(call, error)
        self._in_flight.clear()

    def _answer(self, call: int, error: OncelogError | None = None) -> None:
        generation = Generation(0) if error is not None else self._context.state.generation
        self._context.step.emit(AnswerAdmin(call, error, generation))
