"""The requests of a recovery to one member, repeated until they are answered or cancelled.

Rules
- Each attempt has a timeout, and attempts are separated by jittered pauses. Every request here may be repeated: a fence
  is permanent, and a storage node that holds an entry accepts the same bytes again.
- A member that has erased its copy has answered: MemberErased.
- An answer of another incarnation at the member's address does not count: the member itself may come back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryAdded, RecoveryReadAnswered
from oncelog.rpc.channel import Channel
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.storage_codec import APPEND, FENCE, READ, AppendFrame, FenceRequest, ReadRequest
from oncelog.runtime.backoff import Backoff

logger = logging.getLogger(__name__)

#: Timeouts of one attempt. A busy node answers a fence within its next sync, and a range within a few syncs.
FENCE_TIMEOUT_MS = 2_000
RANGE_TIMEOUT_MS = 10_000
#: A recovery read is cut here, and the rest requested again. That limits what one attempt can lose.
RANGE_BYTES_MAX = 8 * 1024 * 1024
#: Failed attempts for the same member are logged once in this many, not each time.
_LOGGED_EVERY = 16

#: The channel to the member's current address. Raises ServiceUnavailable if the address is unknown.
ChannelOf = Callable[[], Channel]
T = TypeVar("T")

#: A member that answers one of these may answer otherwise later.
_TRANSIENT = frozenset({AppendStatus.WRONG_INCARNATION, AppendStatus.TOO_MANY_REQUESTS, AppendStatus.READ_ONLY})


async def fence(channel_of: ChannelOf, member: Incarnation, ledger_id: LedgerId) -> MemberFenced | MemberErased:
    async def attempt() -> MemberFenced | MemberErased | None:
        answer = await channel_of().call(FENCE, FenceRequest(member, ledger_id), timeout_ms=FENCE_TIMEOUT_MS)
        if answer.status is ReadStatus.ERASED:
            return MemberErased(ledger_id, member)
        if answer.status is not ReadStatus.OK:
            return None
        return MemberFenced(ledger_id, member, answer.last_entry, answer.last_add_confirmed)

    return await _until_answered(f"fence of ledger {ledger_id}", member, attempt)


async def read(
    channel_of: ChannelOf, member: Incarnation, ledger_id: LedgerId, first: EntryId, count: int
) -> RecoveryReadAnswered | MemberErased:
    request = ReadRequest(member, ledger_id, first, count, bytes_max=RANGE_BYTES_MAX, fence=True)

    async def attempt() -> RecoveryReadAnswered | MemberErased | None:
        found: dict[EntryId, bytes] = {}
        missing: set[EntryId] = set()
        unreadable: set[EntryId] = set()
        refused = erased = False
        async for frame in channel_of().read(READ, request, timeout_ms=RANGE_TIMEOUT_MS):
            erased = erased or frame.status is ReadStatus.ERASED
            refused = refused or frame.status is not ReadStatus.OK
            found |= zip(frame.entry_ids, map(bytes, frame.entries), strict=True)
            missing.update(frame.missing_ids)
            unreadable.update(frame.unreadable_ids)
        if erased:
            return MemberErased(ledger_id, member)
        if refused:
            return None
        return RecoveryReadAnswered(ledger_id, member, first, found, frozenset(missing), frozenset(unreadable))

    return await _until_answered(f"recovery read of ledger {ledger_id} from {first}", member, attempt)


async def add(
    channel_of: ChannelOf, member: Incarnation, ledger_id: LedgerId, entries: Sequence[tuple[EntryId, bytes]]
) -> RecoveryAdded | MemberErased:
    entry_ids = tuple(entry_id for entry_id, _ in entries)

    async def attempt() -> RecoveryAdded | MemberErased | None:
        async with asyncio.timeout(RANGE_TIMEOUT_MS / 1000):
            statuses = await _add_once(channel_of(), member, entries)
        if AppendStatus.ERASED in statuses.values():
            return MemberErased(ledger_id, member)
        if any(statuses.get(entry_id, AppendStatus.TOO_MANY_REQUESTS) in _TRANSIENT for entry_id in entry_ids):
            return None
        ok = all(statuses[entry_id] is AppendStatus.OK for entry_id in entry_ids)
        return RecoveryAdded(ledger_id, member, entry_ids, ok)

    return await _until_answered(f"recovery adds to ledger {ledger_id}", member, attempt)


async def _add_once(
    channel: Channel, member: Incarnation, entries: Sequence[tuple[EntryId, bytes]]
) -> dict[EntryId, AppendStatus]:
    """The status of each entry, as far as the node answered before it ended the stream."""
    stream = channel.stream(APPEND)
    statuses: dict[EntryId, AppendStatus] = {}
    try:
        frame: list[bytes] = []
        size = 0
        for _, data in entries:
            frame.append(data)
            size += len(data)
            if size >= FRAME_BYTES_TARGET:
                await stream.write(AppendFrame(member, True, frame))
                frame, size = [], 0
        if frame:
            await stream.write(AppendFrame(member, True, frame))
        await stream.finish()
        async for answers in stream:
            for answer in answers:
                statuses |= dict.fromkeys(answer.entry_ids, answer.status)
    finally:
        stream.cancel()
    return statuses


async def _until_answered(what: str, member: Incarnation, attempt: Callable[[], Awaitable[T | None]]) -> T:
    """Repeat an attempt until it returns an answer. None: the member refused temporarily."""
    backoff = Backoff()
    failures = 0
    while True:
        reason = "refused temporarily, or another incarnation is there"
        try:
            answer = await attempt()
            if answer is not None:
                return answer
        except InvariantViolated:
            raise
        except OncelogError as error:
            reason = error.message
        except TimeoutError:
            reason = "no answer in time"
        if failures % _LOGGED_EVERY == 0:
            logger.warning("%s: no answer from storage node %s; will retry: %s", what, member, reason)
        failures += 1
        await backoff.pause()
