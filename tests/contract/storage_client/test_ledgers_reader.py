"""Reads from any member: another member is asked for an entry that one refuses; silence is no refusal."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.errors import (
    EntriesLost,
    LedgerUnavailable,
    LogHole,
    OncelogError,
    StoreUnavailable,
    UnreadableEntry,
)
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import HEADER_BYTES, peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.rpc.codecs.storage_codec import READ, REVIEW_LEDGER, ReadFrame, ReadRequest
from oncelog.rpc.read_watch import HEDGE_AFTER_S_MAX, HEDGES_MAX, ReadWatch
from oncelog.rpc.server import Server
from oncelog.storage_client.client import StorageClient
from oncelog.storage_client.reader import UNAVAILABLE_AFTER_MS, ReadRecord, read_entries, read_entry
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.storage_client.ledger_world import (
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

METADATA = ledger(1, [A, B, C])
#: Above the time after which entries count as unavailable.
READ_DEADLINE_S = 60.0
ENTRIES = whole(adds_of(writer_of(METADATA), 20))


class Member:
    """A member that holds entries, lacks some, damages some, or does not answer."""

    def __init__(self, entries: dict[EntryId, bytes] | None = None) -> None:
        self.entries: dict[EntryId, bytes] = dict(ENTRIES if entries is None else entries)
        self.unreadable: set[int] = set()
        self.status = ReadStatus.OK
        self.silent = False
        self.requests: list[ReadRequest] = []

        #: reviews that were requested
        self.reviews: list[pb.ReviewLedgerRequest] = []

    def add_to(self, server: Server) -> None:
        server.read(READ, self._read)
        server.unary(REVIEW_LEDGER, self._review)

    async def _review(self, request: pb.ReviewLedgerRequest) -> pb.ReviewLedgerAnswer:
        self.reviews.append(request)
        return pb.ReviewLedgerAnswer(status=pb.STORAGE_STATUS_OK, state=pb.COPY_STATE_DAMAGED)

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
async def three(a: Member, b: Member, c: Member) -> AsyncIterator[StorageClient]:
    async with AsyncExitStack() as stack:
        addresses: dict[Incarnation, str] = {}
        for name, member in ((A, a), (B, b), (C, c)):
            addresses[name] = await stack.enter_async_context(scripted(member.add_to))
        links, _ = await stack.enter_async_context(linked(addresses))
        yield links


async def read_all(
    links: StorageClient,
    metadata: LedgerMetadata = METADATA,
    *,
    last: int = 19,
    timeout_ms: int = UNAVAILABLE_AFTER_MS,
    record: ReadRecord | None = None,
) -> dict[EntryId, Buffer]:
    found: dict[EntryId, Buffer] = {}
    await read_into(found, links, metadata, last=last, timeout_ms=timeout_ms, record=record)
    return found


async def unavailable(
    links: StorageClient, metadata: LedgerMetadata, *, waiting_for: str, record: ReadRecord | None = None
) -> LedgerUnavailable:
    """Why entries cannot be read, once all members that answer have done so."""

    async def waits_only_for_these() -> LedgerUnavailable | None:
        with pytest.raises(LedgerUnavailable) as raised:
            await read_all(links, metadata, timeout_ms=300, record=record)
        return raised.value if raised.value.details["waiting_for"] == waiting_for else None

    found = await until(waits_only_for_these, READ_DEADLINE_S, waiting_for=f"a read that waits for {waiting_for} only")
    assert found is not None
    return found


async def read_into(
    found: dict[EntryId, Buffer],
    links: StorageClient,
    metadata: LedgerMetadata,
    *,
    last: int = 19,
    timeout_ms: int = UNAVAILABLE_AFTER_MS,
    record: ReadRecord | None = None,
) -> None:
    """All pages, including those before an error."""
    async with asyncio.timeout(READ_DEADLINE_S):
        pages = read_entries(links, metadata, EntryId(0), EntryId(last), timeout_ms=timeout_ms, record=record)
        async for page in pages:
            assert [entry_id for entry_id, _ in page] == list(range(len(found), len(found) + len(page)))
            found |= page


@pytest.mark.asyncio
async def test_one_member_streams_the_whole_range() -> None:
    """There is no call per entry: one member is asked once, as long as it has the entries."""
    members = Member(), Member(), Member()
    async with three(*members) as links:
        assert await read_all(links) == ENTRIES
    assert sum(len(member.requests) for member in members) == 1


@pytest.mark.asyncio
async def test_entry_that_one_member_lacks_is_read_from_another() -> None:
    """A member that was lost while the ledger was open lacks the rest; that is no hole in the log."""
    short = {entry_id: data for entry_id, data in ENTRIES.items() if entry_id < 7}
    b = Member()
    b.unreadable = {2, 3}
    async with three(Member(short), b, Member(short)) as links:
        assert await read_all(links) == ENTRIES


@pytest.mark.asyncio
async def test_damaged_bytes_are_detected_by_the_reader() -> None:
    """The entry's checksum is the reader's own proof: a bit flipped on the way is detected."""
    spoilt = Member()
    spoilt.entries = {entry_id: data[:-1] + bytes([data[-1] ^ 1]) for entry_id, data in ENTRIES.items()}
    swapped = Member()
    swapped.entries = {entry_id: ENTRIES[EntryId(19 - entry_id)] for entry_id in ENTRIES}
    async with three(spoilt, swapped, Member()) as links:
        assert await read_all(links) == ENTRIES


@pytest.mark.hazard("ledger-id-given-twice")
@pytest.mark.asyncio
@pytest.mark.parametrize("headers_only", [False, True])
async def test_entries_of_another_topic_are_not_returned(headers_only: bool) -> None:
    """Their ledger had the same id before ZooKeeper was restored."""
    other = replace(METADATA, topic_id=TopicId("f0" * 16))
    async with three(Member(), Member(), Member()) as links:
        with pytest.raises(UnreadableEntry, match="belongs to topic"):
            await read_entry(links, other, EntryId(0), headers_only=headers_only)


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_member_that_is_down_has_not_refused() -> None:
    """Two members lack the entry and the third is away: only its answer can make the entry unreadable."""
    nothing: dict[EntryId, bytes] = {}
    async with scripted() as gone:
        pass
    async with three(Member(nothing), Member(nothing), Member()) as links:
        links.update_addresses({C: gone})
        raised = await unavailable(links, METADATA, waiting_for=C)
        assert raised.retriable
        assert raised.details == {"ledger_id": 1, "first": 0, "last": 19, "waiting_for": C}
        port = int(gone.rpartition(":")[2])
        reading = asyncio.create_task(read_all(links))
        async with scripted(Member().add_to, port=port):
            assert await reading == ENTRIES


@pytest.mark.asyncio
async def test_member_without_an_address_has_not_refused() -> None:
    """It was not registered when the addresses were read."""
    async with scripted(Member().add_to) as address, linked({B: address}) as (links, _):
        assert await read_all(links) == ENTRIES


@pytest.mark.asyncio
async def test_another_incarnation_has_not_refused() -> None:
    """A wiped node never answers for its former incarnation; another member answers."""
    other = Member()
    other.status = ReadStatus.WRONG_INCARNATION
    async with three(other, other, Member()) as links:
        assert await read_all(links) == ENTRIES


@pytest.mark.asyncio
async def test_silent_member_is_passed_over() -> None:
    """A stopped process keeps its connections; a reader waits for one of three members for a limited time."""
    a, b, c = Member(), Member(), Member()
    a.silent = b.silent = True
    async with three(a, b, c) as links:
        assert await read_all(links) == ENTRIES
    assert len(a.requests) + len(b.requests) <= 2


@pytest.mark.asyncio
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


# --- unavailable and lost ---------------------------------------------------------------------------------------------


class Records:
    """The result of each read of the ledger's record, the last one again and again; an error is raised."""

    def __init__(self, *results: LedgerMetadata | OncelogError | None) -> None:
        self._results = list(results)
        self.count = 0

    async def __call__(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        assert ledger_id == METADATA.ledger_id
        self.count += 1
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, OncelogError):
            raise result
        return result


