"""Reads the entries of one log as they are stored, whole: for gateways, whose clients get batches and not messages.

An entry is verified, and not decoded. A start is an entry, never a message inside of one. A message in chunks comes
without its value: `entry_chunks` reads it.
"""

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.reading.log_reader import last_message
from oncelog.client.reading.read_stream import WINDOW_BYTES, ReadStream
from oncelog.client.values.corruption import Corruption, OnCorrupt
from oncelog.client.values.whole_entries import EntryStart, WholeEntry
from oncelog.core.errors import EntriesLost, OncelogError, ReaderClosed
from oncelog.core.ids import BEFORE_ALL, EntryId, Position, TopicId
from oncelog.core.names import TopicName
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime

#: A look at one entry: the owner sends at least one, whatever it is permitted.
_LOOK_BYTES = 1


class EntryReader:
    """The entries of a topic without partitions, or of one partition, from a start on. For one task at a time.

    Attributes:
        topic: the full name.
        before: the last entry in front of the start, or the place directly before the first entry there; None: the
            first entry that is kept is in front of nothing. Fixed when the reader is opened.
    """

    def __init__(
        self, topic: TopicName, network: Network, *, timeout_ms: int | None, window_bytes: int = WINDOW_BYTES
    ) -> None:
        """window_bytes: of entries that wait here."""
        self.topic = str(topic)
        self.before: Position | None = None
        self._topic = topic
        self._network = network
        self._timeout_ms = timeout_ms
        self._window_bytes = window_bytes
        self._stream: ReadStream | None = None
        #: the entry that was taken last
        self._after = BEFORE_ALL
        #: the entry of the last message, as it was found last
        self._last: WholeEntry | None = None

    async def open(self, start: EntryStart, *, create: bool = True) -> None:
        """Begin with the entry of a start. Returns when its first entry is here, or none is stored behind it.

        LATEST means the last message that is stored now, even if the connection is lost later. A start before the first
        entry that is kept begins there. create: create the topic if it is missing. Raises TopicNotFound, and the errors
        of a reader, also those of the first entry.
        """
        await persist(
            lambda again: self._network.route(self._topic, fresh=again, create=create),
            timeout_ms=self._timeout_ms,
            what=f"the owner of {self._topic}",
        )
        if isinstance(start, Position):
            await self._begin_with(start)
            return
        last = None
        if start is not StartEdge.EARLIEST:
            found = await last_message(self._network, self._topic, timeout_ms=self._timeout_ms)
            last = None if found.message_id is None else found.message_id.position
        if start is StartEdge.LATEST and last is not None:
            await self._begin_with(Position(last.ledger_id, EntryId(last.entry_id + 1)))
            return
        found_by_owner = isinstance(start, StartTime | StartIndex)
        stream = await self._begin(start if found_by_owner else StartEdge.EARLIEST)
        if found_by_owner:
            self.before = last if stream.next_position is None else _before(stream.next_position)

    async def _begin_with(self, position: Position) -> None:
        try:
            await self._begin(_with(position))
        except EntriesLost:
            if not await self._is_before_all(position):
                raise
            await self._begin(StartEdge.EARLIEST)
        self.before = _before(position)

    async def _begin(self, start: StartAt) -> ReadStream:
        self._stream = self._stream_from(start, self._window_bytes)
        await self._until_begun(self._stream)
        return self._stream

    def _stream_from(self, start: StartAt, window_bytes: int) -> ReadStream:
        return ReadStream(
            self._topic,
            start,
            self._network,
            corruption=Corruption(self.topic, OnCorrupt.RAISE),
            window_bytes=window_bytes,
            joins_chunks=False,
        )

    async def _until_begun(self, stream: ReadStream) -> None:
        """Return when the first entry is here, or the end of the log. Raises what ended the stream."""
        try:
            while not stream.has_arrived and not stream.at_end:
                await stream.arrival()
        except BaseException:
            stream.close(ReaderClosed("the reader was not opened"))
            raise

    async def _is_before_all(self, position: Position) -> bool:
        """Whether each entry that is kept is behind a place: then it is one of an earlier topic of this name, or was
        trimmed. Nothing in front of it could have been lost unnoticed."""
        stream = self._stream_from(StartEdge.EARLIEST, _LOOK_BYTES)
        try:
            await self._until_begun(stream)
            first = stream.next_position
            return first is None or first.ledger_id > position.ledger_id
        finally:
            stream.close(ReaderClosed("the look is over"))

    @property
    def _open_stream(self) -> ReadStream:
        if self._stream is None:
            raise ReaderClosed("the reader is not open")
        return self._stream

    def take(self) -> WholeEntry | None:
        """The next entry that holds messages; None when none was received."""
        while (taken := self._open_stream.take_entry()) is not None:
            entry = taken[0].entry
            # A stream that goes on after another one begins with the entry that was received last.
            if entry.count and entry.position > self._after:
                self._after = entry.position
                return WholeEntry(*taken)
        return None

    async def arrival(self) -> None:
        """Return when an entry may be here for `take`. Raises the error that ended the reader, and LedgerUnavailable,
        after which it may wait again."""
        await self._open_stream.arrival()

    async def last_entry(self) -> WholeEntry | None:
        """The entry that holds the last message; None: the topic has none. Every message that was acknowledged before
        the call is counted. Raises as `last_message`, and as a reader."""
        while True:
            found = (await last_message(self._network, self._topic, timeout_ms=self._timeout_ms)).message_id
            if found is None:
                return None
            if self._last is not None and self._last.stored.entry.position == found.position:
                return self._last
            looked = await self._look_at(found.position)
            if looked is not None:  # else it was trimmed, with all that is in front of it
                self._last = looked
                return looked

    async def _look_at(self, position: Position) -> WholeEntry | None:
        """None: the entry is not kept any more."""
        stream = self._stream_from(_with(position), _LOOK_BYTES)
        try:
            await self._until_begun(stream)
            taken = stream.take_entry()
        finally:
            stream.close(ReaderClosed("the look is over"))
        return None if taken is None or taken[0].entry.position != position else WholeEntry(*taken)

    @property
    def topic_id(self) -> TopicId:
        """Of the topic that is read; a topic that is made again under the same name has another. Raises ReaderClosed
        before `open`."""
        return self._open_stream.topic_partition.topic_id

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended the reader; None while it is open."""
        return None if self._stream is None else self._stream.failure

    def close(self) -> None:
        """A call that waits for an entry raises ReaderClosed."""
        if self._stream is not None:
            self._stream.close(ReaderClosed("the reader was closed"))


def _before(position: Position) -> Position:
    return Position(position.ledger_id, EntryId(position.entry_id - 1))


def _with(position: Position) -> StartMessage:
    return StartMessage(position, 0, inclusive=True)
