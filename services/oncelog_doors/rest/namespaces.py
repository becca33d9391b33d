"""Routes for namespaces: their life, rights, and what is done to all their topics."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter

from oncelog.core.names import whole_topic
from oncelog_doors.core.rest import policies
from oncelog_doors.core.rest.names import CLUSTERS, logs_of
from oncelog_doors.core.rest.policies import BUNDLES
from oncelog_doors.core.rest.refusals import Refused, not_offered
from oncelog_doors.rest.asking import Asking, AskingOf, BodyOf, each_of, passed_over
from oncelog_doors.rest.paths import below, path, topic_path
from oncelog_doors.rest.policies import NAMESPACE


def routes() -> APIRouter:
    router = APIRouter()

    @router.get("/admin/v2/namespaces/{tenant}")
    async def namespaces(tenant: str, asking: AskingOf) -> list[str]:
        found: list[str] = await asking.get(path("namespaces", tenant))
        return found

    @router.get(NAMESPACE)
    async def policies_of(tenant: str, namespace: str, asking: AskingOf) -> dict[str, Any]:
        at = path("namespaces", tenant, namespace)
        values, permissions = await asyncio.gather(asking.get(f"{at}/policies"), asking.get(f"{at}/permissions"))
        return policies.shown_namespace(values, permissions)

    @router.put(NAMESPACE, status_code=204)
    async def create(tenant: str, namespace: str, asking: AskingOf, body: BodyOf) -> None:
        chosen = policies.new_namespace(body, CLUSTERS)
        await asking.change("PUT", path("namespaces", tenant, namespace), chosen)

    @router.delete(NAMESPACE, status_code=204)
    async def delete(tenant: str, namespace: str, asking: AskingOf, force: bool = False) -> None:
        if force:
            raise not_offered("deleting a namespace with its topics is", "delete its topics first")
        await asking.change("DELETE", path("namespaces", tenant, namespace))

    @router.get(f"{NAMESPACE}/bundles")
    async def bundles(tenant: str, namespace: str, asking: AskingOf) -> dict[str, Any]:
        await asking.get(path("namespaces", tenant, namespace))
        return dict(BUNDLES)

    @router.get(f"{NAMESPACE}/properties")
    async def properties(tenant: str, namespace: str, asking: AskingOf) -> dict[str, str]:
        await asking.get(path("namespaces", tenant, namespace))
        return {}

    @router.get(f"{NAMESPACE}/replication")
    async def replication(tenant: str, namespace: str, asking: AskingOf) -> list[str]:
        await asking.get(path("namespaces", tenant, namespace))
        return list(CLUSTERS)

    _add_permissions(router)
    _add_topics(router)
    return router


def _add_permissions(router: APIRouter) -> None:
    @router.get(f"{NAMESPACE}/permissions")
    async def permissions(tenant: str, namespace: str, asking: AskingOf) -> dict[str, list[str]]:
        return policies.shown_rights(await asking.get(path("namespaces", tenant, namespace, "permissions")))

    @router.post(f"{NAMESPACE}/permissions/{{role}}", status_code=204)
    async def grant(tenant: str, namespace: str, role: str, asking: AskingOf, body: BodyOf) -> None:
        """The role keeps `admin`, which Pulsar's tools do not know."""
        every = path("namespaces", tenant, namespace, "permissions")
        await asking.replace(
            every, lambda present: policies.rights_with(present.get(role), body), at=below(every, role)
        )

    @router.delete(f"{NAMESPACE}/permissions/{{role}}", status_code=204)
    async def revoke(tenant: str, namespace: str, role: str, asking: AskingOf) -> None:
        await asking.change("DELETE", path("namespaces", tenant, namespace, "permissions", role))


async def all_topics(asking: Asking, tenant: str, namespace: str) -> tuple[list[str], list[str]]:
    """Full names: of all topics, and of the partitioned ones among them."""
    at = path("persistent", tenant, namespace)
    topics, partitioned = await asyncio.gather(asking.get(at), asking.get(f"{at}/partitioned"))
    return topics, partitioned


async def listed_logs(asking: Asking, tenant: str, namespace: str) -> list[str]:
    """As Pulsar lists the topics of a namespace."""
    every, partitioned = await all_topics(asking, tenant, namespace)

    counts = dict.fromkeys(partitioned, 0)

    async def ask(name: str) -> None:
        with passed_over():
            counts[name] = await partitions_of(asking, topic_path(name))

    await each_of(partitioned, ask)
    return logs_of(every, counts)


async def partitions_of(asking: Asking, place: str) -> int:
    """0: the topic has none, or is a partition itself, which need not have been used yet."""
    try:
        return await _count_of(asking, place)
    except Refused as refused:
        group = whole_topic(place)
        if refused.status != 404 or group == place:
            raise
        if int(place.rpartition("-")[2]) >= await _count_of(asking, group):
            raise
        return 0


async def _count_of(asking: Asking, place: str) -> int:
    return int((await asking.get(f"{place}/partitions"))["partitions"])


def _add_topics(router: APIRouter) -> None:
    @router.get(f"{NAMESPACE}/topics")
    async def topics(tenant: str, namespace: str, asking: AskingOf) -> list[str]:
        return await listed_logs(asking, tenant, namespace)

    @router.put(f"{NAMESPACE}/unload", status_code=204)
    async def unload(tenant: str, namespace: str, asking: AskingOf) -> None:
        every, partitioned = await all_topics(asking, tenant, namespace)
        groups = frozenset(partitioned)

        async def one(name: str) -> None:
            with passed_over():
                await asking.change("PUT", f"{topic_path(name)}/unload")

        await each_of([name for name in every if name not in groups], one)

    async def each_subscription(
        asking: Asking, tenant: str, namespace: str, do: Callable[[str, str], Awaitable[None]], wanted: str | None
    ) -> None:
        """Of a partitioned topic, once for all its partitions. do: for the path of a topic, and a subscription. wanted:
        only this subscription."""
        every, partitioned = await all_topics(asking, tenant, namespace)
        groups = tuple(f"{name}-partition-" for name in partitioned)

        async def one(name: str) -> None:
            at = topic_path(name)
            with passed_over():
                for subscription in await asking.get(f"{at}/subscriptions") if wanted is None else [wanted]:
                    await do(at, subscription)

        await each_of([name for name in every if not name.startswith(groups)], one)

    @router.post(f"{NAMESPACE}/clearBacklog", status_code=204)
    @router.post(f"{NAMESPACE}/clearBacklog/{{subscription}}", status_code=204)
    async def clear(tenant: str, namespace: str, asking: AskingOf, subscription: str | None = None) -> None:
        async def skip(at: str, name: str) -> None:
            await asking.change("POST", below(at, "subscription", name, "skip_all"))

        await each_subscription(asking, tenant, namespace, skip, subscription)

    @router.post(f"{NAMESPACE}/unsubscribe/{{subscription}}", status_code=204)
    async def unsubscribe(tenant: str, namespace: str, subscription: str, asking: AskingOf) -> None:
        async def end(at: str, name: str) -> None:
            await asking.change("DELETE", below(at, "subscription", name))

        await each_subscription(asking, tenant, namespace, end, subscription)
