"""A storage node in memory, over a real socket: what the repairer calls. It checks that copies are of ledgers that name
it, and that nothing else is added."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.metadata import LedgerState
from oncelog.log_storage.serve.read_frames import head_of
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.rpc.codecs import storage_codec
from oncelog.rpc.codecs.restore_codec import INVENTORY, READ_NOTES
from oncelog.rpc.codecs.storage_codec import AppendAnswer, ReadFrame, ReadRequest, ReceivedAppend
from oncelog.rpc.server import Server, ServerStream
from oncelog.wire import recovery_pb2 as recovery
from oncelog.wire import storage_pb2 as pb

Copies = dict[EntryId, bytes]


@dataclass(eq=False)
class FakeStorageNode:
    """copies: {ledger: {entry: its bytes}}. Listed in the registry while it is `registered`."""

    incarnation: Incarnation
    session: StoreSession
    copies: dict[LedgerId, Copies] = field(default_factory=dict)
    #: ids that the node cannot read
    unreadable: dict[LedgerId, set[EntryId]] = field(default_factory=dict)
    #: ids of which it sends other bytes than it has verified
    sends_wrong: set[EntryId] = field(default_factory=set)
    #: ledgers of which it has erased its copy
    erased: set[LedgerId] = field(default_factory=set)
    #: ledgers in limbo or with damage, until a review finds everything
    damaged: set[LedgerId] = field(default_factory=set)
    #: {ledger: time since its scrubber found it sound}
    verified_ms_ago: dict[LedgerId, int] = field(default_factory=dict)
    #: refuses every call, as a process that cannot answer
    stopped: bool = False
    #: the disk is nearly full
    full: bool = False
    #: what it holds under these ids is another topic's
    others: set[LedgerId] = field(default_factory=set)
    #: how many notes it holds
    notes: int = 0
    #: copies wait until it is set
    open: asyncio.Event = field(default_factory=asyncio.Event)
    received: list[EntryId] = field(default_factory=list)
    record: LiveStorageNode | None = None
    server: Server | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeStorageNode"]:
        server = self.server = Server()
        server.stream(storage_codec.APPEND, self.append)
        server.read(storage_codec.READ, self.read)
        server.unary(storage_codec.VERIFY, self.verify)
        server.unary(storage_codec.REVIEW_LEDGER, self.review)
        server.unary(storage_codec.DAMAGE, self.damage)
        server.unary(storage_codec.DESCRIBE, self.describe)
        server.unary(READ_NOTES, self.read_notes)
        server.unary(INVENTORY, self.inventory)
        port = await server.start()
        self.record = LiveStorageNode(self.incarnation, "127.0.0.1", port, 1 << 30)
        self.open.set()
        try:
            yield self
        finally:
            self.open.set()
            await server.stop(grace_ms=0)

    async def register(self, **changes: bool | int) -> None:
        assert self.record is not None
        live = replace(self.record, **changes)  # type: ignore[arg-type]
        await Registry(self.session).register_storage_node(live).establish()

    async def leave(self) -> None:
        assert self.record is not None
        await Registry(self.session).register_storage_node(self.record).withdraw()

    async def read_notes(self, _: recovery.ReadNotesRequest) -> recovery.ReadNotesAnswer:
        """The digest."""
        return recovery.ReadNotesAnswer(status=pb.STORAGE_STATUS_OK, count=self.notes)

    async def inventory(self, _: recovery.InventoryRequest) -> recovery.InventoryAnswer:
        """It is not in limbo."""
        return recovery.InventoryAnswer(status=pb.STORAGE_STATUS_OK)

    async def append(self, stream: ServerStream[ReceivedAppend, list[AppendAnswer]]) -> None:
        async for frame in stream:
            assert frame.repair
            assert not frame.recovery
            await self.open.wait()
            answers = [(peek_header(entry), await self._add(frame, bytes(entry))) for entry in frame.entries]
            await stream.write([AppendAnswer(head.ledger_id, [head.entry_id], status) for head, status in answers])

    async def _add(self, frame: ReceivedAppend, entry: bytes) -> AppendStatus:
        head = peek_header(entry)
        if self.stopped or frame.target != self.incarnation:
            return AppendStatus.WRONG_INCARNATION
        if self.full:
            return AppendStatus.READ_ONLY
        stored = await LedgerStore(self.session).read(head.ledger_id)
        if stored is None or stored.value.state is not LedgerState.CLOSED:
            return AppendStatus.NOT_WRITABLE
        if self.incarnation not in (*stored.value.members, stored.value.joining):
            return AppendStatus.NOT_WRITABLE
        if head.ledger_id in self.others:
            return AppendStatus.CONFLICTING
        self.copies.setdefault(head.ledger_id, {})[head.entry_id] = entry
        self.unreadable.get(head.ledger_id, set()).discard(head.entry_id)
        self.received.append(head.entry_id)
        return AppendStatus.OK

    def _held(self, ledger_id: LedgerId, first: int, count: int) -> tuple[Copies, list[EntryId], list[EntryId]]:
        """Sound copies, missing ids and unreadable ids."""
        copies, bad = self.copies.get(ledger_id, {}), self.unreadable.get(ledger_id, set())
        ids = [EntryId(number) for number in range(first, first + count)]
        sound = {e: copies[e] for e in ids if e in copies and e not in bad}
        absent = [e for e in ids if e not in sound and e not in bad]
        limbo = ledger_id in self.damaged
        return sound, [] if limbo else absent, [e for e in ids if e in bad] + (absent if limbo else [])

    async def read(self, request: ReadRequest) -> AsyncGenerator[ReadFrame, None]:
        if self.stopped or request.target != self.incarnation:
            yield ReadFrame(ReadStatus.WRONG_INCARNATION)
            return
        sound, missing, unreadable = self._held(request.ledger_id, request.first_entry, request.entries_max)
        size = 0
        for entry_id, data in sound.items():
            sent = data[:-1] + bytes([data[-1] ^ 1]) if entry_id in self.sends_wrong else data
            yield ReadFrame(ReadStatus.OK, [entry_id], entries=[head_of(sent) if request.headers_only else sent])
            size += len(data)
            if request.bytes_max and size >= request.bytes_max:
                return
        yield ReadFrame(ReadStatus.OK, missing_ids=missing, unreadable_ids=unreadable)

    async def verify(self, request: pb.VerifyRequest) -> pb.VerifyAnswer:
        if self.stopped or request.target != self.incarnation:
            return pb.VerifyAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION)
        if request.ledger_id in self.erased:
            return pb.VerifyAnswer(status=pb.STORAGE_STATUS_ERASED)
        count = min(request.entries_max, 7)
        sound, missing, unreadable = self._held(LedgerId(request.ledger_id), request.first_entry, count)
        ids = range(request.first_entry, request.first_entry + count)
        checksums = [checksum_of(sound[EntryId(e)]) if e in sound else 0 for e in ids]
        size = sum(map(len, sound.values()))
        return pb.VerifyAnswer(
            status=pb.STORAGE_STATUS_OK,
            checksums=checksums,
            missing_ids=missing,
            unreadable_ids=unreadable,
            next_entry=ids.stop,
            bytes=size,
        )

    async def review(self, request: pb.ReviewLedgerRequest) -> pb.ReviewLedgerAnswer:
        if self.stopped:
            return pb.ReviewLedgerAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION, state=pb.COPY_STATE_ABSENT)
        ledger_id = LedgerId(request.ledger_id)
        stored = await LedgerStore(self.session).read(ledger_id)
        assert stored is not None
        _, missing, unreadable = self._held(ledger_id, 0, stored.value.end + 1)
        if not missing and not unreadable:
            self.damaged.discard(ledger_id)
        state = pb.COPY_STATE_DAMAGED if ledger_id in self.damaged or unreadable else pb.COPY_STATE_HELD
        return pb.ReviewLedgerAnswer(status=pb.STORAGE_STATUS_OK, state=state)

    async def damage(self, request: pb.DamageRequest) -> pb.DamageAnswer:
        if self.stopped or request.target != self.incarnation:
            return pb.DamageAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION)
        found = sorted(ledger for ledger in self.damaged if ledger > request.after_ledger)
        return pb.DamageAnswer(status=pb.STORAGE_STATUS_OK, ledger_ids=found, damaged_count=len(found))

    async def describe(self, request: pb.DescribeRequest) -> pb.DescribeAnswer:
        size = sum(len(data) for copies in self.copies.values() for data in copies.values())
        verified = [self.verified_ms_ago.get(LedgerId(ledger_id), -1) for ledger_id in request.ledger_ids]
        return pb.DescribeAnswer(
            incarnation=self.incarnation, stored_bytes=size, scrubbed_ms_ago=5_000, verified_ms_ago=verified
        )


def checksum_of(data: bytes) -> int:
    """The checksum in the entry's header."""
    return int.from_bytes(data[4:8], "little")
