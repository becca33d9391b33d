"""What this owner knows of the storage nodes: who is live and where, who is known and absent, who is gone for good."""

import logging
from dataclasses import replace

from oncelog.core.address import join_address
from oncelog.core.errors import StoreUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.ledgers.storage_links import StorageLinks
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.settings import variable
from oncelog.stores.registry import LiveStorageNode, Registry
from oncelog.stores.store_session import SessionState, StoreSession
from oncelog.topic_owner.cluster_stability import ClusterStability
from oncelog.topic_owner.topic_registry import TopicRegistry

logger = logging.getLogger(__name__)


class StorageView:
    """Passes each newer view on to the links (addresses) and to all topics."""

    def __init__(
        self,
        session: StoreSession,
        registry: Registry,
        links: StorageLinks,
        topics: TopicRegistry,
        *,
        quorums: tuple[int, int],
    ) -> None:
        """quorums: (write quorum, ack quorum) of every new ledger."""
        self._quorums = quorums
        #: what keeps a ledger from being opened, since the start; None once one could be. Later only the log tells.
        self.shortage: str | None = "the storage nodes were not looked at yet"
        self._short = False
        self._session = session
        self._registry = registry
        #: what ZooKeeper says of them; None before it was asked
        self._registered: StorageNodesUpdated | None = None
        self._links = links
        self._topics = topics
        self.stability = ClusterStability()
        session.add_listener(lambda _state: self._tell())
        links.reachability.add_listener(self._tell)

    async def first(self) -> None:
        """Have one view before any topic is taken over."""
        await self._take(await self._registry.storage_nodes.live())

    async def follow(self) -> None:
        """Take every newer one, until cancelled."""
        async for live in self._registry.storage_nodes.watch():
            backoff = Backoff()
            while not await self._taken(live):
                await backoff.pause()

    async def _taken(self, live: dict[str, LiveStorageNode]) -> bool:
        """An outage that begins between two reads is no reason to end with all topics: the older view holds on."""
        try:
            await self._take(live)
        except StoreUnavailable as error:
            logger.warning("the storage nodes cannot be seen yet: %s", error.message)
            return False
        return True

    async def _take(self, live: dict[str, LiveStorageNode]) -> None:
        cookies = await self._registry.cookies()
        superseded = tuple(sorted(incarnation for incarnation, cookie in cookies.items() if cookie.retired))
        full = {node.incarnation for node in live.values() if node.read_only}
        full |= {incarnation for incarnation, cookie in cookies.items() if cookie.read_only and incarnation in live}
        writable = tuple(sorted(node.incarnation for node in live.values() if node.incarnation not in full))
        read_only = tuple(sorted(i for i in full if i not in superseded))
        absent = tuple(sorted(i for i in cookies if i not in live and i not in superseded))
        self._links.update_addresses(
            {Incarnation(name): join_address(node.host, node.port) for name, node in live.items()}, ahead=True
        )
        self._registered = StorageNodesUpdated(writable, absent, superseded, read_only=read_only)
        self._tell()

    def _tell(self) -> None:
        """Pass on what is known now. A registered node that cannot be reached is absent: its session may end later.

        While ZooKeeper is away no topic begins a roll or a snapshot that it could not finish.
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
        self._tell_shortage(_shortage(nodes, *self._quorums))
        self.stability.update(nodes, gone)
        self._topics.update_nodes(nodes)

    def _tell_shortage(self, shortage: str | None) -> None:
        """Say when no ledger can be opened, and when one can again."""
        self.shortage = self.shortage and shortage
        if shortage is not None and not self._short:
            # Services start in any order: until there were nodes enough once, the wait is no error.
            level = logging.ERROR if self.shortage is None else logging.WARNING
            logger.log(level, "no ledger can be opened: %s", shortage)
        elif shortage is None and self._short:
            logger.info("there are storage nodes enough again")
        self._short = shortage is not None


def _shortage(nodes: StorageNodesUpdated, write_quorum: int, ack_quorum: int) -> str | None:
    """Why no ledger can be opened, and what to do; None: one can be."""
    live = sum(1 for node in nodes.live if node not in nodes.superseded)
    known = live + len(nodes.absent) + len(nodes.read_only)
    if known < write_quorum:
        return (
            f"{known} storage nodes are known, and each entry gets {write_quorum} copies: start more storage nodes, or "
            f"lower {variable('write_quorum')}"
        )
    if live < ack_quorum:
        return (
            f"{live} of {known} storage nodes are live and writable, and {ack_quorum} copies are needed: start the "
            "others, clear their read-only mark, or give them room"
        )
    return None
