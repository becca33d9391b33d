"""The read stream of one reader: entries in log order, never beyond last_add_confirmed.

Entries at the end of the log come from the cache, older ones from the storage nodes. A reader grants permits in bytes.
An entry is sent while any permit is left, so the smallest permit is enough for the largest entry. Control entries are
not sent. Entries are read when the reader has a permit and the budget of all streams has room for them
(`core.stream_budget`), and they take their part of it until they are sent.

A reader that goes on through older entries is offered to read them from the storage nodes itself (`storage_offers`):

    entries from storage nodes, `OFFER_AFTER_BYTES` of them --> an offer: the rest of the range up to the cache
    --the reader answers where it stands and whether it takes further offers--> go on there
"""

import asyncio
from collections.abc import AsyncIterator

from oncelog.core.access import Right
from oncelog.core.errors import (
    InvalidArgument,
    InvariantViolated,
    LedgerUnavailable,
    LogHole,
    OncelogError,
    TopicLoading,
)
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind, peek_header, producer_id_of
from oncelog.core.ids import NOT_DEDUPLICATED, EntryId, LedgerId, Position, ProducerId
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.reader_codec import ReadControl, ReaderFrame, ReaderStart, StartMessage, StorageResume
from oncelog.rpc.server import ServerStream
from oncelog.storage_client.reader import read_entries
from oncelog.topic_owner.shell.log_view import LogView, ReadableRange
from oncelog.topic_owner.shell.ownership_proofs import until_current
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize, is_known_to_have
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
        offer_after = self._offer_after_bytes if control.start.storage_reads else None
        room = ReadRoom(self._rooms, stream)
        try:
            reading = _Reading(runner, stream, room, control.permit_bytes, offer_after, self.offers)
            async with asyncio.TaskGroup() as tasks:
                permits = tasks.create_task(reading.take_permits())
                try:
                    await reading.run(control.start)
                except InvariantViolated:
                    raise
                except OncelogError as error:
                    await stream.write(ReaderFrame(runner.owner_epoch, error=await runner.why(error)))
                permits.cancel()
        finally:
            room.close()


