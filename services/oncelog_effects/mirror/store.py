"""A copy of a topic in another cluster: the target topic says how far it is.

The producer `mirror/CLUSTER/TOPIC_ID/PARTITION` of the target has the source's index as its sequence id. So the highest
stored id is the position; nothing else keeps it.

    open the producer, which fences other mirrors -> its highest id L
        L is stored: the copy at L and the source's message at L are the same one, else SourceDiverged
        the first message behind L that must be copied -> the position
    copy -> every batch is answered -> acknowledged at the source

Rules
- It begins behind what the target has, never at the acknowledgement. What is acknowledged and not in the target,
  because the target was restored, is rewound at the source (hazard restored-target).
- Only messages without an origin are copied, so mirrors in both directions or in a mesh make no loops.
- A batch of a copy has messages of one batch of the source, and says where they come from. Their columns are copied as
  they are.
- What was deleted or skipped at the source before it was copied is an error, unless gaps are allowed.
- A producer that is fenced asks the source, by a new claim, whether its consumer is still the active one.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import NamedTuple

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.producing.producer import AsyncProducer, sender_of
from oncelog.client.producing.sender import CompressionName
from oncelog.client.stored import stored_batches, stored_message
from oncelog.client.two_clusters import AT_TARGET
from oncelog.client.values.messages import Message, MessageBatch, runs_of
from oncelog.core.effect_errors import SourceDiverged, SourceTooLarge, SourceTrimmed, SourceUnsupported
from oncelog.core.errors import InvalidArgument, MessageTooLarge, PermissionDenied, ProducerFenced, StaleSequence
from oncelog.core.formats.columns import encode_origin
from oncelog.core.formats.message_id import Index
from oncelog.core.formats.origin import BatchOrigin, pack_origin
from oncelog.core.ids import TopicId
from oncelog.core.names import MIRROR, TopicName
from oncelog_effects.core.effects.ordered import Source, StoredPosition, found_at
from oncelog_effects.function_run import FunctionFailedError
from oncelog_effects.mirror.topics import lacks
from oncelog_effects.store import ClaimLost, ClosingStore, SourceNames, StoreInCluster
from oncelog_effects.topic_store import topic_id_of

logger = logging.getLogger(__name__)

#: Messages whose copies are under way at once.
BATCH = 2_000
#: A batch with more bytes is copied in parts: with its origin it may exceed what the target takes at once.
_PAYLOAD_BYTES_MAX = 4 * 1024 * 1024
#: What helps against a message that is not copied.
LEAVE_OUT = (
    "leave the topic out of the mirror, or have the source delete the message (retention, `oncelog admin topics "
    "truncate`), and go on behind it with --allow-gap"
)


@dataclass(slots=True)
class MirrorCounts:
    """Of one topic, since the mirror was started. passed: copies of other clusters, which are not copied."""

    copied: int = 0
    passed: int = 0
    fenced: int = 0
    gaps: int = 0


def mirror_producer(cluster_id: str, topic_id: str, partition: int) -> str:
    """The name of the target's producer. Of the source: its cluster, the id of the topic or partition; -1: it is no
    partition."""
    return f"{MIRROR}{cluster_id}/{topic_id}/{partition}"


class MirrorEffects(StoreInCluster["Copies"]):
    """The topic of the same name in another cluster."""

    def __init__(
        self, target: AsyncClient, topic: TopicName, *, allow_gap: bool, compression: CompressionName | None
    ) -> None:
        self.batch = BATCH
        self.target = target
        self.topic = topic
        self.allow_gap = allow_gap
        self.compression = compression
        self.counts = MirrorCounts()
        #: {partition: everything below is copied}, of those that this mirror has copied; and set when one has moved
        self.positions: dict[str, int] = {}
        self.moved = asyncio.Event()

    def check_source(self, topic: TopicName, effect: str) -> None:
        """Nothing: `mirror` has prepared both."""

    def opened(self, client: AsyncClient) -> "MirrorStore":
        return MirrorStore(self, client)


class MirrorStore(ClosingStore["Copies"]):
    """MirrorEffects at work. client: of the source."""

    def __init__(self, settings: MirrorEffects, client: AsyncClient) -> None:
        self._settings = settings
        self._client = client
        #: {source: its producer}
        self._copies: dict[Source, Copies] = {}

    async def store_id(self) -> str:
        """Looked up each time: the target may be deleted and created again."""
        topic_id = await topic_id_of(self._settings.target, self._settings.topic)
        return hashlib.sha256(f"mirror\n{topic_id}".encode()).hexdigest()[:32]

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        copies = self._copies.get(source)
        if copies is None or copies.producer.failure is not None:
            await self._end(source)
            try:
                copies = self._copies[source] = await Copies.opened(self._settings, self._client, source)
            except ProducerFenced as error:
                raise ClaimLost from error
        return decide(found_at(copies.position, ""))

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[["Copies"], Awaitable[None] | None] | None,
    ) -> None:
        assert run is not None, "a mirror gives no message up"
        copies = self._copies[source]
        try:
            running = run(copies)
            assert isawaitable(running), "see `copy`"
            await running
        except FunctionFailedError as failed:
            error = failed.error
            if isinstance(error, ProducerFenced):
                self._settings.counts.fenced += 1
                raise ClaimLost from error
            if not isinstance(error, StaleSequence):
                raise
            raise SourceDiverged(
                f"{self._settings.topic}: a copy behind index {claimed.position} of the source is in the target, and "
                f"this one is not: {error.message}. Source or target were restored: mirror into another topic"
            ) from error

    async def _end(self, source: Source) -> None:
        copies = self._copies.pop(source, None)
        if copies is not None:
            await copies.producer.close(flush=False)

    async def close(self) -> None:
        for source in list(self._copies):
            await self._end(source)


async def copy(messages: Sequence[Message], copies: "Copies") -> None:
    """The function of a mirror's Process."""
    await copies.copy(messages)


