"""In which order received messages are handled: messages of one lane one after the other, of different lanes at once.

    waiting -> handled, and the lane goes on
                 `-> failed: the lane is held until the message is delivered again, or is given up

A lane is what has an order: a partition of an exclusive or failover subscription, a key of a key_shared one, a single
message of a shared one. Rules
- A message that failed comes again before the messages of its lane behind it are handled. They wait here; those of a
  key_shared subscription are dropped, because the owner recalls them, and delivers them again behind it.
- A message of a newer grant or seek voids what waits of an older one: all of it is delivered again.
- A message that is delivered again while it waits, or is handled, is handled once more only if it was not handled well.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
#: seek epoch and generation of a delivery, which ascend
Grant = tuple[int, int]


@dataclass(slots=True, eq=False)
class Lane(Generic[ItemT]):
    """name: partition, key or message. grant: of the newest delivery."""

    name: Hashable
    grant: Grant
    #: {index: the newest delivery of a message that waits}
    items: dict[int, ItemT] = field(default_factory=dict)
    #: heap of the indexes of `items`, and of some that are gone
    order: list[int] = field(default_factory=list)
    #: the index of the message that is handled
    busy: int | None = None
    #: the index of the failed message that is to come again
    awaited: int | None = None
    #: ascends, so that an old time-out is recognised
    holds: int = 0


class Lanes(Generic[ItemT]):
    """All messages that were received and are not handled."""

    def __init__(self, *, recalls: bool) -> None:
        """recalls: the owner recalls the messages of a lane behind one that is negatively acknowledged."""
        self._recalls = recalls
        self._lanes: dict[Hashable, Lane[ItemT]] = {}
        self._ready: deque[Lane[ItemT]] = deque()
        #: messages that wait
        self.waiting = 0
        #: lanes that wait for a message that failed
        self.held = 0

    def add(self, name: Hashable, grant: Grant, index: int, item: ItemT) -> None:
        """A message was delivered."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name, grant)
        if grant < lane.grant:
            return
        if grant > lane.grant:
            lane.grant = grant
            self._drop(lane)
            self._let_go(lane)
        if self._recalls and lane.awaited not in (None, index):
            return  # sent before the recall
        if index not in lane.items:
            heappush(lane.order, index)
            self.waiting += 1
        lane.items[index] = item
        if lane.awaited == index:
            self._let_go(lane)
        self._offer(lane)

    def next(self) -> tuple[Lane[ItemT], ItemT] | None:
        """A message to handle now, and its lane, which is busy until `handled` or `failed`; None: none can be."""
        while self._ready:
            lane = self._ready.popleft()
            if lane.busy is not None or lane.awaited is not None or not lane.items:
                continue
            index = heappop(lane.order)
            while index not in lane.items:
                index = heappop(lane.order)
            self.waiting -= 1
            lane.busy = index
            return lane, lane.items.pop(index)
        return None

    def handled(self, lane: Lane[ItemT]) -> None:
        """The lane's message was handled well, or does not come again."""
        assert lane.busy is not None, "only a busy lane has a message that is handled"
        if lane.items.pop(lane.busy, None) is not None:
            self.waiting -= 1
        lane.busy = None
        self._offer(lane)

    def failed(self, lane: Lane[ItemT]) -> int | None:
        """The lane's message failed, and will come again. Returns the number of the hold, for `given_up`; None: it came
        again meanwhile."""
        assert lane.busy is not None, "only a busy lane has a message that is handled"
        index, lane.busy = lane.busy, None
        if index in lane.items:
            self._offer(lane)
            return None
        return self._hold(lane, index)

    def buried(self, lane: Lane[ItemT]) -> int | None:
        """The lane's message failed, and becomes a dead letter. Returns as `failed`: what is recalled comes again when
        the letter is stored."""
        assert lane.busy is not None, "only a busy lane has a message that is handled"
        behind = min((index for index in lane.items if index != lane.busy), default=None)
        if behind is None or not self._recalls:
            self.handled(lane)
            return None
        lane.busy = None
        return self._hold(lane, behind)

    def _hold(self, lane: Lane[ItemT], awaited: int) -> int:
        if self._recalls:
            self._drop(lane)
        lane.awaited = awaited
        lane.holds += 1
        self.held += 1
        return lane.holds

    def given_up(self, lane: Lane[ItemT], hold: int) -> list[ItemT]:
        """The failed message does not come again here. Returns what waits behind it, to be given back."""
        if lane.awaited is None or lane.holds != hold:
            return []
        given_back = [lane.items[index] for index in sorted(lane.items)]
        self._drop(lane)
        self._let_go(lane)
        self._offer(lane)
        return given_back

    def _let_go(self, lane: Lane[ItemT]) -> None:
        if lane.awaited is not None:
            lane.awaited = None
            self.held -= 1

    def _drop(self, lane: Lane[ItemT]) -> None:
        self.waiting -= len(lane.items)
        lane.items.clear()
        lane.order.clear()

    def _offer(self, lane: Lane[ItemT]) -> None:
        """Let the lane go on, or forget it when it is empty."""
        if lane.busy is not None or lane.awaited is not None:
            return
        if lane.items:
            self._ready.append(lane)
        elif self._lanes.get(lane.name) is lane:
            del self._lanes[lane.name]
