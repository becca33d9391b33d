"""A consumer of whole entries, for one client of a gateway: the session of every consumer, with other credit.

    delivered -> waiting -> with the client -> acknowledged, negatively acknowledged, or taken back
                    |
                    +-> dropped: as of every consumer

The client gives permits: how many messages it has asked for in all, since it has attached. A message that was handed
out has used one for ever; one that was dropped before has used none. So the owner may send on the present stream what
has left the waiting messages there, and the permits that are neither used nor taken by messages of an earlier stream.
An entry goes whole while any is left (`delivery.credit`), so more messages may be handed out than were asked for. Then
nothing more comes until the permits exceed them (hazard entry-above-the-permits).

A client has many messages in its queue that its application has not received. Which of them it works on is unknown, so
only the oldest one is reported as begun: if the client is lost, that one counts (hazard wrong-delivery-count).
"""

from collections.abc import Callable, Iterable
from itertools import islice

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import AnswerAck, ConsumerDetached, ConsumerHeld, ConsumerWanted, Subscribed
from oncelog.core.errors import ConsumerClosed, OncelogError
from oncelog.core.formats.client_token import CONSUMERS, needs_level
from oncelog.core.ids import ConsumerNumber, InstanceId
from oncelog.core.sdk.consumer.attachment import Attachment
from oncelog.core.sdk.consumer.events import (
    ClientLives,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerSettings,
    EntryEvent,
    EntryWanted,
    GiveBackWanted,
    HandOut,
    MessageRange,
    OwnerReport,
    PermitsGiven,
    ReportTakenBack,
    ReportWanted,
    RestartWanted,
    SendToOwner,
)
from oncelog.core.sdk.consumer.index_set import IndexSet
from oncelog.core.sdk.consumer.messages import ReceivedMessages, part_of
from oncelog.core.sdk.consumer.session import ConsumerSession, ConsumerSessionState


class ReceivedEntries(ReceivedMessages):
    """What was delivered to one client of a gateway and not settled."""

    def __init__(self, receive_bytes: int | None = None) -> None:
        super().__init__(0, receive_bytes)
        #: messages that the client has asked for in all, and those that were handed out to it
        self.permitted = 0
        self.handed = 0
        #: with the client, and taken back by the owner, since the last look
        self.taken_back = IndexSet()
        #: whether the oldest message counts as begun
        self.counts_oldest = True

    @property
    def credit(self) -> tuple[int, int]:
        return self.left, max(0, self.permitted - self.handed - self._earlier)

    def reported_begun(self) -> list[IndexRange]:
        """The oldest message that the client has."""
        return [IndexRange(first, first) for first, _ in islice(self.begun, 1 if self.counts_oldest else 0)]

    def take_entry(self, withheld: Callable[[int, int], list[IndexRange]]) -> tuple[MessageRange, ...]:
        """The messages of the next entry, ascending; those of one delivery, or of several that follow each other.
        withheld: as of `take`."""
        taken: list[MessageRange] = []
        later: list[tuple[MessageRange, bool]] = []
        while self._runs and (not taken or _of_one(taken[0], self._runs[0][0])):
            run, present = self._runs.popleft()
            covered = IndexSet(withheld(run.first, run.last))
            later.extend((part_of(run, part), present) for part in covered)
            for part in covered.gaps(run.first, run.last):
                taken.append(part_of(run, part))
                self._gone(taken[-1].count, present=present)
        self._runs.extendleft(reversed(later))
        self._begin(taken)
        self.handed += sum(run.count for run in taken)
        self._hungry = not taken
        return tuple(sorted(taken, key=lambda run: run.first))

    def recalled(self, ranges: Iterable[IndexRange]) -> None:
        ranges = tuple(ranges)
        self._take_back(part for first, last in ranges for part in self.begun.overlap(first, last))
        super().recalled(ranges)

    def restart(self, kept: tuple[IndexRange, ...]) -> None:
        keep = IndexSet(kept)
        self._take_back(part for first, last in self.begun for part in keep.gaps(first, last))
        super().restart(kept)

    def _take_back(self, ranges: Iterable[IndexRange]) -> None:
        for first, last in tuple(ranges):
            self.taken_back.add(first, last)

    def _check_window(self) -> None:
        """The last entry may exceed the permits."""


