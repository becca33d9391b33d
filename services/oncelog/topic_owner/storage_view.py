"""This owner's view of the storage nodes: live ones with addresses, absent ones, and superseded ones."""

import logging
from dataclasses import replace

from oncelog.core.address import join_address
from oncelog.core.errors import StoreUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.session.store_session import SessionState, StoreSession
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.settings import variable
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.cluster_stability import ClusterStability
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
        self.stability = ClusterStability()
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
        superseded = tuple(sorted(incarnation for incarnation, cookie in cookies.items() if cookie.retired))
        # A fresh directory is no member before its predecessor was away for a while (hazard unmounted-volume).
        joining = {node.incarnation for node in live.values() if node.joining}
        closed = {node.incarnation for node in live.values() if node.read_only}
        # A node registers as read-only for either reason.
        set_by_hand = {one for one, cookie in cookies.items() if cookie.read_only and one in live}
        refused = closed | set_by_hand | joining
        writable = tuple(sorted(node.incarnation for node in live.values() if node.incarnation not in refused))
        read_only = tuple(sorted(i for i in (closed | set_by_hand) - joining if i not in superseded))
        full = tuple(i for i in read_only if i not in set_by_hand)
        absent = tuple(sorted(i for i in cookies if i not in live and i not in superseded))
        self._links.update_addresses(
            {Incarnation(name): join_address(node.host, node.port) for name, node in live.items()}, ahead=True
        )
        self._registered = StorageNodesUpdated(writable, absent, superseded, read_only=read_only, full=full)
        self._publish()

    def _publish(self) -> None:
        """Pass the current view on. A registered node that cannot be reached counts as absent.

        `store_reachable` keeps topics from beginning a roll or a snapshot that they could not finish.
        """
        registered, gone = self._registered, self._links.reachability.unreachable
        if registered is None:
            return
        nodes = replace(
            registered,
            live=tuple(node for node in registered.live if node not in gone),
            absent=tuple(sorted({*registered.absent, *gone.intersection(registered.live)})),
            store_reachable=self._session.state is SessionState.CONNECTED,
        )
        self._log_shortage(_shortage(nodes, *self._quorums))
        self.stability.update(nodes, gone)
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
    live = sum(1 for node in nodes.live if node not in nodes.superseded)
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
