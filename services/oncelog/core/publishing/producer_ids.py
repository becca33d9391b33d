"""Producer ids for new names: each request that needs one allocates one. Ids go to the waiting requests in order; an id
whose request has gone is kept for the next request."""

from collections import deque
from itertools import islice

from oncelog.core.ids import ProducerId
from oncelog.core.publishing.opening_queue import Opening
from oncelog.core.topic_events.effects import AllocateProducerId, Step
from oncelog.core.topic_events.events import ProducerIdAllocated, ProducerIdRefused

#: So many of the requests that need an id are tried when one arrives. The first one takes it, unless it waits for
#: something else meanwhile.
_TRIED_MAX = 64


class ProducerIds:
    """Of one topic at its owner."""

    def __init__(self, step: Step) -> None:
        self._step = step
        #: {place: opening} of those that wait for a producer id, in order
        self.needing: dict[int, Opening] = {}
        #: ids that no request needed when they arrived
        self.free: deque[ProducerId] = deque()
        #: numbers of the allocations without an answer; how many there were
        self._allocating: dict[int, None] = {}
        self._allocations = 0

    def need(self, opening: Opening) -> None:
        """The opening waits for an id."""
        self.needing[opening.place] = opening
        if len(self._allocating) < len(self.needing):
            self._allocations += 1
            self._allocating[self._allocations] = None
            self._step.emit(AllocateProducerId(self._allocations))

    def left(self, opening: Opening) -> None:
        """The opening needs no id, or none any more."""
        self.needing.pop(opening.place, None)

    def allocated(self, event: ProducerIdAllocated) -> list[Opening]:
        """An id is free. Returns the openings to try again while there is one, in order."""
        if event.allocation not in self._allocating:
            return []
        del self._allocating[event.allocation]
        self.free.append(event.producer_id)
        return list(islice(self.needing.values(), _TRIED_MAX))

    def refused(self, event: ProducerIdRefused) -> Opening | None:
        """No id is available: the first opening that needs one fails, and nothing else does. Returns that opening."""
        if event.allocation not in self._allocating:
            return None
        del self._allocating[event.allocation]
        return next(iter(self.needing.values()), None)