class EntrySession(ConsumerSession):
    """As ConsumerSession, with the events of EntryEvent."""

    messages: ReceivedEntries

    def __init__(self, settings: ConsumerSettings, instance_id: InstanceId) -> None:
        super().__init__(settings, instance_id)
        self.messages = ReceivedEntries(settings.receive_bytes)
        #: (attempt, consumer) of a stream that the next one is to replace
        self._replaced: tuple[int, ConsumerNumber] | None = None

    def _handle(self, event: ConsumerEvent) -> list[ConsumerEffect]:
        effects = self._handle_entries(event) if isinstance(event, EntryEvent) else super()._handle(event)
        if not self.messages.taken_back:
            return effects
        back, self.messages.taken_back = self.messages.taken_back, IndexSet()
        # A message whose acknowledgement is in flight is not held in any case.
        ranges = tuple(
            part for first, last in back for part in IndexSet(self.requests.covered(first, last)).gaps(first, last)
        )
        return [*effects, ReportTakenBack(ranges)] if ranges else effects

    def _handle_entries(self, event: EntryEvent) -> list[ConsumerEffect]:
        if self.state is ConsumerSessionState.CLOSED:
            return [HandOut(())] if isinstance(event, EntryWanted) else []
        match event:
            case EntryWanted():
                runs = self.messages.take_entry(self.requests.covered)
                return [HandOut(runs), *(self._flow() if runs else [])]
            case PermitsGiven(total):
                if total <= self.messages.permitted:
                    return []
                self.messages.permitted = total
                return self._flow()
            case RestartWanted():
                return self._restart()
            case ClientLives():
                consumer = None if self.attachment is None else self.attachment.consumer
                return [] if consumer is None else [self._to_owner(ConsumerHeld(consumer))]
            case GiveBackWanted(counts):
                self.messages.counts_oldest = counts
                return [*self._flow(), *self._end(ConsumerClosed("the consumer was closed"))]

    def _attached(self, answer: Subscribed) -> list[ConsumerEffect]:
        self._replaced = None
        if answer.whole_entries:
            return super()._attached(answer)
        unwanted = self._to_owner(ConsumerDetached(answer.consumer, lost=False))
        return [unwanted, *self._fail(needs_level("and this owner is of an older version", CONSUMERS))]

    def _ack_answered(self, answer: AnswerAck) -> list[ConsumerEffect]:
        begun = self.messages.reported_begun()
        effects = super()._ack_answered(answer)
        # While dispatch is paused nothing else is reported, and the time of the next oldest message must run.
        return effects if self.messages.reported_begun() == begun else [*effects, *self._flow()]

    def _take_report(self, known: Attachment, report: OwnerReport) -> list[ConsumerEffect]:
        return [ReportWanted()] if isinstance(report, ConsumerWanted) else super()._take_report(known, report)

    def _restart(self) -> list[ConsumerEffect]:
        """The next attachment presents nothing, so the owner begins with the lowest message again; its stream takes the
        place of the present one, so that an active consumer stays active. A seek in flight does the same."""
        known = self.attachment
        if self.requests.seeks:
            return []
        self.messages.drop_all()
        if known is None or known.consumer is None:
            return []
        self._replaced = self.opening.attempt, known.consumer
        known.consumer = None
        self.state = ConsumerSessionState.RECONNECTING
        return [*self.requests.stream_lost(), *self.opening.again(fresh=False)]

    def _end(self, error: OncelogError) -> list[ConsumerEffect]:
        farewell: list[ConsumerEffect] = []
        if self._replaced is not None:
            attempt, consumer = self._replaced
            farewell.append(SendToOwner(attempt, ConsumerDetached(consumer, lost=False)))
        return [*farewell, *super()._end(error)]


def _of_one(run: MessageRange, other: MessageRange) -> bool:
    """Whether both are messages of one entry, under one seek epoch and generation."""
    return (run.entry.position, run.seek_epoch, run.generation) == (
        other.entry.position,
        other.seek_epoch,
        other.generation,
    )
