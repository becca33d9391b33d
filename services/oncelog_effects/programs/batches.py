"""Effects as a loop of the application: batches whose transactions are committed when their blocks end.

It is a Process whose function hands its transaction to the loop and waits until the block ends. So what holds for a
function holds for a block.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

from oncelog.client.client import AsyncClient
from oncelog.client.values.messages import Message
from oncelog.core.effect_errors import EffectMisuse
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.processes import Process, run_processes
from oncelog_effects.store import EffectsStore, SourceNames

ConnectionT = TypeVar("ConnectionT")
BATCH = 500


class EffectsBatch(Generic[ConnectionT]):
    """Messages of one topic or partition, whose transaction is open: `async with batch as connection`.

    The end of the block commits. An exception that leaves it rolls back; then the messages come again, one by one.

    Attributes:
        messages: in their order.
        committed: whether the transaction was committed, once the block has ended. False: the messages come again.
    """

    def __init__(self, messages: Sequence[Message], connection: ConnectionT) -> None:
        self.messages = messages
        self.committed = False
        self._connection = connection
        self._entered = False
        #: how the block ended
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: set when the transaction has ended, too
        self._over = asyncio.Event()

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def has_ended(self) -> bool:
        """Whether its transaction has ended."""
        return self._over.is_set()

    async def __aenter__(self) -> ConnectionT:
        """Raises EffectMisuse if it was entered before."""
        if self._entered:
            raise EffectMisuse("a batch is entered once: its transaction is over")
        self._entered = True
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Returns when the transaction has ended."""
        if error is None:
            self._ended.set_result(None)
        elif isinstance(error, Exception):
            self._ended.set_exception(error)
        else:
            self._ended.cancel()
        await self._over.wait()

    async def until_ended(self) -> None:
        """Raises what left the block."""
        await self._ended

    def abandon(self) -> None:
        """The block will not end: roll back."""
        self._ended.cancel()

    def is_over(self, *, committed: bool) -> None:
        self.committed = committed
        self._over.set()


class EffectsBatches(Generic[ConnectionT]):
    """The batches of a topic, one after the other. See `batches`."""

    def __init__(
        self, client: AsyncClient, topic: str, *, subscription: str, effects: EffectsStore[ConnectionT], **settings: Any
    ) -> None:
        self._client = client
        self.process = Process(
            self._hand_over, topic, subscription=subscription, effects=_WatchedStore(effects, self._ended), **settings
        )
        self._offered: asyncio.Queue[EffectsBatch[ConnectionT]] = asyncio.Queue()
        #: whose transaction is open; it may not be asked for yet
        self._open: EffectsBatch[ConnectionT] | None = None
        #: the last one that was asked for
        self._given: EffectsBatch[ConnectionT] | None = None
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    async def _hand_over(self, messages: Sequence[Message], connection: ConnectionT) -> None:
        if self._closed:
            raise asyncio.CancelledError  # a transaction that began meanwhile: nobody takes it
        self._open = EffectsBatch(messages, connection)
        self._offered.put_nowait(self._open)
        await self._open.until_ended()

    def _ended(self, *, committed: bool) -> None:
        batch, self._open = self._open, None
        if batch is not None:
            batch.is_over(committed=committed)

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(run_processes(self._client, [self.process]))
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        """What was committed is acknowledged; a batch whose block has not ended is rolled back."""
        self._closed = True
        if self._open is not None:
            self._open.abandon()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
            if not self._running.cancelled():
                self._running.exception()  # raised by `__anext__`, if anybody asked

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EffectsBatch[ConnectionT]:
        """Raises what ends a Process, and EffectMisuse if the batch before was not entered."""
        running = self._running
        if running is None or (self._given is not None and not self._given.has_ended):
            raise EffectMisuse("use `async with` for the source and for each batch, before the next one is asked for")
        offer = asyncio.ensure_future(self._offered.get())
        try:
            await asyncio.wait([offer, running], return_when=asyncio.FIRST_COMPLETED)
            if offer.done():
                self._given = offer.result()
                return self._given
        finally:
            offer.cancel()
        running.result()
        raise StopAsyncIteration


def batches(
    client: AsyncClient,
    topic: str,
    *,
    subscription: str,
    effects: EffectsStore[ConnectionT],
    batch: int = BATCH,
    **settings: Any,
) -> EffectsBatches[ConnectionT]:
    """Messages of a topic in batches whose effects happen once, for a loop of your own.

        async with batches(client, "orders", subscription="billing", effects=SqlEffects(async_engine)) as source:
            async for batch in source:
                async with batch as connection:
                    for message in batch:
                        await connection.execute(insert(invoices).values(order=message.key))

    The transaction is open when the loop gets the batch, and is committed when the block ends. What raises in a block
    leaves it as usual; a loop that goes on gets the messages again, one by one.

    Args:
        effects: a store whose functions are async, as SqlEffects of an AsyncEngine.
        batch, settings: as in `process`. One batch is open at a time, of whatever partition.

    Raises InvalidName, InvalidArgument.
    """
    return EffectsBatches(
        client, topic, subscription=subscription, effects=effects, batch=batch, **{**settings, "concurrency": 1}
    )


class _WatchedStore(EffectsStore[ConnectionT]):
    """Tells how a transaction ended."""

    def __init__(self, store: EffectsStore[ConnectionT], ended: Callable[..., None]) -> None:
        self._store = store
        self._ended = ended

    async def store_id(self) -> str:
        return await self._store.store_id()

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        return await self._store.claim(source, names, decide)

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[ConnectionT], Awaitable[None] | None] | None,
    ) -> None:
        committed = False
        try:
            await self._store.apply(source, claimed, following, run)
            committed = True
        finally:
            self._ended(committed=committed)
