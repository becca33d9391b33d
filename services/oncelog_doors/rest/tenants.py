"""Routes for tenants, and for what describes the cluster."""

from typing import Any

from fastapi import APIRouter, Request, Response

from oncelog_doors.core.rest.names import CLUSTER, CLUSTERS
from oncelog_doors.core.rest.policies import check_tenant
from oncelog_doors.core.rest.refusals import Refused, not_offered
from oncelog_doors.rest.addresses import brokers_of
from oncelog_doors.rest.asking import Asking, AskingOf, BodyOf
from oncelog_doors.rest.paths import path


def routes() -> APIRouter:
    router = APIRouter(prefix="/admin/v2")
    _add_cluster(router)

    @router.get("/tenants")
    async def tenants(asking: AskingOf) -> list[str]:
        found: list[str] = await asking.get(path("tenants"))
        return found

    @router.get("/tenants/{tenant}")
    async def tenant(tenant: str, asking: AskingOf) -> dict[str, Any]:
        await asking.get(path("tenants", tenant))
        return {"adminRoles": [], "allowedClusters": list(CLUSTERS)}

    @router.put("/tenants/{tenant}", status_code=204)
    async def create(tenant: str, asking: AskingOf, body: BodyOf) -> None:
        check_tenant(body, CLUSTERS)
        await asking.change("PUT", path("tenants", tenant))

    @router.post("/tenants/{tenant}", status_code=204)
    async def update(tenant: str, asking: AskingOf, body: BodyOf) -> None:
        """Nothing can differ."""
        check_tenant(body, CLUSTERS)
        await asking.get(path("tenants", tenant))

    @router.delete("/tenants/{tenant}", status_code=204)
    async def delete(tenant: str, asking: AskingOf, force: bool = False) -> None:
        if force:
            raise not_offered("deleting a tenant with its namespaces is", "delete its namespaces first")
        await asking.change("DELETE", path("tenants", tenant))

    return router


def _add_cluster(router: APIRouter) -> None:
    async def known(asking: Asking) -> None:
        """The caller has a valid token."""
        await asking.get(path("clusters"))

    @router.get("/clusters")
    async def clusters(asking: AskingOf) -> list[str]:
        await known(asking)
        return list(CLUSTERS)

    @router.get("/clusters/{cluster}")
    async def cluster(cluster: str, asking: AskingOf, request: Request) -> dict[str, Any]:
        await known(asking)
        if cluster != CLUSTER:
            raise Refused(404, f"there is no cluster {cluster[:100]!r}: this one is called {CLUSTER}")
        urls = brokers_of(request)
        fields = {"http": "serviceUrl", "https": "serviceUrlTls", "pulsar": "brokerServiceUrl"}
        fields["pulsar+ssl"] = "brokerServiceUrlTls"
        return {fields[scheme]: f"{scheme}://{address}" for scheme, address in urls.items()}

    @router.get("/brokers/health")
    async def health(asking: AskingOf) -> Response:
        await asking.get(path("brokers", "health"))
        return Response("ok", media_type="text/plain")

    @router.get("/brokers/configuration/runtime")
    async def configuration(asking: AskingOf) -> dict[str, str]:
        """`pulsar-admin clusters list` looks for the name of its cluster there."""
        await known(asking)
        return {"clusterName": CLUSTER}

    @router.get("/brokers/version")
    async def version(asking: AskingOf, request: Request) -> Response:
        await known(asking)
        return Response(request.app.state.version, media_type="text/plain")

    @router.get("/brokers/leaderBroker")
    async def leader(asking: AskingOf, request: Request) -> dict[str, Any]:
        """As for every client, the door is the only broker."""
        await known(asking)
        urls = brokers_of(request)
        scheme = "https" if "https" in urls else "http"
        return {"brokerId": urls[scheme], "serviceUrl": f"{scheme}://{urls[scheme]}"}

    @router.get("/brokers")
    @router.get("/brokers/{cluster}")
    async def brokers(asking: AskingOf, request: Request) -> list[str]:
        await known(asking)
        urls = brokers_of(request)
        return [urls.get("https") or urls["http"]]