class Copies:
    """The copies of one topic without partitions, or one partition."""

    def __init__(
        self, settings: MirrorEffects, cluster_id: str, topic_id: TopicId, producer: AsyncProducer, position: int
    ) -> None:
        """position: everything below is in the target, or need not be."""
        self._settings = settings
        self.producer = producer
        self._reached(position)
        self._cluster_id = cluster_id
        self._topic_id = topic_id
        #: nothing was ever copied, so the first message may have any index
        self._is_new = producer.last_sequence_id < 0

    @classmethod
    async def opened(cls, settings: MirrorEffects, client: AsyncClient, source: Source) -> "Copies":
        """Fences the producer of every other mirror. Raises SourceDiverged, SourceTrimmed."""
        cluster_id = network_of(client).lookup.cluster_id
        topic = str(replace(settings.topic, partition=None if source.partition < 0 else source.partition))
        try:
            producer = await settings.target.create_producer(
                topic,
                producer_name=mirror_producer(cluster_id, source.topic_id, source.partition),
                compression=settings.compression,
                on_unverified="accept",
                on_content_differs="accept",
            )
        except PermissionDenied as error:
            raise lacks(error, settings.topic, "produce", AT_TARGET) from error
        try:
            last = producer.last_sequence_id
            if last >= 0:
                await _check_last_copy(settings.target, client, topic, producer, cluster_id)
            following = await first_to_copy(client, topic, last)
            for gap in following.gaps if last >= 0 else ():
                _refuse_gap(topic, *gap, allowed=settings.allow_gap)
        except BaseException:
            await producer.close(flush=False)
            raise
        return cls(settings, cluster_id, TopicId(source.topic_id), producer, following.position)

    async def copy(self, messages: Sequence[Message]) -> None:
        """Return when the copies are stored. messages: consecutive. Raises SourceTrimmed, SourceUnsupported,
        SourceTooLarge for a single message that the target does not take in one batch, and as `send_many`."""
        first = messages[0].index
        if first > self.position and not self._is_new:
            self._settings.counts.gaps += 1
            _refuse_gap(self.producer.topic, self.position, first, allowed=self._settings.allow_gap)
        own = [run for run in runs_of(messages) if run.origin is None]
        refused = next((found for run in own if (found := run.not_in_columns()) is not None), None)
        if refused is not None:
            sentence = unsupported(self.producer.topic, *refused)
            if len(messages) > 1:  # then each message is tried alone, and what is before this one is copied
                raise InvalidArgument(sentence, field="value")
            raise SourceUnsupported(sentence, index=first)
        if own:
            try:
                await sender_of(self.producer).send_payloads(
                    packed for run in own for part in _parts(run) for packed in self._packed(part)
                )
            except MessageTooLarge as error:
                if len(messages) > 1:
                    raise  # then each message is tried alone, and what is before the large one is copied
                raise too_large(self.producer.topic, first, error, in_chunks=own[0].in_chunks) from error
            self._is_new = False
        count = sum(run.count for run in own)
        self._settings.counts.copied += count
        self._settings.counts.passed += len(messages) - count
        self._reached(messages[-1].index + 1)

    def _reached(self, position: int) -> None:
        self.position = self._settings.positions[self.producer.topic] = position
        self._settings.moved.set()

    def _packed(self, run: MessageBatch) -> Iterator[tuple[bytes, Sequence[int]]]:
        place = run.message_id(0)
        origin = BatchOrigin(
            self._cluster_id, self._topic_id, place.partition, place.position, place.batch_index, run.first_index,
            run.checksum, run.producer_name, run.generation, run.sequence_ids, run.publish_time_ms, run.append_time_ms,
        )  # fmt: skip
        payload = run.payload() + encode_origin(pack_origin(origin))
        yield payload, range(run.first_index, run.first_index + run.count)


