"""Repair and reports of storage, as one replica has them: the parts, and how they are connected."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.repair.queue_events import RepairSettings
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata.repair.cluster_watch import ClusterWatch
from oncelog.metadata.repair.copy_requests import CopyRequests
from oncelog.metadata.repair.decommission import Decommissions
from oncelog.metadata.repair.ledger_repairer import RepairParts
from oncelog.metadata.repair.note_digests import NoteDigests
from oncelog.metadata.repair.owner_memory import OwnersMemory
from oncelog.metadata.repair.repairer import PlacesTopics, Repairer, RepairerParts
from oncelog.metadata.repair.storage_nodes_reader import StorageNodesReader
from oncelog.metadata.repair.storage_report import StorageReport
from oncelog.metadata.repair.unlisted_records import UnlistedRecords
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.ledger_listing import LedgerListing
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.records.repair_store import RepairStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.shared_reads import SharedReads
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.observing.events import EventRing
from oncelog.storage_client.node_calls import NodeCalls

#: Ledgers that are repaired at once, if they are small (`RepairSettings`): their reads, calls and writes wait together.
JOBS_MAX = 64


@dataclass(frozen=True, slots=True)
class RepairPace:
    """See the settings of the metadata service."""

    bytes_per_s: int = 50 * 1024 * 1024
    absent_delay_ms: int = 600_000
    interval_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Repair:
    """One replica's parts of repair."""

    watch: ClusterWatch
    repairer: Repairer
    report: StorageReport
    decommissions: Decommissions
    store: RepairStore
    calls: NodeCalls
    requests: CopyRequests
    notes: NoteDigests

    @classmethod
    def over(
        cls,
        session: StoreSession,
        placements: PlacesTopics,
        *,
        owners: Callable[[], Sequence[Incarnation]],
        events: EventRing | None = None,
        peers: Credentials = PLAIN,
        pace: RepairPace | None = None,
        unnoted: StoreSession | None = None,
    ) -> "Repair":
        """Build all parts inside the event loop. owners: the live topic owners. unnoted: see `Coordination.over`."""
        pace, events = pace or RepairPace(), events or EventRing("metadata")
        loop = asyncio.get_running_loop()

        def now_ms() -> int:
            return int(loop.time() * 1000)

        topics, cursors, registry, calls = (
            TopicStore(session),
            CursorStore(session),
            Registry(session),
            NodeCalls(peers),
        )
        listing, requests = LedgerListing(session), CopyRequests(calls, bytes_per_s=pace.bytes_per_s)
        chains = ChainListing(topics, cursors)
        watch = ClusterWatch(
            listing,
            chains,
            StorageNodesReader(registry, calls),
            RepairSettings(absent_delay_ms=pace.absent_delay_ms, jobs_max=JOBS_MAX),
            owners=owners,
            now_ms=now_ms,
            restored_below=LedgerId(0 if peers.era is None else peers.era.first_id),
        )
        notes, store = NoteDigests(ClusterStore(session), calls), RepairStore(session)
        decommissions = Decommissions(registry, Registry(unnoted or session), events, notes.refusal)
        memory = OwnersMemory(topics, registry, requests, events, peers)
        repairs = RepairParts(LedgerStore(session), SharedReads(chains.ledgers), requests, memory, events)
        unlisted = UnlistedRecords(LedgerStore(session), chains, DeletionStore(session), owners=owners)
        parts = RepairerParts(watch, repairs, decommissions, unlisted, store, placements)
        repairer = Repairer(parts, interval_ms=pace.interval_ms, now_ms=now_ms)
        return cls(watch, repairer, StorageReport(calls, requests), decommissions, store, calls, requests, notes)

    async def repair_now(self, ledger_id: LedgerId) -> None:
        """Repair a ledger at once, at this replica. Raises NotFound, Conflict, StoreUnavailable."""
        await self.repairer.repair_now(ledger_id)

    async def close(self) -> None:
        await self.repairer.close()
        await self.calls.close()
