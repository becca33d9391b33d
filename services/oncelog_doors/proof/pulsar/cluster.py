"""The left side of the proof: the same cluster and the same door, where Pulsar's rule decides instead of the log.

The topics have deduplication switched off, so the log stores what it is given. A producer is admitted as Pulsar's
broker does it: no token, no generation; while the holder of a name answers, another one is busy. Answers leave at once,
in any order, and a batch about which the rule knows nothing gets PersistenceError. `pulsar_consumer` has the
acknowledgements.

Chunks of messages are entries like others, as in Pulsar. The log takes no such entry, so each is the value of a
message, and the readers of this door take it out again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any

from oncelog.client.gateways import PackedEntry, PackedProducer, PackedResult, create_packed_producer
from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, ProducerBusy
from oncelog.core.formats.batch import Buffer, PayloadFormat, payload_of
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.payload import read_columns
from oncelog.core.ids import SequenceId
from oncelog.core.names import TopicName
from oncelog.core.sdk.producer.sequence_ids import BatchIds
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.message_ids import DeliveredId, FromFirst, Start
from oncelog_doors.core.pulsar.protobuf_fields import fields_of
from oncelog_doors.core.pulsar.sends import SendEffect, Sends, WriteReceipt, WriteSendError
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Rejected, Verdict
from oncelog_doors.log_client.client_chunks import prepared_chunk
from oncelog_doors.log_client.client_entries import packed
from oncelog_doors.log_client.log_consumer import LogConsumer
from oncelog_doors.log_client.log_reader import LogReader
from oncelog_doors.log_client.sdk_cluster import SdkCluster
from oncelog_doors.proof.pulsar.consumers import PulsarConsumer, PulsarSubscription
from oncelog_doors.proof.pulsar.rule import Finding, PulsarMarks
from oncelog_doors.pulsar.ports import Decided, ProducerPort

#: As the broker says it.
UNKNOWN_SENTENCE = "Cannot determine whether the message is a duplicate at this time"
_UNKNOWN = Rejected(UNKNOWN_SENTENCE)
#: Instead of the ids of a chunk that is not the last one of its message.
_CHUNK = Ids(0)
#: The mark, the checksum and the size of the metadata of an entry, and fields of it.
_HEAD = Struct(">HII")
_PRODUCER, _SEQUENCE, _HIGHEST = 1, 2, 24


class PulsarSends(Sends):
    """Each SEND is answered when it is decided about, whatever came before it."""

    def __init__(self, family: ClientFamily) -> None:
        super().__init__(family)
        self._open: dict[int, Ids] = {}

    def taken(self, ids: Ids) -> int:
        number = self._next
        self._next += 1
        self._open[number] = ids
        return number

    def decided(self, number: int, verdict: Verdict) -> list[SendEffect]:
        if self.closed:
            return []
        ids = self._open.pop(number)
        if isinstance(verdict, Accepted):
            return [WriteReceipt(ids, verdict.place)]
        return [WriteSendError(ids.last, Refusal(ServerError.PERSISTENCE_ERROR, verdict.sentence))]

    @property
    def waiting(self) -> int:
        return len(self._open)


class PulsarCluster(SdkCluster):
    """Producers and consumers as Pulsar has them, for one door. Its readers are those of every door."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._topics: dict[TopicName, asyncio.Task[PulsarTopic]] = {}
        self._subscriptions: defaultdict[tuple[TopicName, str], PulsarSubscription] = defaultdict(PulsarSubscription)

    def form_of_consumer(self, topic: TopicName, name: str) -> Callable[..., LogConsumer]:
        return partial(PulsarConsumer, self._subscriptions[topic, name])

    async def open_producer(
        self,
        topic: TopicName,
        caller: Caller,
        *,
        name: str | None,
        token: int,
        epoch: int | None,
        wanted: Callable[[], None],
    ) -> ProducerPort:
        loading = self._topics.get(topic)
        if loading is None:
            loading = self._topics[topic] = asyncio.create_task(self._load(topic, caller))
        loaded = await asyncio.shield(loading)
        return await loaded.open(name or f"assigned-{id(wanted)}", wanted)

    async def open_reader(self, topic: TopicName, caller: Caller, start: Start, *, may_create: bool) -> LogReader:
        reader = await super().open_reader(topic, caller, start, may_create=may_create)
        reader.delivery_of = _as_it_came
        return reader

    async def _load(self, topic: TopicName, caller: Caller) -> "PulsarTopic":
        """As a broker does when it starts: the marks are those of the entries that are there."""
        reader = await self.open_reader(topic, caller, FromFirst(), may_create=True)
        claimed: list[tuple[str, int]] = []
        try:
            last = await reader.last_id()
            while last is not None:
                entry = reader.take()
                if entry is None:
                    await reader.arrival()
                    continue
                delivery = reader.prepare(entry, self.batch_bytes_max)
                assert delivery.whole is not None, "all of the topic's entries came from clients of Pulsar"
                claimed.append(_claimed(delivery.whole))
                if delivery.id.position >= last.position:
                    break
        finally:
            reader.close()
        new_writer = partial(create_packed_producer, self._client, str(topic), on_conflict="fence")
        return PulsarTopic(PulsarMarks.recovered(claimed), new_writer)


