"""The gRPC service of the node: streams of adds with coalesced answers, fences, reads.

A stream is not read while too many bytes wait for the disk, or too many of its answers wait for the client. So the
memory that a client can occupy is bounded. Answers that are ready are sent together, one message at a time.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from oncelog.core.access import Caller
from oncelog.core.era import Era
from oncelog.core.errors import InvalidArgument, StaleEra, StoreUnavailable, TooManyRequests
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, ReadStatus
from oncelog.core.node.answers import READ_ENTRIES_MAX
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.log_storage.serve.read_frames import EntryFrames
from oncelog.log_storage.serve.read_tickets import ReadTickets
from oncelog.rpc.codecs import storage_codec
from oncelog.rpc.codecs.recovery_codec import RECOVER, RecoverAnswer, RecoverRequest, ShortRead
from oncelog.rpc.codecs.storage_codec import (
    AppendAnswer,
    ReadFrame,
    ReadRequest,
    ReceivedAppend,
    wire_status,
)
from oncelog.rpc.server import Server, ServerStream
from oncelog.wire import storage_pb2 as pb

#: Entries of one stream that wait for an answer, or whose answers wait to be sent.
UNANSWERED_ENTRIES_MAX = 65_536
READS_MAX = 256
#: Of these, reads with a ticket, so that readers leave room for topic owners and for recovery.
TICKET_READS_MAX = 128
VERIFICATIONS_MAX = 4
#: Threads that read the disk; most reads are served from the page cache.
READ_THREADS = 2

Describe = Callable[[pb.DescribeRequest], Awaitable[pb.DescribeAnswer]]
_AppendStream = ServerStream[ReceivedAppend, Sequence[AppendAnswer]]


class StorageService:
    """All calls of one node."""

    def __init__(
        self,
        runner: NodeRunner,
        describe: Describe,
        *,
        queue_bytes_max: int,
        damage_known: Callable[[], bool] = lambda: True,
    ) -> None:
        """damage_known: whether the node knows which ledgers it may lack."""
        self._runner = runner
        self._describe = describe
        self._queue_bytes_max = queue_bytes_max
        self._damage_known = damage_known
        self._tickets = ReadTickets(_now_ms)
        self._reads = 0
        self._ticket_reads = 0
        self._verifications = 0
        self._executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read")
        #: of the era in which the streams of adds began that are open now
        self._era_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        runner.on_era.append(self._era_raised)

    def add_to(self, server: Server) -> None:
        server.stream(storage_codec.APPEND, self.append)
        server.unary(storage_codec.FENCE, self.fence)
        server.unary(RECOVER, self.recover)
        server.unary(storage_codec.FENCE_STATES, self.fence_states)
        server.client_read(storage_codec.READ, self.client_read)
        server.unary(storage_codec.ISSUE_READ_TICKET, self.issue_read_ticket)
        server.unary(storage_codec.VERIFY, self.verify)
        server.unary(storage_codec.REVIEW_LEDGER, self.review_ledger)
        server.unary(storage_codec.DAMAGE, self.damage)
        server.unary(storage_codec.DESCRIBE, self._describe, any_era=True)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def append(self, stream: _AppendStream) -> None:
        """Serve one stream of adds. After the client's last frame, until everything is answered."""
        answers = _Answers()
        call = self._runner.open_appender(answers, stream.caller.era)
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(answers.write_to(stream))
                ending = tasks.create_task(_until(self._era_ended))
                async for frame in stream:
                    answers.expect(len(frame.entries))
                    self._runner.append(call, frame)
                    await self._runner.until_room(self._queue_bytes_max)
                    await answers.until_at_most(UNANSWERED_ENTRIES_MAX)
                await answers.until_at_most(0)
                writing.cancel()
                ending.cancel()
        finally:
            self._runner.close_appender(call)

    def _era_raised(self, era: Era) -> None:
        """Ends the streams of the former era. What they have added stands; its answers may be lost with the stream."""
        self._tickets.drop_all()
        ended, self._era_ended = self._era_ended, asyncio.get_running_loop().create_future()
        message = f"this storage node has taken era {era}: the records in ZooKeeper were restored"
        ended.set_exception(StaleEra(message, era=str(era)))
        ended.exception()  # there may be no stream that takes it

    async def fence(self, request: pb.FenceRequest) -> pb.FenceAnswer:
        answer = await self._runner.fence(Incarnation(request.target), LedgerId(request.ledger_id))
        return pb.FenceAnswer(
            status=wire_status(answer.status),
            last_entry=answer.last_entry,
            last_add_confirmed=answer.last_add_confirmed,
            topic_id=answer.topic_id or "",
        )

    async def recover(self, request: RecoverRequest) -> RecoverAnswer:
        """All at once, so that one sync of the journal makes all fences durable."""
        target = request.target
        fences = asyncio.gather(
            *(self.fence(pb.FenceRequest(target=target, ledger_id=ledger_id)) for ledger_id in request.fences)
        )
        reads = asyncio.gather(*(self._short_read(target, read, request.bytes_max) for read in request.reads))
        answered, frames = await asyncio.gather(fences, reads)
        return RecoverAnswer(answered, frames)

    async def _short_read(self, target: Incarnation, read: ShortRead, bytes_max: int) -> ReadFrame:
        """The whole answer as one frame; without any id if already the first entry is larger than `bytes_max`."""
        request = ReadRequest(target, read.ledger_id, read.first, read.entries_max, bytes_max=bytes_max, fence=True)
        whole = ReadFrame(ReadStatus.OK)
        async for frame in self.read(request):
            if frame.status is not ReadStatus.OK:
                return frame
            whole = ReadFrame(
                ReadStatus.OK,
                [*whole.entry_ids, *frame.entry_ids],
                [*whole.missing_ids, *frame.missing_ids],
                [*whole.unreadable_ids, *frame.unreadable_ids],
                frame.last_entry,
                frame.last_add_confirmed,
                [*whole.entries, *frame.entries],
            )
        too_large = sum(map(len, whole.entries)) > bytes_max
        return ReadFrame(ReadStatus.OK) if too_large else whole

    async def fence_states(self, request: pb.FenceStatesRequest) -> pb.FenceStatesAnswer:
        if request.target != self._runner.incarnation:
            return pb.FenceStatesAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION)
        ledgers = self._runner.core.ledgers
        states = [ledgers.fence_state(LedgerId(ledger_id)) for ledger_id in request.ledger_ids]
        return pb.FenceStatesAnswer(
            status=pb.STORAGE_STATUS_OK, states=[pb.FenceState.ValueType(state) for state in states]
        )

    async def verify(self, request: pb.VerifyRequest) -> pb.VerifyAnswer:
        """Changes nothing, except that damage is noted."""
        runner, ledger_id, first = self._runner, LedgerId(request.ledger_id), EntryId(request.first_entry)
        if request.target != runner.incarnation:
            return pb.VerifyAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION)
        if runner.core.copy_state(ledger_id) is CopyState.ERASED:
            return pb.VerifyAnswer(status=pb.STORAGE_STATUS_ERASED)
        in_limbo = runner.core.ledgers.limbo.covers(ledger_id)
        if request.topic_id and not runner.core.ledgers.peek(ledger_id).is_of(TopicId(request.topic_id)):
            # The ledger id was given twice (hazard ledger-id-given-twice). An entry of this topic was never accepted
            # beside those.
            ids = range(first, first + request.entries_max)
            return pb.VerifyAnswer(
                status=pb.STORAGE_STATUS_OK,
                checksums=[0] * request.entries_max,
                missing_ids=() if in_limbo else ids,
                unreadable_ids=ids if in_limbo else (),
                next_entry=ids.stop,
            )
        if self._verifications >= VERIFICATIONS_MAX:
            return pb.VerifyAnswer(status=pb.STORAGE_STATUS_TOO_MANY_REQUESTS)
        self._verifications += 1
        try:
            found = await runner.verify(ledger_id, first, request.entries_max, request.bytes_max)
        finally:
            self._verifications -= 1
        return pb.VerifyAnswer(
            status=pb.STORAGE_STATUS_OK,
            checksums=found.checksums,
            missing_ids=() if in_limbo else found.missing,
            unreadable_ids=sorted([*found.missing, *found.unreadable]) if in_limbo else found.unreadable,
            next_entry=found.next_entry,
            bytes=found.bytes,
        )

    async def review_ledger(self, request: pb.ReviewLedgerRequest) -> pb.ReviewLedgerAnswer:
        try:
            answer = await self._runner.review(Incarnation(request.target), LedgerId(request.ledger_id))
        except TooManyRequests:
            return pb.ReviewLedgerAnswer(status=pb.STORAGE_STATUS_TOO_MANY_REQUESTS)
        state = pb.CopyState.ValueType(answer.state if answer.status is ReadStatus.OK else 0)
        return pb.ReviewLedgerAnswer(status=wire_status(answer.status), state=state)

    async def damage(self, request: pb.DamageRequest) -> pb.DamageAnswer:
        """Raises StoreUnavailable while the node does not know which ledgers it may lack."""
        if request.target != self._runner.incarnation:
            return pb.DamageAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION)
        if not self._damage_known():
            raise StoreUnavailable(
                "after damage, this storage node has not read yet which ledgers it should hold: retry"
            )
        ledgers = self._runner.core.ledgers
        limbo, damaged = ledgers.in_limbo, ledgers.damaged
        both = [ledger_id for ledger_id in sorted({*limbo, *damaged}) if ledger_id > request.after_ledger]
        return pb.DamageAnswer(
            status=pb.STORAGE_STATUS_OK,
            ledger_ids=both[: request.ledgers_max],
            limbo_count=len(limbo),
            damaged_count=len(damaged),
        )

    async def issue_read_ticket(self, request: pb.ReadTicketRequest) -> pb.ReadTicketAnswer:
        if request.target != self._runner.incarnation:
            return pb.ReadTicketAnswer(status=pb.STORAGE_STATUS_WRONG_INCARNATION)
        ticket = self._tickets.issue(
            LedgerId(request.ledger_id), EntryId(request.last_entry), request.role, lifetime_ms=request.lifetime_ms
        )
        return pb.ReadTicketAnswer(status=pb.STORAGE_STATUS_OK, ticket=ticket)

    async def client_read(self, request: ReadRequest, caller: Caller) -> AsyncGenerator[ReadFrame, None]:
        """A read with a ticket, or of a superuser. Raises PermissionDenied."""
        if caller.superuser and not request.ticket:
            if request.fence:
                self._runner.refuse_era(caller.era)
            async for frame in self.read(request):
                yield frame
            return
        self._tickets.check(request, caller.role)
        if self._ticket_reads >= TICKET_READS_MAX:
            yield ReadFrame(ReadStatus.TOO_MANY_REQUESTS)
            return
        self._ticket_reads += 1
        try:
            async for frame in self.read(request):
                self._runner.counts.ticket_bytes_read += sum(len(entry) for entry in frame.entries)
                yield frame
        finally:
            self._ticket_reads -= 1

    async def read(self, request: ReadRequest) -> AsyncGenerator[ReadFrame, None]:
        """Look up some of the ids at a time, and send them before the next are looked up."""
        if request.entries_max < 1:
            raise InvalidArgument("entries_max must be at least 1", field="entries_max")
        if self._reads >= READS_MAX:
            yield ReadFrame(ReadStatus.TOO_MANY_REQUESTS)
            return
        self._reads += 1
        self._runner.counts.reads += 1
        try:
            async for frame in self._frames(request):
                yield frame
        finally:
            self._reads -= 1

    async def _frames(self, request: ReadRequest) -> AsyncGenerator[ReadFrame, None]:
        runner, counts = self._runner, self._runner.counts
        entry_frames = EntryFrames(runner.journal, self._executor, headers_only=request.headers_only)
        room = request.bytes_max or None
        following: int = request.first_entry
        beyond = following + request.entries_max
        while following < beyond and (room is None or room > 0):
            count = min(beyond - following, READ_ENTRIES_MAX)
            try:
                answer = await runner.look_up(
                    request.target, request.ledger_id, EntryId(following), count, fence=request.fence
                )
            except TooManyRequests:
                yield ReadFrame(ReadStatus.TOO_MANY_REQUESTS)
                return
            if answer.status is not ReadStatus.OK:
                yield ReadFrame(answer.status)
                return
            async for frame in entry_frames.frames(answer, room):
                size = sum(len(entry) for entry in frame.entries)
                counts.bytes_read += size
                if room is not None:
                    room -= size
                yield frame
            following += count


