"""The cluster and its processes."""

import re
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path

from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument, NotFound, ServiceUnavailable
from oncelog.core.ids import Incarnation
from oncelog.metadata.coordination.coordination import Coordination
from oncelog.metadata.coordination.owners import advertised_address_of
from oncelog.metadata.rest.access import anybody
from oncelog.metadata.rest.values import BrokersHealth, OwnerView, StorageNodeView
from oncelog.stores.registry import LiveOwner, LiveStorageNode, StorageCookie

_INCARNATION = re.compile(r"[0-9a-f]{32}")
IncarnationPath = Annotated[str, Path(description="The node's incarnation, as the list shows it")]


def routes(coordination: Coordination) -> APIRouter:
    """Clusters, topic owners and storage nodes."""
    router = APIRouter(prefix="/admin/v2", tags=["cluster"])

    @router.get("/clusters", summary="List the clusters", operation_id="list_clusters", dependencies=[anybody])
    async def list_clusters() -> list[str]:
        """The id of this cluster, alone: there is one behind each address."""
        return [coordination.cluster_id]

    @router.get("/brokers", summary="List the topic owners", operation_id="list_brokers")
    async def list_brokers() -> list[OwnerView]:
        """Those that have a session."""
        await coordination.owners.refresh()
        return [_owner(coordination, owner) for owner in coordination.owners.live]

    @router.get(
        "/brokers/health",
        summary="Whether topics can be placed",
        operation_id="get_brokers_health",
        dependencies=[anybody],
    )
    async def get_brokers_health() -> BrokersHealth:
        """Nothing is published or read for it. `service_unavailable` when no topic owner could take a topic now, or
        too few storage nodes could keep its messages.
        """
        await coordination.owners.refresh()
        usable = coordination.owners.usable
        if not usable:
            raise ServiceUnavailable("no topic owner can take a topic: start one")
        nodes = await _storage_nodes(coordination)
        writable, needed = sum(node.live and not node.read_only for node in nodes), max(o.ack_quorum for o in usable)
        if writable < needed:
            raise ServiceUnavailable(
                f"{writable} storage nodes take new messages, {needed} are needed: start more, or give them room"
            )
        return BrokersHealth(status="ok", usable_owners=len(usable), writable_storage_nodes=writable)

    @router.get("/storage-nodes", summary="List the storage nodes", operation_id="list_storage_nodes")
    async def list_storage_nodes() -> list[StorageNodeView]:
        """Those that are live, and those whose directories once joined."""
        return await _storage_nodes(coordination)

    @router.get("/storage-nodes/{incarnation}", summary="Show a storage node", operation_id="get_storage_node")
    async def get_storage_node(incarnation: IncarnationPath) -> StorageNodeView:
        """`not_found` for one whose directory never joined."""
        _check(incarnation)
        found = [node for node in await _storage_nodes(coordination) if node.incarnation == incarnation]
        if not found:
            raise NotFound(f"there is no storage node {incarnation}: list them", incarnation=incarnation)
        return found[0]

    _add_read_only(router, coordination)
    return router


def _add_read_only(router: APIRouter, coordination: Coordination) -> None:
    path = "/storage-nodes/{incarnation}/read-only"

    @router.put(path, status_code=204, summary="Give it no new ledgers", operation_id="set_storage_node_read_only")
    async def set_read_only(incarnation: IncarnationPath) -> None:
        """New ledgers avoid the node, open ones leave it as far as others can take its place; what it holds is read.

        It stays so until it is cleared, also when the node is started anew, or is not live now.
        """
        await _mark(coordination, incarnation, read_only=True)

    @router.delete(path, status_code=204, summary="Give it new ledgers", operation_id="clear_storage_node_read_only")
    async def clear_read_only(incarnation: IncarnationPath) -> None:
        """New ledgers use the node again, unless it has no room."""
        await _mark(coordination, incarnation, read_only=False)


async def _mark(coordination: Coordination, incarnation: str, *, read_only: bool) -> None:
    """In the node's cookie, which outlives it. Raises InvalidArgument, NotFound."""
    _check(incarnation)
    while True:
        stored = await coordination.registry.read_cookie(Incarnation(incarnation))
        if stored is None:
            raise NotFound(f"there is no storage node {incarnation}: list them", incarnation=incarnation)
        if stored.value.read_only == read_only:
            return
        marked = replace(stored.value, read_only=read_only)
        # Whatever is answered, the next turn reads what became of it.
        await coordination.registry.write_cookie(marked, version=stored.version)


async def _storage_nodes(coordination: Coordination) -> list[StorageNodeView]:
    live = {node.incarnation: node for node in (await coordination.registry.storage_nodes.live()).values()}
    cookies = await coordination.registry.cookies()
    return [_node(one, live.get(one), cookies.get(one)) for one in sorted(live.keys() | cookies.keys())]


def _check(incarnation: str) -> None:
    """Raises InvalidArgument."""
    if _INCARNATION.fullmatch(incarnation) is None:
        raise InvalidArgument("an incarnation has 32 hexadecimal digits: list the storage nodes", field="incarnation")


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
    assert known is not None, "listed because one of the two is there"
    return StorageNodeView(
        incarnation=incarnation,
        address=join_address(known.host, known.port),
        live=live is not None,
        retired=cookie is not None and cookie.retired,
        free_bytes=live.free_bytes if live else None,
        read_only=(live is not None and live.read_only) or (cookie is not None and cookie.read_only),
        read_only_set=cookie is not None and cookie.read_only,
    )