def closed(*members: Incarnation) -> LedgerMetadata:
    return ledger(1, members).closed(end=EntryId(19), length=1)


def erased() -> Member:
    member = Member()
    member.status = ReadStatus.ERASED
    return member


@pytest.mark.asyncio
@pytest.mark.hazard("lost-too-early")
async def test_read_without_a_live_member_fails_without_a_limit_by_the_caller() -> None:
    """Such a read used to wait for ever. No limit is passed here: the default one holds for every caller."""
    async with scripted() as gone:
        pass
    async with linked(dict.fromkeys((A, B, C), gone)) as (links, _):
        with pytest.raises(LedgerUnavailable, match="wait for them") as raised:
            await read_all(links, record=Records(closed(A, B, C)))
    assert raised.value.details == {"ledger_id": 1, "first": 0, "last": 19, "waiting_for": f"{A},{B},{C}"}


@pytest.mark.asyncio
@pytest.mark.hazard("answer-of-a-former-member")
@pytest.mark.parametrize("answer", ["erased", "missing"])
async def test_former_members_are_not_believed(answer: str) -> None:
    """The copy of the record names nodes that were swapped out since. The new record names the one that has it all."""
    former = [erased() if answer == "erased" else Member({}) for _ in range(2)]
    records = Records(closed(C))
    async with three(former[0], former[1], Member()) as links:
        assert await read_all(links, closed(A, B), record=records) == ENTRIES
    assert records.count == 1


