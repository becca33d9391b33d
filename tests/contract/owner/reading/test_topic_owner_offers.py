"""An owner that sends its readers to storage nodes: what it offers, to whom, and where it goes on."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.client.network import storage_reads
from oncelog.client.network.storage_reads import NodeConnections, OfferedEntries
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.names import parse_namespace
from oncelog.metadata_store.records.policies import Policies
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.reader_codec import (
    READ,
    OfferEnd,
    ReadControl,
    ReaderStart,
    ReceivedEntries,
    StartEdge,
    StorageOffer,
    StorageResume,
)
from oncelog.runtime.credentials import Credentials
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.cluster.until import until
from tests.contract.owner.owner_world import OwnerLimits, OwnerWorld, PublishClient, batch_of, owner_world
from tests.contract.owner.reading.shown_log import ReadingStream
from tests.contract.process.security_world import secured, token

pytestmark = pytest.mark.asyncio
BODY_BYTES = 300_000
#: One frame of about 1 MiB, and then offers.
LIMITS = OwnerLimits(offer_after_bytes=BODY_BYTES)
COUNT = 12
#: The entries of messages: behind the head and the grant.
FIRST, LAST = 2, 13


@asynccontextmanager
async def filled(tmp_path: Path, limits: OwnerLimits = LIMITS) -> AsyncIterator[tuple[OwnerWorld, TopicRunner, str]]:
    """An owner with authentication, whose topic has entries FIRST to LAST of messages. None of them is cached."""
    async with owner_world(tmp_path, limits, secured(tmp_path)) as (world, channel):
        grants = {"reader": ("consume",)}
        await world.parts.policies.change(parse_namespace("public/default"), lambda _: Policies(permissions=grants))
        runner = await world.serve("flights")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        for number in range(COUNT):
            payload = encode_values([bytes(BODY_BYTES)])
            await client.stored(granted, batch_of(granted, [number], payload=payload))
        runner.cache.clear()
        yield world, runner, channel.address


def credentials(role: str) -> Credentials:
    return Credentials.of(tls=False, token=token(role))


@asynccontextmanager
async def reading(address: str, runner: TopicRunner, *, direct: bool = True) -> AsyncIterator[ReadingStream]:
    async with Channel(address, credentials=credentials("reader")) as channel:
        stream = channel.stream(READ)
        start = ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST, runner.owner_epoch, direct)
        await stream.write(ReadControl(start, 1 << 30))
        yield stream


async def until_offer(stream: ReadingStream) -> tuple[list[int], StorageOffer]:
    """(entries that came before it, the next offer)."""
    got: list[int] = []
    async for frame in stream:
        assert frame.error is None, frame.error
        if frame.offer is not None:
            return got, frame.offer
        got += ids(frame)
    raise AssertionError("the stream ended")


def ids(frame: ReceivedEntries) -> list[int]:
    return [peek_header(entry).entry_id for entry in frame.entries]


async def until_end(stream: ReadingStream) -> list[int]:
    got: list[int] = []
    async for frame in stream:
        assert frame.offer is None
        got += ids(frame)
        if frame.at_end:
            return got
    raise AssertionError("the stream ended")


async def resume(stream: ReadingStream, ledger_id: int, entry_id: int, *, more: bool) -> None:
    at = Position(LedgerId(ledger_id), EntryId(entry_id))
    await stream.write(ReadControl(None, 0, StorageResume(at, more, OfferEnd.COMPLETE)))


async def from_storage(offer: StorageOffer, role: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(storage_reads, "_CONNECT_S", 30.0)  # the machine may be busy
    channels = Channels(credentials(role))
    nodes = NodeConnections(channels)

    async def room() -> int:
        return 1 << 20

    try:
        pages = OfferedEntries(nodes, offer, room).pages()
        return [header.entry_id for page in [page async for page in pages] for header, _ in page]
    finally:
        await channels.close()


async def test_reader_without_any_other_right_reads_what_it_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner sends the beginning. It goes on where the reader says that it stands, and tells it the end."""
    async with filled(tmp_path) as (world, runner, address), reading(address, runner) as stream:
        sent, offer = await until_offer(stream)
        assert sent
        assert (offer.first, offer.last) == (sent[-1] + 1, LAST)
        assert [(member.incarnation, member.address) for member in offer.members] == [
            (world.node.incarnation, world.node.address)
        ]
        assert await from_storage(offer, "reader", monkeypatch) == list(range(offer.first, LAST + 1))
        assert await from_storage(offer, "stranger", monkeypatch) == []
        await resume(stream, offer.ledger_id, LAST + 1, more=True)
        assert await until_end(stream) == []
        shown = world.metrics.telemetry.metrics_text().decode()
        assert re.search(r'oncelog_storage_offers_total\{result="made"\} 1', shown)
        assert re.search(r'oncelog_storage_offers_ended_total\{end="complete"\} 1', shown)
        assert world.node.runner.counts.ticket_bytes_read > (LAST - offer.first) * BODY_BYTES


