"""A topic's log that a test writes entry by entry, for its readers: which ledgers, which kinds, appended when."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from crc32c import crc32c

from oncelog.core.errors import LogHole, NotOwner, OncelogError
from oncelog.core.formats.batch import encode_batch
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header, peek_header
from oncelog.core.formats.ledger_page import ListPage, PagedLedger
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import (
    NOT_DEDUPLICATED,
    EntryId,
    Generation,
    Incarnation,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SessionNumber,
    TopicId,
)
from oncelog.core.ledger.entry_reading import ReceivedRead
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Phase, Topic
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, ReceivedEntries, StartAt
from oncelog.rpc.codecs.storage_codec import ReadRequest
from oncelog.rpc.read_watch import ReadWatch
from oncelog.rpc.server import Server
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.shell.entry_cache import CacheBudget, EntryCache
from oncelog.topic_owner.shell.ledger_list import LedgerList
from oncelog.topic_owner.shell.log_view import LogView, ReadableLog
from oncelog.topic_owner.shell.ownership_proofs import OwnershipProofs
from oncelog.topic_owner.shell.progress import TopicProgress
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.read_service import ReadService
from oncelog.topic_owner.streams.stream_rooms import StreamRooms

TOPIC = "public/default/flights"
TOPIC_ID = TopicId("0123456789abcdef0123456789abcdef")
NODE = Incarnation("a" * 32)
T = TypeVar("T")
ReadingStream = Stream[ReadControl, ReceivedEntries]


def at(ledger_id: int, entry_id: int) -> Position:
    return Position(LedgerId(ledger_id), EntryId(entry_id))


class Current(OwnershipProofs):
    """The proofs of an owner of a shown log: nobody else serves the topic."""

    def __init__(self, log: "ShownLog") -> None:
        links, topics = cast("StorageClient", log), cast("TopicStore", log)
        super().__init__(log.core, log.progress, topics=topics, links=links, post=log.post)
        self._log = log

    async def _record_shows_higher_epoch(self) -> bool:
        return self._log.newer_recorded

    async def prove(self) -> None:
        if self._log.deposed:
            raise NotOwner("the record names another owner")


class ShownLog:
    """Stands for the TopicRunner of a served topic, for its links, and for the registry that holds it alone.

    The last ledger that was written to is open; what is added is confirmed by `confirm`.
    """

    def __init__(self) -> None:
        self.owner_epoch = OwnerEpoch(3)
        self.core = Topic(
            TOPIC_ID, Incarnation("f" * 32), TopicSettings(), crc32c, first_session=SessionNumber(1),
            nodes=StorageNodesUpdated(()),
        )  # fmt: skip
        self.core.phase = Phase.SERVING
        self.core.ownership.record = TopicRecord(TOPIC_ID, TOPIC, owner_epoch=self.owner_epoch)
        self.progress = TopicProgress(self.core)
        self.cache = EntryCache(CacheBudget(1 << 20))
        self.log = ReadableLog(
            self.core, self.progress, self.cache, LedgerList(self.core.ownership, self.page),
            cast("StorageClient", self), self.ledger, self.record,
        )  # fmt: skip
        self.ownership_proofs = Current(self)
        self.page_reads: list[LedgerId] = []
        self.pages: dict[LedgerId, ListPage] = {}
        self.records: dict[LedgerId, LedgerMetadata] = {}
        self.entries: dict[Position, bytes] = {}
        self.posted: list[object] = []
        #: whether the topic record is of a newer epoch by now
        self.newer_recorded = False
        #: whether no proof succeeds
        self.deposed = False
        #: what storage nodes were asked for
        self.reads: list[ReadRequest] = []
        self.watch = ReadWatch()
        #: trimmed away when somebody reads its record
        self.trimmed_on_read: int | None = None
        #: what no storage node can give
        self.unreadable: set[Position] = set()

    @property
    def parts(self) -> "ShownLog":
        return self

    @property
    def links(self) -> "ShownLog":
        return self

    async def record(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        return self.records.get(ledger_id)

    async def why(self, error: OncelogError) -> OncelogError:
        return error

    async def explained(self, read: Awaitable[T]) -> T:
        return await read

    @property
    def view(self) -> LogView:
        return LogView(self.log)

    def runner(self, _topic_id: TopicId, _topic: str) -> "ShownLog":
        return self

    def post(self, event: object) -> None:
        self.posted.append(event)

    @property
    def next_index(self) -> int:
        """Number of the next message."""
        last = next(reversed(self.entries.values()), None)
        return 0 if last is None else peek_header(last).next_index

    # --- writing

    def open_ledger(self, number: int, *, instead: int | None = None) -> None:
        """The ledger before it, if any, is closed at its last entry. instead: it has none, and leaves the list."""
        for known, metadata in self.records.items():
            last = self._next(known) - 1
            if metadata.end == -1 and last >= 0:
                self.records[known] = metadata.closed(end=EntryId(last), length=1)
        ledger_id = LedgerId(number)
        self.records[ledger_id] = LedgerMetadata(ledger_id, TOPIC_ID, (NODE,), 1)
        link, gone = LedgerLink(ledger_id, self.next_index), None if instead is None else LedgerId(instead)
        self.core.ownership.record = self.core.ownership.record.with_ledger(link, instead=gone)

    def add(
        self,
        *counts: int,
        time_ms: int = 0,
        size: int = 100,
        cached: bool = False,
        skip_first: int = 0,
        producer_id: ProducerId = NOT_DEDUPLICATED,
    ) -> Position:
        """Add entries of so many new messages to the open ledger, 0: a control entry, and confirm them."""
        ledger_id = self.core.ownership.record.ledgers[-1].ledger_id
        position = Position(ledger_id, EntryId(-1))
        for count in counts:
            position = Position(ledger_id, self._next(ledger_id))
            body = _body(count and skip_first + count, size, producer_id)
            header = EntryHeader(
                EntryKind.MESSAGES if count else EntryKind.PRODUCER_OPENED, ledger_id, position.entry_id, EntryId(-1),
                0, OwnerEpoch(3), time_ms, self.next_index, skip_first, count, len(body), TOPIC_ID,
            )  # fmt: skip
            head = encode_header(header, body, crc32c)
            self.entries[position] = head + body
            if cached:
                self.cache.put(*position, (head, body))
        self.progress.moved(position)
        return position

    def trim(self, number: int) -> None:
        """Forget a ledger, as a trim does: first in the topic record, then its own."""
        record = self.core.ownership.record
        assert record.ledgers[0].ledger_id == number
        self.core.ownership.record = record.without(record.ledgers[0].ledger_id)
        del self.records[LedgerId(number)]

    def end(self, phase: Phase) -> None:
        """The topic is lost or closed."""
        self.core.phase = phase
        self.progress.changed()

    def _next(self, ledger_id: LedgerId) -> EntryId:
        return EntryId(sum(known.ledger_id == ledger_id for known in self.entries))

    def move_to_page(self, count: int) -> None:
        """The oldest ledgers outside of pages move to a page."""
        record = self.core.ownership.record
        ages = {at_.ledger_id: peek_header(data).append_time_ms for at_, data in self.entries.items()}
        moved = [PagedLedger(*link, 1, ages.get(link.ledger_id, 0)) for link in record.ledgers[:count]]
        page = ListPage(tuple(moved))
        self.pages[page.name] = page
        self.core.ownership.record = record.with_page(page.link)

    # --- what readers ask

    async def page(self, name: LedgerId) -> ListPage | None:
        self.page_reads.append(name)
        return self.pages.get(name)

    async def ledger(self, ledger_id: LedgerId) -> LedgerMetadata:
        if ledger_id == self.trimmed_on_read:
            self.trim(ledger_id)
        if ledger_id not in self.records:
            raise LogHole(f"ledger {ledger_id} has no record", ledger_id=ledger_id)
        return self.records[ledger_id]

    async def read(
        self, _member: Incarnation, request: ReadRequest, *, timeout_ms: int
    ) -> AsyncGenerator[ReceivedRead, None]:
        assert timeout_ms > 0
        self.reads.append(request)
        ids = [EntryId(request.first_entry + offset) for offset in range(request.entries_max)]
        good = [entry_id for entry_id in ids if Position(request.ledger_id, entry_id) not in self.unreadable]
        bad = [entry_id for entry_id in ids if entry_id not in good]
        found = [memoryview(self.entries[Position(request.ledger_id, entry_id)]) for entry_id in good]
        yield ReceivedRead(ReadStatus.OK, good, [], bad, ids[-1], ids[-1], found)


def _body(count: int, size: int, producer_id: ProducerId) -> bytes:
    if not count:
        return b"a grant"
    values = encode_values([bytes(size), *[b""] * (count - 1)])
    return encode_batch(
        values, producer_id=producer_id, generation=Generation(0), first=0, last=count - 1, count=count,
        publish_time_ms=0, checksum=crc32c,
    )  # fmt: skip


@asynccontextmanager
async def read_serving(log: ShownLog) -> AsyncIterator[Channel]:
    server = Server()
    server.stream(
        READ, ReadService(cast("TopicRegistry", log), StreamRooms(bytes_max=1 << 26, caller_streams_max=1_000)).read
    )
    port = await server.start()
    async with asyncio.timeout(60), Channel(f"127.0.0.1:{port}") as channel:
        try:
            yield channel
        finally:
            await server.stop(grace_ms=0)


async def reading(
    channel: Channel, start: StartAt, *, permit_bytes: int = 1 << 20, epoch_seen: int = 0
) -> ReadingStream:
    stream = channel.stream(READ)
    await stream.write(ReadControl(ReaderStart(TOPIC, TOPIC_ID, start, OwnerEpoch(epoch_seen)), permit_bytes))
    return stream
