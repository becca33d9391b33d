"""The network side of a reader: one read stream at a time, resumed after the last received entry.

Received entries wait here until the application takes them. The owner may send `window_bytes` in advance, and more as
entries are taken. When a stream ends, or its owner has an owner_epoch below the highest one that the client has seen
(`epochs`), the topic is looked up again and a new stream is opened. A fatal error is kept and raised to the reader.
LedgerUnavailable, that no live storage node has the next entries, is raised once each time that the owner reports it,
and the stream goes on trying.

Instead of many older entries the owner sends an offer to read them from storage nodes (`storage_reads`). They arrive
here in the same order and with the same checks, at most `window_bytes` of them in advance, and the owner is told where
to go on.

A message in chunks is joined here (`network.chunk_join`) when the application has taken everything before it, so at
most one is in memory that the application does not have.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial

from crc32c import crc32c

from oncelog.client.network.backoff import session_backoff
from oncelog.client.network.chunk_join import ChunksTrimmed, chunk_reader, is_chunked, join_chunks
from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.client.network.storage_reads import OfferedEntries
from oncelog.client.reading.stream_state import NO_GAPS, Arrived, Gap, Gaps, StreamState
from oncelog.client.values.corruption import Corruption, SkippedEntries
from oncelog.client.values.encrypted import OnEncrypted
from oncelog.client.values.messages import MessageBatch, StoredBatch, open_entry, open_verified
from oncelog.client.values.results import TopicPartition
from oncelog.core.errors import (
    CorruptEntry,
    EntriesLost,
    InvariantViolated,
    LedgerUnavailable,
    OncelogError,
    TopicNotFound,
    UnreadableEntry,
)
from oncelog.core.formats.entry import GIVEN_UP_INDEXES, EntryHeader, EntryKind, peek_header, producer_id_of
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.ids import BEFORE_ALL, NOT_DEDUPLICATED, EntryId, OwnerEpoch, Position, ProducerId, TopicId
from oncelog.core.ledger.entry_reading import Page
from oncelog.core.names import TopicName
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.owner_codec import PRODUCER_NAMES
from oncelog.rpc.codecs.reader_codec import (
    READ,
    OfferEnd,
    ReadControl,
    ReaderStart,
    ReceivedEntries,
    StartAt,
    StartEdge,
    StartIndex,
    StartMessage,
    StorageOffer,
    StorageResume,
)
from oncelog.wire.owner_pb2 import ProducerNamesRequest

WINDOW_BYTES = 4 * 1024 * 1024
_NAMES_TIMEOUT_MS = 5_000

logger = logging.getLogger(__name__)


class ReadStream:
    """Fetches entries ahead of the application; `take` returns them one by one."""

    def __init__(
        self,
        topic: TopicName,
        start: StartAt,
        network: Network,
        *,
        corruption: Corruption,
        window_bytes: int = WINDOW_BYTES,
        topic_id: TopicId = TopicId(""),
        joins_chunks: bool = True,
        gaps: Gaps = NO_GAPS,
        on_encrypted: OnEncrypted = OnEncrypted.RAISE,
    ) -> None:
        """topic_id: raise TopicNotFound when the topic has another id; "": accept any topic of the name. joins_chunks
        False: decoding a message in chunks raises ChunkedMessage. gaps: those that the reader has met before."""
        self.topic_partition = TopicPartition(topic_id, NO_PARTITION if topic.partition is None else topic.partition)
        #: the fatal error that ended the reader
        self.failure: OncelogError | None = None
        #: the last frame said that it completes the log as of then
        self.at_end = False
        self._topic = topic
        self._network = network
        self._window_bytes = window_bytes
        self._joins_chunks = joins_chunks
        self._on_encrypted = on_encrypted
        self._next_start = start
        self._first_index = start.number if isinstance(start, StartIndex) else 0
        self._arrived: deque[Arrived] = deque()
        self._state = StreamState(corruption, gaps)
        self._task = network.background.start(self._run(), what=f"reader of {topic}")

    # --- the application's side ---------------------------------------------------------------------------------------

    def take(self) -> MessageBatch | None:
        """The next batch, None when none was received. Raises CorruptEntry at each call, unless entries are skipped.
        Raises CompressionUnavailable and MessageEncrypted in any case (hazard codec-taken-for-damage)."""
        while self._arrived:
            stored, _, first_batch_index, _ = self._arrived[0]
            try:
                name = self._name_of(stored)
                batch = MessageBatch(
                    stored,
                    self.topic_partition,
                    name,
                    first_batch_index=first_batch_index,
                    on_encrypted=self._on_encrypted,
                )
            except CorruptEntry as error:
                self._state.corruption.cannot_decode(stored.entry, error, first_batch_index=first_batch_index)
                batch = None
            self._state.taken(self._arrived.popleft())
            if batch is not None and len(batch):
                # When the log was shorter than the wanted index, the owner started at the log's end.
                below = self._first_index - batch.first_index
                if below < len(batch):
                    return batch.after(below) if below > 0 else batch
        return None

    def take_entry(self) -> tuple[StoredBatch, str | None] | None:
        """The next entry as it is stored, with its producer's name; None when none was received. The payload is not
        decoded, and messages before the start are included."""
        if not self._arrived:
            return None
        arrived = self._arrived.popleft()
        self._state.taken(arrived)
        return arrived.stored, self._name_of(arrived.stored)

    def _name_of(self, stored: StoredBatch) -> str | None:
        """The producer's name; None for a batch stored without deduplication."""
        producer_id = ProducerId(stored.batch.producer_id)
        return None if producer_id == NOT_DEDUPLICATED else self._state.names.get(producer_id)

    async def arrival(self) -> None:
        """Return after an entry or another frame was received.

        Raises the fatal error that ended the reader, and LedgerUnavailable, after which the reader may wait again.
        """
        if not self._arrived and self.failure is None and self._state.unavailable is None:
            self._state.received.clear()
            await self._state.received.wait()
        self._check()

    def _check(self) -> None:
        if self._arrived:
            return
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # else each call would add to it
        unavailable, self._state.unavailable = self._state.unavailable, None
        if unavailable is not None:
            raise unavailable

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

    @property
    def next_position(self) -> Position | None:
        """Of the entry that is taken next; None when none was received."""
        return self._arrived[0].stored.entry.position if self._arrived else None

    @property
    def trouble(self) -> OncelogError | None:
        """Why the latest stream ended, for the error of a read that times out."""
        return self._state.trouble

    @property
    def skipped(self) -> SkippedEntries:
        """How many entries were skipped, and the newest of them; also those behind an entry that was not taken yet."""
        return self._state.corruption.skipped

    @property
    def gaps(self) -> Gaps:
        """How many gaps were met, and the newest of them; also those behind an entry that was not taken yet."""
        return Gaps(self._state.gaps_count, tuple(self._state.gaps))

    def close(self, error: OncelogError) -> None:
        self._task.cancel()
        self._arrived.clear()
        self._fail(error)

    # --- the network's side -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = session_backoff()
        while True:
            try:
                await self._read_stream()
            except OncelogError as error:
                if self._skips(error):
                    continue
                if not error.retriable:
                    self._fail(error)
                    return
                self._state.trouble = error
                if isinstance(error, LedgerUnavailable):
                    message = f"{self._topic}: {error.message}. The reader goes on trying"
                    self._state.unavailable = LedgerUnavailable(message, **error.details)
                    self._state.received.set()
            await backoff.pause()

    def _skips(self, error: OncelogError) -> bool:
        """Whether reading continues after an entry that the owner cannot read. Fails the reader unless it may skip."""
        begins = isinstance(self._next_start, StartMessage) or self._next_start is StartEdge.EARLIEST
        if not begins and "next_ledger_id" not in error.details:
            return False  # the owner found that entry while it searched for the start, which may be far before it
        try:
            following = self._state.corruption.unreadable(error)
        except (EntriesLost, UnreadableEntry) as fatal:
            self._fail(fatal)
            return False
        if following is None:
            return False
        self._next_start = StartMessage(following, 0, inclusive=True)
        self._state.received.set()
        return True

    async def _read_stream(self) -> None:
        """Look the owner up and read one stream to its end."""
        state = self._state
        # The topic existed when the reader was opened; one that was deleted since must not be created again.
        route = await self._network.route(self._topic, fresh=True, create=False)
        if self.topic_partition.topic_id not in ("", route.topic_id):
            raise TopicNotFound(
                f"{self._topic} was deleted and created again, and the messages of this reader's topic are gone: "
                "create another reader for the new topic"
            )
        self.topic_partition = self.topic_partition._replace(topic_id=route.topic_id)
        epochs = self._network.epochs
        async with self._network.channel(route) as channel, self._opened(channel.stream(READ), route) as stream:
            seen = epochs.highest(route.topic_id)
            # The gateways of a client that is outside of the cluster's network lead to owners only.
            direct = not route.proxied and self._network.storage_nodes.usable
            start = ReaderStart(str(self._topic), route.topic_id, self._next_start, seen, direct)
            permit_bytes = self._window_bytes - sum(each.size_bytes for each in self._arrived if each.from_owner)
            state.due_bytes, state.resume = 0, None
            await stream.write(ReadControl(start, max(permit_bytes, 1)))
            granting = self._network.background.start(
                state.grant_permits(stream, self._window_bytes // 4), what=f"permits of {self._topic}"
            )
            try:
                async for frame in stream:
                    state.serving_epoch = max(state.serving_epoch, frame.owner_epoch)
                    if frame.owner_epoch or frame.error is None:
                        epochs.believe(route.topic_id, frame.owner_epoch)
                    if frame.error is not None:
                        raise frame.error
                    await self._receive(frame, channel, route)
                    if frame.offer is not None:
                        state.answer(await self._read_offered(frame.offer, channel, route))
            finally:
                granting.cancel()

    @asynccontextmanager
    async def _opened(
        self, stream: Stream[ReadControl, ReceivedEntries], route: Route
    ) -> AsyncIterator[Stream[ReadControl, ReceivedEntries]]:
        """The stream; it is cancelled when the client learns of an owner newer than the one that serves it."""
        state = self._state
        state.serving_epoch = route.owner_epoch

        def moved(owner_epoch: OwnerEpoch) -> None:
            if owner_epoch > state.serving_epoch:
                stream.cancel()  # the read raises ServiceUnavailable, and the topic is looked up again

        with self._network.epochs.followed(route.topic_id, moved):
            yield stream

    async def _receive(self, frame: ReceivedEntries, channel: Channel, route: Route) -> None:
        self._state.names.update(frame.names)
        first_batch_index = frame.first_batch_index
        for data in frame.entries:
            stored = self._open(data, None, first_batch_index)
            if stored is not None:
                self._note_gap(stored.entry, frame.trimmed_below)
                await self._arrive(Arrived(stored, len(data), first_batch_index), channel, route)
            first_batch_index = 0
        self.at_end = frame.at_end
        self._state.trouble = self._state.unavailable = None
        self._state.received.set()

    async def _arrive(self, arrived: Arrived, channel: Channel, route: Route) -> None:
        entry, batch, _ = arrived.stored
        if self._joins_chunks and is_chunked(arrived.stored):
            wanted = arrived.first_batch_index < batch.count and entry.next_index > self._first_index
            joined = await self._joined(arrived, channel, route) if wanted else None
            if joined is None:
                self._state.taken(arrived)
            else:
                self._arrived.append(arrived._replace(stored=joined))
        else:
            self._arrived.append(arrived)
        self._next_start = StartMessage(entry.position, batch.count - 1, inclusive=False)
        # A new stream may begin with the entry that was taken last.
        self._state.corruption.next_index = max(self._state.corruption.next_index or 0, entry.next_index)

    async def _joined(self, arrived: Arrived, channel: Channel, route: Route) -> StoredBatch | None:
        """None: it was skipped, or trimmed. Raises MessageTooLarge, CorruptEntry unless such entries are skipped, and
        the retriable errors of a stream."""
        self._state.received.set()
        while self._arrived:
            await self._state.next_taken()
        ask = chunk_reader(channel, str(self._topic), route.topic_id, self._network.epochs.highest(route.topic_id))
        stored = arrived.stored
        try:
            return await join_chunks(stored, ask, topic=str(self._topic), bytes_max=self._network.message_bytes_max)
        except ChunksTrimmed:
            # Entries behind it may be here already: to them it would look received.
            self._add_gap(Gap(stored.entry.base_index, stored.entry.next_index - 1, False))
            self._state.corruption.passed = stored.entry.position
            return None
        except CorruptEntry as error:
            self._state.corruption.cannot_decode(stored.entry, error, first_batch_index=arrived.first_batch_index)
            return None

    # --- entries of an offer ------------------------------------------------------------------------------------------

    async def _read_offered(self, offer: StorageOffer, channel: Channel, route: Route) -> StorageResume:
        """Read the entries of an offer as far as storage nodes give them. Returns what the owner is told."""
        state, following, end = self._state, offer.first, None
        offered = OfferedEntries(self._network.storage_nodes, offer, partial(state.room, self._window_bytes))
        async with aclosing(offered.pages()) as pages:
            async for page in pages:
                try:
                    await self._learn_names(page, channel, route)
                except InvariantViolated:
                    raise
                except OncelogError as error:
                    logger.info("%s: the names of producers are unknown: %s", self._topic, error.message)
                    end = OfferEnd.NAMES_UNKNOWN
                    break
                await self._receive_page(page, channel, route)
                following = EntryId(page[-1][0].entry_id + 1)
        # Without any progress the next offer would not help either.
        return StorageResume(Position(offer.ledger_id, following), following > offer.first, end or offered.end())

    async def _receive_page(self, page: Page, channel: Channel, route: Route) -> None:
        for header, data in page:
            if header.kind != EntryKind.MESSAGES or not header.count:
                continue
            stored = self._open(data, header, 0)
            if stored is not None:
                self._note_gap(header, 0)
                self._state.stored_bytes += len(data)
                await self._arrive(Arrived(stored, len(data), 0, from_owner=False), channel, route)
        self._state.received.set()

    async def _learn_names(self, page: Page, channel: Channel, route: Route) -> None:
        """Ask the owner for the names of producers: entries contain ids. It does not know the names of deleted ones."""
        state = self._state
        ids = {producer_id_of(data) for header, data in page if header.kind == EntryKind.MESSAGES and header.count}
        ids -= state.names.keys() | state.nameless | {NOT_DEDUPLICATED}
        if not ids:
            return
        request = ProducerNamesRequest(
            topic=str(self._topic),
            topic_id=route.topic_id,
            producer_ids=sorted(ids),
            owner_epoch_seen=self._network.epochs.highest(route.topic_id),
        )
        answer = await channel.call(PRODUCER_NAMES, request, timeout_ms=_NAMES_TIMEOUT_MS)
        state.names.update({ProducerId(each.producer_id): each.name for each in answer.names})
        state.nameless |= ids - state.names.keys()

    def _note_gap(self, entry: EntryHeader, trimmed_below: int) -> None:
        """Note and log when messages before this entry are gone. Skipped entries were logged when they were skipped."""
        corruption, before = self._state.corruption, self._state.last
        expected, passed = corruption.next_index, corruption.passed
        self._state.last = entry.position
        # This entry may be received again, or be trimmed before it is: what is before it is reported once.
        corruption.next_index = max(expected or 0, entry.base_index)
        if before is None and expected is None and self._first_index:
            # The start that was asked for may be below the first message that is kept.
            expected, before = self._first_index, BEFORE_ALL
        if before is None and expected is None and trimmed_below:
            self._add_gap(Gap(None, trimmed_below - 1, False))
            return
        if expected is None or before is None or entry.base_index <= expected or (passed and passed > before):
            return
        self._add_gap(Gap(expected, entry.base_index - 1, entry.base_index - expected >= GIVEN_UP_INDEXES))

    def _add_gap(self, gap: Gap) -> None:
        self._state.gaps.append(gap)
        self._state.gaps_count += 1
        logger.warning("%s: %s", self._topic, gap)

    def _open(self, data: memoryview, verified: EntryHeader | None, first_batch_index: int) -> StoredBatch | None:
        """verified: the header, if the checksum was compared. None: the entry holds no batch, and was skipped. Raises
        CorruptEntry."""
        try:
            return open_entry(data, crc32c) if verified is None else open_verified(verified, data)
        except CorruptEntry as error:
            entry = peek_header(data)
            self._state.corruption.cannot_decode(entry, error, first_batch_index=first_batch_index)
            if verified is None:
                self._state.grant(len(data))
            self._next_start = StartMessage(Position(entry.ledger_id, EntryId(entry.entry_id + 1)), 0, inclusive=True)
            return None

    def _fail(self, error: OncelogError) -> None:
        self.failure = self.failure or error
        self._state.received.set()