async def _until(ended: "asyncio.Future[None]") -> None:
    await asyncio.shield(ended)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class _Answers:
    """The answers of one stream: all that are ready are sent in one message."""

    def __init__(self) -> None:
        #: entries received whose answers are not yet sent
        self._unanswered = 0
        self._ready: dict[tuple[LedgerId, AppendStatus], list[EntryId]] = {}
        self._some_ready = asyncio.Event()
        self._written = asyncio.Event()

    def expect(self, entry_count: int) -> None:
        self._unanswered += entry_count

    def answered(self, ledger_id: LedgerId, entry_ids: list[EntryId], status: AppendStatus) -> None:
        ready = self._ready.get((ledger_id, status))
        if ready is None:
            self._ready[ledger_id, status] = list(entry_ids)
        else:
            ready += entry_ids
        self._some_ready.set()

    async def until_at_most(self, entry_count: int) -> None:
        """Wait until at most this many entries have no sent answer."""
        while self._unanswered > entry_count:
            self._written.clear()
            await self._written.wait()

    async def write_to(self, stream: _AppendStream) -> None:
        while True:
            await self._some_ready.wait()
            self._some_ready.clear()
            ready, self._ready = self._ready, {}
            await stream.write([AppendAnswer(ledger_id, ids, status) for (ledger_id, status), ids in ready.items()])
            self._unanswered -= sum(map(len, ready.values()))
            self._written.set()