@pytest.mark.asyncio
@pytest.mark.hazard("answer-of-a-former-member")
async def test_erased_copies_are_no_refusals() -> None:
    """Every member that is still named has erased its copy: nothing is proved, so the entries are waited for."""
    async with three(erased(), erased(), Member({})) as links:
        record = Records(closed(A, B, C))
        raised = await unavailable(links, closed(A, B, C), waiting_for=f"{A},{B}", record=record)
    assert "has erased its copy" in raised.message


@pytest.mark.asyncio
async def test_refusals_are_not_believed_while_the_record_cannot_be_read() -> None:
    """They may be those of former members."""
    records = Records(StoreUnavailable("no answer"), StoreUnavailable("no answer"), closed(A, B, C))
    async with three(Member({}), Member({}), Member({})) as links:
        with pytest.raises(UnreadableEntry):
            await read_all(links, closed(A, B, C), record=records)
    assert records.count == 3


@pytest.mark.asyncio
async def test_read_of_a_ledger_without_a_record_is_a_hole() -> None:
    """The ledger was trimmed, or its topic deleted: nobody will have the entries again."""
    async with three(erased(), erased(), erased()) as links:
        with pytest.raises(LogHole):
            await read_all(links, closed(A, B, C), record=Records(None))


@pytest.mark.asyncio
@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("away", [False, True])
async def test_entries_that_the_record_lists_as_lost_raise_the_range(away: bool) -> None:
    """The proof is in the record. A member that is away does not delay the error."""
    short = {entry_id: data for entry_id, data in ENTRIES.items() if not 5 <= entry_id <= 8}
    metadata = closed(A, B, C).mark_lost([EntryRange(EntryId(5), EntryId(8))])
    async with three(Member(short), Member(short), Member(short)) as links:
        if away:
            async with scripted() as gone:
                pass
            links.update_addresses({C: gone})
        found: dict[EntryId, Buffer] = {}
        with pytest.raises(EntriesLost) as raised:
            await read_into(found, links, closed(A, B, C), record=Records(metadata))
    assert list(found) == [0, 1, 2, 3, 4]
    assert raised.value.details == {"ledger_id": 1, "first": 5, "last": 8}
    assert not raised.value.retriable


@pytest.mark.asyncio
@pytest.mark.hazard("lost-too-early")
async def test_lost_entries_that_a_member_has_after_all_are_read() -> None:
    """A holder that returned is asked before the record is believed: repair takes the range back later."""
    metadata = closed(A, B, C).mark_lost([EntryRange(EntryId(5), EntryId(8))])
    async with three(Member({}), Member(), Member({})) as links:
        assert await read_all(links, metadata, record=Records(metadata)) == ENTRIES


