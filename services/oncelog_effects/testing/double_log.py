"""A topic and a subscription in memory, as far as a source of effects sees them: for `prove`.

It keeps what the log promises to effects: one active consumer with a generation that ascends; acknowledgements and
requests of a former one are void; what was acknowledged is consumed, and only a rewind gives it back; a rewind ends the
grant, and everything that is not acknowledged is delivered again.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace

from oncelog.client.values.messages import ConsumerDelivery, Message
from oncelog.client.values.results import TopicPartition
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.errors import ConsumerFenced, OncelogError, StoreMismatch
from oncelog.core.formats.message_id import Index
from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber, TopicId
from oncelog.testing.messages import Content, message_of


class DoubleLog:
    """contents: the messages that the topic has."""

    def __init__(self, contents: Sequence[Content]) -> None:
        self.topic_id = TopicId(uuid.uuid4().hex)
        self.active: DoubleConsumer | None = None
        self.seek_epoch = self._redo_epoch = SeekEpoch(0)
        self._contents = contents
        self._generation = 0
        self._store_id = ""
        self._acknowledged: set[int] = set()
        self._consumed: set[int] = set()
        # What a source asks the client for.
        self._network = SimpleNamespace(lookup=SimpleNamespace(cluster_id="prove"))

    @property
    def end(self) -> int:
        return len(self._contents)

    @property
    def mark_delete(self) -> int:
        return next((index for index in range(self.end) if index not in self._acknowledged), self.end)

    async def attach(self, store_id: str, dead_letters: bool) -> "DoubleConsumer":
        """A consumer that is the active one at once. Raises StoreMismatch."""
        if self._store_id not in {"", store_id}:
            raise StoreMismatch(f"the effects of the subscription are in store {self._store_id}")
        self.active = DoubleConsumer(self, store_id, self.next_generation())
        return self.active

    def next_generation(self) -> Generation:
        self._generation += 1
        return Generation(self._generation)

    @asynccontextmanager
    async def _reader(self, first: int) -> AsyncIterator[AsyncIterator[Message]]:
        async def read() -> AsyncIterator[Message]:
            for index in range(first, self.end):
                yield self.message(index)

        yield read()

    async def create_reader(self, topic: str, *, start: Index) -> object:
        return self._reader(start.number)

    def message(self, index: int, delivery: ConsumerDelivery | None = None) -> Message:
        content = self._contents[index]
        return message_of(content, self.topic_id, index, *(() if delivery is None else (delivery,)))

    def is_acknowledged(self, index: int) -> bool:
        return index in self._acknowledged

    # --- requests of the active consumer ------------------------------------------------------------------------------

    def effects(self, from_index: int) -> SubscriptionEffects:
        consumed = tuple(_ranges(index for index in self._consumed if index >= from_index))
        return SubscriptionEffects(
            number=SubscriptionNumber(1), store_id=self._store_id, effect="", seek_epoch=self.seek_epoch,
            redo_epoch=self._redo_epoch, redo_index=0, generation=Generation(self._generation),
            mark_delete=self.mark_delete, first_index=0, next_index=self.end, known_from=0, forgotten_below=0,
            consumed=consumed, complete=True,
        )  # fmt: skip

    def bind(self, store_id: str) -> None:
        self._store_id = store_id

    def acknowledge_below(self, below: int) -> None:
        fresh = set(range(below)) - self._acknowledged
        self._acknowledged |= fresh
        self._consumed |= fresh

    def redo(self) -> None:
        """A seek to the first message, whose effects are to be redone."""
        self._acknowledged.clear()
        self._consumed.clear()
        self.seek_epoch = self._redo_epoch = SeekEpoch(self.seek_epoch + 1)

    def rewind(self, ranges: Iterable[IndexRange]) -> None:
        lost = {index for first, last in ranges for index in range(first, last + 1)}
        self._acknowledged -= lost
        self._consumed -= lost
        self.seek_epoch = SeekEpoch(self.seek_epoch + 1)


class DoubleConsumer:
    """Stands for an EffectsConsumer and its driver."""

    has_dead_letter_topic = True

    def __init__(self, log: DoubleLog, store_id: str, generation: Generation) -> None:
        self.driver = self
        self.unread: list[IndexRange] = []
        self.failure: OncelogError | None = None
        self.topic_partition = TopicPartition(log.topic_id, -1)
        self._log = log
        self._store_id = store_id
        self._generation = generation
        self._next = 0
        #: A process that was killed says nothing any more.
        self.killed = False

    @property
    def _is_active(self) -> bool:
        return self._log.active is self and not self.killed

    @property
    def generation(self) -> Generation:
        return self._generation if self._is_active else Generation(0)

    async def until_active(self) -> None:
        if not self._is_active:
            await asyncio.get_running_loop().create_future()  # another one is, until this process ends

    async def all_settled(self) -> None:
        """Acknowledgements are answered at once."""

    async def received(self, count_max: int) -> list[Message]:
        delivery = ConsumerDelivery(self, self._log.seek_epoch, self._generation, {})
        found: list[Message] = []
        while self._is_active and self._next < self._log.end and len(found) < count_max:
            if not self._log.is_acknowledged(self._next):
                found.append(self._log.message(self._next, delivery))
            self._next += 1
        if not found:
            await asyncio.get_running_loop().create_future()  # nothing comes any more
        return found

    def is_void(self, seek_epoch: SeekEpoch, generation: Generation) -> bool:
        return not self._is_active or seek_epoch < self._log.seek_epoch or generation < self._generation

    def ack_below(self, seek_epoch: SeekEpoch, generation: Generation, below: int) -> None:
        if not self.is_void(seek_epoch, generation):
            self._log.acknowledge_below(below)

    async def ask_effects(self, from_index: int) -> SubscriptionEffects:
        return self._log.effects(from_index)

    async def bind_effects(self, seek_epoch: SeekEpoch, generation: Generation) -> None:
        self._check(seek_epoch, generation)
        self._log.bind(self._store_id)

    async def rewind(self, seek_epoch: SeekEpoch, generation: Generation, ranges: Sequence[IndexRange]) -> None:
        self._check(seek_epoch, generation)
        self._log.rewind(ranges)
        self._generation, self._next = self._log.next_generation(), 0

    def _check(self, seek_epoch: SeekEpoch, generation: Generation) -> None:
        if self.is_void(seek_epoch, generation):
            raise ConsumerFenced("another consumer is active since")

    async def close(self) -> None:
        if self._is_active:
            self._log.active = None


def _ranges(indexes: Iterable[int]) -> list[IndexRange]:
    found: list[IndexRange] = []
    for index in sorted(indexes):
        if found and found[-1].last == index - 1:
            found[-1] = IndexRange(found[-1].first, index)
        else:
            found.append(IndexRange(index, index))
    return found
