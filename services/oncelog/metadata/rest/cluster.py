"""Routes for the cluster, its topic owners and its storage nodes."""

import re
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path

from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument, NotFound, ServiceUnavailable
from oncelog.core.ids import Incarnation
from oncelog.metadata.owners.owners import advertised_address_of
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import anybody
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import BrokersHealth, EveryNode, OwnerView, StorageNodeView
from oncelog.metadata_store.records.registry import LiveOwner, LiveStorageNode, StorageCookie, node_view
from oncelog.metadata_store.records.repair_store import RepairProgress

_INCARNATION = re.compile(r"[0-9a-f]{32}")
IncarnationPath = Annotated[str, Path(description="The storage node's incarnation, from the list")]


def routes(coordination: Coordination) -> APIRouter:
    """List and show topic owners and storage nodes, and check whether topics can be placed."""
    router = new_router(prefix="/admin/v2", tags=["cluster"])

    @router.get("/clusters", summary="List the clusters", operation_id="list_clusters", dependencies=[anybody])
    async def list_clusters() -> list[str]:
        """The id of this cluster, as the only element."""
        return [coordination.cluster_id]

    @router.get("/brokers", summary="List the topic owners", operation_id="list_brokers")
    async def list_brokers() -> list[OwnerView]:
        """The topic owners that have a ZooKeeper session."""
        await coordination.owners.refresh()
        return [_owner(coordination, owner) for owner in coordination.owners.live]

    @router.get(
        "/brokers/health",
        summary="Check whether topics can be placed",
        operation_id="get_brokers_health",
        dependencies=[anybody],
    )
    async def get_brokers_health() -> BrokersHealth:
        """`service_unavailable` if no topic owner can take a topic now, or too few storage nodes take new messages.

        `status` tells whether stored messages are safe. The check publishes and reads nothing.
        """
        await coordination.owners.refresh()
        usable = coordination.owners.usable
        if not usable:
            raise ServiceUnavailable("no topic owner can take a topic: start a topic owner")
        nodes = await _storage_nodes(coordination)
        writable, needed = sum(node.live and not node.read_only for node in nodes), max(o.ack_quorum for o in usable)
        if writable < needed:
            raise ServiceUnavailable(
                f"{writable} storage nodes accept new messages; {needed} are needed: start more or free disk space"
            )
        progress = await coordination.repair.store.read()
        return BrokersHealth(
            status=_status(progress),
            usable_owners=len(usable),
            writable_storage_nodes=writable,
            under_replicated_ledgers=progress.under_replicated if progress else None,
            unavailable_ledgers=progress.unavailable if progress else None,
            lost_ledgers=progress.lost if progress else None,
            frozen_ledgers=progress.frozen if progress else None,
        )

    @router.get("/storage-nodes", summary="List the storage nodes", operation_id="list_storage_nodes")
    async def list_storage_nodes(every: EveryNode = False) -> list[StorageNodeView]:
        """The storage nodes that are live, or away and may return. Retired ones only with `all`."""
        return [node for node in await _storage_nodes(coordination) if every or node.live or not node.retired]

    @router.get("/storage-nodes/{incarnation}", summary="Show a storage node", operation_id="get_storage_node")
    async def get_storage_node(incarnation: IncarnationPath) -> StorageNodeView:
        """`not_found` if no storage node with this incarnation has joined the cluster."""
        _check(incarnation)
        found = [node for node in await _storage_nodes(coordination) if node.incarnation == incarnation]
        if not found:
            raise NotFound(
                f"storage node {incarnation} does not exist: list the storage nodes", incarnation=incarnation
            )
        return found[0]

    _add_read_only(router, coordination)
    return router


def _status(progress: RepairProgress | None) -> str:
    """In one word, the worst that the elected replica has found."""
    if progress is None:
        return "ok"
    found = {
        "lost": progress.lost,
        "unavailable": progress.unavailable,
        "frozen": progress.frozen,
        "under-replicated": progress.under_replicated,
    }
    return next((status for status, count in found.items() if count), "ok")


def _add_read_only(router: APIRouter, coordination: Coordination) -> None:
    path = "/storage-nodes/{incarnation}/read-only"

    @router.put(
        path, status_code=204, summary="Make a storage node read-only", operation_id="set_storage_node_read_only"
    )
    async def set_read_only(incarnation: IncarnationPath) -> None:
        """New ledgers store nothing on the node. If fewer other nodes are live and writable than a ledger has copies,
        new ledgers still list it as a member, and repair makes that copy after the ledger has ended. Open ledgers
        replace it where another node is available. Its entries are still read.

        The node stays read-only until this is cleared, also after a restart. The node need not be live.
        """
        await _mark(coordination, incarnation, read_only=True)
        coordination.repair.watch.changed()

    @router.delete(
        path, status_code=204, summary="Make a storage node writable again", operation_id="clear_storage_node_read_only"
    )
    async def clear_read_only(incarnation: IncarnationPath) -> None:
        """New ledgers use the node again, unless its disk is full."""
        await _mark(coordination, incarnation, read_only=False)
        coordination.repair.watch.changed()


async def _mark(coordination: Coordination, incarnation: str, *, read_only: bool) -> None:
    """Write the mark into the node's cookie, which outlives the process. Raises InvalidArgument, NotFound."""
    _check(incarnation)
    while True:
        stored = await coordination.registry.read_cookie(Incarnation(incarnation))
        if stored is None:
            raise NotFound(
                f"storage node {incarnation} does not exist: list the storage nodes", incarnation=incarnation
            )
        if stored.value.read_only == read_only:
            return
        marked = replace(stored.value, read_only=read_only)
        # The next iteration reads the result, whatever this write returned.
        await coordination.registry.write_cookie(marked, version=stored.version)


async def _storage_nodes(coordination: Coordination) -> list[StorageNodeView]:
    live = {node.incarnation: node for node in (await coordination.registry.storage_nodes.live()).values()}
    cookies = await coordination.registry.cookies()
    return [_node(one, live.get(one), cookies.get(one)) for one in sorted(live.keys() | cookies.keys())]


def _check(incarnation: str) -> None:
    """Raises InvalidArgument."""
    if _INCARNATION.fullmatch(incarnation) is None:
        raise InvalidArgument(
            "an incarnation must have 32 hexadecimal digits: list the storage nodes", field="incarnation"
        )


def _owner(coordination: Coordination, owner: LiveOwner) -> OwnerView:
    state = "live"
    if coordination.owners.is_lost(owner.incarnation):
        state = "suspected"
    elif coordination.owners.drains(owner):
        state = "draining"
    return OwnerView(
        incarnation=owner.incarnation,
        address=advertised_address_of(owner),
        since_ms=owner.since_ms,
        state=state,
        connected=coordination.owners.link(owner.incarnation) is not None,
    )


def _node(incarnation: Incarnation, live: LiveStorageNode | None, cookie: StorageCookie | None) -> StorageNodeView:
    known = live or cookie
    assert known is not None, "a listed node is live or has a cookie"
    view = node_view(incarnation, live, cookie)
    return StorageNodeView(
        incarnation=incarnation,
        address=join_address(known.host, known.port),
        live=view.registered,
        retired=view.retired,
        free_bytes=live.free_bytes if live else None,
        read_only=view.read_only,
        read_only_set=cookie is not None and cookie.read_only,
    )
