"""The network side of a reader: one read stream at a time, resumed after the last received entry.

Received entries wait here until the application takes them. The owner may send `window_bytes` in advance, and more as
entries are taken. When a stream ends, or its owner has an owner_epoch below the highest one that the client has seen
(`epochs`), the topic is looked up again and a new stream is opened. A fatal error is kept and raised to the reader.
LedgerUnavailable, that no live storage node has the next entries, is raised once each time that the owner reports it,
and the stream goes on trying.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from crc32c import crc32c

from oncelog.client.backoff import session_backoff
from oncelog.client.corruption import Corruption, SkippedEntries
from oncelog.client.lookup import Route
from oncelog.client.messages import MessageBatch, StoredBatch, open_entry
from oncelog.client.network import Network
from oncelog.client.results import TopicPartition
from oncelog.core.errors import (
    CorruptEntry,
    EntriesLost,
    LedgerUnavailable,
    OncelogError,
    TopicNotFound,
    UnreadableEntry,
)
from oncelog.core.formats.entry import GIVEN_UP_INDEXES, EntryHeader, peek_header
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.ids import BEFORE_ALL, NOT_DEDUPLICATED, EntryId, OwnerEpoch, Position, ProducerId, TopicId
from oncelog.core.names import TopicName
from oncelog.rpc.channel import Stream
from oncelog.rpc.reader_codec import (
    READ,
    ReadControl,
    ReaderStart,
    ReceivedEntries,
    StartAt,
    StartEdge,
    StartIndex,
    StartMessage,
)

WINDOW_BYTES = 4 * 1024 * 1024

logger = logging.getLogger(__name__)


#: Gaps that a reader keeps; older ones are only counted.
GAPS_MAX = 1000


class Gap(NamedTuple):
    """Indexes of a topic without a message, between two messages that a reader received, or between the place at which
    it was to start and its first message.

    Attributes:
        first_index, last_index: the first and the last index that is missing. first_index is None when the reader was
            to start at a message id that was trimmed: how many messages behind it are gone is unknown, perhaps none.
        given_up: whether an operator has given up a ledger (`oncelog admin ledger end`), so that acknowledged messages
            may be lost; otherwise the messages were trimmed.
    """

    first_index: int | None
    last_index: int
    given_up: bool

    def __str__(self) -> str:
        if self.first_index is None:
            first = self.last_index + 1
            return (
                f"the start was trimmed, and the first message kept is {first}: messages between them, if any, are gone"
            )
        why = "an operator has given up a ledger" if self.given_up else "they were trimmed"
        return f"messages {self.first_index} to {self.last_index} are gone: {why}"


class Gaps(NamedTuple):
    """total: the number of gaps that a reader met. newest: the last 1000 of them, oldest first."""

    total: int
    newest: tuple[Gap, ...]


class _Arrived(NamedTuple):
    stored: StoredBatch
    size_bytes: int
    first_batch_index: int


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
    ) -> None:
        """topic_id: raise TopicNotFound when the topic has another id; "": accept any topic of the name."""
        self.topic_partition = TopicPartition(topic_id, NO_PARTITION if topic.partition is None else topic.partition)
        #: the fatal error that ended the reader
        self.failure: OncelogError | None = None
        #: the last frame said that it completes the log as of then
        self.at_end = False
        self._topic = topic
        self._network = network
        self._window_bytes = window_bytes
        self._next_start = start
        self._first_index = start.number if isinstance(start, StartIndex) else 0
        self._arrived: deque[_Arrived] = deque()
        self._state = _StreamState(corruption)
        self._task = network.background.start(self._run(), what=f"reader of {topic}")

    # --- the application's side ---------------------------------------------------------------------------------------

    def take(self) -> MessageBatch | None:
        """The next batch, None when none was received. Raises CorruptEntry at each call, unless entries are skipped."""
        while self._arrived:
            stored, size_bytes, first_batch_index = self._arrived[0]
            try:
                name = self._name_of(stored)
                batch = MessageBatch(stored, self.topic_partition, name, first_batch_index=first_batch_index)
            except CorruptEntry as error:
                self._state.corruption.cannot_decode(stored.entry, error, first_batch_index=first_batch_index)
                batch = None
            self._arrived.popleft()
            self._state.grant(size_bytes)
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
        stored, size_bytes, _ = self._arrived.popleft()
        self._state.grant(size_bytes)
        return stored, self._name_of(stored)

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
            raise self.failure
        unavailable, self._state.unavailable = self._state.unavailable, None
        if unavailable is not None:
            raise unavailable

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

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
        if not isinstance(self._next_start, StartMessage) and self._next_start is not StartEdge.EARLIEST:
            return False  # the owner found that entry while it searched for the start, which may be far before it
        try:
            skipped = self._state.corruption.unreadable(error)
        except (EntriesLost, UnreadableEntry) as fatal:
            self._fail(fatal)
            return False
        if skipped is None:
            return False
        self._next_start = StartMessage(Position(skipped.ledger_id, EntryId(skipped.entry_id + 1)), 0, inclusive=True)
        self._state.received.set()
        return True

    async def _read_stream(self) -> None:
        """Look the owner up and read one stream to its end."""
        state = self._state
        # The topic existed when the reader was opened; one that was deleted since must not be created again.
        route = await self._network.route(self._topic, fresh=True, create=False)
        if self.topic_partition.topic_id not in ("", route.topic_id):
            raise TopicNotFound(
                f"{self._topic} was deleted and created again; the messages of this reader's topic are gone"
            )
        self.topic_partition = self.topic_partition._replace(topic_id=route.topic_id)
        epochs = self._network.epochs
        async with self._network.channel(route) as channel, self._opened(channel.stream(READ), route) as stream:
            seen = epochs.highest(route.topic_id)
            start = ReaderStart(str(self._topic), route.topic_id, self._next_start, seen)
            permit_bytes = self._window_bytes - sum(arrived.size_bytes for arrived in self._arrived)
            state.due_bytes = 0
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
                    self._receive(frame)
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

    def _receive(self, frame: ReceivedEntries) -> None:
        self._state.names.update(frame.names)
        first_batch_index = frame.first_batch_index
        for data in frame.entries:
            stored = self._open(data, first_batch_index)
            if stored is not None:
                self._note_gap(stored.entry, frame.trimmed_below)
                self._arrived.append(_Arrived(stored, len(data), first_batch_index))
                self._next_start = StartMessage(stored.entry.position, stored.batch.count - 1, inclusive=False)
                self._state.corruption.next_index = stored.entry.next_index
            first_batch_index = 0
        self.at_end = frame.at_end
        self._state.trouble = self._state.unavailable = None
        self._state.received.set()

    def _note_gap(self, entry: EntryHeader, trimmed_below: int) -> None:
        """Note and log when messages before this entry are gone. Skipped entries were logged when they were skipped."""
        corruption, before = self._state.corruption, self._state.last
        expected, passed = corruption.next_index, corruption.passed
        self._state.last = entry.position
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

    def _open(self, data: memoryview, first_batch_index: int) -> StoredBatch | None:
        """None: the entry holds no batch, and was skipped. Raises CorruptEntry."""
        try:
            return open_entry(data, crc32c)
        except CorruptEntry as error:
            entry = peek_header(data)
            self._state.corruption.cannot_decode(entry, error, first_batch_index=first_batch_index)
            self._state.grant(len(data))
            self._next_start = StartMessage(Position(entry.ledger_id, EntryId(entry.entry_id + 1)), 0, inclusive=True)
            return None

    def _fail(self, error: OncelogError) -> None:
        self.failure = self.failure or error
        self._state.received.set()


class _StreamState:
    """State that outlives a stream: the producers' names, and the bytes to permit again."""

    def __init__(self, corruption: Corruption) -> None:
        self.corruption = corruption
        #: owner_epoch of the stream's owner
        self.serving_epoch = OwnerEpoch(0)
        self.names: dict[ProducerId, str] = {}
        self.received = asyncio.Event()
        self.trouble: OncelogError | None = None
        #: position of the last received entry
        self.last: Position | None = None
        #: reported by the owner, and not raised to the application yet
        self.unavailable: LedgerUnavailable | None = None
        self.gaps: deque[Gap] = deque(maxlen=GAPS_MAX)
        self.gaps_count = 0
        self.due_bytes = 0
        self._granted = asyncio.Event()

    def grant(self, size_bytes: int) -> None:
        self.due_bytes += size_bytes
        self._granted.set()

    async def grant_permits(self, stream: Stream[ReadControl, ReceivedEntries], at_least_bytes: int) -> None:
        """Permit the owner as many bytes as the application has taken, at least `at_least_bytes` at a time."""
        while True:
            await self._granted.wait()
            self._granted.clear()
            if self.due_bytes >= at_least_bytes:
                due_bytes, self.due_bytes = self.due_bytes, 0
                try:
                    await stream.write(ReadControl(None, due_bytes))
                except OncelogError:
                    return  # the reading side gets the reason
