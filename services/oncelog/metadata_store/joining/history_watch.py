"""Looks whether ZooKeeper still has what this process has seen in it, whether it is still in the era in which this
process joined, and whether the cluster's level is one that this program knows: after each reconnection, and now and
then.

Rules of the era (hazard the-lost-ensemble-returns)
- A process lives in one era. If the cluster's record names another one, higher or lower, it ends. It also ends if more
  than half of the storage nodes say that its era is a former one: its own ZooKeeper may be the one that was lost.
- It ends, too, if storage nodes prove that ZooKeeper is older than their data (`node_proofs`): its own session may have
  gone on, and it may have seen nothing newer.
- While the records of an era are being restored, two go on: the metadata service that restores them (`restores`), and
  storage nodes, which are asked for what they hold and would be away for the time of a start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from oncelog.core.era import Era
from oncelog.core.errors import OncelogError, StaleEra, StoreUnavailable, WrongCluster
from oncelog.core.placement.first_cluster import RESTORE
from oncelog.core.placement.level import Level
from oncelog.core.placement.store_history import StoreHistory
from oncelog.core.records.id_claim import Counter
from oncelog.metadata_store.records.cluster_store import (
    ClusterRecord,
    ClusterState,
    ClusterStore,
    refuse_unknown_level,
)
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session.store_session import SessionState, StoreSession

logger = logging.getLogger(__name__)

#: Why ZooKeeper is older than the data, and what to do; None: nothing proves it. Called with a session below the root
#: of the cluster's era, the cluster's record, and whether the connection is a new one. Raises StoreUnavailable.
ProvedOlder = Callable[[StoreSession, ClusterRecord, bool], Awaitable[str | None]]

#: Pause between two looks while the connection lasts: so old the counter of ledger ids may be that a later one is
#: compared with.
LOOK_INTERVAL_S = 10.0


class HistoryWatch:
    """Runs from its construction until the session is closed."""

    def __init__(
        self,
        session: StoreSession,
        joined: ClusterRecord,
        *,
        on_lost: Callable[[OncelogError], None],
        on_level: Callable[[Level], None] | None = None,
        stays_while_restoring: bool = False,
        proved_older: ProvedOlder | None = None,
    ) -> None:
        """session: below the root of the era. joined: the cluster's record when this process joined. on_lost: called
        once, if history was lost, the era is another one, or the level was raised above what this program knows.
        on_level: called with the level each time that it was read. proved_older: see `joining`."""
        self._session = session
        self._proved_older = proved_older
        self._joined = joined
        self._stays = stays_while_restoring
        #: the era whose records this process restores now
        self.restores: Era | None = None
        #: {address of a process that says that this era is a former one: its own era}
        self._stale: dict[str, object] = {}
        self._node_count = 0
        self._on_lost = on_lost
        self._on_level = on_level
        self._cluster = ClusterStore(session)
        self._counter = CounterStore(session, Counter.LEDGER, joined.era)
        self._history = StoreHistory(joined.cluster_id)
        self._changed = asyncio.Event()
        #: the connection has changed since storage nodes were asked
        self._reconnected = False
        session.add_listener(self._heard)
        #: the session holds the listener, and that holds this task
        self._task = asyncio.create_task(self._run(), name="zookeeper-history")

    def _heard(self, _state: SessionState) -> None:
        self._reconnected = True
        self._changed.set()

    def restoring(self, era: Era) -> None:
        """This process is about to claim the era: to restore its records does not end it, to commit them does."""
        self.restores = era

    def look_soon(self) -> None:
        """Something shows that the era may be another one."""
        self._changed.set()

    def heard_stale(self, address: str, error: StaleEra) -> None:
        """A process there says that the era of this one is a former one."""
        if address not in self._stale:
            self._stale[address] = error.details.get("era")
            self._changed.set()

    async def _run(self) -> None:
        while not self._session.closed:
            self._changed.clear()
            fault = await self._look()
            if fault is not None:
                self._on_lost(fault)
                return
            try:
                await asyncio.wait_for(self._changed.wait(), LOOK_INTERVAL_S)
            except TimeoutError:
                continue

    async def _look(self) -> OncelogError | None:
        try:
            record = await self._cluster.read()
            if record is not None:
                refuse_unknown_level(record)
                if self._on_level is not None:
                    self._on_level(record.level)
                if record.cluster_id == self._joined.cluster_id and (other := self._era_fault(record)) is not None:
                    return other
            if (outdated := await self._stale_fault()) is not None:
                return outdated
            next_ledger = 0 if record is None else (await self._counter.read()).value.next
        except StoreUnavailable:
            # The next change of the connection leads to the next look.
            return self._outdated() if self._stale else None
        except WrongCluster as error:
            return error
        except OncelogError as error:
            logger.warning("could not compare ZooKeeper with what was seen in it before: %s", error.message)
            return None
        if record is not None and record.era != self._joined.era:
            return None  # this process restores that era, or waits for it
        fault = self._history.fault(None if record is None else record.cluster_id, next_ledger)
        return await self._older_fault() if fault is None else WrongCluster(f"{fault}; {RESTORE}")

    async def _older_fault(self) -> WrongCluster | None:
        if self._proved_older is None:
            return None
        reconnected, self._reconnected = self._reconnected, False
        try:
            older = await self._proved_older(self._session, self._joined, reconnected)
        except OncelogError as error:
            self._reconnected |= reconnected
            if not isinstance(error, StoreUnavailable):
                logger.warning("could not ask storage nodes whether ZooKeeper is older: %s", error.message)
            return None
        return None if older is None or self.restores is not None else WrongCluster(older)

    def _era_fault(self, record: ClusterRecord) -> StaleEra | None:
        mine, found = self._joined.era, record.era
        if found == mine:
            return None
        if record.state is ClusterState.RESTORING and (self._stays or found == self.restores):
            return None
        if found.number < mine.number:
            what = f"it was restored from a backup, or is the one that the cluster has lost; {RESTORE}"
        elif record.state is ClusterState.RESTORING:
            what = "its records are being restored: the next start waits for that"
        else:
            what = "its records were restored since"
        return StaleEra(f"ZooKeeper is in era {found}, and this process joined in era {mine}: {what}", era=str(found))

    async def _stale_fault(self) -> StaleEra | None:
        """Raises StoreUnavailable."""
        if self._stale or not self._node_count:
            cookies = await Registry(self._session).cookies()
            self._node_count = sum(cookie.may_return for cookie in cookies.values())
        return self._outdated()

    def _outdated(self) -> StaleEra | None:
        """Whether more than half of the storage nodes are of another era, as far as their number is known. Those that
        this process itself has raised are no news."""
        if self.restores is not None or not self._node_count or len(self._stale) * 2 <= self._node_count:
            return None
        eras = ", ".join(sorted({str(era) for era in self._stale.values()}))
        return StaleEra(
            f"{len(self._stale)} of {self._node_count} storage nodes are in era {eras}, and this process joined in era "
            f"{self._joined.era}: ZooKeeper's records were restored since, perhaps in another ZooKeeper than the one "
            "that this process is connected to; check its address",
            era=eras,
        )