def _as_it_came(raw: RawBatch, bytes_max: int) -> Delivery:
    if raw.batch.payload_format != PayloadFormat.COLUMNS:
        return delivery_of(raw, bytes_max)
    (chunk,) = read_columns(raw.batch, payload_of(raw.batch, raw.body)).values
    entry = raw.entry
    return Delivery(DeliveredId(entry.position), 1, entry.next_index - 1, entry.append_time_ms, chunk)


def _claimed(entry: Buffer) -> tuple[str, int]:
    """Producer name and highest id that the metadata of an entry names; its messages are not asked."""
    view = bytes(entry)
    metadata = view[_HEAD.size : _HEAD.size + _HEAD.unpack_from(view)[2]]
    found = {each.field: each for each in fields_of(metadata)}
    name = metadata[found[_PRODUCER].content_at : found[_PRODUCER].end].decode()
    return name, max(found[each].number for each in (_SEQUENCE, _HIGHEST) if each in found)


class PulsarTopic:
    """A topic of a broker. new_writer: opens what stores the batches of a name."""

    def __init__(self, marks: PulsarMarks, new_writer: "partial[Coroutine[Any, Any, PackedProducer]]") -> None:
        self.marks, self._new_writer = marks, new_writer
        self._writers: dict[str, PackedProducer] = {}
        self.holders: dict[str, PulsarProducer] = {}

    async def open(self, name: str, wanted: Callable[[], None]) -> "PulsarProducer":
        """Raises ProducerBusy while another connection has the name, and answers."""
        while (holder := self.holders.get(name)) is not None:
            if await holder.answers():
                raise ProducerBusy(f"Producer with name '{name}' is already connected to topic")
        holder = self.holders[name] = PulsarProducer(name, self, wanted)
        try:
            if name not in self._writers:
                self._writers[name] = await self._new_writer(producer_name=name)
        except BaseException:
            await holder.close(gives_up_name=True)
            raise
        return holder

    def writer(self, name: str) -> PackedProducer:
        return self._writers[name]


class PulsarProducer:
    """A producer that is connected. It has the form of `ProducerPort`."""

    token = 0

    def __init__(self, name: str, topic: PulsarTopic, wanted: Callable[[], None]) -> None:
        self.name = name
        self._topic, self._wanted = topic, wanted
        self.last_sequence_id = SequenceId(topic.marks.last_sequence_id(name))
        self._asked: list[asyncio.Future[bool]] = []
        self._open: set[Decided] = set()
        self._end: asyncio.Future[OncelogError] = asyncio.get_running_loop().create_future()

    async def answers(self) -> bool:
        """Whether its client is there; the connection finds out, and closes this producer if not."""
        self._asked.append(asyncio.get_running_loop().create_future())
        asked = self._asked[-1]
        self._wanted()
        return await asked

    def holder_lives(self) -> None:
        self._tell(True)

    def _tell(self, lives: bool) -> None:
        asked, self._asked = self._asked, []
        for each in asked:
            if not each.done():
                each.set_result(lives)

    def prepare(
        self, entry: bytes, ids: Ids, message_count: int, *, is_chunk: bool
    ) -> "tuple[Ids, PackedEntry] | Rejected":
        limit = self._topic.writer(self.name).batch_bytes_max
        if is_chunk:
            chunk = prepared_chunk(entry, ids, message_count, producer_name=self.name, bytes_max=limit)
            if isinstance(chunk, Rejected):
                return chunk
            number = SequenceId(ids.sequence_id)
            time_ms = chunk.sent.publish_time_ms
            kept = PackedEntry(encode_values([entry]), 1, BatchIds(number, number), PayloadFormat.COLUMNS, time_ms)
            return (_CHUNK if chunk.place.number < chunk.place.count - 1 else ids, kept)
        found = packed(entry, ids, message_count, producer_name=self.name, bytes_max=limit)
        return found if isinstance(found, Rejected) else (ids, found)

    def has_room(self, size: int) -> bool:
        return self._topic.writer(self.name).has_room(size)

    async def room(self, size: int) -> None:
        await self._topic.writer(self.name).room(size)

    def gives_no_more_chunks(self) -> None:
        """Nothing is withheld."""

    def give(self, prepared: tuple[Ids, PackedEntry], decided: Decided, _stored: Callable[[], None]) -> None:
        ids, entry = prepared
        if ids is _CHUNK:  # the rule looks at the last one only
            self._open.add(decided)
            self._topic.writer(self.name).send_nowait(entry, partial(self._stored, None, decided))
            return
        found = self._topic.marks.found(self.name, ids.sequence_id, ids.last)
        if found is not Finding.NEW:
            decided(Accepted() if found is Finding.DUPLICATE else _UNKNOWN)
            return
        self._open.add(decided)
        self._topic.writer(self.name).send_nowait(entry, partial(self._stored, ids.last, decided))

    def _stored(
        self, last: int | None, decided: Decided, result: PackedResult | None, error: OncelogError | None
    ) -> None:
        """The broker goes on with a write when the producer has left."""
        if result is None:
            verdict: Verdict | None = None if error is None else Rejected(str(error))
        else:
            if last is not None:
                self._topic.marks.written(self.name, last)
            stored = result.ranges[0].stored
            verdict = Accepted(None if stored is None else stored.position)
        if decided in self._open:
            self._open.remove(decided)
            decided(verdict)

    async def ended(self) -> OncelogError:
        return await self._end

    async def close(self, *, gives_up_name: bool) -> None:
        if self._topic.holders.get(self.name) is self:
            del self._topic.holders[self.name]
        self._tell(False)
        given, self._open = self._open, set()
        for decided in given:
            decided(None)
