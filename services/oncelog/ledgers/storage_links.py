"""The connections of this process to storage nodes: one stream of adds per node, and calls and reads beside it.

    links = StorageLinks(on_answer, on_lost)
    links.update_addresses({incarnation: "host:port"})   # after each change of the live nodes
    links.reachability.unreachable                       # live nodes whose stream broke
    links.watch                                          # latencies of reads, and damaged copies
    links.send(send_adds)                                # never blocks; on_answer gets answers, on_lost failures
    fenced = await links.fence(member, ledger_id)

Rules
- An address is a hint: every call names the incarnation that it is for, and any other incarnation refuses it.
- Adds are sent once. When a member's stream is over, every ledger with unanswered adds on it is lost for that member
  for ever: later adds of such a ledger are not sent there, and `on_lost` is called again.
- A stream is opened by the first add that needs it, so a node that comes back is used by the next ledgers.
- Fences, recovery reads and recovery adds are repeated until they are answered or cancelled, because a node that is
  away may come back. The caller decides how long to wait.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial

from oncelog.core.errors import InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.managed_ledger import SendAdds
from oncelog.core.ledger.member_status import FenceState, ReadStatus
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryAdded, RecoveryReadAnswered
from oncelog.ledgers.append_stream import AppendStream, OnAnswer
from oncelog.ledgers.node_reachability import NodeReachability
from oncelog.ledgers.read_watch import ReadWatch
from oncelog.ledgers.recovery_requests import RecoveryRequests
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.storage_codec import (
    FENCE_STATES,
    ISSUE_READ_TICKET,
    READ,
    REVIEW_LEDGER,
    FenceStatesRequest,
    ReadRequest,
    ReceivedRead,
    ReviewLedgerRequest,
)
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.wire import storage_pb2 as pb

UNANSWERED_BYTES_MAX = 64 * 1024 * 1024
#: Lost ledgers remembered per member. A writer that was notified sends no more, so this is only a margin.
LOST_LEDGERS_MAX = 4096
REVIEW_TIMEOUT_MS = 5_000

logger = logging.getLogger(__name__)

OnLost = Callable[[Incarnation, list[LedgerId]], None]


class StorageLinks:
    """All connections of one process. Created and used inside one event loop."""

    def __init__(
        self,
        on_answer: OnAnswer,
        on_lost: OnLost,
        *,
        unanswered_bytes_max: int = UNANSWERED_BYTES_MAX,
        credentials: Credentials = PLAIN,
    ) -> None:
        """on_answer(member, ledger_id, entry_ids, status) and on_lost(member, ledger_ids) are called on the event loop;
        on_lost possibly inside `send`."""
        self._on_lost = on_lost
        self._open = partial(
            AppendStream, on_answer=on_answer, on_over=self._stream_over, unanswered_bytes_max=unanswered_bytes_max
        )
        self._new_channels = Channels(credentials)
        self.reachability = NodeReachability(self._new_channels)
        self.watch = ReadWatch(self._review)
        self._live: dict[Incarnation, str] = {}
        #: the last address of every member ever listed
        self._addresses: dict[Incarnation, str] = {}
        self._streams: dict[Incarnation, tuple[Channel, AppendStream]] = {}
        #: {address: the channel of calls and reads}; streams of adds have connections of their own
        self._channels: dict[str, Channel] = {}
        self._recoveries: dict[Incarnation, RecoveryRequests] = {}
        self._lost: dict[Incarnation, dict[LedgerId, None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._reviews: set[asyncio.Task[None]] = set()

    def update_addresses(self, addresses: Mapping[Incarnation, str], *, ahead: bool = False) -> None:
        """Take the addresses ("host:port") of the live members. A member that is no longer listed keeps its stream.

        ahead: connect to them now, not when they are needed: a takeover has no time for it.
        """
        self._live = dict(addresses)
        self.reachability.update_addresses(addresses)
        self._addresses |= addresses
        for member, (channel, stream) in list(self._streams.items()):
            if member in addresses and channel.address != addresses[member]:
                stream.end(ServiceUnavailable(f"the storage node has moved to {addresses[member]}"))
        for address in self._channels.keys() - set(self._addresses.values()):
            self._retire(self._channels.pop(address))
        if ahead:
            for member in addresses:
                self._channel(member).connect_ahead()
                self._stream(member)

    # --- adds --------------------------------------------------------------------------------------------------------

    def send(self, send_adds: SendAdds) -> None:
        """Send the entries to each of the members. Never blocks."""
        ledger_id = send_adds.ledger_id
        for member in send_adds.members:
            stream = None if ledger_id in self._lost.get(member, ()) else self._stream(member)
            if stream is None:
                self._lose(member, [ledger_id])
            else:
                stream.put(ledger_id, send_adds.adds)

    def unanswered_bytes(self, member: Incarnation) -> int:
        """Bytes of adds to this member without an answer."""
        found = self._streams.get(member)
        return 0 if found is None else found[1].unanswered_bytes

    def _stream(self, member: Incarnation) -> AppendStream | None:
        """The open stream to a member, or a new one. None: its address is unknown."""
        found = self._streams.get(member)
        if found is not None:
            return found[1]
        address = self._live.get(member)
        if address is None:
            return None
        channel = self._new_channels.channel(address)
        stream = self._open(channel, member)
        self._streams[member] = (channel, stream)
        return stream

    def _stream_over(self, stream: AppendStream, lost: list[LedgerId]) -> None:
        channel, _ = self._streams.pop(stream.member)
        self._retire(channel)
        if self._live.get(stream.member) == channel.address:
            self.reachability.lost(stream.member, channel.address)
        if lost:
            self._lose(stream.member, lost)

    def _lose(self, member: Incarnation, ledger_ids: list[LedgerId]) -> None:
        lost = self._lost.setdefault(member, {})
        lost |= dict.fromkeys(ledger_ids)
        while len(lost) > LOST_LEDGERS_MAX:
            del lost[next(iter(lost))]
        self._on_lost(member, ledger_ids)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def fence(self, member: Incarnation, ledger_id: LedgerId) -> MemberFenced | MemberErased:
        """Fence one member. Returns once its fence is durable, however long that takes."""
        return await self._recovery(member).fence(ledger_id)

    async def recovery_read(
        self, member: Incarnation, ledger_id: LedgerId, first: EntryId, count: int
    ) -> RecoveryReadAnswered | MemberErased:
        """A fencing read of ids first .. first + count - 1. The answer may cover only the first of them."""
        return await self._recovery(member).read(ledger_id, first, count)

    async def recovery_add(
        self, member: Incarnation, ledger_id: LedgerId, entries: tuple[tuple[EntryId, bytes], ...]
    ) -> RecoveryAdded | MemberErased:
        """Add original bytes despite the fence. If one entry is refused permanently, the result is not ok."""
        return await self._recovery(member).add(ledger_id, entries)

    def _recovery(self, member: Incarnation) -> RecoveryRequests:
        found = self._recoveries.get(member)
        if found is None:
            found = self._recoveries[member] = RecoveryRequests(partial(self._channel, member), member)
        return found

    async def fence_states(
        self, member: Incarnation, ledger_ids: Sequence[LedgerId], *, timeout_ms: int
    ) -> Sequence[FenceState]:
        """The fence state of each ledger. One attempt; at most FENCE_STATES_MAX ledgers.

        Raises ServiceUnavailable if another incarnation answers, and the errors of `Channel.call`.
        """
        request = FenceStatesRequest(member, ledger_ids)
        answer = await self._channel(member).call(FENCE_STATES, request, timeout_ms=timeout_ms)
        if answer.status is not ReadStatus.OK or len(answer.states) != len(ledger_ids):
            raise ServiceUnavailable(f"storage node {member} returned {answer.status.name} for a fence state")
        return answer.states

    async def read_ticket(
        self, member: Incarnation, request: pb.ReadTicketRequest, *, timeout_ms: int
    ) -> tuple[str, bytes]:
        """(address of the member, a ticket of it). One attempt. Raises ServiceUnavailable, and as `Channel.call`."""
        channel = self._channel(member)
        answer = await channel.call(ISSUE_READ_TICKET, request, timeout_ms=timeout_ms)
        if answer.status != pb.STORAGE_STATUS_OK:
            raise ServiceUnavailable(f"storage node {member} returned status {answer.status} for a ticket")
        return channel.address, answer.ticket

    def read(self, member: Incarnation, request: ReadRequest, *, timeout_ms: int) -> AsyncGenerator[ReceivedRead, None]:
        """One attempt. Raises ServiceUnavailable and the errors of `Channel.read`."""
        return self._channel(member).read(READ, request, timeout_ms=timeout_ms)

    def _review(self, member: Incarnation, ledger_id: LedgerId) -> None:
        """Ask a node to look at its copy of a ledger. Attempted once: the node scrubs its disk by itself, too."""
        task = asyncio.get_running_loop().create_task(self._ask_review(member, ledger_id))
        self._reviews.add(task)
        task.add_done_callback(self._reviews.discard)

    async def _ask_review(self, member: Incarnation, ledger_id: LedgerId) -> None:
        request = ReviewLedgerRequest(member, ledger_id)
        try:
            answer = await self._channel(member).call(REVIEW_LEDGER, request, timeout_ms=REVIEW_TIMEOUT_MS)
        except InvariantViolated:
            raise
        except OncelogError as error:
            logger.warning("storage node %s was not asked to review ledger %d: %s", member, ledger_id, error.message)
        else:
            state = "no answer" if answer.state is None else answer.state.name
            logger.warning("storage node %s has a damaged copy of ledger %d; its state: %s", member, ledger_id, state)

    def _channel(self, member: Incarnation) -> Channel:
        """For calls and reads, also to a member that is no longer live. Raises ServiceUnavailable."""
        address = self._addresses.get(member)
        if address is None:
            raise ServiceUnavailable(f"the address of storage node {member} is unknown")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._new_channels.channel(address)
        return channel

    # --- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all streams and calls. on_lost is called for unanswered adds."""
        self._live = {}
        await self.reachability.close()
        for recovery in self._recoveries.values():
            await recovery.close()
        for review in self._reviews:
            review.cancel()
        if self._reviews:
            await asyncio.wait(self._reviews)
        for _, stream in list(self._streams.values()):
            stream.end(ServiceUnavailable("this process closes its links"))
        while self._channels:
            self._retire(self._channels.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing)
        await self._new_channels.close()

    def _retire(self, channel: Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
