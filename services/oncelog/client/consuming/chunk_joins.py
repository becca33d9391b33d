"""Messages in chunks that one consumer has received of one topic or partition: they wait until they are joined.

a delivered message in chunks, the next to be handed out --> it is joined, everything behind it waits
    joined | cannot be joined --> `ready` is called, and the consumer goes on with the message, or its error

One message is joined at a time, and the joined one is kept until the next is wanted. Retriable errors are repeated
without limit: the log says what is waited for.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from oncelog.client.network.backoff import persist
from oncelog.client.network.chunk_join import ChunksTrimmed, chunk_reader, join_chunks
from oncelog.client.network.network import Network
from oncelog.client.values.messages import StoredBatch
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Position
from oncelog.core.names import TopicName


class ChunkJoins:
    """Of one driver."""

    def __init__(self, topic: TopicName, network: Network, ready: Callable[[], None]) -> None:
        self._topic = topic
        self._network = network
        self._ready = ready
        #: of the message that is joined, or was joined last
        self._position: Position | None = None
        self._task: asyncio.Task[None] | None = None
        self._result: StoredBatch | OncelogError | ChunksTrimmed | None = None

    @property
    def waits(self) -> bool:
        """Whether a message is being joined."""
        return self._position is not None and self._result is None

    def joined(self, stored: StoredBatch) -> StoredBatch | None:
        """The whole message; None: `ready` is called when it is there, or cannot be. Raises the error of `join_chunks`
        at each call."""
        position = stored.entry.position
        if self._position != position:
            self.end()
            self._position = position
            self._task = self._network.background.start(self._join(stored), what=f"chunks of {self._topic}")
        if isinstance(self._result, Exception):
            raise self._result.with_traceback(None)  # else each call would add to it
        return self._result

    async def _join(self, stored: StoredBatch) -> None:
        try:
            self._result = await persist(
                partial(self._try, stored), timeout_ms=None,
                what=f"the chunks of message {stored.entry.base_index} of {self._topic}",
            )  # fmt: skip
        except (OncelogError, ChunksTrimmed) as error:
            self._result = error
        self._ready()

    async def _try(self, stored: StoredBatch, again: bool) -> StoredBatch:  # as `persist` calls it
        route = await self._network.route(self._topic, fresh=again, create=False)
        seen = self._network.epochs.highest(route.topic_id)
        async with self._network.channel(route) as channel:
            ask = chunk_reader(channel, str(self._topic), route.topic_id, seen)
            return await join_chunks(stored, ask, topic=str(self._topic), bytes_max=self._network.message_bytes_max)

    def end(self) -> None:
        """Forget what is joined, or was: nobody waits for it any more."""
        if self._task is not None:
            self._task.cancel()
        self._position = self._task = self._result = None
