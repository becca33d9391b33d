"""Requests that are repeated until they are answered, and a whole recovery with real nodes and a metadata store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from oncelog.core.errors import ServiceUnavailable, UnreadableEntry
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryAdded, RecoveryReadAnswered
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.rpc.codecs.storage_codec import APPEND, FENCE, READ, AppendAnswer, ReadFrame, ReadRequest, ReceivedAppend
from oncelog.rpc.server import Server, ServerStream
from oncelog.storage_client.reader import read_entries
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.storage_client.ledger_recovery import recover_ledger
from tests.contract.storage_client.ledger_world import (
    DEADLINE_S,
    A,
    Node,
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
from tests.contract.stores.store_backends import MemoryBackend, new_cluster

pytestmark = pytest.mark.asyncio

ONE = ledger(1, [A])


class Reluctant:
    """Answers the first requests of each kind with something that is no answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refusal = AppendStatus.OK

    def add_to(self, server: Server) -> None:
        server.unary(FENCE, self._fence)
        server.read(READ, self._read)
        server.stream(APPEND, self._append)

    def _count(self, what: str) -> int:
        self.asked.append(what)
        return self.asked.count(what)

    async def _fence(self, _request: pb.FenceRequest) -> pb.FenceAnswer:
        match self._count("fence"):
            case 1:
                return pb.FenceAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION)
            case 2:
                raise ServiceUnavailable("draining")
            case _:
                return pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=4, last_add_confirmed=3)

    async def _read(self, request: ReadRequest) -> AsyncIterator[ReadFrame]:
        assert request.fence
        match self._count("read"):
            case 1:
                yield ReadFrame(ReadStatus.WRONG_INCARNATION)
            case 2:
                yield ReadFrame(ReadStatus.OK, [EntryId(2)], entries=[b"half"])
                raise ServiceUnavailable("gone in between")
            case _:
                yield ReadFrame(ReadStatus.OK, [EntryId(2)], entries=[b"two"])
                yield ReadFrame(ReadStatus.OK, (), [EntryId(4)], [EntryId(3)])

    async def _append(self, stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        attempt = self._count("append")
        async for frame in stream:
            assert frame.recovery
            ids = [EntryId(number) for number in range(len(frame.entries))]
            if attempt == 1:
                await stream.write([AppendAnswer(LedgerId(1), ids, AppendStatus.WRONG_INCARNATION)])
            elif attempt == 2:
                await stream.write([AppendAnswer(LedgerId(1), ids[:1], AppendStatus.OK)])
                raise ServiceUnavailable("gone in between")
            else:
                await stream.write([AppendAnswer(LedgerId(1), ids[:1], AppendStatus.OK)])
                await stream.write([AppendAnswer(LedgerId(1), ids[1:], self.refusal)])


async def test_fence_is_repeated_until_the_right_incarnation_answers() -> None:
    """Another directory at the address knows nothing of the member's promises."""
    member = Reluctant()
    async with scripted(member.add_to) as address, linked({A: address}) as (links, _):
        assert await links.fence(A, LedgerId(1)) == MemberFenced(LedgerId(1), A, EntryId(4), EntryId(3))
    assert member.asked == ["fence"] * 3


async def test_recovery_read_is_complete_or_repeated() -> None:
    """Nothing of an interrupted attempt counts. Unreadable is distinguished from missing."""
    member = Reluctant()
    async with scripted(member.add_to) as address, linked({A: address}) as (links, _):
        answer = await links.recovery_read(A, LedgerId(1), EntryId(2), 3)
    assert isinstance(answer, RecoveryReadAnswered)
    assert answer.found == {2: b"two"}
    assert list(answer.missing) == [4]
    assert list(answer.unreadable) == [3]
    assert member.asked == ["read"] * 3


@pytest.mark.parametrize("refusal", [AppendStatus.OK, AppendStatus.CONFLICTING])
async def test_recovery_add_counts_when_every_entry_is_durable(refusal: AppendStatus) -> None:
    """An interrupted attempt is repeated completely. After one permanent refusal the member does not count."""
    member = Reluctant()
    member.refusal = refusal
    entries = ((EntryId(0), b"zero"), (EntryId(1), b"one"))
    async with scripted(member.add_to) as address, linked({A: address}) as (links, _):
        added = await links.recovery_add(A, LedgerId(1), entries)
    assert added == RecoveryAdded(LedgerId(1), A, (EntryId(0), EntryId(1)), refusal is AppendStatus.OK)
    assert member.asked == ["append"] * 3


class Erased:
    """A storage node that has erased its copy of every ledger."""

    def add_to(self, server: Server) -> None:
        server.unary(FENCE, self._fence)
        server.read(READ, self._read)
        server.stream(APPEND, self._append)

    async def _fence(self, _request: pb.FenceRequest) -> pb.FenceAnswer:
        return pb.FenceAnswer(status=pb.STORAGE_STATUS_ERASED)

    async def _read(self, _request: ReadRequest) -> AsyncIterator[ReadFrame]:
        yield ReadFrame(ReadStatus.ERASED)

    async def _append(self, stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        async for _ in stream:
            await stream.write([AppendAnswer(LedgerId(1), [EntryId(0)], AppendStatus.ERASED)])


@pytest.mark.hazard("answer-of-a-former-member")
async def test_erased_copy_is_an_answer_of_its_own() -> None:
    """It is neither a fence nor a copy nor a negative, and repeating the request would not change it."""
    erased = MemberErased(LedgerId(1), A)
    async with scripted(Erased().add_to) as address, linked({A: address}) as (links, _):
        assert await links.fence(A, LedgerId(1)) == erased
        assert await links.recovery_read(A, LedgerId(1), EntryId(0), 3) == erased
        assert await links.recovery_add(A, LedgerId(1), ((EntryId(0), b"zero"),)) == erased


async def test_request_waits_for_a_member_without_an_address() -> None:
    """A node that restarts is away for a moment. The request waits for it, and ends when it is cancelled."""
    member = Reluctant()
    async with scripted(member.add_to) as address, linked({}) as (links, _):
        fence = asyncio.create_task(links.fence(A, LedgerId(1)))
        links.update_addresses({A: address})
        fenced = MemberFenced(LedgerId(1), A, EntryId(4), EntryId(3))
        assert await fence == fenced
        links.update_addresses({})
        assert await links.fence(A, LedgerId(1)) == fenced


async def _written(members: list[Node], ledgers: LedgerStore) -> tuple[LedgerMetadata, dict[EntryId, bytes]]:
    """A ledger of 100 acknowledged entries on the first two members; then its writer is gone."""
    metadata = ledger(1, [node.incarnation for node in members])
    assert (await ledgers.write(metadata, version=ABSENT_VERSION)).status is WriteStatus.OK
    for node in members:
        node.records[metadata.ledger_id] = metadata
    async with linked(addresses_of(members[:2])) as (links, heard):
        writer = writer_of(metadata)
        adds = adds_of(writer, 100)
        links.send(sending(writer, adds))
        await until(lambda: len(heard.answers) == 200, DEADLINE_S)
        assert heard.lost == [(members[2].incarnation, metadata.ledger_id)]
    return metadata, whole(adds)


async def test_recovered_ledger_holds_everything_acknowledged_and_accepts_no_more(tmp_path: Path) -> None:
    """With one member down. Entries that the third member lacked are written back before the end is decided."""
    ledgers = LedgerStore(await new_cluster(MemoryBackend()))
    async with nodes(tmp_path, 3) as members:
        metadata, entries = await _written(members, ledgers)
        left = members[1:]
        async with linked(addresses_of(left)) as (links, heard):
            closed = await asyncio.wait_for(recover_ledger(metadata.ledger_id, ledgers, links), DEADLINE_S)
            assert (closed.state, closed.end) == (LedgerState.CLOSED, 99)
            found: dict[EntryId, bytes] = {}
            async for page in read_entries(links, closed, EntryId(0), closed.end):
                found |= ((entry_id, bytes(data)) for entry_id, data in page)
            assert found == entries
            writer = writer_of(metadata)
            links.send(sending(writer, adds_of(writer, 1, size=7)))
            await until(lambda: heard.answers, DEADLINE_S)
            assert {status for *_, status in heard.answers} == {AppendStatus.FENCED}
            again = await asyncio.wait_for(recover_ledger(metadata.ledger_id, ledgers, links), DEADLINE_S)
            assert again == closed


async def test_recovery_without_a_record_fails() -> None:
    """Nothing is concluded from a missing record."""
    ledgers = LedgerStore(await new_cluster(MemoryBackend()))
    async with linked({}) as (links, _):
        with pytest.raises(UnreadableEntry, match="no record"):
            await recover_ledger(LedgerId(5), ledgers, links)
