"""Tickets of a storage node: what one allows, and how everything else is refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.errors import InvalidArgument, OncelogError, PermissionDenied
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.entry_reading import ReceivedRead
from oncelog.log_storage.serve.read_tickets import LIFETIME_MS_MAX, ReadTickets
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import DESCRIBE, FENCE, ISSUE_READ_TICKET, READ, ReadRequest
from oncelog.runtime.credentials import Credentials
from oncelog.wire import storage_pb2 as pb
from oncelog.wire.storage_pb2 import DescribeRequest, ReadTicketRequest
from tests.contract.process.security_world import ROOT, secured, token
from tests.contract.storage_client.ledger_world import Node

LEDGER, OTHER = LedgerId(7), LedgerId(8)
TIMEOUT_MS = 30_000


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def request(
    ticket: bytes, *, ledger_id: LedgerId = LEDGER, first: int = 0, count: int = 5, fence: bool = False
) -> ReadRequest:
    return ReadRequest("n", ledger_id, EntryId(first), count, fence=fence, ticket=ticket)  # type: ignore[arg-type]


def test_ticket_allows_reads_of_its_entries_until_it_expires() -> None:
    clock = Clock()
    tickets = ReadTickets(clock)
    ticket = tickets.issue(LEDGER, EntryId(9), "reader", lifetime_ms=LIFETIME_MS_MAX)
    tickets.check(request(ticket, first=5), "reader")
    clock.now_ms += LIFETIME_MS_MAX - 1
    tickets.check(request(ticket, count=10), "reader")
    clock.now_ms += 1
    with pytest.raises(PermissionDenied, match="has expired: get a new one from the topic owner"):
        tickets.check(request(ticket), "reader")


@pytest.mark.parametrize(
    ("refused", "role", "why"),
    [
        ({"ledger_id": OTHER}, "reader", "for ledger 7, not 8"),
        ({"first": 6}, "reader", "for entries up to 7:9"),
        ({"count": 11}, "reader", "for entries up to 7:9"),
        ({"fence": True}, "reader", "does not allow a fence"),
        ({}, "another", "not issued the ticket to this role"),
        ({}, "", "not issued the ticket to this role"),
    ],
)
def test_ticket_allows_nothing_else(refused: dict[str, object], role: str, why: str) -> None:
    tickets = ReadTickets(Clock())
    ticket = tickets.issue(LEDGER, EntryId(9), "reader", lifetime_ms=1_000)
    with pytest.raises(PermissionDenied, match=why):
        tickets.check(request(ticket, **refused), role)  # type: ignore[arg-type]


def test_changed_and_foreign_tickets_are_refused() -> None:
    """A ticket of another node, or of this one before its restart, has another signature."""
    tickets = ReadTickets(Clock())
    ticket = tickets.issue(LEDGER, EntryId(9), "reader", lifetime_ms=1_000)
    changed = [ticket[:at] + bytes([ticket[at] ^ 1]) + ticket[at + 1 :] for at in range(len(ticket))]
    foreign = ReadTickets(Clock()).issue(LEDGER, EntryId(9), "reader", lifetime_ms=1_000)
    for wrong in (*changed, foreign, ticket[:-1], ticket + b"\0", b"x"):
        with pytest.raises(PermissionDenied, match="has not issued the ticket"):
            tickets.check(request(wrong), "reader")
    with pytest.raises(PermissionDenied, match="without a ticket only superusers"):
        tickets.check(request(b""), "reader")


@pytest.mark.parametrize("lifetime_ms", [0, LIFETIME_MS_MAX + 1])
def test_lifetime_is_limited(lifetime_ms: int) -> None:
    with pytest.raises(InvalidArgument, match=f"lifetime_ms must be from 1 to {LIFETIME_MS_MAX}, not {lifetime_ms}"):
        ReadTickets(Clock()).issue(LEDGER, EntryId(9), "reader", lifetime_ms=lifetime_ms)


# --- over the wire ----------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A storage node with authentication."""
    started = Node(tmp_path / "node")
    started.security = secured(tmp_path)
    await started.start()
    yield started
    await started.stop()


def channel(node: Node, role: str) -> Channel:
    return Channel(node.address, credentials=Credentials(token=lambda: token(role), plaintext_token_allowed=True))


async def ticket_for(node: Node, role: str, *, asked_by: str = ROOT) -> bytes:
    wanted = ReadTicketRequest(
        target=node.incarnation, ledger_id=LEDGER, last_entry=9, role=role, lifetime_ms=LIFETIME_MS_MAX
    )
    async with channel(node, asked_by) as asking:
        return (await asking.call(ISSUE_READ_TICKET, wanted, timeout_ms=TIMEOUT_MS)).ticket


async def read(
    node: Node, role: str, ticket: bytes, *, ledger_id: LedgerId = LEDGER, fence: bool = False
) -> list[ReceivedRead]:
    wanted = ReadRequest(node.incarnation, ledger_id, EntryId(0), 10, fence=fence, ticket=ticket)
    async with channel(node, role) as reading:
        return [frame async for frame in reading.read(READ, wanted, timeout_ms=TIMEOUT_MS)]


@pytest.mark.asyncio
async def test_node_serves_the_holder_of_a_ticket_and_superusers(node: Node) -> None:
    ticket = await ticket_for(node, "reader")
    assert await read(node, "reader", ticket)
    assert await read(node, ROOT, b"")


@pytest.mark.asyncio
async def test_node_refuses_readers_without_their_ticket(node: Node) -> None:
    ticket = await ticket_for(node, "reader")
    for role, given, ledger_id, fence in (
        ("reader", b"", LEDGER, False),
        ("another", ticket, LEDGER, False),
        ("reader", ticket, OTHER, False),
        ("reader", ticket, LEDGER, True),
    ):
        with pytest.raises(PermissionDenied):
            await read(node, role, given, ledger_id=ledger_id, fence=fence)
    assert not node.runner.counts.reads


@pytest.mark.asyncio
async def test_only_superusers_get_tickets_and_make_other_calls(node: Node) -> None:
    """A reader cannot write itself a ticket, and a ticket opens no other call."""
    with pytest.raises(PermissionDenied):
        await ticket_for(node, "reader", asked_by="reader")
    async with channel(node, "reader") as reading:
        calls = (
            reading.call(FENCE, pb.FenceRequest(target=node.incarnation, ledger_id=LEDGER), timeout_ms=TIMEOUT_MS),
            reading.call(DESCRIBE, DescribeRequest(), timeout_ms=TIMEOUT_MS),
        )
        for call in calls:
            with pytest.raises(OncelogError, match="not a superuser"):
                await call
