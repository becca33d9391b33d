"""A reader that is sent to storage nodes: it reads there what they give, and everything else through the owner."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import oncelog
from oncelog.client.network import storage_reads
from oncelog.rpc.codecs.reader_codec import OfferEnd
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_offers import FakeMembers

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
COUNT = 40
#: Entries of messages, one message each. The owner sends the first one itself.
OFFERED = COUNT - 1


@pytest_asyncio.fixture
async def members(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeMembers]:
    monkeypatch.setattr(storage_reads, "_CONNECT_S", DEADLINE_S)  # the machine may be busy
    async with FakeMembers.running(cluster.by_id) as running:
        cluster.knobs.offered = running
        yield running


async def filled(client: oncelog.AsyncClient) -> list[bytes]:
    """Messages of two producers in turn, an entry each."""
    values = [b"%03d" % number for number in range(COUNT)]
    producers = [await client.create_producer("flights", producer_name=name) for name in ("one", "two")]
    for number, value in enumerate(values):
        await producers[number % 2].send(value)
    return values


async def everything(client: oncelog.AsyncClient, members: FakeMembers, values: list[bytes]) -> None:
    """All messages come once, in order, with their producers."""
    reader = await client.create_reader("flights")
    found = [await reader.read_next(timeout=DEADLINE_S) for _ in values]
    assert [message.value for message in found] == values
    assert [message.index for message in found] == list(range(COUNT))
    assert [message.producer_name for message in found] == ["one", "two"] * (COUNT // 2)
    assert not reader.gaps.total
    await until(lambda: members.resumed, DEADLINE_S)
    await reader.close()


async def test_reader_reads_from_storage_nodes(
    cluster: FakeCluster, client: oncelog.AsyncClient, members: FakeMembers
) -> None:
    """The owner learns where to go on, and sends what is stored later."""
    values = await filled(client)
    await everything(client, members, values)
    last = len(cluster.topic("flights").entries)
    assert (members.resumed, members.ends) == ([(last, True)], [OfferEnd.COMPLETE])
    assert [member.entries_sent for member in members.members] == [OFFERED, 0]


async def test_another_member_gives_what_one_lacks(client: oncelog.AsyncClient, members: FakeMembers) -> None:
    values = await filled(client)
    members.members[0].lacks = set(range(20, 30))
    await everything(client, members, values)
    first, second = (member.entries_sent for member in members.members)
    assert (first > 0, second > 0) == (True, True)
    assert [more for _, more in members.resumed] == [True]


async def test_damaged_bytes_are_never_delivered(client: oncelog.AsyncClient, members: FakeMembers) -> None:
    """The reader compares checksums itself: the owner has not seen these bytes."""
    values = await filled(client)
    members.members[0].spoil = lambda at, data: data[:-1] + bytes([data[-1] ^ 1]) if at == 25 else data
    await everything(client, members, values)
    assert members.members[1].entries_sent
    assert [more for _, more in members.resumed] == [True]


async def test_bytes_of_another_entry_are_never_delivered(
    cluster: FakeCluster, client: oncelog.AsyncClient, members: FakeMembers
) -> None:
    """Their checksum is sound."""
    values = await filled(client)
    entries = cluster.topic("flights").entries
    members.members[0].spoil = lambda at, data: entries[24][1] if at == 25 else data
    await everything(client, members, values)
    assert members.members[1].entries_sent


async def test_owner_gives_what_no_member_gives(client: oncelog.AsyncClient, members: FakeMembers) -> None:
    values = await filled(client)
    for member in members.members:
        member.lacks = {25}
    await everything(client, members, values)
    # The second offer begins with that entry, and brings nothing.
    assert members.resumed == [(25, True), (25, False)]
    assert members.ends == [OfferEnd.NOT_GIVEN] * 2


async def test_ledger_that_is_trimmed_during_the_read_is_the_owners_matter(
    client: oncelog.AsyncClient, members: FakeMembers
) -> None:
    """An erased copy proves nothing about the entries."""
    values = await filled(client)
    for member in members.members:
        member.lacks = {25}
        member.erased_from = 25
    await everything(client, members, values)
    assert members.resumed == [(25, True), (25, False)]


async def test_refused_ticket_leads_to_the_owner(
    client: oncelog.AsyncClient, members: FakeMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = await filled(client)
    offered = members.offer
    monkeypatch.setattr(
        members,
        "offer",
        lambda *given: (offer := offered(*given))._replace(
            members=[member._replace(ticket=b"an old ticket") for member in offer.members]
        ),
    )
    await everything(client, members, values)
    assert [more for _, more in members.resumed] == [False]
    assert not any(member.entries_sent for member in members.members)


async def test_offer_without_members_leads_to_the_owner(client: oncelog.AsyncClient, members: FakeMembers) -> None:
    """An owner of another version may send one."""
    members.addresses = []
    await everything(client, members, await filled(client))
    assert [more for _, more in members.resumed] == [False]


async def test_expiring_tickets_are_not_used(client: oncelog.AsyncClient, members: FakeMembers) -> None:
    """The reader asks the owner again in time."""
    members.lifetime_ms = 0
    values = await filled(client)
    await everything(client, members, values)
    assert not any(member.reads for member in members.members)
    assert members.ends[0] is OfferEnd.EXPIRED


async def test_client_that_reaches_no_storage_node_stops_trying(
    client: oncelog.AsyncClient, members: FakeMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As outside of the cluster's network. One attempt for all its readers, for a while."""
    monkeypatch.setattr(storage_reads, "_CONNECT_S", 0.1)
    values = await filled(client)
    members.addresses = ["127.0.0.1:1", "127.0.0.1:2"]  # nobody listens there
    for _ in range(2):
        await everything(client, members, values)
    assert [more for _, more in members.resumed] == [False]
    assert members.ends == [OfferEnd.UNREACHABLE]


async def test_reader_buffers_no_more_than_its_window(client: oncelog.AsyncClient, members: FakeMembers) -> None:
    """A reader that takes nothing gets no more calls answered than it has room for."""
    producer = await client.create_producer("flights")
    for _ in range(30):
        await producer.send(bytes(512 * 1024))
    reader = await client.create_reader("flights")
    await reader.read_next(timeout=DEADLINE_S)
    while await reader.has_message_available():
        await reader.read_next(timeout=DEADLINE_S)
    assert all(0 < read.bytes_max <= 4 * 1024 * 1024 for read in members.members[0].reads)
    assert len(members.members[0].reads) > 1