async def test_no_ticket_is_asked_for_after_the_right_was_revoked(tmp_path: Path) -> None:
    """The stream goes on, as for every reader that is open, but no ticket outlives the right by more than a minute."""
    async with filled(tmp_path) as (world, runner, address), reading(address, runner) as stream:
        _, offer = await until_offer(stream)
        await world.parts.policies.change(parse_namespace("public/default"), lambda _: Policies(permissions={}))
        await until(lambda: not runner.grants, 30.0)
        await resume(stream, offer.ledger_id, offer.first + 1, more=True)
        assert await until_end(stream) == list(range(offer.first + 1, LAST + 1))
        assert (world.reads.offers.made["made"], world.reads.offers.made["no_right"]) == (1, 1)


async def test_owner_sends_what_the_reader_did_not_get(tmp_path: Path) -> None:
    async with filled(tmp_path) as (_, runner, address), reading(address, runner) as stream:
        sent, offer = await until_offer(stream)
        await resume(stream, offer.ledger_id, offer.first + 1, more=False)
        assert await until_end(stream) == list(range(offer.first + 1, LAST + 1))
        assert sent == list(range(FIRST, offer.first))


async def test_offer_ends_before_the_cached_entries(tmp_path: Path) -> None:
    """Those are cheaper from the owner."""
    async with filled(tmp_path) as (_, runner, address):
        ledger_id = runner.core.ownership.record.ledgers[-1].ledger_id
        for entry_id in (LAST - 1, LAST):
            runner.cache.put(ledger_id, EntryId(entry_id), (b"a cached", b"entry"))
        async with reading(address, runner) as stream:
            _, offer = await until_offer(stream)
            assert offer.last == LAST - 2


@pytest.mark.parametrize(("limits", "direct"), [(LIMITS, False), (OwnerLimits(), True)])
async def test_nobody_is_sent_to_storage_nodes_who_has_not_asked(
    tmp_path: Path, limits: OwnerLimits, direct: bool
) -> None:
    """Neither a reader that does not take offers, nor one of an owner that makes none."""
    async with filled(tmp_path, limits) as (_, runner, address), reading(address, runner, direct=direct) as stream:
        assert await until_end(stream) == list(range(FIRST, LAST + 1))


async def test_owner_reads_itself_while_no_member_issues_tickets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nodes of an older version, which do not know that call."""
    async with filled(tmp_path) as (world, runner, address):

        async def none(*_: object, **__: object) -> tuple[str, bytes]:
            raise InvalidArgument("unknown method", field="method")

        monkeypatch.setattr(world.parts.links, "read_ticket", none)
        async with reading(address, runner) as stream:
            assert await until_end(stream) == list(range(FIRST, LAST + 1))
        assert world.reads.offers.made["no_ticket"] > 0


@pytest.mark.parametrize(("ledgers_on", "entry"), [(1, 5), (0, LAST + 2), (0, 0)])
async def test_reader_can_only_go_on_inside_of_the_offer(tmp_path: Path, ledgers_on: int, entry: int) -> None:
    async with filled(tmp_path) as (_, runner, address), reading(address, runner) as stream:
        _, offer = await until_offer(stream)
        await resume(stream, offer.ledger_id + ledgers_on, entry, more=True)
        frame = await anext(aiter(stream))
        assert isinstance(frame.error, InvalidArgument)
        assert frame.error.details["field"] == "resume"


async def test_reader_that_leaves_during_an_offer_ends_its_stream(tmp_path: Path) -> None:
    async with filled(tmp_path) as (world, runner, address):
        async with reading(address, runner) as stream:
            await until_offer(stream)
        async with asyncio.timeout(30), reading(address, runner) as again:
            await until_offer(again)
        await until(lambda: world.reads.offers.ended["disconnected"], 30.0)
