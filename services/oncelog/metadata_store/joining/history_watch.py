"""Looks whether ZooKeeper still has what this process has seen in it, and whether the cluster's level is one that this
program knows: after each reconnection, and now and then."""

import asyncio
import logging
from collections.abc import Callable

from oncelog.core.errors import OncelogError, StoreUnavailable, WrongCluster
from oncelog.core.placement.level import Level
from oncelog.core.placement.store_history import StoreHistory
from oncelog.core.records.id_claim import Counter
from oncelog.metadata_store.records.cluster_store import RESTORE, ClusterStore, refuse_unknown_level
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.session.store_session import SessionState, StoreSession

logger = logging.getLogger(__name__)

#: Pause between two looks while the connection lasts: so old the counter of ledger ids may be that a later one is
#: compared with.
LOOK_INTERVAL_S = 10.0


class HistoryWatch:
    """Runs from its construction until the session is closed."""

    def __init__(
        self,
        session: StoreSession,
        cluster_id: str,
        *,
        on_lost: Callable[[OncelogError], None],
        on_level: Callable[[Level], None] | None = None,
    ) -> None:
        """on_lost: called once, if history was lost, or the level was raised above what this program knows. on_level:
        called with the level each time that it was read."""
        self._session = session
        self._on_lost = on_lost
        self._on_level = on_level
        self._cluster = ClusterStore(session)
        self._counter = CounterStore(session, Counter.LEDGER)
        self._history = StoreHistory(cluster_id)
        self._changed = asyncio.Event()
        session.add_listener(self._heard)
        #: the session holds the listener, and that holds this task
        self._task = asyncio.create_task(self._run(), name="zookeeper-history")

    def _heard(self, _state: SessionState) -> None:
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

    async def _look(self) -> WrongCluster | None:
        try:
            record, counter = await asyncio.gather(self._cluster.read(), self._counter.read())
            if record is not None:
                refuse_unknown_level(record)
                if self._on_level is not None:
                    self._on_level(record.level)
        except StoreUnavailable:
            return None  # the next change of the connection leads to the next look
        except WrongCluster as error:
            return error
        except OncelogError as error:
            logger.warning("could not compare ZooKeeper with what was seen in it before: %s", error.message)
            return None
        next_ledger = 0 if counter is None else counter.value.next
        fault = self._history.fault(None if record is None else record.cluster_id, next_ledger)
        return None if fault is None else WrongCluster(f"{fault}; {RESTORE}")
