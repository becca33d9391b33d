"""A step back and a trim exclude each other (hazards seek-below-a-trim, commit-below-a-trim).

While a trim is in flight, steps back below its target wait, and what a group asks for behind them.
`Subscriptions.steps_back_to` names the steps back in flight, and no trim begins above them.
"""

from oncelog.core.delivery.events import ConsumerOpening, CreateRequested, SeekRequested
from oncelog.core.delivery.group_offsets.events import GroupRequest, OffsetCommitRequested
from oncelog.core.delivery.store_binding.events import RewindRequested

StepBack = ConsumerOpening | CreateRequested | SeekRequested | RewindRequested | GroupRequest


class TrimGate:
    """Of one topic."""

    def __init__(self) -> None:
        #: of a trim in flight
        self._target: int | None = None
        self._waiting: list[StepBack] = []

    def holds(self, event: StepBack) -> bool:
        """Whether the event has to wait for a trim in flight: it waits here then."""
        place = _place_of(event)
        held = self._target is not None and place is not None and place < self._target
        held = held or (isinstance(event, GroupRequest) and self._follows(event))
        if held:
            self._waiting.append(event)
        return held

    def _follows(self, event: GroupRequest) -> bool:
        """Whether a commit of the group waits: it comes first, and is not to undo this one."""
        commits = (each for each in self._waiting if isinstance(each, OffsetCommitRequested))
        return any(each.subscription == event.subscription for each in commits)

    def close(self, target: int) -> None:
        """A trim of messages below this index begins."""
        self._target = target

    def open(self) -> list[StepBack]:
        """The trim is over; returns what has waited for it."""
        self._target = None
        return self.take()

    def take(self) -> list[StepBack]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def abandon(self, call: int) -> None:
        """The client withdrew its request to attach."""
        self._waiting = [each for each in self._waiting if not isinstance(each, ConsumerOpening) or each.call != call]


def _place_of(event: StepBack) -> int | None:
    """The lowest message that may be delivered then; None: the event is no step back."""
    match event:
        case ConsumerOpening(first_index=index) | CreateRequested(first_index=index) | SeekRequested(index=index):
            return index
        case RewindRequested(ranges=ranges):
            return min((each.first for each in ranges), default=None)
        case OffsetCommitRequested(offset=offset):
            return offset
        case _:
            return None
