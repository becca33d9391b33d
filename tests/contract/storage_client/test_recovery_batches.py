"""Requests of many recoveries that go to a storage node together: few calls, and no request depends on another."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, FenceState, ReadStatus
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryReadAnswered
from oncelog.rpc.codecs import recovery_codec as codec
from oncelog.rpc.codecs.recovery_codec import RECOVER, RECOVER_MAX, RecoverAnswer, RecoverRequest, ShortRead
from oncelog.rpc.codecs.storage_codec import ReadFrame
from oncelog.rpc.frames import join_frame
from oncelog.rpc.server import Server
from oncelog.storage_client.recovery_batches import CALLS_MAX, Batches
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until, yield_to_loop
from tests.contract.storage_client.ledger_world import (
    DEADLINE_S,
    TOPIC,
    A,
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


class Counted:
    """Performs requests, which are numbers, when it is told to. The answer to n is -n."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.go = asyncio.Event()
        self.error: OncelogError | None = None

    async def call(self, requests: Sequence[int]) -> list[int]:
        self.calls.append(list(requests))
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [-number for number in requests]


async def test_what_is_asked_while_calls_are_under_way_goes_out_together() -> None:
    """A thousand takeovers at once: the number of calls under way is bounded, and they grow instead."""
    node = Counted()
    batches = Batches(node.call, requests_max=10)
    asked = [asyncio.ensure_future(batches.ask(number)) for number in range(50)]
    async with asyncio.timeout(DEADLINE_S):
        await until(lambda: len(node.calls) == CALLS_MAX, DEADLINE_S)
        await yield_to_loop()
        assert node.calls == [list(range(10)), list(range(10, 20))]
        node.go.set()
        assert await asyncio.gather(*asked) == [-number for number in range(50)]
    assert [len(call) for call in node.calls] == [10] * 5
    await batches.close()


async def test_cancelled_request_is_not_sent_and_a_failed_call_fails_its_own_requests_only() -> None:
    """A takeover that ends does not hold up the others; what failed is repeated by whoever asked."""
    node = Counted()
    batches = Batches(node.call, requests_max=2, weight_max=10, weigh=lambda number: number)
    asked = [asyncio.ensure_future(batches.ask(number)) for number in (1, 2, 3, 20, 4)]
    async with asyncio.timeout(DEADLINE_S):
        await until(lambda: len(node.calls) == CALLS_MAX, DEADLINE_S)
        asked[4].cancel()
        node.error = ServiceUnavailable("draining")
        node.go.set()
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in ended] == [*[ServiceUnavailable] * 4, asyncio.CancelledError]
        assert node.calls == [[1, 2], [3], [20]]  # 20 is heavier than a call may be, and goes alone
        node.error = None
        assert await batches.ask(7) == -7
    await batches.close()


async def test_close_cancels_all_that_wait() -> None:
    """The process ends while a node does not answer."""
    node = Counted()
    batches = Batches(node.call, requests_max=1)
    asked = [asyncio.ensure_future(batches.ask(number)) for number in range(5)]
    async with asyncio.timeout(DEADLINE_S):
        await until(lambda: len(node.calls) == CALLS_MAX, DEADLINE_S)
        await batches.close()
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)


