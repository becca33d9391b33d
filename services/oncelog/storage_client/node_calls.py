"""Calls and reads of this process to storage nodes.

    calls = NodeCalls(credentials)
    calls.update_addresses({incarnation: "host:port"})   # after each change of the registered nodes
    calls.watch                                          # latencies of reads, and damaged copies
    async for frame in calls.read(member, request, timeout_ms=...): ...

Rules
- A call is one attempt with a timeout.
- An address is a hint: every call names the incarnation that it is for, and any other incarnation refuses it.
- Entries are copied as they were stored, byte for byte. A frame holds as many as fit: a node syncs them together.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

from oncelog.core.errors import DeadlineExceeded, InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.entry_reading import ReceivedRead
from oncelog.core.ledger.member_status import AppendStatus, CopyState, FenceState, ReadStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.storage_codec import (
    APPEND,
    DAMAGE,
    DAMAGE_LEDGERS_MAX,
    DESCRIBE,
    FENCE_STATES,
    ISSUE_READ_TICKET,
    READ,
    REVIEW_LEDGER,
    VERIFY,
    AppendFrame,
    ReadRequest,
    read_status,
)
from oncelog.rpc.read_watch import ReadWatch
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.wire import storage_pb2 as pb

#: A node that is stopped delays every look at the cluster by this time.
CALL_TIMEOUT_MS = 2_000
#: A review reads ZooKeeper and the whole copy. A reader that found damage only starts it.
REVIEW_TIMEOUT_MS = 60_000
START_REVIEW_TIMEOUT_MS = 5_000
#: Time for one Verify call, which reads up to 16 MiB from a busy disk, or for one group of copies.
DISK_TIMEOUT_MS = 30_000

_FENCE_STATES = {int(state): state for state in FenceState}
_COPY_STATES = {int(state): state for state in CopyState}

logger = logging.getLogger(__name__)


class NodeCalls:
    """Created and used inside one event loop."""

    def __init__(self, credentials: Credentials = PLAIN) -> None:
        self.watch = ReadWatch(self._start_review)
        self._channels = Channels(credentials)
        self._addresses: dict[Incarnation, str] = {}
        self._reviews: set[asyncio.Task[None]] = set()

    def update_addresses(self, addresses: Mapping[Incarnation, str]) -> None:
        """Take the addresses ("host:port") of the nodes that may be called; channels to other addresses are closed."""
        self._addresses = dict(addresses)
        self._channels.retain(addresses.values())

    def channel(self, member: Incarnation) -> Channel:
        """The channel of calls and reads. Raises ServiceUnavailable for a node whose address is unknown."""
        address = self._addresses.get(member)
        if address is None:
            raise ServiceUnavailable(f"the address of storage node {member} is unknown: it is not registered")
        return self._channels.shared(address)

    def read(
        self, member: Incarnation, request: ReadRequest, *, timeout_ms: int = DISK_TIMEOUT_MS
    ) -> AsyncGenerator[ReceivedRead, None]:
        """The entries of one request, frame by frame. Raises ServiceUnavailable and the errors of `Channel.read`."""
        return self.channel(member).read(READ, request, timeout_ms=timeout_ms)

    async def read_ticket(
        self, member: Incarnation, request: pb.ReadTicketRequest, *, timeout_ms: int
    ) -> tuple[str, bytes]:
        """(address of the member, a ticket of it). Raises OncelogError."""
        channel = self.channel(member)
        answer = await channel.call(ISSUE_READ_TICKET, request, timeout_ms=timeout_ms)
        require_ok(member, answer.status)
        return channel.address, answer.ticket

    async def fence_states(
        self, member: Incarnation, ledger_ids: Sequence[LedgerId], *, timeout_ms: int
    ) -> Sequence[FenceState]:
        """The fence state of each ledger; at most FENCE_STATES_MAX ledgers. Raises OncelogError."""
        request = pb.FenceStatesRequest(target=member, ledger_ids=ledger_ids)
        answer = await self.channel(member).call(FENCE_STATES, request, timeout_ms=timeout_ms)
        require_ok(member, answer.status)
        if len(answer.states) != len(ledger_ids):
            raise ServiceUnavailable(f"storage node {member} returned {len(answer.states)} fence states")
        # An unknown state proves nothing.
        return [_FENCE_STATES.get(state, FenceState.UNKNOWN) for state in answer.states]

    async def damage(self, member: Incarnation) -> list[LedgerId]:
        """The ledgers of which the node lacks entries because of damage. Raises OncelogError."""
        found: list[LedgerId] = []
        request = pb.DamageRequest(target=member, after_ledger=-1, ledgers_max=DAMAGE_LEDGERS_MAX)
        while True:
            answer = await self.channel(member).call(DAMAGE, request, timeout_ms=CALL_TIMEOUT_MS)
            require_ok(member, answer.status)
            found += map(LedgerId, answer.ledger_ids)
            if len(answer.ledger_ids) < DAMAGE_LEDGERS_MAX:
                return found
            request.after_ledger = found[-1]

    async def review(
        self, member: Incarnation, ledger_id: LedgerId, *, timeout_ms: int = REVIEW_TIMEOUT_MS
    ) -> CopyState | None:
        """Let the node read the ledger's record and act on it. Raises OncelogError."""
        request = pb.ReviewLedgerRequest(target=member, ledger_id=ledger_id)
        answer = await self.channel(member).call(REVIEW_LEDGER, request, timeout_ms=timeout_ms)
        require_ok(member, answer.status)
        return _COPY_STATES.get(answer.state)

    async def verify(self, request: pb.VerifyRequest) -> pb.VerifyAnswer:
        """The checksums of some entries, read from the node's disk. Raises OncelogError; ERASED is an answer."""
        member = Incarnation(request.target)
        answer = await self.channel(member).call(VERIFY, request, timeout_ms=DISK_TIMEOUT_MS)
        if answer.status != pb.STORAGE_STATUS_ERASED:
            require_ok(member, answer.status)
        return answer

    async def describe(self, member: Incarnation, ledgers: Sequence[LedgerId] = ()) -> pb.DescribeAnswer:
        """Counts of the node, and when it last verified these ledgers. Raises OncelogError."""
        request = pb.DescribeRequest(ledger_ids=ledgers)
        return await self.channel(member).call(DESCRIBE, request, timeout_ms=CALL_TIMEOUT_MS)

    async def copy(self, member: Incarnation, entries: Sequence[Buffer]) -> dict[EntryId, AppendStatus]:
        """Add copies of entries of one ledger; returns when the node has answered for each, or ended the stream.

        Raises OncelogError.
        """
        frame = AppendFrame(member, False, entries, repair=True)
        statuses = await add_once(self.channel(member), [frame], timeout_ms=DISK_TIMEOUT_MS)
        return {entry_id: status for (_, entry_id), status in statuses.items()}

    def _start_review(self, member: Incarnation, ledger_id: LedgerId) -> None:
        """Ask a node to look at its copy of a ledger. Attempted once: the node scrubs its disk by itself, too."""
        task = asyncio.get_running_loop().create_task(self._log_review(member, ledger_id))
        self._reviews.add(task)
        task.add_done_callback(self._reviews.discard)

    async def _log_review(self, member: Incarnation, ledger_id: LedgerId) -> None:
        try:
            found = await self.review(member, ledger_id, timeout_ms=START_REVIEW_TIMEOUT_MS)
        except InvariantViolated:
            raise
        except OncelogError as error:
            logger.warning("storage node %s was not asked to review ledger %d: %s", member, ledger_id, error.message)
        else:
            state = "no answer" if found is None else found.name
            logger.warning("storage node %s has a damaged copy of ledger %d; its state: %s", member, ledger_id, state)

    async def close(self) -> None:
        """End all calls and reads."""
        for review in self._reviews:
            review.cancel()
        if self._reviews:
            await asyncio.wait(self._reviews)
        await self._channels.close()


async def add_once(
    channel: Channel, frames: Iterable[AppendFrame], *, timeout_ms: int
) -> dict[tuple[LedgerId, EntryId], AppendStatus]:
    """Add entries by a stream of their own. Returns the status of each entry, as far as the node answered before it
    ended the stream. Raises OncelogError.
    """
    stream = channel.stream(APPEND)
    statuses: dict[tuple[LedgerId, EntryId], AppendStatus] = {}
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for frame in frames:
                await stream.write(frame)
            await stream.finish()
            async for answers in stream:
                for ledger_id, entry_ids, status in answers:
                    statuses |= {(ledger_id, entry_id): status for entry_id in entry_ids}
    except TimeoutError as error:
        message = f"{channel.address}: the storage node did not answer all adds within {timeout_ms / 1000:g} s"
        raise DeadlineExceeded(message, address=channel.address) from error
    finally:
        stream.cancel()
    return statuses


def require_ok(member: Incarnation, status: int) -> None:
    """Raises ServiceUnavailable, and InvalidArgument for an unknown status."""
    if status != ReadStatus.OK:
        raise ServiceUnavailable(f"storage node {member} answered {read_status(status).name}")
