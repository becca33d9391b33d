"""Reads from any member: another member is asked for an entry that one refuses; silence is no refusal."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from oncelog.core.errors import DeadlineExceeded, UnreadableEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import HEADER_BYTES, peek_header
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.ledgers.reader import read_entries, read_entry
from oncelog.ledgers.storage_links import StorageLinks
from oncelog.rpc.server import Server
from oncelog.rpc.storage_codec import READ, ReadFrame, ReadRequest
from tests.cluster.until import until
from tests.contract.ledger_world import (
    DEADLINE_S,
    A,
    B,
    C,
    addresses_of,
    adds_of,
    ledger,
    linked,
    nodes,
    scripted,
    sending,
    whole,
    writer_of,
)

pytestmark = pytest.mark.asyncio

METADATA = ledger(1, [A, B, C])
ENTRIES = whole(adds_of(writer_of(METADATA), 20))


class Member:
    """A member that holds entries, lacks some, damages some, or does not answer."""

    def __init__(self, entries: dict[EntryId, bytes] | None = None) -> None:
        self.entries: dict[EntryId, bytes] = dict(ENTRIES if entries is None else entries)
        self.unreadable: set[int] = set()
        self.status = ReadStatus.OK
        self.silent = False
        self.requests: list[ReadRequest] = []

    def add_to(self, server: Server) -> None:
        server.read(READ, self._read)

    async def _read(self, request: ReadRequest) -> AsyncGenerator[ReadFrame, None]:
        """Three ids per frame."""
        self.requests.append(request)
        if self.silent:
            await asyncio.Event().wait()
        if self.status is not ReadStatus.OK:
            yield ReadFrame(self.status)
            return
        ids = [EntryId(request.first_entry + number) for number in range(request.entries_max)]
        for at in range(0, len(ids), 3):
            part = ids[at : at + 3]
            present = [entry_id for entry_id in part if entry_id in self.entries and entry_id not in self.unreadable]
            yield ReadFrame(
                ReadStatus.OK,
                present,
                [entry_id for entry_id in part if entry_id not in self.entries],
                [entry_id for entry_id in part if entry_id in self.unreadable],
                entries=[self.entries[entry_id] for entry_id in present],
            )


@asynccontextmanager
async def three(a: Member, b: Member, c: Member) -> AsyncIterator[StorageLinks]:
    async with AsyncExitStack() as stack:
        addresses: dict[Incarnation, str] = {}
        for name, member in ((A, a), (B, b), (C, c)):
            addresses[name] = await stack.enter_async_context(scripted(member.add_to))
        links, _ = await stack.enter_async_context(linked(addresses))
        yield links


async def read_all(
    links: StorageLinks, metadata: LedgerMetadata = METADATA, *, last: int = 19, timeout_ms: int | None = None
) -> dict[EntryId, Buffer]:
    found: dict[EntryId, Buffer] = {}
    await read_into(found, links, metadata, last=last, timeout_ms=timeout_ms)
    return found


async def read_into(
    found: dict[EntryId, Buffer],
    links: StorageLinks,
    metadata: LedgerMetadata,
    *,
    last: int = 19,
    timeout_ms: int | None = None,
) -> None:
    """All pages, including those before an error."""
    async with asyncio.timeout(DEADLINE_S):
        async for page in read_entries(links, metadata, EntryId(0), EntryId(last), timeout_ms=timeout_ms):
            assert [entry_id for entry_id, _ in page] == list(range(len(found), len(found) + len(page)))
            found |= page


async def test_one_member_streams_the_whole_range() -> None:
    """There is no call per entry: one member is asked once, as long as it has the entries."""
    members = Member(), Member(), Member()
    async with three(*members) as links:
        assert await read_all(links) == ENTRIES
    assert sum(len(member.requests) for member in members) == 1


async def test_entry_that_one_member_lacks_is_read_from_another() -> None:
    """A member that was lost while the ledger was open lacks the rest; that is no hole in the log."""
    short = {entry_id: data for entry_id, data in ENTRIES.items() if entry_id < 7}
    b = Member()
    b.unreadable = {2, 3}
    async with three(Member(short), b, Member(short)) as links:
        assert await read_all(links) == ENTRIES


async def test_damaged_bytes_are_detected_by_the_reader() -> None:
    """The entry's checksum is the reader's own proof: a bit flipped on the way is detected."""
    spoilt = Member()
    spoilt.entries = {entry_id: data[:-1] + bytes([data[-1] ^ 1]) for entry_id, data in ENTRIES.items()}
    swapped = Member()
    swapped.entries = {entry_id: ENTRIES[EntryId(19 - entry_id)] for entry_id in ENTRIES}
    async with three(spoilt, swapped, Member()) as links:
        assert await read_all(links) == ENTRIES


async def test_unreadable_entry_is_reported_with_the_answer_of_each_member() -> None:
    """An operator needs to know which copies are left. No entry after it is returned."""
    a, b, c = Member(), Member(), Member()
    del a.entries[EntryId(5)]
    b.unreadable = {5}
    c.entries[EntryId(5)] = b"x" * 200
    async with three(a, b, c) as links:
        found: dict[EntryId, Buffer] = {}
        with pytest.raises(UnreadableEntry) as raised:
            await read_into(found, links, METADATA)
    assert list(found) == [0, 1, 2, 3, 4]
    assert raised.value.details == {"ledger_id": 1, "entry_id": 5}
    for said in (f"{A}: does not hold it", f"{B}: cannot read it", f"{C}: not an entry"):
        assert said in raised.value.message


async def test_member_that_is_down_has_not_refused() -> None:
    """Two members lack the entry and the third is away: only its answer can make the entry unreadable."""
    nothing: dict[EntryId, bytes] = {}
    async with scripted() as gone:
        pass
    async with three(Member(nothing), Member(nothing), Member()) as links:
        links.update_addresses({C: gone})
        with pytest.raises(DeadlineExceeded, match=C):
            await read_all(links, timeout_ms=300)
        port = int(gone.rpartition(":")[2])
        reading = asyncio.create_task(read_all(links))
        async with scripted(Member().add_to, port=port):
            assert await reading == ENTRIES


async def test_another_incarnation_has_not_refused() -> None:
    """A wiped node never answers for its former incarnation; another member answers."""
    other = Member()
    other.status = ReadStatus.WRONG_INCARNATION
    async with three(other, other, Member()) as links:
        assert await read_all(links) == ENTRIES


async def test_silent_member_is_passed_over() -> None:
    """A stopped process keeps its connections; a reader waits for one of three members for a limited time."""
    a, b, c = Member(), Member(), Member()
    a.silent = b.silent = True
    async with three(a, b, c) as links:
        assert await read_all(links) == ENTRIES
    assert len(a.requests) + len(b.requests) <= 2


async def test_heads_are_the_beginnings_of_entries(tmp_path: Path) -> None:
    """Replay needs headers and ids but no payload. With real nodes: whole and cut entries, many frames."""
    async with nodes(tmp_path, 1) as (node,), linked(addresses_of([node])) as (links, heard):
        metadata = ledger(1, [node.incarnation])
        node.records[metadata.ledger_id] = metadata
        writer = writer_of(metadata)
        adds = adds_of(writer, 1500, size=2000)
        links.send(sending(writer, adds))
        await until(lambda: len(heard.answers) == 1500, DEADLINE_S)
        assert await read_all(links, metadata, last=1499) == whole(adds)
        heads: list[tuple[EntryId, Buffer]] = []
        async for page in read_entries(links, metadata, EntryId(0), EntryId(1499), headers_only=True):
            heads += page
        assert [peek_header(data).entry_id for _, data in heads] == list(range(1500))
        for (entry_id, head), data in zip(heads, whole(adds).values(), strict=True):
            assert data.startswith(bytes(head)), entry_id
            assert len(head) == HEADER_BYTES + 64
        one = await read_entry(links, metadata, EntryId(77))
        assert one == whole(adds)[EntryId(77)]
