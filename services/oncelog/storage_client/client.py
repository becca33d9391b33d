"""The client of storage nodes: one stream of adds for each node, and recoveries, calls and reads.

    storage = StorageClient(on_answer, on_lost)
    storage.update_addresses({incarnation: "host:port"})   # after each change of the live nodes
    storage.reachability.unreachable                       # live nodes whose stream broke
    storage.send(send_adds)                                # never blocks; on_answer gets answers, on_lost failures
    fenced = await storage.fence(member, ledger_id)

Rules
- Calls, recoveries and reads go also to members that are no longer live, at their last address.
- Adds are sent once. When a member's stream is over, every ledger with unanswered adds on it is lost for that member
  for ever: later adds of such a ledger are not sent there, and `on_lost` is called again.
- A stream is opened by the first add that needs it, so a node that comes back is used by the next ledgers.
- Fences, recovery reads and recovery adds are repeated until they are answered or cancelled, because a node that is
  away may come back. The caller decides how long to wait.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import ServiceUnavailable
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryAdded, RecoveryReadAnswered
from oncelog.rpc.channel import Channel
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.storage_client.append_stream import AppendStream, OnAnswer
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.node_reachability import NodeReachability
from oncelog.storage_client.recovery_requests import RecoveryRequests

UNANSWERED_BYTES_MAX = 64 * 1024 * 1024
#: Lost ledgers remembered per member. A writer that was notified sends no more, so this is only a margin.
LOST_LEDGERS_MAX = 4096

OnLost = Callable[[Incarnation, list[LedgerId]], None]


class StorageClient(NodeCalls):
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
        super().__init__(credentials)
        self._on_lost = on_lost
        self._open = partial(
            AppendStream, on_answer=on_answer, on_over=self._stream_over, unanswered_bytes_max=unanswered_bytes_max
        )
        self.reachability = NodeReachability(self._channels)
        self._live: dict[Incarnation, str] = {}
        #: streams of adds have connections of their own
        self._streams: dict[Incarnation, tuple[Channel, AppendStream]] = {}
        self._recoveries: dict[Incarnation, RecoveryRequests] = {}
        self._lost: dict[Incarnation, dict[LedgerId, None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def update_addresses(self, addresses: Mapping[Incarnation, str], *, ahead: bool = False) -> None:
        """Take the addresses ("host:port") of the live members. A member that is no longer listed keeps its stream.

        ahead: connect to them now, not when they are needed: a takeover has no time for it.
        """
        self._live = dict(addresses)
        self.reachability.update_addresses(addresses)
        super().update_addresses(self._addresses | self._live)
        for member, (channel, stream) in list(self._streams.items()):
            if member in addresses and channel.address != addresses[member]:
                stream.end(ServiceUnavailable(f"the storage node has moved to {addresses[member]}"))
        if ahead:
            for member in addresses:
                self.channel(member).connect_ahead()
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
        channel = self._channels.channel(address)
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

    # --- recoveries --------------------------------------------------------------------------------------------------

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
            found = self._recoveries[member] = RecoveryRequests(partial(self.channel, member), member)
        return found

    # --- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End all streams and calls. on_lost is called for unanswered adds."""
        self._live = {}
        await self.reachability.close()
        for recovery in self._recoveries.values():
            await recovery.close()
        for _, stream in list(self._streams.values()):
            stream.end(ServiceUnavailable("this process closes its connections"))
        if self._closing:
            await asyncio.wait(self._closing)
        await super().close()

    def _retire(self, channel: Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
