"""Fencing of a deleted topic's last ledger, so that a stale owner cannot acknowledge further messages.

The topic record is deleted, so no owner can link another ledger. An ordinary add needs an ack quorum of members that
are not fenced. Once Qw - Qa + 1 members are fenced, no add of any owner can be acknowledged (`core.ledger.quorum`).
This covers an owner that lost its session, and an owner that was replaced before its successor fenced the ledger.
"""

import asyncio

from oncelog.core.address import join_address
from oncelog.core.errors import InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.ledger.quorum import fence_suffices
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import FENCE
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.wire.storage_pb2 import STORAGE_STATUS_OK, FenceRequest

FENCE_TIMEOUT_MS = 3_000


class LedgerFences:
    """Fences ledgers that are about to be deleted; does not recover them."""

    def __init__(self, registry: Registry, ledgers: LedgerStore, credentials: Credentials = PLAIN) -> None:
        self._registry = registry
        self._ledgers = ledgers
        self._credentials = credentials

    async def end_adds(self, ledger_id: LedgerId) -> None:
        """Return when no ordinary add to the ledger can be acknowledged any more.

        Raises ServiceUnavailable if too few members answer, StoreUnavailable, CorruptEntry.
        """
        stored = await self._ledgers.read(ledger_id)
        if stored is None or stored.value.state is LedgerState.CLOSED:
            return
        metadata = stored.value
        nodes = await self._registry.storage_nodes.live()
        addresses = {node.incarnation: join_address(node.host, node.port) for node in nodes.values()}
        cookies = await self._registry.cookies()
        # A retired directory never takes an add again.
        ended = sum(member in cookies and cookies[member].retired for member in metadata.members)
        asked = [
            self._fence(member, addresses[member], ledger_id) for member in metadata.members if member in addresses
        ]
        fenced = ended + sum(await asyncio.gather(*asked))
        if not fence_suffices(fenced, write_quorum=metadata.write_quorum, ack_quorum=metadata.ack_quorum):
            raise ServiceUnavailable(
                f"only {fenced} of {metadata.write_quorum} storage nodes of ledger {ledger_id} could be fenced, "
                f"{metadata.write_quorum - metadata.ack_quorum + 1} are required: start the missing storage nodes",
                ledger_id=ledger_id,
            )

    async def _fence(self, member: Incarnation, address: str, ledger_id: LedgerId) -> bool:
        try:
            async with Channel(address, credentials=self._credentials) as channel:
                request = FenceRequest(target=member, ledger_id=ledger_id)
                answer = await channel.call(FENCE, request, timeout_ms=FENCE_TIMEOUT_MS)
        except InvariantViolated:
            raise
        except OncelogError:
            return False
        return answer.status == STORAGE_STATUS_OK