def _parts(run: MessageBatch) -> Iterator[MessageBatch]:
    """The run, or pieces of it whose values are below the limit, if they have more than one message."""
    offsets = run.values.offsets
    if offsets[-1] - offsets[0] <= _PAYLOAD_BYTES_MAX or run.count == 1:
        yield run
        return
    middle = run.count // 2
    yield from _parts(run.part(0, middle))
    yield from _parts(run.part(middle, run.count))


def too_large(topic: str, index: int, error: MessageTooLarge, *, in_chunks: bool) -> SourceTooLarge:
    """What ends the mirror of a topic. error: of the target, or of the client that does not join the chunks."""
    if in_chunks:
        message, advice = f"message {index} of {topic} is in chunks, which a mirror does not copy", ""
    else:
        message = f"message {index} of {topic} is too large for the target ({error.cause})"
        advice = "raise ONCELOG_MESSAGE_BYTES_MAX of the target, or "
    return SourceTooLarge(f"{message}: {advice}{LEAVE_OUT}", index=index)


def unsupported(topic: str, index: int, kind: str) -> str:
    """What a user is told of a message that a mirror does not copy. kind: of `MessageBatch.not_in_columns`."""
    return f"message {index} of {topic} has {kind}, which a mirror does not copy: {LEAVE_OUT}"


def _refuse_gap(topic: str, position: int, first: int, *, allowed: bool) -> None:
    message = (
        f"{topic}: messages {position} to {first - 1} of the source were deleted or skipped before they were copied"
    )
    if not allowed:
        raise SourceTrimmed(f"{message}: to go on without them, allow gaps", next_index=position, first_index=first)
    logger.warning("%s; gaps are allowed", message)


async def _check_last_copy(
    target: AsyncClient, source: AsyncClient, topic: str, producer: AsyncProducer, cluster_id: str
) -> None:
    """The newest copy is of the message that the source has at its index (hazard restored-source)."""
    last = producer.last_sequence_id
    # It is stored, so this stores nothing, and the answer is where it is.
    place = (await producer.send(b"", sequence_id=last)).message_id
    if place is None:
        logger.warning("%s: the target does not remember where the copy of index %d is: not compared", topic, last)
        return
    copy_ = await stored_message(target, topic, place)
    original = await stored_message(source, topic, Index(last))
    if copy_ is None or original is None:
        return  # deleted there, or not there any more; then the log says so
    found = copy_.origin
    if found is None or found.cluster_id != cluster_id or found.index != last:
        raise SourceDiverged(
            f"{topic}: message {place} of the target is not the copy of index {last} that it should be"
        )
    if found.message_id != original.message_id or found.checksum != original.batch_checksum:
        raise SourceDiverged(
            f"{topic}: the copy of index {last} is of message {found.message_id} with checksum {found.checksum:#x}, "
            f"and the source has {original.message_id} with {original.batch_checksum:#x} there: it was restored to an "
            "older state, and has gone on. Mirror into another topic, or restore the source to the same time"
        )


class ToCopy(NamedTuple):
    """The first message that must be copied. position: its index; if there is none: the end of the source.
    publish_time_ms: 0: there is none, or it is not known. gaps: (first index, index behind the last one) of messages
    before it that the source does not have. in_chunks: that message is. unsupported: what it has that is not
    copied; empty: it is copied."""

    position: int
    publish_time_ms: int
    gaps: tuple[tuple[int, int], ...]
    in_chunks: bool = False
    unsupported: str = ""


async def first_to_copy(client: AsyncClient, topic: str, last: int) -> ToCopy:
    """The first message behind index `last` that has no origin."""
    position = last + 1
    gaps: list[tuple[int, int]] = []
    try:
        async with aclosing(stored_batches(client, topic, Index(position), on_encrypted="pass")) as batches:
            async for batch in batches:
                if batch.first_index > position:
                    gaps.append((position, batch.first_index))
                    position = batch.first_index
                if batch.origin is None:
                    index, kind = batch.not_in_columns() or (-1, "")
                    kind = kind if index == position else ""
                    return ToCopy(position, batch.publish_time_ms, tuple(gaps), batch.in_chunks, kind)
                position = batch.first_index + batch.count
    except MessageTooLarge as error:  # its chunks are not joined; mirrors store none, so it has no origin
        return ToCopy(int(error.details["index"] or position), 0, tuple(gaps), in_chunks=True)
    return ToCopy(position, 0, tuple(gaps))
