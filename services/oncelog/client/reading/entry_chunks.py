"""The chunks of one message, one by one: for gateways, whose clients join chunks themselves."""

from oncelog.client.network.backoff import persist
from oncelog.client.network.chunk_join import ChunksOf, ChunksTrimmed, chunk_reader, names_in
from oncelog.client.network.network import Network
from oncelog.client.values.messages import StoredBatch
from oncelog.core.errors import EntriesLost
from oncelog.core.names import TopicName


class EntryChunks:
    """Of a message that an EntryReader or EntryConsumer has given. Nothing is kept: each chunk is read when it is asked
    for.

    Attributes:
        count, value_bytes: how many they are, and the bytes of all of them.
    """

    def __init__(self, topic: TopicName, stored: StoredBatch, network: Network) -> None:
        """Raises CorruptEntry."""
        self._topic, self._stored, self._network = topic, stored, network
        self._names = names_in(stored)
        self.count, self.value_bytes = len(self._names.chunks), self._names.value_bytes

    async def read(self, number: int) -> tuple[int, memoryview]:
        """(offset in the value, bytes) of a chunk. It waits while the topic has no owner, or storage does not answer.

        Raises CorruptEntry when the chunk is missing or damaged, EntriesLost when the message was trimmed meanwhile.
        """
        what = f"chunk {number} of message {self._stored.entry.base_index} of {self._topic}"
        try:
            return await persist(lambda again: self._read(number, again), timeout_ms=None, what=what)
        except ChunksTrimmed:
            position = self._stored.entry.position
            raise EntriesLost(f"message {position} of {self._topic} was trimmed before all of it was read") from None

    async def _read(self, number: int, again: bool) -> tuple[int, memoryview]:  # as `persist` calls it
        network = self._network
        route = await network.route(self._topic, fresh=again, create=False)
        seen = network.epochs.highest(route.topic_id)
        async with network.channel(route) as channel:
            ask = chunk_reader(channel, str(self._topic), route.topic_id, seen)
            return await ChunksOf(self._stored, self._names, ask).read(self._names.chunks[number])
