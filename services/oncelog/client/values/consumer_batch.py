"""What a consumer returns at once: messages of several entries and partitions."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import overload

from oncelog.client.values.messages import Message, MessageBatch


class ConsumerBatch(Sequence[Message]):
    """What `receive_batch` returns: messages in the order of delivery, perhaps of several entries and partitions.

    Attributes:
        batches: the messages in columns, one MessageBatch for each run of consecutive messages of one entry.
        values: the messages' values.
    """

    __slots__ = ("_ends", "batches")

    def __init__(self, batches: Sequence[MessageBatch]) -> None:
        self.batches = tuple(batches)
        self._ends = list(accumulate(batch.count for batch in self.batches))

    @property
    def values(self) -> Sequence[memoryview]:
        if len(self.batches) == 1:
            return self.batches[0].values
        return [value for batch in self.batches for value in batch.values]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        at = bisect_right(self._ends, index)
        return self.batches[at][index - (self._ends[at - 1] if at else 0)]

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self.batches)

    def __repr__(self) -> str:
        return f"ConsumerBatch({len(self)} messages)"
