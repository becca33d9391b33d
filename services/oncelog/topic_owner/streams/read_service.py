"""The read stream of one reader: entries in log order, never beyond last_add_confirmed.

Entries at the end of the log come from the cache, older ones from the storage nodes. A reader grants permits in bytes.
An entry is sent while any permit is left, so the smallest permit is enough for the largest entry. Control entries are
not sent. Entries are read when the reader has a permit and the budget of all streams has room for them
(`core.stream_budget`), and they take their part of it until they are sent. A read of storage nodes asks for no more
than the permits, and ends when the reader has to wait: nodes serve a limited number of reads at a time.

A reader that goes on through older entries is offered to read them from the storage nodes itself
(`core.read_offers`, `storage_offers`).
"""

import asyncio
from contextlib import aclosing

from oncelog.core.access import Right
from oncelog.core.errors import (
    EntriesLost,
    InvalidArgument,
    InvariantViolated,
    LedgerUnavailable,
    LogHole,
    OncelogError,
    TopicLoading,
    UnreadableEntry,
)
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import AS_IT_CAME_VERSION, Buffer
from oncelog.core.formats.entry import EntryKind, check_reader, peek_header, producer_id_of
from oncelog.core.ids import NOT_DEDUPLICATED, EntryId, LedgerId, Position, ProducerId
from oncelog.core.read_offers import ReadOffers
from oncelog.rpc.codecs.reader_codec import ReadControl, ReaderFrame, ReaderStart, StartMessage, StorageResume
from oncelog.rpc.entry_reader import READ_BYTES_MAX
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.server import ServerStream
from oncelog.topic_owner.shell.log_view import LogView, ReadableRange
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize, is_known_to_have
from oncelog.topic_owner.streams.client_stream import ClientStream
from oncelog.topic_owner.streams.storage_offers import OfferCounts, storage_offer
from oncelog.topic_owner.streams.stream_rooms import ReadRoom, StreamRooms

#: A reader gets so many bytes from storage nodes through the owner before it is offered to read there itself. A short
#: read is not worth the connections and the tickets.
OFFER_AFTER_BYTES = 4 * 1024 * 1024


class ReadService:
    """Serves all read streams of this owner. offer_after_bytes: None: readers never read from storage nodes."""

    def __init__(self, topics: TopicRegistry, rooms: StreamRooms, *, offer_after_bytes: int | None = None) -> None:
        self.topics = topics
        self._rooms = rooms
        self._offer_after_bytes = offer_after_bytes
        self.offers = OfferCounts()

    async def read(self, stream: ServerStream[ReadControl, ReaderFrame]) -> None:
        """The handler of one stream. An error is its last frame, with the owner epoch."""
        control = await anext(aiter(stream), None)
        if control is None:
            return
        if control.start is None:
            raise InvalidArgument("the first message of a read stream must contain the start", field="start")
        runner = self.topics.runner(control.start.topic_id, control.start.topic)
        await authorize(runner, stream.caller, Right.CONSUME)
        direct = control.start.storage_reads and control.start.version >= AS_IT_CAME_VERSION
        offer_after = self._offer_after_bytes if direct else None
        room = ReadRoom(self._rooms, stream)
        try:
            await _Reading(runner, stream, room, control.start, control.permit_bytes, offer_after, self.offers).serve()
        finally:
            room.close()


