"""A search of the log: the messages of a topic for which all holds that was asked for, forwards or backwards.

It reads what is stored when it begins, partition by partition, and looks at each message. Nothing is remembered of it
anywhere; it ends when its caller leaves it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import NamedTuple, Self

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.network.start_position import Place, check_of_all_partitions, check_place
from oncelog.client.reading.log_reader import LastMessage, last_message
from oncelog.client.reading.reader import AsyncReader
from oncelog.client.values.arguments import check_type, integer
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.core.errors import DeadlineExceeded, InvalidArgument, LedgerUnavailable
from oncelog.core.formats.message_id import EARLIEST, Index, MessageId
from oncelog.core.names import TopicName
from oncelog.core.search.message_filter import SEARCHED_BYTES_MAX, MessageFilter, parse_condition

#: Messages of a step backwards: few at first, because the newest are mostly enough.
STEP_MIN, STEP_MAX = 256, 1 << 17
_LIMIT_MAX = 2**63 - 1

#: A batch, and the places in it of the messages that are wanted.
Chosen = tuple[MessageBatch, Sequence[int]]


class SearchedRange(NamedTuple):
    """Of one topic or partition. first_index, last_index: of the messages that were looked at, -1: none yet. end_index:
    one above the last message that was stored when the search began; -1: not known."""

    topic: str
    first_index: int
    last_index: int
    end_index: int

    def __str__(self) -> str:
        looked = "nothing" if self.last_index < 0 else f"index {self.first_index} to {self.last_index}"
        return f"{self.topic}: {looked}{'' if self.end_index < 0 else f', of {self.end_index}'}"


@dataclass(slots=True)
class SearchProgress:
    """looked: at how many messages. found: how many were returned. looked_bytes: of their values. complete: all of
    the topic was looked at, up to the end that it had when the search began; False while it goes on, and when it ended
    at a limit."""

    looked: int = 0
    found: int = 0
    looked_bytes: int = 0
    complete: bool = False
    ranges: list[SearchedRange] = field(default_factory=list)

    def __str__(self) -> str:
        """One line for people."""
        where = "; ".join(map(str, self.ranges))
        return f"searched {self.looked} messages{f' ({where})' if where else ''}: {self.found} found"


@dataclass(slots=True)
class Wanted:
    """What is looked for, and how far."""

    filter: MessageFilter
    producer_name: str | None = None
    progress: SearchProgress = field(default_factory=SearchProgress)

    @property
    def is_all(self) -> bool:
        return self.filter == MessageFilter() and self.producer_name is None

    def begin(self, topic: str, end_index: int) -> None:
        """The batches from now on are of this topic or partition."""
        self.progress.ranges.append(SearchedRange(topic, -1, -1, end_index))

    def of(self, batch: MessageBatch, size: int | None = None) -> Sequence[int]:
        """The messages of the batch that are wanted, by their places in it. size: only the first so many."""
        size = len(batch) if size is None else min(size, len(batch))
        values = batch.values
        self._note(batch, size)
        self.progress.looked_bytes += sum(map(len, values[:size] if size < len(values) else values))
        numbers: Sequence[int] = range(size)
        if self.producer_name is not None and batch.producer_name != self.producer_name:
            numbers = ()
        elif not self.is_all:
            keys, wants, ids = batch.keys, self.filter.wants, batch.sequence_ids
            numbers = [
                number
                for number in range(size)
                if wants(values[number], None if keys is None else keys[number], ids[number])
            ]
        return numbers

    def returned(self, numbers: Sequence[int], limit: int | None) -> Sequence[int]:
        """Those of the wanted ones that are given to the caller, which are counted as found: at most `limit`."""
        self.progress.found += len(numbers[:limit])
        return numbers[:limit]

    def _note(self, batch: MessageBatch, size: int) -> None:
        progress = self.progress
        progress.looked += size
        if progress.ranges and size:
            topic, first, last, end = progress.ranges[-1]
            first = batch.first_index if first < 0 else min(first, batch.first_index)
            last = max(last, batch.first_index + size - 1)
            progress.ranges[-1] = SearchedRange(topic, first, last, end)


def wanted_of(key: bytes | str | None, text: str | None, condition: str | None, producer_name: str | None) -> Wanted:
    """Raises InvalidArgument, which names the argument."""
    for name, given in (("key", key), ("text", text), ("filter", condition), ("producer_name", producer_name)):
        if given is not None and not isinstance(given, (str, bytes) if name == "key" else str):
            raise InvalidArgument(f"{name}: give a text, not a {type(given).__name__}", field=name)
        if given == "" and name != "key":
            raise InvalidArgument(f"{name}: is empty; leave it out to search without it", field=name)
        if given is not None and len(given) > SEARCHED_BYTES_MAX:
            message = f"{name}: has more than {SEARCHED_BYTES_MAX} bytes"
            raise InvalidArgument(message, field=name, limit=SEARCHED_BYTES_MAX)
    return Wanted(
        MessageFilter(
            key=key.encode() if isinstance(key, str) else key,
            text=(text or "").encode(),
            condition=None if condition is None else parse_condition(condition),
        ),
        producer_name,
    )


async def batches_up_to(
    reader: AsyncReader,
    last: MessageId | None,
    *,
    timeout_s: float | None,
    unavailable: Callable[[LedgerUnavailable], None] = lambda _error: None,
) -> AsyncGenerator[MessageBatch, None]:
    """The batches up to a message that is stored now; none if `last` is None.

    timeout_s: of each batch. unavailable: called when no live storage node has the next entries; they are waited for
    until the timeout. Raises DeadlineExceeded; LedgerUnavailable, if that is why a batch has not come.
    """
    clock = asyncio.get_running_loop().time
    if last is None or not await reader.has_message_available():
        return
    deadline_s = None if timeout_s is None else clock() + timeout_s
    away: LedgerUnavailable | None = None
    while True:
        left_s = None if deadline_s is None else max(0.0, deadline_s - clock())
        try:
            batch = await reader.batch_up_to(last, timeout=left_s)
        except LedgerUnavailable as error:
            away = error
            unavailable(error)
            if deadline_s is not None and clock() >= deadline_s:
                raise
            continue
        except DeadlineExceeded as error:
            # The reader has no reason in the moments in which it tries again.
            away = error.__cause__ if isinstance(error.__cause__, LedgerUnavailable) else away
            if away is not None:
                raise away from error
            raise
        if batch is None:
            return
        away = None
        yield batch
        deadline_s = None if timeout_s is None else clock() + timeout_s
        end = batch.message_id(-1)
        if (end.ledger_id, end.entry_id) >= (last.ledger_id, last.entry_id):
            return


async def chosen_backwards(
    reader: AsyncReader, last: LastMessage, wanted: Wanted, *, timeout_s: float | None
) -> AsyncGenerator[Chosen, None]:
    """The newest first. It reads steps of the log backwards, each of them forwards. A batch without places says that a
    step has nothing that is wanted. Raises as the reader."""
    await reader.seek(EARLIEST)
    oldest = await _first(batches_up_to(reader, last.message_id, timeout_s=timeout_s))
    if oldest is None:
        return
    first, end, step = oldest.first_index, last.next_index, STEP_MIN
    wanted.begin(reader.topic, end)
    while end > first:
        begin = max(first, end - step)
        await reader.seek(Index(begin))
        here: list[Chosen] = []
        async with aclosing(batches_up_to(reader, last.message_id, timeout_s=timeout_s)) as batches:
            async for batch in batches:
                if batch.first_index >= end:
                    break
                if numbers := wanted.of(batch, end - batch.first_index):
                    here.append((batch, numbers))
                if batch.first_index + len(batch) >= end:
                    break
        for batch, numbers in reversed(here):
            yield batch, numbers[::-1]
        if not here:
            yield oldest, ()
        end, step = begin, min(4 * step, STEP_MAX)


async def _first(batches: AsyncGenerator[MessageBatch, None]) -> MessageBatch | None:
    async with aclosing(batches) as given:
        async for batch in given:
            return batch
    return None


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """backwards: the newest first. limit: of messages; bytes_max: of the values that are looked at. None: no limit."""

    backwards: bool
    limit: int | None
    bytes_max: int | None
    timeout_s: float | None


def search_settings(
    backwards: bool, start: Place, limit: int | None, bytes_max: int | None, timeout_ms: int | None
) -> SearchSettings:
    """As `AsyncClient.search` gets them. Raises InvalidArgument."""
    check_place(start, False)
    check_type("backwards", backwards, bool, "True or False")
    if backwards and start != EARLIEST:
        raise InvalidArgument("start: a search backwards begins at the end of the topic", field="start")
    return SearchSettings(
        backwards=backwards,
        limit=None if limit is None else integer("limit", limit, 1, _LIMIT_MAX),
        bytes_max=None if bytes_max is None else integer("bytes_max", bytes_max, 1, _LIMIT_MAX),
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
    )


async def searched_parts(
    network: Network, topic: TopicName, start: Place, timeout_ms: int | None
) -> list[tuple[TopicName, LastMessage]]:
    """The topic, or each of its partitions, with its last message. Raises InvalidArgument for a start that is a place
    of one partition, and as `last_message`."""
    count = await persist(lambda _: network.lookup.partitions(topic), timeout_ms=timeout_ms, what=f"the topic {topic}")
    if count > 1:
        check_of_all_partitions(start, str(topic), count)
    names = [replace(topic, partition=number) for number in range(count)] or [topic]
    return [(name, await last_message(network, name, timeout_ms=timeout_ms)) for name in names]


async def readers_of(
    parts: Sequence[tuple[TopicName, LastMessage]], open_one: Callable[[str], Awaitable[AsyncReader]]
) -> list[tuple[AsyncReader, LastMessage]]:
    """A reader of each. Raises as `open_one`, or when it is cancelled, after the readers before it were closed."""
    readers: list[tuple[AsyncReader, LastMessage]] = []
    try:
        for name, last in parts:
            readers.append((await open_one(str(name)), last))
    except BaseException:
        for reader, _ in readers:
            await reader.close()
        raise
    return readers


class AsyncSearch:
    """The messages that were asked for. Made by `AsyncClient.search`; for one task at a time.

        async with client.search("orders", key="table-4") as search:
            async for message in search:
                ...
        print(search.progress)  # searched 20 messages (public/default/orders: index 0 to 19, of 20): 1 found

    The iteration waits for nothing new: it ends at the message that was the last one when the search began. Raises the
    errors of a reader.
    """

    def __init__(
        self,
        parts: Sequence[tuple[AsyncReader, LastMessage]],
        wanted: Wanted,
        settings: SearchSettings,
    ) -> None:
        """parts: of each partition a reader at its start, and its last message."""
        self._parts = parts
        self._wanted = wanted
        self._settings = settings
        self._chosen = self._search()
        self._waiting: deque[Message] = deque()

    @property
    def progress(self) -> SearchProgress:
        """How far the search has looked; it grows during the iteration."""
        return self._wanted.progress

    def __repr__(self) -> str:
        return f"AsyncSearch({self.progress})"

    async def next_messages(self) -> list[Message]:
        """The next ones, of one batch; an empty list at the end."""
        if self._waiting:
            messages = list(self._waiting)
            self._waiting.clear()
            return messages
        async for batch, numbers in self._chosen:
            return [Message(batch, number) for number in numbers]
        return []

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        if not self._waiting:
            self._waiting.extend(await self.next_messages())
        if not self._waiting:
            raise StopAsyncIteration
        return self._waiting.popleft()

    async def close(self) -> None:
        """End the search. `progress` stays."""
        self._waiting.clear()
        await self._chosen.aclose()
        for reader, _ in self._parts:
            await reader.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _search(self) -> AsyncGenerator[Chosen, None]:
        left = self._settings.limit
        for reader, last in self._parts:
            async with aclosing(self._of(reader, last)) as chosen:
                async for batch, numbers in chosen:
                    returned = self._wanted.returned(numbers, left)
                    if left is not None:
                        left -= len(returned)
                    if returned:
                        yield batch, returned
                    if left == 0 or self._is_enough:
                        return
        self.progress.complete = True

    @property
    def _is_enough(self) -> bool:
        return self._settings.bytes_max is not None and self.progress.looked_bytes >= self._settings.bytes_max

    async def _of(self, reader: AsyncReader, last: LastMessage) -> AsyncGenerator[Chosen, None]:
        """Also batches without places, so that a limit of bytes ends the search."""
        timeout_s = self._settings.timeout_s
        if self._settings.backwards:
            async with aclosing(chosen_backwards(reader, last, self._wanted, timeout_s=timeout_s)) as chosen:
                async for each in chosen:
                    yield each
            return
        self._wanted.begin(reader.topic, last.next_index)
        async with aclosing(batches_up_to(reader, last.message_id, timeout_s=timeout_s)) as batches:
            async for batch in batches:
                yield batch, self._wanted.of(batch)
