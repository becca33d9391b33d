"""Routes for tenants and namespaces."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from oncelog.core.access import Right
from oncelog.core.errors import Conflict
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.conditions import answers_tag, show_tag
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import (
    NamespacePath,
    NamespaceView,
    NewNamespace,
    TenantPath,
    TenantView,
)
from oncelog.metadata_store.records.policies import Policies


def routes(coordination: Coordination) -> APIRouter:
    """List, create, show and delete tenants and namespaces."""
    router = new_router(prefix="/admin/v2", tags=["namespaces"])

    _add_tenants(router, coordination)

    @router.get("/namespaces/{tenant}", summary="List the namespaces of a tenant", operation_id="list_namespaces")
    async def list_namespaces(tenant: TenantPath) -> list[str]:
        """Full names, `tenant/namespace`, sorted."""
        return [str(name) for name in await coordination.namespaces.namespaces(tenant)]

    @router.get(
        "/namespaces/{tenant}/{namespace}",
        summary="Show a namespace",
        operation_id="get_namespace",
        dependencies=[requires(Right.ADMIN)],
        responses=answers_tag(200),
    )
    async def get_namespace(namespace: NamespacePath, response: Response) -> NamespaceView:
        """The namespace with the policies that are set on it; null: not set."""
        stored = await coordination.policies.read(namespace)
        show_tag(response, stored)
        policies = stored.value
        return NamespaceView(
            namespace=str(namespace),
            deduplication=policies.deduplication,
            auto_create_topics=policies.auto_create_topics,
        )

    @router.put(
        "/namespaces/{tenant}/{namespace}",
        summary="Create a namespace",
        operation_id="create_namespace",
        status_code=204,
    )
    async def create_namespace(
        namespace: NamespacePath,
        policies: Annotated[NewNamespace | None, Body(description="Initial policies.")] = None,
    ) -> None:
        """`conflict` if the namespace exists, `not_found` if its tenant does not."""
        given = policies or NewNamespace()
        chosen = Policies(deduplication=given.deduplication, auto_create_topics=given.auto_create_topics)
        if not await coordination.namespaces.create_namespace(namespace, chosen):
            raise Conflict(f"namespace {namespace} already exists", field="namespace")

    @router.delete(
        "/namespaces/{tenant}/{namespace}",
        summary="Delete an empty namespace",
        operation_id="delete_namespace",
        status_code=204,
    )
    async def delete_namespace(namespace: NamespacePath) -> None:
        """`conflict` while the namespace has topics, or partitions that are still being deleted.

        Its policies and rights go with it, so ZooKeeper's records are copied before, unless a copy is 10 minutes old.
        """
        await coordination.copies.before("the deletion of a namespace")
        await coordination.namespaces.delete_namespace(namespace)

    return router


def _add_tenants(router: APIRouter, coordination: Coordination) -> None:
    @router.get("/tenants", summary="List the tenants", operation_id="list_tenants")
    async def list_tenants() -> list[str]:
        """Names of the tenants, sorted."""
        return await coordination.namespaces.tenants()

    @router.put("/tenants/{tenant}", summary="Create a tenant", operation_id="create_tenant", status_code=204)
    async def create_tenant(tenant: TenantPath) -> None:
        """`conflict` if the tenant exists."""
        if not await coordination.namespaces.create_tenant(tenant):
            raise Conflict(f"tenant {tenant} already exists", field="tenant")

    @router.get("/tenants/{tenant}", summary="Show a tenant", operation_id="get_tenant")
    async def get_tenant(tenant: TenantPath) -> TenantView:
        """The tenant with its namespaces."""
        return TenantView(
            tenant=tenant, namespaces=[str(name) for name in await coordination.namespaces.namespaces(tenant)]
        )

    @router.delete("/tenants/{tenant}", summary="Delete an empty tenant", operation_id="delete_tenant", status_code=204)
    async def delete_tenant(tenant: TenantPath) -> None:
        """`conflict` while the tenant has namespaces, and for `public`, which cannot be deleted."""
        await coordination.namespaces.delete_tenant(tenant)
