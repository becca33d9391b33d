"""Asks storage nodes for the digests of their notes, and whether they are in limbo, for the answer whether one of them
may be replaced."""

import asyncio

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.formats.note import NotesDigests
from oncelog.core.ids import Incarnation
from oncelog.core.repair.node_removal import notes_refusal
from oncelog.metadata.repair.storage_nodes_reader import StorageSeen
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.storage_client.inventory_calls import look_at_inventory
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.note_calls import notes_digests

#: A change that is being noted makes the digests differ for a moment.
TRIES = 3
PAUSE_S = 0.2


class NoteDigests:
    def __init__(self, cluster: ClusterStore, calls: NodeCalls) -> None:
        self._cluster = cluster
        self._calls = calls

    async def refusal(self, node: Incarnation, seen: StorageSeen) -> str | None:
        """Why the node must not be replaced, as far as notes show. seen: a look of now. Raises StoreUnavailable."""
        cluster = await self._cluster.require()
        others = [one for one, cookie in seen.cookies.items() if cookie.may_return and one != node]
        refusal: str | None = None
        for turn in range(TRIES):
            await asyncio.sleep(PAUSE_S if turn else 0)
            answers = await asyncio.gather(*map(self._ask, sorted(seen.live)))
            found = {one: each for one, each in zip(sorted(seen.live), answers, strict=True) if each is not None}
            digests = {one: digest for one, (digest, _) in found.items()}
            limbo = [one for one, (_, in_limbo) in found.items() if in_limbo]
            refusal = notes_refusal(node, digests, others, ack_quorum=cluster.ack_quorum, limbo=limbo)
            if refusal is None:
                return None
        return refusal

    async def _ask(self, node: Incarnation) -> tuple[NotesDigests, bool] | None:
        """(The digests, whether the node is in limbo)."""
        try:
            channel = self._calls.channel(node)
            found, page = await asyncio.gather(notes_digests(channel, node), look_at_inventory(channel, node))
        except InvariantViolated:
            raise
        except OncelogError:
            return None  # silence is a reason against it
        return found, page.limbo_below > 0
