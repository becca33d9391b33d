"""What was handed to the session and not answered: whom to tell, and who waits for room or for the end."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from oncelog.client.results import BatchResult, SendResult, TopicPlace
from oncelog.client.send_buffer import Packed
from oncelog.core.errors import OncelogError
from oncelog.core.outcome import Outcome
from oncelog.core.sequence_ids import BatchIds


class Flight(Protocol):
    """Whoever is told of one batch's fate, once."""

    def completed(self, place: TopicPlace, ids: BatchIds, outcome: Outcome) -> None: ...
    def failed(self, error: OncelogError) -> None: ...


class MessagesFlight:
    """A batch of messages with a future each."""

    __slots__ = ("_futures", "_ids")

    def __init__(self, packed: Packed) -> None:
        self._futures = packed.futures
        self._ids = packed.ids

    def completed(self, place: TopicPlace, ids: BatchIds, outcome: Outcome) -> None:
        given: Sequence[int] = self._ids if self._ids is not None else range(ids.first, ids.last + 1)
        rows = zip(self._futures, given, strict=True)
        for part in outcome:
            for index, (future, sequence_id) in enumerate(islice(rows, part.count)):
                if not future.done():
                    future.set_result(SendResult(place, part, index, sequence_id))

    def failed(self, error: OncelogError) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)


class ListFlight:
    """All batches of one list, with one future for the whole."""

    def __init__(self) -> None:
        self.error: OncelogError | None = None
        self._answers: dict[int, tuple[BatchIds, Outcome]] = {}
        self._begun = 0
        self._ended = 0
        self._done: asyncio.Future[None] | None = None

    def batch(self) -> "ListPiece":
        """The flight of the next batch of the list."""
        self._begun += 1
        return ListPiece(self, self._begun)

    def piece_completed(self, number: int, ids: BatchIds, outcome: Outcome) -> None:
        self._answers[number] = (ids, outcome)
        self._piece_ended()

    def piece_failed(self, error: OncelogError) -> None:
        self.error = self.error or error
        self._piece_ended()

    def _piece_ended(self) -> None:
        self._ended += 1
        if self._done is not None and not self._done.done() and self._ended == self._begun:
            self._done.set_result(None)

    async def result(self, place: TopicPlace) -> BatchResult:
        """Wait for every batch begun; raise the first error, or return the result."""
        if self._ended < self._begun:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        if self.error is not None:
            raise self.error
        return BatchResult(place, [self._answers[number] for number in sorted(self._answers)])


class ListPiece:
    """One batch of a list."""

    __slots__ = ("_list", "_number")

    def __init__(self, whole: ListFlight, number: int) -> None:
        self._list = whole
        self._number = number

    def completed(self, _place: TopicPlace, ids: BatchIds, outcome: Outcome) -> None:
        self._list.piece_completed(self._number, ids, outcome)

    def failed(self, error: OncelogError) -> None:
        self._list.piece_failed(error)


class Flights:
    """{request: its flight}, in order; the requests ascend."""

    def __init__(self) -> None:
        self._flights: dict[int, Flight] = {}
        self._last_request = 0
        #: (request, who waits until everything up to it is answered)
        self._landed: deque[tuple[int, asyncio.Future[None]]] = deque()

    def begin(self, flight: Flight) -> int:
        self._last_request += 1
        self._flights[self._last_request] = flight
        return self._last_request

    def end(self, request: int) -> Flight:
        flight = self._flights.pop(request)
        oldest = next(iter(self._flights), self._last_request + 1)
        while self._landed and self._landed[0][0] < oldest:
            waiting = self._landed.popleft()[1]
            if not waiting.done():
                waiting.set_result(None)
        return flight

    async def all_landed(self) -> None:
        """Return when everything begun until now is answered, one way or the other."""
        if self._flights:
            waiting = asyncio.get_running_loop().create_future()
            self._landed.append((self._last_request, waiting))
            await waiting
