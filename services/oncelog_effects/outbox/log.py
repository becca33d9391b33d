"""The log as the relay sees it: producers of its streams, and what these have stored."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.network.backoff import persist
from oncelog.client.producing.producer import AsyncProducer, topic_id_of
from oncelog.client.stored import stored_by
from oncelog.core.errors import InvalidArgument, ProducerFenced, TopicNotFound
from oncelog.core.formats.message_id import EARLIEST, MessageId
from oncelog.core.names import RELAY, parse_topic
from oncelog_effects.core.outbox.rows import EVENT_ID, sent_properties
from oncelog_effects.core.outbox.streams import LogMessage
from oncelog_effects.outbox.row_reading import OutboxRow

#: Batches of rows that are under way, over all streams.
SENDS_MAX = 64
READ_TIMEOUT_S = 60.0


class Opened(NamedTuple):
    topic_id: str
    last: int
    value_bytes_max: int


class Sent(NamedTuple):
    """message_id: of the last message. foreign: a number was stored before, and not by this producer."""

    message_id: str
    foreign: bool


class StreamLog(Protocol):
    """What a relay needs of a log; `RelayLog` is one."""

    async def partitions(self, topic: str) -> int: ...
    async def open(self, topic: str, attempt: int) -> Opened: ...
    async def send(self, topic: str, attempt: int, rows: Sequence[OutboxRow]) -> Sent: ...
    def stored(self, topic: str, after: str, last: int) -> AsyncIterator[Sequence[LogMessage]]: ...
    async def close_all(self) -> None: ...


#: Makes the log of an outbox, of its id and the name of its table.
OpenLog = Callable[[str, str], StreamLog]


def log_of(client: AsyncClient) -> OpenLog:
    return lambda outbox_id, table: RelayLog(client, outbox_id, table)


class RelayLog:
    """outbox_id, table: whose rows these are; they make the names of the producers."""

    def __init__(self, client: AsyncClient, outbox_id: str, table: str) -> None:
        self.producer_name = f"{RELAY}{outbox_id}/{table}"
        self._client = client
        #: {topic or partition: the attempt to open it, its producer}
        self._producers: dict[str, tuple[int, AsyncProducer]] = {}
        self._room = asyncio.Semaphore(SENDS_MAX)

    async def partitions(self, topic: str) -> int:
        """0: the topic has no partitions, or is missing."""
        network, name = network_of(self._client), parse_topic(topic)
        try:
            return await persist(
                lambda _: network.lookup.partitions(name), timeout_ms=30_000, what=f"the topic {topic}"
            )
        except TopicNotFound:
            return 0

    async def open(self, topic: str, attempt: int) -> Opened:
        """topic: without partitions, or one partition. attempt: numbers the openings of a topic. Fences every other
        producer of the stream."""
        await self.close(topic)
        producer = await self._client.create_producer(
            topic, producer_name=self.producer_name, sequence_mode="contiguous", on_content_differs="accept"
        )
        await self.close(topic)  # of an attempt that has taken longer
        self._producers[topic] = attempt, producer
        if not producer.deduplication:
            await self.close(topic)
            raise InvalidArgument(
                f"deduplication is off for {topic}, and its topic owner is of an older version, which would store rows "
                "twice: upgrade the cluster, or switch deduplication on",
                field="topic",
            )
        return Opened(topic_id_of(producer), producer.last_sequence_id, producer.message_bytes_max)

    async def send(self, topic: str, attempt: int, rows: Sequence[OutboxRow]) -> Sent:
        opened, producer = self._producers.get(topic, (0, None))
        if producer is None or opened != attempt:
            raise ProducerFenced(f"the producer of {topic} is closed")
        async with self._room:
            result = await producer.send_many(
                [row.value for row in rows],
                sequence_ids=range(rows[0].number, rows[-1].number + 1),
                keys=[row.key for row in rows],
                event_times_ms=[row.event_time_ms for row in rows],
                properties=[sent_properties(row.properties, row.event_id) for row in rows],
            )
        message_id = result.message_ids[-1]
        foreign = message_id is None or result.duplicates > sum(map(len, result.resent_ranges))
        return Sent("" if message_id is None else str(message_id), foreign)

    async def stored(self, topic: str, after: str, last: int) -> AsyncIterator[Sequence[LogMessage]]:
        """The messages of the stream behind message `after` (empty: from the first one that is kept) up to number
        `last`, or to the end of the topic."""
        start = MessageId.parse(after) if after else EARLIEST
        found = stored_by(self._client, topic, self.producer_name, start, last, timeout_s=READ_TIMEOUT_S)
        async with aclosing(found) as batches:
            async for batch in batches:
                properties, ids = batch.properties, batch.sequence_ids
                yield [
                    LogMessage(
                        ids[i], "" if properties is None else properties[i].get(EVENT_ID, ""), str(batch.message_id(i))
                    )
                    for i in range(len(batch))
                    if ids[i] <= last
                ]

    async def close(self, topic: str) -> None:
        _, producer = self._producers.pop(topic, (0, None))
        if producer is not None:
            await producer.close(flush=False)

    async def close_all(self) -> None:
        for topic in list(self._producers):
            await self.close(topic)
