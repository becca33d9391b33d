"""A storage node is not ready after its start while copies are missing here that live nodes have (hazard
update-waits-for-copies).

Missing copies are
- the ledgers of the directory that it replaces: the repairer counts in that directory's cookie (`debt`) what live nodes
  can copy and have not copied yet. Open ledgers do not count, because their owners roll them.
- the CLOSED ledgers with entries that are in limbo here. One that nothing can be done about now does not count: the
  record is frozen or has lost entries, its repair is stuck, no other member is registered, or this node takes no
  copies.

Rules
- A node that was ready stays ready. Damage that is found later does not count, because nodes that are not ready may be
  evicted.
- Nothing here counts other nodes' ledgers, so that two nodes never wait for each other.
- No repair can run while no metadata service is registered. After
  REPAIR_WAIT_MS without repair the node counts as ready, so that an update of the cluster goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from oncelog.core.errors import CorruptEntry, OncelogError
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.node.limbo import Limbo
from oncelog.log_storage.upkeep.reviewer import ListLedgers, ReadUnsynced
from oncelog.metadata_store.records.registry import Registry, StorageCookie
from oncelog.metadata_store.records.repair_store import STUCK_MAX, RepairStore

logger = logging.getLogger(__name__)

#: How long the node waits without a repairer.
REPAIR_WAIT_MS = 60_000
LOOK_INTERVAL_MS = 1_000
#: Ledger records that are read concurrently.
RECORDS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class ReadinessSources:
    """Where missing copies are read."""

    registry: Registry
    repairs: RepairStore
    list_ledgers: ListLedgers
    read_unsynced: ReadUnsynced


class Readiness:
    """`watch` returns when the node is ready."""

    def __init__(
        self,
        incarnation: Incarnation,
        sources: ReadinessSources,
        *,
        limbo: Callable[[], Limbo],
        takes_copies: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> None:
        """takes_copies: whether this node has room for them. now_ms: a monotonic clock."""
        self._incarnation = incarnation
        self._sources = sources
        self._limbo = limbo
        self._takes_copies = takes_copies
        self._now_ms = now_ms
        #: what the node waits for; None once it is ready
        self._waits_for: str | None = "has not read yet which copies are missing here"
        #: ledgers in limbo that the last look counted; None before the first look
        self._missing_copies: set[LedgerId] | None = None
        #: since when repair cannot run
        self._unrepaired_since_ms: int | None = None

    def reason(self) -> str | None:
        """Why the node is not ready; for /readyz."""
        return self._waits_for

    async def look_first(self) -> None:
        """Without limbo, look once, so that a node without missing copies is ready as soon as it serves."""
        if not self._limbo().below:
            await self._try()

    async def watch(self) -> None:
        while self._waits_for is not None:
            await self._try()
            if self._waits_for is not None:
                await asyncio.sleep(LOOK_INTERVAL_MS / 1000)

    async def look(self) -> None:
        """Read once what is missing. Raises StoreUnavailable, NotFound, WrongCluster."""
        if self._waits_for is None:
            return
        cookies = await self._sources.registry.cookies()
        reasons = [*_predecessors(self._incarnation, cookies), *await self._in_limbo(cookies)]
        if reasons and await self._repair_can_run():
            self._unrepaired_since_ms = None
        elif reasons:
            now_ms = self._now_ms()
            if self._unrepaired_since_ms is None:
                self._unrepaired_since_ms = now_ms
            if now_ms - self._unrepaired_since_ms >= REPAIR_WAIT_MS:
                logger.warning(
                    "this node is ready although it lacks copies: no repair can run, because no metadata service is "
                    "registered",
                    extra={"fields": {"incarnation": self._incarnation, "lacks": "; ".join(reasons)}},
                )
                reasons = []
        self._waits_for = "; ".join(reasons) or None

    async def _try(self) -> None:
        try:
            await self.look()
        except OncelogError as error:
            logger.info("could not read which copies are missing here; will retry: %s", error.message)

    async def _repair_can_run(self) -> bool:
        return bool(await self._sources.registry.metadata.live())

    async def _in_limbo(self, cookies: Mapping[Incarnation, StorageCookie]) -> list[str]:
        limbo, own = self._limbo(), cookies.get(self._incarnation)
        if not limbo.below or not self._takes_copies() or (own is not None and own.retired):
            return []
        # The first look reads the record of each ledger below the limbo; later ones only what was counted.
        listed = await self._sources.list_ledgers() if self._missing_copies is None else self._missing_copies
        stuck = await self._stuck()
        if len(stuck) >= STUCK_MAX:
            return []  # perhaps more are stuck than the progress names: do not wait for what cannot come
        live = (await self._sources.registry.storage_nodes.live()).keys() - {self._incarnation}
        covered = sorted(ledger_id for ledger_id in listed if limbo.covers(ledger_id) and ledger_id not in stuck)
        self._missing_copies = await self._missing_copies_of(covered, live)
        if not self._missing_copies:
            return []
        ledgers = f"{len(self._missing_copies)} ledgers may lack entries here that other nodes can give"
        return [f"waits for repair: after damage that was found at the start, {ledgers}"]

    async def _missing_copies_of(self, ledgers: Sequence[LedgerId], live: Container[str]) -> set[LedgerId]:
        """Those of the ledgers that live nodes can complete here. Raises StoreUnavailable."""
        left, missing = iter(ledgers), set[LedgerId]()

        async def read() -> None:
            for ledger_id in left:
                record = await self._record(ledger_id)
                if (
                    record is not None
                    and record.state is LedgerState.CLOSED
                    and record.end >= 0
                    and self._incarnation in record.members
                    and not (record.frozen or record.lost)
                    and any(member in live for member in record.members)
                ):
                    missing.add(ledger_id)

        try:
            async with asyncio.TaskGroup() as reads:
                for _ in range(min(RECORDS_AT_ONCE, len(ledgers))):
                    reads.create_task(read())
        except* OncelogError as errors:
            raise errors.exceptions[0] from errors
        return missing

    async def _record(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        try:
            stored = await self._sources.read_unsynced(ledger_id)
        except CorruptEntry:
            return None  # counted and logged; repair cannot read it either
        return None if stored is None else stored.value

    async def _stuck(self) -> set[LedgerId]:
        """The ledgers that repair cannot give now."""
        try:
            progress = await self._sources.repairs.read()
        except CorruptEntry:
            return set()  # the next progress replaces it
        return set() if progress is None else {stuck.ledger_id for stuck in progress.stuck}


def _predecessors(incarnation: Incarnation, cookies: Mapping[Incarnation, StorageCookie]) -> list[str]:
    """What is missing of the directories that this one replaces."""
    debts = [cookie.debt for cookie in cookies.values() if cookie.replaced_by == incarnation]
    if None in debts:
        return ["waits until repair has counted the ledgers of the directory that this one replaces"]
    missing = sum(debt for debt in debts if debt is not None)
    if not missing:
        return []
    return [f"waits for repair: {missing} ledgers of the directory that this one replaces can still be copied"]