class _Reading(ClientStream[ReadControl, ReaderFrame]):
    """The progress of one reader through the log. It sends what it reads, so nothing waits in an outbox."""

    sends_rest = False

    def __init__(
        self,
        runner: TopicRunner,
        stream: ServerStream[ReadControl, ReaderFrame],
        room: ReadRoom,
        start: ReaderStart,
        permit_bytes: int,
        offer_after_bytes: int | None,
        offer_counts: OfferCounts,
    ) -> None:
        super().__init__(stream)
        self._runner = runner
        self._start = start
        self._offers = ReadOffers(offer_after_bytes)
        self._offer_counts = offer_counts
        self._resumed: asyncio.Queue[StorageResume] = asyncio.Queue()
        self._read_room = room
        self._view = LogView(runner.log)
        self._permit_bytes = permit_bytes
        self._permitted = asyncio.Event()
        self._names: set[ProducerId] = set()
        self._first_index = 0
        #: sent with the first frame
        self._trimmed_below = 0
        #: the confirmed position at which the reader last got `at_end`
        self._sent_end: Position | None = None

    async def take(self, frame: ReadControl) -> None:
        """Add the permits that the reader grants."""
        if frame.resume is not None:
            self._resumed.put_nowait(frame.resume)
        self._permit_bytes += frame.permit_bytes
        self._permitted.set()

    async def send(self) -> None:
        """Send entries until the reader disconnects. An error is the last frame."""
        try:
            await self._follow(self._start)
        except InvariantViolated:
            raise
        except OncelogError as error:
            await self.stream.write(ReaderFrame(self._runner.owner_epoch, error=await self._runner.why(error)))

    async def _follow(self, start: ReaderStart) -> None:
        runner = self._runner
        await runner.ownership_proofs.until_current(start.owner_epoch_seen)
        wanted, self._first_index = await self._view.start_of(start.at)
        at, _ = await self._view.next_range(wanted)
        if at != wanted:
            self._first_index = 0  # that entry was trimmed: the log begins behind it
        if isinstance(start.at, StartMessage):
            self._trimmed_below = self._view.trimmed_below(start.at.position)
        while True:
            at, available = await self._view.next_range(at)
            if available is None:
                self._read_room.clear()  # nothing is held at the end of the log
                if self._sent_end != runner.progress.confirmed:
                    self._sent_end = runner.progress.confirmed
                    await self.stream.write(ReaderFrame(runner.owner_epoch, self._sent_end, at_end=True))
                await runner.progress.until_after(Position(at.ledger_id, EntryId(at.entry_id - 1)))
            else:
                at = await self._send_range(available)

    async def _send_range(self, entries: ReadableRange) -> Position:
        ledger_id = entries.metadata.ledger_id
        following = entries.first
        while following <= entries.last:
            await self._until_room()
            cached = self._runner.cache.consecutive(ledger_id, following, entries.last, bytes_max=FRAME_BYTES_TARGET)
            if cached:
                await self._send([b"".join(parts) for parts in cached])
                following = EntryId(following + len(cached))
                continue
            self._read_room.clear()  # nothing is held while an offer is taken
            offered = await self._offer(entries, following)
            if offered is not None:
                following = offered
                continue
            await self._until_room()
            pages = self._view.pages(entries, following, call_bytes_max=min(self._permit_bytes, READ_BYTES_MAX))
            try:
                async with aclosing(pages):
                    async for page in pages:
                        self._runner.progress.unavailable.answered(ledger_id)
                        await self._send([data for _, data in page])
                        following = EntryId(page[-1][0] + 1)
                        self._offers.read([len(data) for _, data in page])
                        if self._runner.cache.get(ledger_id, following) is not None:
                            break
                        if self._offers.is_due(entries.last - following + 1) or not self._has_room():
                            break
            except LedgerUnavailable as error:
                self._runner.progress.unavailable.failed(error)
                raise
            except (EntriesLost, UnreadableEntry) as error:
                _name_following(error)
                raise
            except LogHole:
                if not self._view.is_trimmed(ledger_id):
                    raise
                return Position(LedgerId(ledger_id + 1), EntryId(0))  # trimmed meanwhile
        return Position(ledger_id, following)

    async def _until_room(self) -> None:
        """Wait for a permit, and for room for what is read next."""
        await self._until_permitted()
        await self._read_room.reserve()

    def _has_room(self) -> bool:
        """The same without waiting. A stream that waits keeps no place among the reads of a storage node."""
        return self._permit_bytes > 0 and self._read_room.try_reserve()

    async def _offer(self, entries: ReadableRange, first: EntryId) -> EntryId | None:
        """Offer the entries from `first` on that are not cached. Returns the next entry to send; None: no offer."""
        ledger_id, runner = entries.metadata.ledger_id, self._runner
        last = runner.cache.last_uncached(ledger_id, first, entries.last)
        if not self._offers.is_due(last - first + 1):
            return None
        if not is_known_to_have(runner, self.stream.caller, Right.CONSUME):
            # A revoked right ends no open stream, but it ends the tickets.
            self._offer_counts.made["no_right"] += 1
            self._offers.stop()
            return None
        offered = ReadableRange(self._view.known(entries.metadata), first, last)
        offer = await storage_offer(runner.parts.links, offered, self.stream.caller.role)
        self._offer_counts.made["no_ticket" if offer is None else "made"] += 1
        if offer is None:
            self._offers.start_over()
            return None
        frame = ReaderFrame(runner.owner_epoch, runner.progress.confirmed, offer=offer)
        self._sent_end = None
        await self.stream.write(frame)
        at, takes_more, _ = await self._resume()
        return self._offers.answered(at, takes_more=takes_more, ledger_id=ledger_id, first=first, last=last)

    async def _resume(self) -> StorageResume:
        """The reader's answer to an offer."""
        end = "disconnected"
        try:
            resume = await self._resumed.get()
            end = resume.end.name.lower()
            return resume
        finally:
            self._offer_counts.ended[end] += 1

    async def _send(self, entries: list[Buffer]) -> None:
        """Send the entries that hold messages, in frames, while permits last; they take the room that was reserved."""
        self._read_room.hold(sum(map(len, entries)))
        frame: list[Buffer] = []
        names: dict[ProducerId, str] = {}
        size = 0
        for data in entries:
            header = peek_header(data)
            if header.kind != EntryKind.MESSAGES or not header.count:
                if not frame:
                    self._first_index = 0  # it applied to this entry only
                continue
            try:
                check_reader(data, self._start.version)
            except UnknownFormat:
                if frame:
                    await self._write(frame, names, size)  # first what it can read
                raise
            self._name(data, names)
            frame.append(data)
            size += len(data)
            if size >= FRAME_BYTES_TARGET:
                await self._write(frame, names, size)
                frame, names, size = [], {}, 0
        if frame:
            await self._write(frame, names, size)
        self._read_room.clear()

    def _name(self, data: Buffer, names: dict[ProducerId, str]) -> None:
        producer_id = producer_id_of(data)
        if producer_id == NOT_DEDUPLICATED or producer_id in self._names:
            return
        serving = self._runner.core.serving
        if serving is None:
            # Without a name the message would look as if it had been stored without deduplication.
            raise TopicLoading(
                "the topic is moving to another owner and its producer names are not known yet: try again"
            )
        known = serving.log.table.state.producers.name_of(producer_id)
        if known is not None:
            names[producer_id] = known
            self._names.add(producer_id)

    async def _until_permitted(self) -> None:
        while self._permit_bytes <= 0:
            self._permitted.clear()
            await self._permitted.wait()

    async def _write(self, entries: list[Buffer], names: dict[ProducerId, str], size: int) -> None:
        await self._until_permitted()
        self._permit_bytes -= size
        first_index, self._first_index = self._first_index, 0
        confirmed = self._runner.progress.confirmed
        at_end = peek_header(entries[-1]).position >= confirmed
        self._sent_end = confirmed if at_end else None
        await self.stream.write(
            ReaderFrame(
                self._runner.owner_epoch, confirmed, at_end, first_index, names, None, entries, self._trimmed_below
            )
        )  # fmt: skip
        self._trimmed_below = 0


def _name_following(error: EntriesLost | UnreadableEntry) -> None:
    """Say where the log goes on. Without that the error may be of an entry that was only met by the search for the
    start, so a reader that begins at a time or an index would not know what it skips."""
    details = error.details
    last = int(details.get("last" if isinstance(error, EntriesLost) else "entry_id") or 0)
    details.setdefault("next_ledger_id", details.get("ledger_id"))
    details.setdefault("next_entry_id", last + 1)
