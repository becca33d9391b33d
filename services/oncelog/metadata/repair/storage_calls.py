"""Calls of the repairer, and of reports about storage, to storage nodes.

Rules
- A call is one attempt with a timeout. It names the incarnation that it is for; another one refuses it.
- Entries are copied as they were stored, byte for byte. A frame holds as many as fit: a node syncs them together.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from oncelog.core.errors import ServiceUnavailable
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, ReadStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.storage_codec import (
    APPEND,
    DAMAGE,
    DAMAGE_LEDGERS_MAX,
    DESCRIBE,
    READ,
    REVIEW_LEDGER,
    VERIFY,
    AppendFrame,
    DamageRequest,
    ReadRequest,
    ReceivedRead,
    ReviewLedgerRequest,
    VerifyAnswer,
    VerifyRequest,
)
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.wire import storage_pb2 as pb

#: A node that is stopped delays every look at the cluster by this time.
CALL_TIMEOUT_MS = 2_000
#: A review reads ZooKeeper and the whole copy.
REVIEW_TIMEOUT_MS = 60_000
#: Time for one Verify call, which reads VERIFY_BYTES_MAX from a busy disk, or for one group of copies.
DISK_TIMEOUT_MS = 30_000


class StorageCalls:
    """Keeps one channel to each address in use. For one event loop."""

    def __init__(self, credentials: Credentials = PLAIN) -> None:
        self._credentials = credentials
        self._addresses: dict[Incarnation, str] = {}
        self._channels: dict[str, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def update_addresses(self, addresses: Mapping[Incarnation, str]) -> None:
        """Take the addresses ("host:port") of the registered nodes; channels to other addresses are closed."""
        self._addresses = dict(addresses)
        for address in self._channels.keys() - set(addresses.values()):
            task = asyncio.get_running_loop().create_task(self._channels.pop(address).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def damage(self, node: Incarnation) -> list[LedgerId]:
        """The ledgers of which the node lacks entries because of damage. Raises OncelogError."""
        found: list[LedgerId] = []
        after = LedgerId(-1)
        while True:
            request = DamageRequest(node, after, DAMAGE_LEDGERS_MAX)
            answer = await self._channel(node).call(DAMAGE, request, timeout_ms=CALL_TIMEOUT_MS)
            _require_ok(node, answer.status)
            found += answer.ledger_ids
            if len(answer.ledger_ids) < DAMAGE_LEDGERS_MAX:
                return found
            after = answer.ledger_ids[-1]

    async def review(self, node: Incarnation, ledger_id: LedgerId) -> CopyState | None:
        """Let the node read the ledger's record and act on it. Raises OncelogError."""
        request = ReviewLedgerRequest(node, ledger_id)
        answer = await self._channel(node).call(REVIEW_LEDGER, request, timeout_ms=REVIEW_TIMEOUT_MS)
        _require_ok(node, answer.status)
        return answer.state

    async def verify(self, request: VerifyRequest) -> VerifyAnswer:
        """The checksums of some entries, read from the node's disk. Raises OncelogError; ERASED is an answer."""
        answer = await self._channel(request.target).call(VERIFY, request, timeout_ms=DISK_TIMEOUT_MS)
        if answer.status is not ReadStatus.ERASED:
            _require_ok(request.target, answer.status)
        return answer

    async def describe(self, node: Incarnation, ledgers: Sequence[LedgerId] = ()) -> pb.DescribeAnswer:
        """Counts of the node, and when it last verified these ledgers. Raises OncelogError."""
        request = pb.DescribeRequest(ledger_ids=ledgers)
        return await self._channel(node).call(DESCRIBE, request, timeout_ms=CALL_TIMEOUT_MS)

    def read(self, request: ReadRequest) -> AsyncGenerator[ReceivedRead, None]:
        """The entries of one request, frame by frame. Raises OncelogError."""
        return self._channel(request.target).read(READ, request, timeout_ms=DISK_TIMEOUT_MS)

    async def copy(self, node: Incarnation, entries: Sequence[Buffer]) -> dict[EntryId, AppendStatus]:
        """Add copies of entries of one ledger; returns when the node has answered for each, or ended the stream.

        Raises OncelogError.
        """
        stream = self._channel(node).stream(APPEND)
        statuses: dict[EntryId, AppendStatus] = {}
        try:
            async with asyncio.timeout(DISK_TIMEOUT_MS / 1000):
                await stream.write(AppendFrame(node, False, entries, repair=True))
                await stream.finish()
                async for answers in stream:
                    for answer in answers:
                        statuses |= dict.fromkeys(answer.entry_ids, answer.status)
        except TimeoutError as error:
            message = f"storage node {node} did not answer {len(entries)} copies in {DISK_TIMEOUT_MS / 1000:g} s"
            raise ServiceUnavailable(message) from error
        finally:
            stream.cancel()
        return statuses

    async def close(self) -> None:
        self.update_addresses({})
        if self._closing:
            await asyncio.wait(self._closing)

    def _channel(self, node: Incarnation) -> Channel:
        """Raises ServiceUnavailable for a node that is not registered."""
        address = self._addresses.get(node)
        if address is None:
            raise ServiceUnavailable(f"storage node {node} is not registered")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(address, credentials=self._credentials)
        return channel


def _require_ok(node: Incarnation, status: ReadStatus) -> None:
    """Raises ServiceUnavailable."""
    if status is not ReadStatus.OK:
        raise ServiceUnavailable(f"storage node {node} answered {status.name}")
