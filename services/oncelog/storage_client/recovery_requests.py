"""The requests of a recovery to one member, repeated until they are answered or cancelled.

Rules
- Each attempt has a timeout, and attempts are separated by jittered pauses. Every request here may be repeated: a fence
  is permanent, and a storage node that holds an entry accepts the same bytes again.
- The timeout follows what the member's recent answers took (`rpc.answer_times`), and doubles after an attempt without
  an answer: a node that is slow, and not gone, gets the requests of a takeover once or twice, not for as long as it is
  slow. A node that is gone closes its connection, or keepalive does, whatever the timeout.
- A member that has erased its copy has answered: MemberErased.
- An answer of another incarnation at the member's address does not count: the member itself may come back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from oncelog.core.errors import DeadlineExceeded, InvariantViolated, OncelogError
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.entry_reading import ReceivedRead
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryAdded, RecoveryReadAnswered
from oncelog.rpc.answer_times import AnswerTimes
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.recovery_codec import (
    RECOVER,
    RECOVER_BYTES_MAX,
    RECOVER_MAX,
    ReceivedRecovery,
    RecoverRequest,
    ShortRead,
)
from oncelog.rpc.codecs.storage_codec import FENCE, READ, AppendFrame, ReadRequest, read_status
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.runtime.backoff import Backoff
from oncelog.storage_client.node_calls import add_once
from oncelog.storage_client.recovery_batches import Batches
from oncelog.wire import storage_pb2 as pb

logger = logging.getLogger(__name__)

#: Bounds of the timeout of one attempt. A busy node answers a fence within its next sync, and a range within a few.
FENCE_MS_MIN = 2_000
RANGE_MS_MIN = 10_000
ATTEMPT_MS_MAX = 60_000
#: A recovery read is cut here, and the rest requested again. That limits what one attempt can lose.
RANGE_BYTES_MAX = 8 * 1024 * 1024
#: Failed attempts for the same member are logged once in this many, not each time.
_LOGGED_EVERY = 16

#: The channel to the member's current address. Raises ServiceUnavailable if the address is unknown.
ChannelOf = Callable[[], Channel]
_Statuses = dict[tuple[LedgerId, EntryId], AppendStatus]
T = TypeVar("T")

#: A member that answers one of these may answer otherwise later.
_TRANSIENT = frozenset({AppendStatus.WRONG_INCARNATION, AppendStatus.TOO_MANY_REQUESTS, AppendStatus.READ_ONLY})


class RecoveryRequests:
    """The requests of all recoveries to one member.

    The first attempt goes out with those of other recoveries. It is repeated alone if the member refuses the whole
    call: one of an older version does not know it, and one entry that cannot be stored must not hold up the others.
    """

    def __init__(
        self,
        channel_of: ChannelOf,
        member: Incarnation,
        *,
        fence_ms_min: int = FENCE_MS_MIN,
        range_ms_min: int = RANGE_MS_MIN,
    ) -> None:
        self._channel_of = channel_of
        self._fence_times = AnswerTimes(min_ms=fence_ms_min, max_ms=ATTEMPT_MS_MAX)
        self._range_times = AnswerTimes(min_ms=range_ms_min, max_ms=ATTEMPT_MS_MAX)
        self._member = member
        self._fences = Batches(self._fence_many, requests_max=RECOVER_MAX)
        self._reads = Batches(self._read_many, requests_max=RECOVER_MAX)
        self._adds = Batches(
            self._add_many, requests_max=RECOVER_MAX, weight_max=RANGE_BYTES_MAX, weigh=lambda add: sum(map(len, add))
        )

    async def fence(self, ledger_id: LedgerId) -> MemberFenced | MemberErased:
        member = self._member

        async def attempt(alone: bool) -> MemberFenced | MemberErased | None:
            if alone:
                request = pb.FenceRequest(target=member, ledger_id=ledger_id)
                answer = await self._timed(
                    self._fence_times, lambda ms: self._channel_of().call(FENCE, request, timeout_ms=ms)
                )
            else:
                answer = await self._fences.ask(ledger_id)
            status = read_status(answer.status)
            if status is ReadStatus.ERASED:
                return MemberErased(ledger_id, member)
            if status is not ReadStatus.OK:
                return None
            last, confirmed = EntryId(answer.last_entry), EntryId(answer.last_add_confirmed)
            topic_id = TopicId(answer.topic_id) if answer.topic_id else None
            return MemberFenced(ledger_id, member, last, confirmed, topic_id)

        return await _until_answered(f"fence of ledger {ledger_id}", member, attempt)

    async def read(self, ledger_id: LedgerId, first: EntryId, count: int) -> RecoveryReadAnswered | MemberErased:
        member = self._member

        async def attempt(alone: bool) -> RecoveryReadAnswered | MemberErased | None:
            frames = None if alone else await self._short_read(ShortRead(ledger_id, first, count))
            if frames is None:
                request = ReadRequest(member, ledger_id, first, count, bytes_max=RANGE_BYTES_MAX, fence=True)
                frames = await self._timed(self._range_times, lambda ms: self._frames(request, ms))
            if any(frame.status is ReadStatus.ERASED for frame in frames):
                return MemberErased(ledger_id, member)
            if any(frame.status is not ReadStatus.OK for frame in frames):
                return None
            found: dict[EntryId, bytes] = {}
            for frame in frames:
                found |= zip(frame.entry_ids, map(bytes, frame.entries), strict=True)
            missing = frozenset(one for frame in frames for one in frame.missing_ids)
            unreadable = frozenset(one for frame in frames for one in frame.unreadable_ids)
            return RecoveryReadAnswered(ledger_id, member, first, found, missing, unreadable)

        return await _until_answered(f"recovery read of ledger {ledger_id} from {first}", member, attempt)

    async def _short_read(self, read: ShortRead) -> list[ReceivedRead] | None:
        """None: what was asked for is more than a call for many ledgers carries."""
        frame = await self._reads.ask(read)
        answered = len(frame.entry_ids) + len(frame.missing_ids) + len(frame.unreadable_ids)
        return [frame] if frame.status is not ReadStatus.OK or answered == read.entries_max else None

    async def add(self, ledger_id: LedgerId, entries: Sequence[tuple[EntryId, bytes]]) -> RecoveryAdded | MemberErased:
        member, entry_ids = self._member, tuple(entry_id for entry_id, _ in entries)
        blobs = [data for _, data in entries]

        async def attempt(alone: bool) -> RecoveryAdded | MemberErased | None:
            found = (await self._add_many([blobs]))[0] if alone else await self._adds.ask(blobs)
            statuses = {entry_id: found.get((ledger_id, entry_id)) for entry_id in entry_ids}
            if AppendStatus.ERASED in statuses.values():
                return MemberErased(ledger_id, member)
            if any(status is None or status in _TRANSIENT for status in statuses.values()):
                return None
            ok = all(status is AppendStatus.OK for status in statuses.values())
            return RecoveryAdded(ledger_id, member, entry_ids, ok)

        return await _until_answered(f"recovery adds to ledger {ledger_id}", member, attempt)

    async def close(self) -> None:
        for batches in (self._fences, self._reads, self._adds):
            await batches.close()

    # --- many at once ------------------------------------------------------------------------------------------------

    async def _fence_many(self, ledger_ids: Sequence[LedgerId]) -> Sequence[pb.FenceAnswer]:
        request = RecoverRequest(self._member, fences=ledger_ids)
        return (await self._recover(self._fence_times, request)).fences

    async def _read_many(self, reads: Sequence[ShortRead]) -> Sequence[ReceivedRead]:
        request = RecoverRequest(self._member, reads=reads, bytes_max=RECOVER_BYTES_MAX // RECOVER_MAX)
        return (await self._recover(self._range_times, request)).reads

    async def _recover(self, times: AnswerTimes, request: RecoverRequest) -> ReceivedRecovery:
        return await self._timed(times, lambda ms: self._channel_of().call(RECOVER, request, timeout_ms=ms))

    async def _add_many(self, adds: Sequence[Sequence[bytes]]) -> Sequence[_Statuses]:
        """The statuses of all, for each."""
        entries = [data for add in adds for data in add]

        async def attempt(timeout_ms: int) -> _Statuses:
            return await add_once(self._channel_of(), _append_frames(self._member, entries), timeout_ms=timeout_ms)

        return [await self._timed(self._range_times, attempt)] * len(adds)

    async def _frames(self, request: ReadRequest, timeout_ms: int) -> list[ReceivedRead]:
        return [frame async for frame in self._channel_of().read(READ, request, timeout_ms=timeout_ms)]

    async def _timed(self, times: AnswerTimes, attempt: Callable[[int], Awaitable[T]]) -> T:
        """One attempt within the time that `times` allows, which learns from it."""
        clock, limit_ms = asyncio.get_running_loop().time, times.limit_ms
        began_s = clock()
        try:
            answer = await attempt(limit_ms)
        except DeadlineExceeded:
            times.late(limit_ms)
            raise
        times.answered((clock() - began_s) * 1000)
        return answer


def _append_frames(member: Incarnation, entries: Sequence[bytes]) -> Iterator[AppendFrame]:
    frame: list[bytes] = []
    size = 0
    for data in entries:
        frame.append(data)
        size += len(data)
        if size >= FRAME_BYTES_TARGET:
            yield AppendFrame(member, True, frame)
            frame, size = [], 0
    if frame:
        yield AppendFrame(member, True, frame)


async def _until_answered(what: str, member: Incarnation, attempt: Callable[[bool], Awaitable[T | None]]) -> T:
    """Repeat an attempt until it returns an answer. None: the member refused temporarily.

    attempt: gets whether it must go alone.
    """
    backoff = Backoff()
    failures = 0
    alone = False
    while True:
        reason = "refused temporarily, or another incarnation is there"
        try:
            answer = await attempt(alone)
            if answer is not None:
                return answer
        except InvariantViolated:
            raise
        except OncelogError as error:
            reason = error.message
            alone = alone or not error.retriable
        if failures % _LOGGED_EVERY == 0:
            logger.warning("%s: no answer from storage node %s; will retry: %s", what, member, reason)
        failures += 1
        await backoff.pause()