class _Reading:
    """The progress of one reader through the log."""

    def __init__(
        self,
        runner: TopicRunner,
        stream: ServerStream[ReadControl, ReaderFrame],
        room: ReadRoom,
        permit_bytes: int,
        offer_after_bytes: int | None,
        offers: OfferCounts,
    ) -> None:
        self._runner = runner
        self._offers = offers
        #: None: no offers on this stream
        self._offer_after_bytes = offer_after_bytes
        #: what this stream got from storage nodes since it began, or since the reader broke an offer off
        self._stored_bytes = self._stored_entries = 0
        self._resumed: asyncio.Queue[StorageResume] = asyncio.Queue()
        self._stream = stream
        self._room = room
        self._view = LogView(runner)
        self._permit_bytes = permit_bytes
        self._permitted = asyncio.Event()
        self._names: set[ProducerId] = set()
        self._first_index = 0
        #: told with the first frame
        self._trimmed_below = 0
        self._gone = asyncio.Event()
        #: the confirmed position at which the reader last got `at_end`
        self._told_end: Position | None = None

    async def take_permits(self) -> None:
        """Add the permits that the reader grants, until it disconnects."""
        try:
            async for control in self._stream:
                if control.resume is not None:
                    self._resumed.put_nowait(control.resume)
                self._permit_bytes += control.permit_bytes
                self._permitted.set()
        finally:
            self._gone.set()
            self._permitted.set()
            self._room.give_up()

    async def run(self, start: ReaderStart) -> None:
        runner = self._runner
        await until_current(runner, start.owner_epoch_seen)
        wanted, self._first_index = await self._view.start_of(start.at)
        at, _ = await self._view.next_range(wanted)
        if at != wanted:
            self._first_index = 0  # that entry was trimmed: the log begins behind it
        if isinstance(start.at, StartMessage):
            self._trimmed_below = self._view.trimmed_below(start.at.position)
        while not self._gone.is_set():
            at, available = await self._view.next_range(at)
            if available is None:
                if self._told_end != runner.progress.confirmed:
                    self._told_end = runner.progress.confirmed
                    await self._stream.write(ReaderFrame(runner.owner_epoch, self._told_end, at_end=True))
                await self._until_more(at)
            else:
                at = await self._send_range(available)

    async def _until_more(self, at: Position) -> None:
        """Wait for an entry at or behind `at`, or for the reader to disconnect."""
        more = asyncio.ensure_future(
            self._runner.progress.until_after(Position(at.ledger_id, EntryId(at.entry_id - 1)))
        )
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((more, gone), return_when=asyncio.FIRST_COMPLETED)
            if more.done():
                more.result()
        finally:
            more.cancel()
            gone.cancel()

    async def _send_range(self, entries: ReadableRange) -> Position:
        ledger_id = entries.metadata.ledger_id
        following = entries.first
        while following <= entries.last and not self._gone.is_set():
            if not await self._until_room():
                break
            cached = self._runner.cache.consecutive(ledger_id, following, entries.last, bytes_max=FRAME_BYTES_TARGET)
            if cached:
                await self._send([b"".join(parts) for parts in cached])
                following = EntryId(following + len(cached))
                continue
            self._room.clear()  # nothing is held while an offer is taken
            offered = await self._offer(entries, following)
            if offered is not None:
                following = offered
                continue
            if not await self._until_room():
                break
            try:
                async for page in self._pages(entries, following):
                    self._runner.progress.unavailable.answered(ledger_id)
                    await self._send([data for _, data in page])
                    following = EntryId(page[-1][0] + 1)
                    self._stored_entries += len(page)
                    self._stored_bytes += sum(len(data) for _, data in page)
                    if self._gone.is_set() or self._runner.cache.get(ledger_id, following) is not None:
                        break
                    if self._is_offer_due(entries.last - following + 1) or not await self._until_room():
                        break
            except LedgerUnavailable as error:
                self._runner.progress.unavailable.failed(error)
                raise
            except LogHole:
                if not self._view.is_trimmed(ledger_id):
                    raise
                return Position(LedgerId(ledger_id + 1), EntryId(0))  # trimmed meanwhile
        return Position(ledger_id, following)

    async def _until_room(self) -> bool:
        """Wait for a permit, and for room for what is read next. Returns False: the reader has disconnected."""
        await self._until_permitted()
        return not self._gone.is_set() and await self._room.reserve()

    def _pages(self, entries: ReadableRange, first: EntryId) -> AsyncIterator[list[tuple[EntryId, Buffer]]]:
        metadata, view = self._view.known(entries.metadata), self._view
        return read_entries(self._runner.parts.links, metadata, first, entries.last, record=view.record)

    def _is_offer_due(self, entry_count: int) -> bool:
        """Whether so many more entries are worth an offer."""
        least = self._offer_after_bytes
        if least is None or self._stored_bytes < max(least, 1):
            return False
        return entry_count * self._stored_bytes >= least * self._stored_entries

    async def _offer(self, entries: ReadableRange, first: EntryId) -> EntryId | None:
        """Offer the entries from `first` on that are not cached. Returns the next entry to send; None: no offer."""
        ledger_id, runner = entries.metadata.ledger_id, self._runner
        last = runner.cache.last_uncached(ledger_id, first, entries.last)
        if not self._is_offer_due(last - first + 1):
            return None
        if not is_known_to_have(runner, self._stream.caller, Right.CONSUME):
            # A revoked right ends no open stream, but it ends the tickets.
            self._offers.made["no_right"] += 1
            self._offer_after_bytes = None
            return None
        offered = ReadableRange(self._view.known(entries.metadata), first, last)
        offer = await storage_offer(runner.parts.links, offered, self._stream.caller.role)
        self._offers.made["no_ticket" if offer is None else "made"] += 1
        if offer is None:
            self._stored_bytes = self._stored_entries = 0
            return None
        frame = ReaderFrame(runner.owner_epoch, runner.progress.confirmed, offer=offer)
        self._told_end = None
        await self._stream.write(frame)
        resume = await self._answered()
        if resume is None:
            return first
        (resumed_ledger, following), storage_reads, _ = resume
        if resumed_ledger != ledger_id or not first <= following <= last + 1:
            message = f"the reader was offered entries {ledger_id}:{first} to {ledger_id}:{last}, and cannot go on at "
            raise InvalidArgument(f"{message}{resumed_ledger}:{following}", field="resume")
        if not storage_reads:
            self._offer_after_bytes = None
        if following <= last:
            self._stored_bytes = self._stored_entries = 0
        return following

    async def _answered(self) -> StorageResume | None:
        """As `_resume`; counts the answer."""
        end = "disconnected"  # also when this stream is cancelled
        try:
            resume = await self._resume()
            if resume is not None:
                end = resume.end.name.lower()
            return resume
        finally:
            self._offers.ended[end] += 1

    async def _resume(self) -> StorageResume | None:
        """The reader's answer to an offer; None: it has disconnected."""
        answer, gone = asyncio.ensure_future(self._resumed.get()), asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            answer.cancel()
            gone.cancel()

    async def _send(self, entries: list[Buffer]) -> None:
        """Send the entries that hold messages, in frames, while permits last; they take the room that was reserved."""
        self._room.hold(sum(map(len, entries)))
        frame: list[Buffer] = []
        names: dict[ProducerId, str] = {}
        size = 0
        for data in entries:
            header = peek_header(data)
            if header.kind != EntryKind.MESSAGES or not header.count:
                if not frame:
                    self._first_index = 0  # it applied to this entry only
                continue
            self._name(data, names)
            frame.append(data)
            size += len(data)
            if size >= FRAME_BYTES_TARGET:
                await self._write(frame, names, size)
                frame, names, size = [], {}, 0
        if frame:
            await self._write(frame, names, size)
        self._room.clear()

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
        while self._permit_bytes <= 0 and not self._gone.is_set():
            self._permitted.clear()
            await self._permitted.wait()

    async def _write(self, entries: list[Buffer], names: dict[ProducerId, str], size: int) -> None:
        await self._until_permitted()
        if self._gone.is_set():
            return
        self._permit_bytes -= size
        first_index, self._first_index = self._first_index, 0
        confirmed = self._runner.progress.confirmed
        at_end = peek_header(entries[-1]).position >= confirmed
        self._told_end = confirmed if at_end else None
        await self._stream.write(
            ReaderFrame(
                self._runner.owner_epoch, confirmed, at_end, first_index, names, None, entries, self._trimmed_below
            )
        )  # fmt: skip
        self._trimmed_below = 0
