"""Which messages `oncelog read` prints, and the last ones of a topic."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from oncelog.client.reading.reader import AsyncReader
from oncelog.client.values.messages import MessageBatch
from oncelog.core.formats.message_id import EARLIEST, Index, MessageId
from oncelog.core.search.message_filter import MessageFilter, parse_condition

#: Messages of a step backwards: few at first, because the newest are mostly enough.
STEP_MIN, STEP_MAX = 256, 1 << 17


@dataclass(slots=True)
class Wanted:
    """What is printed. looked, first, last: at how many messages was looked, and the indexes of the first and the last
    of them; found: how many are wanted."""

    filter: MessageFilter
    producer_name: str | None = None
    looked: int = 0
    first: int = -1
    last: int = -1
    found: int = 0

    @property
    def is_all(self) -> bool:
        return self.filter == MessageFilter() and self.producer_name is None

    def of(self, batch: MessageBatch, size: int | None = None) -> Sequence[int]:
        """The messages of the batch that are wanted, by their places in it. size: only the first so many."""
        size = len(batch) if size is None else min(size, len(batch))
        self.first = batch.first_index if self.first < 0 else min(self.first, batch.first_index)
        self.last = max(self.last, batch.first_index + size - 1)
        self.looked += size
        numbers: Sequence[int] = range(size)
        if self.producer_name is not None and batch.producer_name != self.producer_name:
            numbers = ()
        elif not self.is_all:
            keys, wants = batch.keys, self.filter.wants
            ids, values = batch.sequence_ids, batch.values
            numbers = [
                number
                for number in range(size)
                if wants(values[number], None if keys is None else keys[number], ids[number])
            ]
        self.found += len(numbers)
        return numbers

    def summary(self) -> str:
        """A line for standard error."""
        if self.looked == 0:
            return "searched 0 messages"
        return f"searched {self.looked} messages, index {self.first} to {self.last}: {self.found} are printed"


def wanted_of(key: str | None, text: str | None, condition: str | None, producer_name: str | None) -> Wanted:
    """Raises InvalidArgument."""
    return Wanted(
        MessageFilter(
            key=None if key is None else key.encode(),
            text=(text or "").encode(),
            condition=None if condition is None else parse_condition(condition),
        ),
        producer_name,
    )


Chosen = tuple[MessageBatch, Sequence[int]]


async def last_wanted(
    reader: AsyncReader,
    last: MessageId,
    wanted: Wanted,
    limit: int,
    read: Callable[[], AsyncGenerator[MessageBatch, None]],
) -> list[Chosen]:
    """The last `limit` messages that are wanted, the oldest first, with the batches that they are in.

    It reads steps of the log backwards, each of them forwards. last: of the topic. read: what the reader gives up to
    now. Raises as the reader.
    """
    await reader.seek(EARLIEST)
    oldest = await _one(read())
    await reader.seek(last, inclusive=True)
    newest = await _one(read())
    if oldest is None or newest is None:
        return []
    first, end, step = oldest.first_index, newest.first_index + len(newest), STEP_MIN
    found: list[Chosen] = []
    count = 0
    while count < limit and end > first:
        begin = max(first, end - step)
        await reader.seek(Index(begin))
        here: list[Chosen] = []
        async with aclosing(read()) as batches:
            async for batch in batches:
                if batch.first_index >= end:
                    break
                if numbers := wanted.of(batch, end - batch.first_index):
                    here.append((batch, numbers))
                if batch.first_index + len(batch) >= end:
                    break
        count += sum(len(numbers) for _, numbers in here)
        found, end, step = here + found, begin, min(4 * step, STEP_MAX)
    return _last(found, limit)


def _last(found: list[Chosen], limit: int) -> list[Chosen]:
    kept: list[Chosen] = []
    for batch, numbers in reversed(found):
        if limit <= 0:
            break
        kept.append((batch, numbers[-limit:]))
        limit -= len(numbers)
    return kept[::-1]


async def _one(batches: AsyncGenerator[MessageBatch, None]) -> MessageBatch | None:
    async with aclosing(batches) as given:
        async for batch in given:
            return batch
    return None
