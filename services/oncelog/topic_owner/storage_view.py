"""This owner's view of the storage nodes: live ones with addresses, absent ones, and retired ones."""

import logging
import time

from oncelog.core.address import join_address
from oncelog.core.errors import StoreUnavailable
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.placement.stability import ClusterStability
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, node_view
from oncelog.metadata_store.session.store_session import SessionState, StoreSession
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.settings import variable
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.shell.topic_registry import TopicRegistry

logger = logging.getLogger(__name__)


class StorageView:
    """Passes each new view on to the connections (addresses) and to all topics."""

    def __init__(
        self,
        session: StoreSession,
        registry: Registry,
        links: StorageClient,
        topics: TopicRegistry,
        *,
        quorums: tuple[int, int],
    ) -> None:
        """quorums: (write quorum, ack quorum) of every new ledger."""
        self._quorums = quorums
        #: why no ledger could be opened since the start; None once one could be. Later shortages are only logged.
        self.shortage: str | None = "the storage nodes were not read from ZooKeeper yet"
        self._short = False
        self._session = session
        self._registry = registry
        #: the nodes as registered in ZooKeeper; None before the first read
        self._registered: StorageNodesUpdated | None = None
        self._links = links
        self._topics = topics
        self.stability = ClusterStability(time.monotonic())
        session.add_listener(lambda _state: self._publish())
        links.reachability.add_listener(self._publish)

    async def first(self) -> None:
        """Read the nodes once, before any takeover."""
        await self._take(await self._registry.storage_nodes.live())

    async def follow(self) -> None:
        """Follow changes until cancelled."""
        async for live in self._registry.storage_nodes.watch():
            backoff = Backoff()
            while not await self._taken(live):
                await backoff.pause()

    async def _taken(self, live: dict[str, LiveStorageNode]) -> bool:
        """False: ZooKeeper became unavailable between two reads. The older view stays in use."""
        try:
            await self._take(live)
        except StoreUnavailable as error:
            logger.warning("could not read the storage nodes from ZooKeeper; will retry: %s", error.message)
            return False
        return True

    async def _take(self, live: dict[str, LiveStorageNode]) -> None:
        cookies = await self._registry.cookies()
        registered = {node.incarnation: node for node in live.values()}
        known = sorted(registered.keys() | cookies.keys())
        nodes = StorageNodes(node_view(one, registered.get(one), cookies.get(one)) for one in known)
        self._links.update_addresses(
            {one: join_address(node.host, node.port) for one, node in registered.items()}, ahead=True
        )
        set_read_only = {one for one, cookie in cookies.items() if cookie.read_only}
        self._registered = StorageNodesUpdated.of(nodes, set_read_only)
        self._publish()

    def _publish(self) -> None:
        """Pass the current view on."""
        registered, silent = self._registered, self._links.reachability.unreachable
        if registered is None:
            return
        nodes = registered.now(silent, store_reachable=self._session.state is SessionState.CONNECTED)
        self._log_shortage(_shortage(nodes, *self._quorums))
        self.stability.update(nodes, now_s=time.monotonic(), unreachable=silent)
        self._topics.update_nodes(nodes)

    def _log_shortage(self, shortage: str | None) -> None:
        """Log when no ledger can be opened, and when one can be opened again."""
        self.shortage = self.shortage and shortage
        if shortage is not None and not self._short:
            # Services start in any order: until there were enough nodes once, a shortage is not an error.
            level = logging.ERROR if self.shortage is None else logging.WARNING
            logger.log(level, "no ledger can be opened: %s", shortage)
        elif shortage is None and self._short:
            logger.info("there are enough storage nodes again")
        self._short = shortage is not None


def _shortage(nodes: StorageNodesUpdated, write_quorum: int, ack_quorum: int) -> str | None:
    """Why no ledger can be opened, and what to do; None: a ledger can be opened."""
    live = sum(1 for node in nodes.live if node not in nodes.retired)
    known = live + len(nodes.absent) + len(nodes.read_only)
    if known < write_quorum:
        return (
            f"{known} storage nodes are known, but each entry needs {write_quorum} copies: start more storage nodes "
            f"or lower {variable('write_quorum')}"
        )
    if live < ack_quorum:
        full, absent = len(nodes.full), len(nodes.absent)
        return (
            f"{live} of {known} storage nodes are live and writable, but {ack_quorum} copies are needed; {absent} are "
            f"absent, {full} have no space, {len(nodes.read_only) - full} were set read-only: start them, free disk "
            "space, or make them writable"
        )
    return None
