"""Who must hold a note before a change is answered, and the calls that store it there.

    Qa = the lowest ack quorum that any owner ever wrote with; N = storage nodes that ever joined, and may return

Rules
- A note goes to all registered storage nodes at once. It is held when min(Qa, N) have synced it: a restore asks all but
  at most Qa - 1 nodes, so it meets one of them (hazard unnoted-member). While no owner ever started, Qa is N.
- A node that waits in place of another one has no cookie, and one that was replaced is retired. Neither is asked in a
  restore, so neither counts, whatever it holds.
- A process of a former era notes nothing: a note of its records with the era of the restore would be newer than what
  the restore finds, at a node that is not raised yet.
- A deletion is in no record, so a new node copies it from others (hazard holders-fade): from as many as must hold it.
- A node that is joining does not get the note of its own cookie: it stores that note itself, when it becomes a member.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from oncelog.core.address import join_address
from oncelog.core.era import FIRST_ERA
from oncelog.core.errors import InvariantViolated, OncelogError, StoreUnavailable
from oncelog.core.formats.note import Note
from oncelog.core.ids import Incarnation
from oncelog.metadata_store.notes.noting_session import CollectNotes
from oncelog.metadata_store.records.cluster_store import ClusterRecord
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.rpc.channels import Channels
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.tasks import BackgroundTasks
from oncelog.storage_client.note_calls import put_notes, read_notes

logger = logging.getLogger(__name__)

#: How long a change waits for storage nodes: a node that restarts is back within it.
STORE_TIMEOUT_S = 5.0
RETRY_PAUSE_S = 0.1
#: Of one page of the notes of deletions.
READ_TIMEOUT_MS = 10_000


class NoteHolders:
    """Used inside one event loop. me: a storage node that does not count, and is not called."""

    def __init__(
        self, session: StoreSession, peers: Credentials = PLAIN, *, me: Incarnation | None = None,
        timeout_s: float = STORE_TIMEOUT_S, pause_s: float = RETRY_PAUSE_S,
    ) -> None:  # fmt: skip
        self._registry = Registry(session)
        self._channels = Channels(peers)
        self._era = peers.era or FIRST_ERA
        self._me = me
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._tasks = BackgroundTasks()

    async def store(self, collect: CollectNotes) -> None:
        """Return when enough nodes have synced the notes. Raises StoreUnavailable."""
        # All at once, because each is a round trip to ZooKeeper or two.
        (notes, cluster), live, cookies = await asyncio.gather(collect(), self._live(), self._registry.cookies())
        if cluster is None or not notes:
            return
        if cluster.era != self._era:
            raise StoreUnavailable(
                f"the change of {notes[0].path} is written to the records of era {self._era.number}, and ZooKeeper is "
                f"in era {cluster.era.number} since: its records are restored without this change. Repeat the call "
                "once the restore has ended"
            )
        holders: set[Incarnation] = set()
        missing = "no storage node is registered"
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        while True:
            counted = self._counted(cookies)
            needed = holders_needed(cluster, counted)
            failures = await self._send(notes, live, holders, counted, needed, deadline_s)
            if len(holders & counted) >= needed:
                return
            missing = "; ".join(failures) or missing
            if loop.time() + self._pause_s > deadline_s:
                raise StoreUnavailable(
                    f"the change of {notes[0].path} is written, but only {len(holders & counted)} of {needed} storage "
                    f"nodes hold a note of it: it may be lost with ZooKeeper. Repeat the call ({missing}). If storage "
                    "nodes log that ZooKeeper is older, they refuse this one: restore it first, see "
                    "docs/lost-zookeeper.md",
                    needed=needed,
                )
            await asyncio.sleep(self._pause_s)
            live, cookies = await asyncio.gather(self._live(), self._registry.cookies())

    async def deletions(self, cluster: ClusterRecord) -> list[Note]:
        """What the registered nodes have noted as deleted. Raises StoreUnavailable unless as many give it as must hold
        a note."""
        live, cookies = await asyncio.gather(self._live(), self._registry.cookies())
        counted, gave = self._counted(cookies), set[Incarnation]()
        found: list[Note] = []
        failures: list[str] = []
        for node in live.values():
            address = join_address(node.host, node.port)
            channel = self._channels.shared(address)
            try:
                notes = read_notes(channel, node.incarnation, timeout_ms=READ_TIMEOUT_MS)
                found += [note async for note in notes if note.order.deleted]
            except InvariantViolated:
                raise
            except OncelogError as error:
                failures.append(f"{address}: {error.message}")
            else:
                gave.add(node.incarnation)
        needed = holders_needed(cluster, counted)
        if len(gave & counted) < needed:
            why = "; ".join(failures) or "the others are not registered"
            raise StoreUnavailable(
                f"only {len(gave & counted)} of {needed} storage nodes give the notes of deletions: start them ({why})",
                needed=needed,
            )
        return found

    def _counted(self, cookies: Mapping[Incarnation, StorageCookie]) -> set[Incarnation]:
        return {one for one, cookie in cookies.items() if cookie.may_return and one != self._me}

    async def _live(self) -> dict[Incarnation, LiveStorageNode]:
        found = await self._registry.storage_nodes.live()
        live = {node.incarnation: node for node in found.values() if node.incarnation != self._me}
        self._channels.retain([join_address(node.host, node.port) for node in live.values()])
        return live

    async def _send(
        self, notes: Sequence[Note], live: dict[Incarnation, LiveStorageNode], holders: set[Incarnation],
        counted: set[Incarnation], needed: int, deadline_s: float,
    ) -> list[str]:  # fmt: skip
        """Send the notes to all who lack them, and return when enough have them. Returns why some do not."""
        left_ms = max(1, int((deadline_s - asyncio.get_running_loop().time()) * 1000))
        failures: list[str] = []

        async def send(node: LiveStorageNode) -> None:
            address = join_address(node.host, node.port)
            own = paths.storage_cookie(node.incarnation) if node.joining else None
            some = [note for note in notes if note.path != own]
            try:
                await put_notes(self._channels.shared(address), node.incarnation, some, timeout_ms=left_ms)
            except InvariantViolated:
                raise
            except OncelogError as error:
                failures.append(f"{address}: {error.message}")
            else:
                holders.add(node.incarnation)

        lacking = [node for one, node in sorted(live.items()) if one not in holders]
        sending = {self._tasks.start(send(node), what="a note to a storage node") for node in lacking}
        while sending and len(holders & counted) < needed:
            _, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        return failures

    async def close(self) -> None:
        await self._tasks.close()
        await self._channels.close()


def holders_needed(cluster: ClusterRecord, counted: Collection[Incarnation]) -> int:
    """How many of these nodes must hold a note."""
    return min(cluster.ack_quorum or len(counted), len(counted))
