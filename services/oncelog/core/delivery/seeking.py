"""A step of a subscription to a new seek_epoch: a seek, the rewind of messages whose effects a store has lost, or the
commit of an offset by a group (`group_offsets.committing`).

SeekRequested -> Sought in flight: nothing is delivered, acknowledgements wait
RewindRequested -> Rewound in flight: the same
    durable -> every consumer learns the new seek_epoch and holds nothing; what waited is StaleSeekEpoch (hazard
    late-ack-after-seek)
    dropped -> answered with a retriable error; what waited is judged at the seek_epoch as it is
commits in flight, each of which may step back: the same; no seek begins
"""

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.core.acks.changes import Rewound, Sought
from oncelog.core.delivery.acknowledging import Acknowledging
from oncelog.core.delivery.attachments import Attachments
from oncelog.core.delivery.context import Context, outcome_unknown
from oncelog.core.delivery.dead_letters import DeadLetters
from oncelog.core.delivery.deliverable import LogRange
from oncelog.core.delivery.events import (
    AnswerAck,
    AnswerSeek,
    SeekRequested,
    SubscriptionSought,
)
from oncelog.core.delivery.redelivery import Redeliveries
from oncelog.core.delivery.store_binding.events import RewindRequested
from oncelog.core.errors import ConsumerFenced, InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.ids import SeekEpoch


@dataclass(slots=True, eq=False)
class SeekToken:
    """A step in flight. index: the lowest message that may be delivered again."""

    request: SeekRequested | RewindRequested
    index: int
    epoch: SeekEpoch


class Seeking:
    """One step at a time."""

    def __init__(
        self,
        context: Context,
        log: LogRange,
        acks: Acknowledging,
        redeliveries: Redeliveries,
        dead_letters: DeadLetters,
        attachments: Attachments,
        *,
        over: Callable[[], None],
    ) -> None:
        """over: called when acknowledgements need not wait any more."""
        self._context = context
        self._log = log
        self._acks = acks
        self._redeliveries = redeliveries
        self._dead_letters = dead_letters
        self._attachments = attachments
        self._over = over
        #: None: no step is in flight
        self.token: SeekToken | None = None
        #: whether commits of a group are in flight
        self.commits = False
        self._epoch = context.state.seek_epoch

    @property
    def index(self) -> int | None:
        """Where the seek or rewind in flight goes; None: none is."""
        return None if self.token is None else self.token.index

    @property
    def busy(self) -> bool:
        """Whether nothing may be delivered or acknowledged now."""
        return self.token is not None or self.commits

    def out_of_range(self, index: int) -> InvalidArgument:
        first, end = self._log.first_index, self._log.next_index
        return InvalidArgument(f"index {index} is outside of the topic's {first} to {end}", field="index", limit=end)

    def request(self, event: SeekRequested | RewindRequested) -> None:
        index = event.index if isinstance(event, SeekRequested) else event.ranges[0].first
        if not self._log.first_index <= index <= self._log.next_index:
            self._answer(event, self.out_of_range(index))
        elif self.token is not None:
            self._answer(event, ServiceUnavailable("another seek of the subscription is being written: try again"))
        elif self.commits:
            self._answer(event, ServiceUnavailable("an offset of the subscription is being written: try again"))
        else:
            state = self._context.state
            epoch = SeekEpoch(state.seek_epoch + 1)
            self.token = SeekToken(event, index, epoch)
            self._dead_letters.seek()
            if isinstance(event, SeekRequested):
                change: Sought | Rewound = Sought(state.number, epoch, index, event.redo)
            else:
                change = Rewound(state.number, epoch, event.generation, event.ranges)
            self._context.append(change, self.token)

    def settled(self, token: SeekToken) -> None:
        """The step is durable. The fold ignores a rewind behind the activation of another consumer."""
        self.token = None
        if self._context.state.seek_epoch < token.epoch:
            self._dead_letters.sought(written=False)
            self._answer(token.request, ConsumerFenced("another consumer is active since"))
            self._over()
            return
        self._begin_again()
        self._answer(token.request, token.epoch)
        self._attachments.choose()
        self._over()

    def _begin_again(self) -> None:
        """As the fold has done."""
        self._acks.sought()
        self._redeliveries.sought()
        self._dead_letters.sought(written=True)
        consumers = self._context.consumers
        for consumer in consumers.by_number.values():
            consumer.out.clear()
        consumers.away.clear()
        self._context.deliverable.sought()
        self._attachments.returns_over()
        if self._attachments.keys is not None:
            self._attachments.keys.restart()
        epoch = self._context.state.seek_epoch
        for consumer in consumers.by_number.values():
            if consumer.answered:
                self._context.step.emit(SubscriptionSought(consumer.number, epoch))

    def dropped(self, token: SeekToken) -> None:
        """The step was not written."""
        self.token = None
        self._dead_letters.sought(written=False)
        self._answer(token.request, ServiceUnavailable("the seek was not written: try again"))

    # --- commits of a group -------------------------------------------------------------------------------------------

    def commits_begin(self) -> None:
        """A commit is appended."""
        if not self.commits:
            self.commits, self._epoch = True, self._context.state.seek_epoch
            self._dead_letters.seek()

    def committed(self) -> None:
        """A commit is durable and folded; another one that became durable with it may have been the step back."""
        context = self._context
        if context.state.seek_epoch != self._epoch:
            self._epoch = context.state.seek_epoch
            self._begin_again()
            self._attachments.choose()
            self._dead_letters.seek()
        elif context.state.mark_delete:
            context.leave_all(0, context.state.mark_delete - 1)

    def commits_end(self) -> None:
        """None is in flight any more."""
        if self.commits:
            self.commits = False
            self._dead_letters.sought(written=False)
            self._over()

    def end(self) -> None:
        """The outcome of a step in flight is unknown."""
        if self.token is not None:
            self._answer(self.token.request, outcome_unknown())
            self.token = None

    def _answer(self, event: SeekRequested | RewindRequested, result: SeekEpoch | OncelogError) -> None:
        if isinstance(event, SeekRequested):
            self._context.step.emit(AnswerSeek(event.call, result))
        elif event.consumer in self._context.consumers.by_number:
            error = result if isinstance(result, OncelogError) else None
            self._context.step.emit(AnswerAck(event.consumer, event.request, error))
