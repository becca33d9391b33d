"""Connections to storage nodes: adds are sent once, in frames. A failing member is lost and delays no other."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.rpc.codecs.storage_codec import APPEND, AppendAnswer, ReceivedAppend
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.server import Server, ServerStream
from tests.cluster.until import until
from tests.contract.storage_client.ledger_world import (
    DEADLINE_S,
    A,
    B,
    addresses_of,
    adds_of,
    ledger,
    linked,
    nodes,
    scripted,
    sending,
    writer_of,
)

pytestmark = pytest.mark.asyncio

AppendStream = ServerStream[ReceivedAppend, Sequence[AppendAnswer]]


class Taken:
    """A member that accepts frames while its gate is open, and answers OK unless it must be silent."""

    def __init__(self, *, silent: bool = False) -> None:
        self.gate = asyncio.Event()
        self.silent = silent
        #: [(entry ids of one frame)]
        self.frames: list[list[int]] = []
        self.streams = 0
        self.hang_up = asyncio.Event()

    def add_to(self, server: Server) -> None:
        server.stream(APPEND, self._append)

    async def _append(self, stream: AppendStream) -> None:
        self.streams += 1
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(stream))
            await self.hang_up.wait()
            reading.cancel()

    async def _read(self, stream: AppendStream) -> None:
        await self.gate.wait()
        async for frame in stream:
            ids = [EntryId(int.from_bytes(entry[16:24], "little")) for entry in frame.entries]
            ledger_id = LedgerId(int.from_bytes(frame.entries[0][8:16], "little"))
            self.frames.append(list(ids))
            if not self.silent:
                await stream.write([AppendAnswer(ledger_id, ids, AppendStatus.OK)])

    @property
    def count(self) -> int:
        return sum(map(len, self.frames))


async def test_every_member_answers_every_add(tmp_path: Path) -> None:
    """The normal case with real nodes: three copies of each entry, each durable before it is answered."""
    async with nodes(tmp_path, 3) as members, linked(addresses_of(members)) as (links, heard):
        metadata = ledger(1, [node.incarnation for node in members])
        for node in members:
            node.records[metadata.ledger_id] = metadata
        writer = writer_of(metadata)
        for _ in range(10):
            links.send(sending(writer, adds_of(writer, 5)))
        await until(lambda: len(heard.answers) == 150, DEADLINE_S)
        for node in members:
            assert sorted(heard.of(node.incarnation)) == list(range(50))
            assert links.unanswered_bytes(node.incarnation) == 0
        assert not heard.lost


async def test_queued_adds_share_frames() -> None:
    """A gRPC message costs the same at any size, so waiting adds are sent together, up to a limit."""
    taken = Taken()
    async with scripted(taken.add_to) as address, linked({A: address}) as (links, heard):
        writer = writer_of(ledger(1, [A]))
        for _ in range(2000):
            links.send(sending(writer, adds_of(writer, 1, size=1000)))
        taken.gate.set()
        await until(lambda: len(heard.answers) == 2000, DEADLINE_S)
        assert [entry_id for frame in taken.frames for entry_id in frame] == list(range(2000))
        assert len(taken.frames) < 40
        assert max(map(len, taken.frames)) <= FRAME_BYTES_TARGET // 1000 + 1
        assert taken.streams == 1


async def test_broken_stream_loses_its_ledgers_and_sends_nothing_twice() -> None:
    """The writer of a ledger continues without the member; the next ledger reaches it on a new stream."""
    taken = Taken(silent=True)
    taken.gate.set()
    async with scripted(taken.add_to) as address, linked({A: address}) as (links, heard):
        writer = writer_of(ledger(1, [A]))
        links.send(sending(writer, adds_of(writer, 3)))
        await until(lambda: taken.count == 3, DEADLINE_S)
        taken.hang_up.set()
        await until(lambda: heard.lost == [(A, 1)], DEADLINE_S)
        links.send(sending(writer, adds_of(writer, 1)))
        assert heard.lost == [(A, 1), (A, 1)]
        taken.hang_up.clear()
        taken.silent = False
        following = writer_of(ledger(2, [A]))
        links.send(sending(following, adds_of(following, 1)))
        await until(lambda: heard.answers == [(A, 2, 0, AppendStatus.OK)], DEADLINE_S)
        assert taken.frames[-1] == [0]
        assert taken.count == 4
        assert taken.streams == 2
        taken.hang_up.set()


async def test_ledger_with_nothing_unanswered_survives_a_break() -> None:
    """All its entries are durable there, so the member is as good as before."""
    taken = Taken()
    taken.gate.set()
    async with scripted(taken.add_to) as address, linked({A: address}) as (links, heard):
        writer = writer_of(ledger(1, [A]))
        links.send(sending(writer, adds_of(writer, 1)))
        await until(lambda: len(heard.answers) == 1, DEADLINE_S)
        taken.hang_up.set()
        taken.hang_up = asyncio.Event()
        await until(lambda: taken.streams == 1 and not links._streams, DEADLINE_S)
        links.send(sending(writer, adds_of(writer, 1)))
        await until(lambda: len(heard.answers) == 2, DEADLINE_S)
        assert not heard.lost
        taken.hang_up.set()


@pytest.mark.parametrize("nowhere", ["refused", "unknown"])
async def test_member_without_a_server_is_lost(nowhere: str) -> None:
    """Refused at its address, or without an address: the writer is notified and does not wait."""
    async with scripted() as address:
        pass
    async with linked({A: address} if nowhere == "refused" else {}) as (links, heard):
        writer = writer_of(ledger(1, [A]))
        links.send(sending(writer, adds_of(writer, 1)))
        await until(lambda: heard.lost == [(A, 1)], DEADLINE_S)


async def test_stalled_member_is_lost_at_its_limit_and_delays_no_other() -> None:
    """The bytes that wait for one member are limited, and the event loop never waits for it."""
    stalled, brisk = Taken(), Taken()
    brisk.gate.set()
    async with (
        scripted(stalled.add_to) as slow,
        scripted(brisk.add_to) as fast,
        linked({A: slow, B: fast}, unanswered_bytes_max=8 * 1024 * 1024) as (links, heard),
    ):
        writer = writer_of(ledger(1, [A, B]))
        sent = 0
        while not heard.lost:
            links.send(sending(writer, adds_of(writer, 1, size=256 * 1024)))
            sent += 1
            await until(_reached(heard.of, sent), DEADLINE_S)
        assert heard.lost == [(A, 1)]
        assert 30 < sent < 34
        assert not heard.of(A)
        assert links.unanswered_bytes(A) == 0


def _reached(of: Callable[..., list[EntryId]], count: int) -> Callable[[], bool]:
    return lambda: len(of(B)) == count


async def test_moved_member_is_found_at_its_new_address() -> None:
    """The same incarnation at another address: unanswered adds are lost, new ledgers use the new address."""
    before, after = Taken(silent=True), Taken()
    before.gate.set()
    after.gate.set()
    async with scripted(before.add_to) as old, scripted(after.add_to) as new, linked({A: old}) as (links, heard):
        writer = writer_of(ledger(1, [A]))
        links.send(sending(writer, adds_of(writer, 1)))
        links.update_addresses({A: new})
        assert heard.lost == [(A, 1)]
        following = writer_of(ledger(2, [A]))
        links.send(sending(following, adds_of(following, 1)))
        await until(lambda: heard.answers == [(A, 2, 0, AppendStatus.OK)], DEADLINE_S)
        assert after.count == 1


async def test_member_is_unreachable_from_a_broken_stream_to_the_next_connection() -> None:
    """A new ledger uses other nodes meanwhile. The change is reported before the ledgers are lost, so that they see
    it."""
    taken, told = Taken(silent=True), list[tuple[int, frozenset[Incarnation]]]()
    taken.gate.set()
    async with linked({}) as (links, heard):
        links.reachability.add_listener(lambda: told.append((len(heard.lost), links.reachability.unreachable)))
        async with scripted(taken.add_to) as address:
            links.update_addresses({A: address})
            writer = writer_of(ledger(1, [A]))
            links.send(sending(writer, adds_of(writer, 1)))
            await until(lambda: taken.count == 1, DEADLINE_S)
            assert not told
        await until(lambda: heard.lost == [(A, 1)], DEADLINE_S)
        assert told == [(0, frozenset({A}))]
        async with scripted(Taken().add_to, port=int(address.rpartition(":")[2])):
            await until(lambda: not links.reachability.unreachable, DEADLINE_S)
        assert told == [(0, frozenset({A})), (1, frozenset())]


@pytest.mark.parametrize("seen", ["gone", "elsewhere"])
async def test_unreachable_member_is_reconnected_only_at_its_registered_address(seen: str) -> None:
    """If its session ends, or it is registered at another address, the old address no longer matters."""
    async with scripted() as address:
        pass
    async with linked({A: address}) as (links, heard):
        writer = writer_of(ledger(1, [A]))
        links.send(sending(writer, adds_of(writer, 1)))
        await until(lambda: heard.lost == [(A, 1)], DEADLINE_S)
        assert links.reachability.unreachable == {A}
        links.update_addresses({} if seen == "gone" else {A: "127.0.0.1:1"})
        assert links.reachability.unreachable == frozenset()
