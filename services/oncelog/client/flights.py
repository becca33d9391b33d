"""What was handed to the session and not answered: whom to tell, and who waits for room or for the end."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from oncelog.client.results import BatchResult, Piece, SendResult, Stretch, TopicPlace
from oncelog.client.send_buffer import Packed
from oncelog.core.errors import OncelogError, StaleSequence
from oncelog.core.producer.sequence_ids import BatchIds


class Flight(Protocol):
    """Whoever is told of one batch's fate, once."""

    def completed(self, place: TopicPlace, ids: BatchIds, stretches: list[Stretch]) -> None: ...
    def failed(self, error: OncelogError) -> None: ...


class MessagesFlight:
    """A batch of messages with a future each."""

    __slots__ = ("_futures", "_ids")

    def __init__(self, packed: Packed) -> None:
        self._futures = packed.futures
        self._ids = packed.ids

    def completed(self, place: TopicPlace, ids: BatchIds, stretches: list[Stretch]) -> None:
        given: Sequence[int] = self._ids if self._ids is not None else range(ids.first, ids.last + 1)
        rows = zip(self._futures, given, strict=True)
        for size, part, resent, error in stretches:
            for index, (future, sequence_id) in enumerate(islice(rows, size)):
                if future.done():
                    continue
                if part is not None:
                    future.set_result(SendResult(place, part, index, sequence_id, resent=resent))
                elif error is not None:
                    future.set_exception(error)

    def failed(self, error: OncelogError) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)


class ListFlight:
    """All batches of one list, with one future for the whole."""

    def __init__(self) -> None:
        #: why the rest of the list cannot be sent any more
        self.over: OncelogError | None = None
        self._pieces: dict[int, Piece] = {}
        self._begun = 0
        self._done: asyncio.Future[None] | None = None

    def batch(self, count: int) -> "ListPiece":
        """The flight of the next batch of the list, with so many messages."""
        self._begun += 1
        return ListPiece(self, self._begun, count)

    def piece_ended(self, number: int, piece: Piece) -> None:
        self._pieces[number] = piece
        if self._done is not None and not self._done.done() and len(self._pieces) == self._begun:
            self._done.set_result(None)

    async def result(self, place: Callable[[], TopicPlace], *, unsent: int) -> BatchResult:
        """Wait for every batch begun; return the result, or raise the first error, which carries it.

        unsent: messages of the list that were never handed over, for what `over` says.
        """
        if len(self._pieces) < self._begun:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        pieces = [self._pieces[number] for number in sorted(self._pieces)]
        if unsent and self.over is not None:
            pieces.append(Piece(unsent, None, [Stretch(unsent, None, error=self.over.of_send(stored=False))]))
        result = BatchResult(place(), pieces)
        failed = [stretch for stretch in result.stretches if stretch.error is not None]
        if failed:
            raise _of_list(failed, result)
        return result


def _of_list(failed: Sequence[Stretch], result: BatchResult) -> OncelogError:
    """The first error, told of the list as a whole. stored False: of no message of it."""
    first = failed[0].error
    assert first is not None, "they failed"
    count = sum(stretch.size for stretch in failed)
    if count == result.count and all(stretch.error is not None and stretch.error.stored is False for stretch in failed):
        whole = first.of_send(stored=False)
    else:
        # Some of the list may be stored, whatever is known of the first that failed and whatever its class says.
        message = f"{count} of {result.count} messages failed; the first: {first.cause}"
        whole = type(first)(message, **first.details)
        whole.stored = None
        whole.__cause__ = first
    whole.result = result
    return whole


class ListPiece:
    """One batch of a list."""

    __slots__ = ("_count", "_list", "_number")

    def __init__(self, whole: ListFlight, number: int, count: int) -> None:
        self._list = whole
        self._number = number
        self._count = count

    def completed(self, _place: TopicPlace, ids: BatchIds, stretches: list[Stretch]) -> None:
        self._list.piece_ended(self._number, Piece(self._count, ids, stretches))

    def failed(self, error: OncelogError) -> None:
        if not isinstance(error, StaleSequence):
            self._list.over = self._list.over or error
        self._list.piece_ended(self._number, Piece(self._count, None, [Stretch(self._count, None, error=error)]))


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