@pytest.mark.asyncio
@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("survivors", [0, 1])
async def test_entries_that_only_given_up_members_may_have_are_lost_at_once(survivors: int) -> None:
    """The operator has said that these members are gone for ever. A survivor is asked for each entry."""
    async with scripted() as gone:
        pass
    members = (A, B, C)
    metadata = closed(*members).give_up_entries(members[survivors:], by="ann")
    short = {entry_id: data for entry_id, data in ENTRIES.items() if entry_id != 5}
    async with three(Member(short), Member(), Member()) as links:
        links.update_addresses(dict.fromkeys(members[survivors:], gone))
        found: dict[EntryId, Buffer] = {}
        with pytest.raises(EntriesLost, match="were given up by ann") as raised:
            await read_into(found, links, closed(*members), record=Records(metadata))
        first, last = (5, 5) if survivors else (0, 19)
        assert list(found) == list(range(first))
        assert raised.value.details == {"ledger_id": 1, "first": first, "last": last}


@pytest.mark.asyncio
async def test_given_up_members_that_answer_are_believed() -> None:
    """They came back after all."""
    metadata = closed(A, B, C).give_up_entries((B, C), by="ann")
    async with three(Member({}), Member({}), Member()) as links:
        assert await read_all(links, metadata, record=Records(metadata)) == ENTRIES
    async with three(Member({}), Member({}), Member({})) as links:
        with pytest.raises(UnreadableEntry):
            await read_all(links, metadata, record=Records(metadata))


# --- damage, and slow members -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_damaged_copies_are_counted_and_reported_to_their_nodes() -> None:
    """Repair begins where the node learns of it. An entry that a member merely lacks is no damage."""
    spoilt, unreadable = Member(), Member()
    spoilt.entries = {entry_id: data[:-1] + bytes([data[-1] ^ 1]) for entry_id, data in ENTRIES.items()}
    unreadable.unreadable = set(range(20))
    async with three(spoilt, unreadable, Member({})) as links:
        with pytest.raises(UnreadableEntry):
            await read_all(links, record=Records(METADATA))
        assert links.watch.damaged_count == 2
        await until(lambda: spoilt.reviews and unreadable.reviews, DEADLINE_S, waiting_for="the reports")
    assert spoilt.reviews == [pb.ReviewLedgerRequest(target=A, ledger_id=1)]
    assert unreadable.reviews == [pb.ReviewLedgerRequest(target=B, ledger_id=1)]


@pytest.mark.hazard("verified-copy-is-missing")
@pytest.mark.asyncio
async def test_entry_that_a_member_of_a_whole_ledger_lacks_is_damage() -> None:
    """The member has read it back before, or the record would not be whole."""
    lacking = {member: Member({}) for member in (A, B)}
    whole = replace(METADATA.closed(end=EntryId(19), length=1), verified=True)
    async with three(lacking[A], lacking[B], Member()) as links:
        await read_entry(links, whole, EntryId(3))
        await until(lambda: any(each.reviews for each in lacking.values()), DEADLINE_S, waiting_for="the reports")


@pytest.mark.asyncio
async def test_second_member_is_asked_while_the_first_is_silent() -> None:
    """The first one is not given up: it may just be slow, and whichever answers first counts."""
    members = {A: Member(), B: Member(), C: Member()}
    first = (A, B, C)[1 % 3]
    members[first].silent = True
    async with three(members[A], members[B], members[C]) as links:
        for _ in range(100):
            links.watch.answered(A, 0.001)
        assert await read_all(links) == ENTRIES
        assert links.watch.hedged_count >= 1
    assert len(members[first].requests) >= 1


def test_second_reads_follow_the_recent_latencies_and_are_bounded() -> None:
    """Slow nodes must not get twice the load: each answer allows a tenth of a second read."""
    watch = ReadWatch()
    assert watch.hedge_after_s == HEDGE_AFTER_S_MAX
    for _ in range(100):
        watch.answered(A, 0.1)
    assert watch.hedge_after_s == pytest.approx(0.3)
    assert [watch.may_hedge() for _ in range(HEDGES_MAX + 1)] == [True] * HEDGES_MAX + [False]
    for _ in range(11):
        watch.answered(A, 0.1)
    assert watch.may_hedge()
    assert not watch.may_hedge()