class Recovering:
    """A scripted node that has the call for many ledgers alone."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def add_to(self, server: Server) -> None:
        server.unary(RECOVER, self._recover)

    async def _recover(self, request: RecoverRequest) -> RecoverAnswer:
        self.calls.append(len(request.fences) + len(request.reads))
        if len(self.calls) == 1:
            raise ServiceUnavailable("draining")
        fences = [
            pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=number, last_add_confirmed=number - 1)
            for number in request.fences
        ]
        return RecoverAnswer(fences, [ReadFrame(ReadStatus.ERASED) for _ in request.reads])


async def test_a_hundred_fences_are_a_few_calls() -> None:
    """Each would cost 0.3 to 0.5 ms of CPU on both sides. A call that fails for now is repeated, still together."""
    member, count = Recovering(), 100
    async with scripted(member.add_to) as address, linked({A: address}) as (links, _):
        asked = [links.fence(A, LedgerId(number)) for number in range(1, count + 1)]
        fenced = await asyncio.wait_for(asyncio.gather(*asked), DEADLINE_S)
        assert fenced == [
            MemberFenced(LedgerId(number), A, EntryId(number), EntryId(number - 1)) for number in range(1, count + 1)
        ]
        assert len(member.calls) < count / 2
        assert max(member.calls) <= RECOVER_MAX
        assert await links.recovery_read(A, LedgerId(1), EntryId(0), 3) == MemberErased(LedgerId(1), A)


async def test_a_node_answers_each_ledger_of_a_call(tmp_path: Path) -> None:
    """Entries too large for a call of many ledgers are read alone. The fences are durable and the adds pass them."""
    async with nodes(tmp_path, 1) as (node,), linked(addresses_of([node])) as (links, heard):
        member = node.incarnation
        sizes = {LedgerId(1): 100, LedgerId(2): codec.RECOVER_BYTES_MAX // RECOVER_MAX * 2, LedgerId(3): 200}
        stored: dict[LedgerId, dict[EntryId, bytes]] = {}
        for ledger_id, size in sizes.items():
            node.records[ledger_id] = ledger(ledger_id, [member])
            writer = writer_of(ledger(ledger_id, [member]))
            adds = adds_of(writer, 3, size=size)
            links.send(sending(writer, adds))
            stored[ledger_id] = whole(adds)
        await until(lambda: len(heard.answers) == 9, DEADLINE_S)
        ledger_ids = [*sizes, LedgerId(4)]
        async with asyncio.timeout(DEADLINE_S):
            reads = await asyncio.gather(*(links.recovery_read(member, one, EntryId(1), 3) for one in ledger_ids))
            for one, answer in zip(ledger_ids, reads, strict=True):
                assert isinstance(answer, RecoveryReadAnswered)
                found = {entry_id: data for entry_id, data in stored.get(one, {}).items() if entry_id}
                assert (answer.ledger_id, answer.found) == (one, found)
                assert set(answer.missing) == {1, 2, 3} - set(found)
            assert await links.fence_states(member, list(sizes), timeout_ms=30_000) == [FenceState.FENCED] * 3
            fenced = await asyncio.gather(*(links.fence(member, one) for one in ledger_ids))
            said = [(one.last_entry, one.topic_id) for one in fenced if isinstance(one, MemberFenced)]
            assert said == [(2, TOPIC)] * 3 + [(NO_ENTRY, None)]
            added = await asyncio.gather(
                *(links.recovery_add(member, one, tuple(stored[one].items())) for one in sizes)
            )
            assert [(one.ledger_id, getattr(one, "ok", None)) for one in added] == [(one, True) for one in sizes]
    assert AppendStatus.OK in {status for *_, status in heard.answers}


async def test_the_call_keeps_its_fields_and_names_what_is_wrong() -> None:
    """A read that came without its fence would lose messages: every read of this call fences."""
    node = Incarnation("n" * 32)
    asked = RecoverRequest(node, [LedgerId(7)], [ShortRead(LedgerId(8), EntryId(2), 5)], 1000)
    assert codec.decode_request(codec.encode_request(asked)) == asked
    frame = ReadFrame(ReadStatus.OK, [EntryId(2)], [EntryId(3)], [EntryId(4)], EntryId(2), NO_ENTRY, [b"two"])
    found = RecoverAnswer(
        [
            pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=-1, last_add_confirmed=-1),
            pb.FenceAnswer(status=pb.STORAGE_STATUS_ERASED, last_entry=4, last_add_confirmed=3, topic_id="t" * 32),
        ],
        [frame],
    )
    received = codec.decode_answer(codec.encode_answer(found))
    assert received.fences == found.fences
    assert tuple(received.reads[0]) == tuple(frame)
    older = RecoverAnswer([pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=1, last_add_confirmed=0)])
    columns = pb.RecoverAnswer(statuses=[pb.STORAGE_STATUS_OK], last_entries=[1], last_add_confirmed=[0])
    assert codec.decode_answer(join_frame(columns.SerializeToString(), [])).fences == older.fences
    many = [LedgerId(number) for number in range(RECOVER_MAX + 1)]
    wrong = {
        "fences": (RecoverRequest(node), RecoverRequest(node, many)),
        "read_entries_max": (asked._replace(reads=[ShortRead(LedgerId(8), EntryId(2), 0)]),),
        "read_bytes_max": (asked._replace(bytes_max=0), asked._replace(bytes_max=codec.RECOVER_BYTES_MAX + 1)),
    }
    for field, requests in wrong.items():
        for request in requests:
            with pytest.raises(InvalidArgument) as refused:
                codec.decode_request(codec.encode_request(request))
            assert refused.value.details["field"] == field
    uneven = pb.RecoverRequest(target=node, read_ledger_ids=[1, 2], read_first_entries=[1]).SerializeToString()
    with pytest.raises(InvalidArgument, match="different lengths"):
        codec.decode_request(uneven)
