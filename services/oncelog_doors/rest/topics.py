"""Routes for topics: their life and statistics."""

import asyncio
from contextlib import nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from oncelog_doors.core.rest import statistics
from oncelog_doors.core.rest.fields import properties_of
from oncelog_doors.core.rest.names import shown_topic
from oncelog_doors.core.rest.policies import check_count
from oncelog_doors.core.rest.refusals import Refused, refused_field
from oncelog_doors.rest.addresses import brokers_of
from oncelog_doors.rest.asking import Asking, AskingOf, BodyOf, each_of, passed_over
from oncelog_doors.rest.namespaces import listed_logs, partitions_of
from oncelog_doors.rest.paths import below, lookup_path, path
from oncelog_doors.rest.policies import TOPIC, PlaceOf

_NAMESPACE = "/admin/v2/persistent/{tenant}/{namespace}"
_PRODUCERS_SHOWN_MAX = 1_000
_IN_USE = "the topic has connected producers or consumers: close them, or use --force"
Switch = Annotated[bool, Query()]


def routes() -> APIRouter:
    router = APIRouter()
    _add_lists(router)
    _add_life(router)
    _add_partitions(router)
    _add_statistics(router)
    return router


def _add_lists(router: APIRouter) -> None:
    @router.get(_NAMESPACE)
    async def topics(tenant: str, namespace: str, asking: AskingOf) -> list[str]:
        return await listed_logs(asking, tenant, namespace)

    @router.get(f"{_NAMESPACE}/partitioned")
    async def partitioned_topics(tenant: str, namespace: str, asking: AskingOf) -> list[str]:
        found = await asking.get(path("persistent", tenant, namespace, "partitioned"))
        return [shown_topic(each) for each in found]

    # `topics list` asks for both kinds. There are none of this one.
    @router.get("/admin/v2/non-persistent/{tenant}/{namespace}")
    @router.get("/admin/v2/non-persistent/{tenant}/{namespace}/partitioned")
    async def topics_without_storage(tenant: str, namespace: str, asking: AskingOf) -> list[str]:
        await asking.get(path("persistent", tenant, namespace, "partitioned"))
        return []


def _add_life(router: APIRouter) -> None:
    @router.put(TOPIC, status_code=204)
    async def create(place: PlaceOf, asking: AskingOf, body: BodyOf) -> None:
        if body:
            _no_properties(body)
        await asking.change("PUT", place)

    @router.delete(TOPIC, status_code=204)
    async def delete(place: PlaceOf, asking: AskingOf, force: Switch = False) -> None:
        if not force:
            await _require_unused(asking, place)
        await asking.change("DELETE", place)

    @router.put(f"{TOPIC}/unload", status_code=204)
    async def unload(place: PlaceOf, asking: AskingOf) -> None:
        count = await partitions_of(asking, place)

        async def one(log: str) -> None:
            # A partition that was never used has no owner.
            with passed_over() if count else nullcontext():
                await asking.change("PUT", f"{log}/unload")

        await each_of(_logs(place, count), one)

    @router.delete(f"{TOPIC}/truncate", status_code=204)
    async def truncate(place: PlaceOf, asking: AskingOf) -> None:
        await asking.change("DELETE", f"{place}/truncate")

    @router.get(f"{TOPIC}/properties")
    async def properties(place: PlaceOf, asking: AskingOf) -> dict[str, str]:
        await asking.get(place)
        return {}


def _no_properties(body: Any) -> None:
    name = next(iter(properties_of(body)))
    raise refused_field(f"properties.{name}"[:100], "topics have no properties here")


def _logs(place: str, count: int) -> list[str]:
    """The paths of the partitions, or of the topic if it has none."""
    return [f"{place}-partition-{number}" for number in range(count)] or [place]


async def _require_unused(asking: Asking, place: str) -> None:
    """Raises Refused while producers or consumers are connected. A partition that was never used has none."""

    async def one(log: str) -> bool:
        try:
            return statistics.in_use(await asking.get(f"{log}/stats"))
        except Refused as refused:
            if refused.status == 404 and log != place:
                return False
            raise

    if any((await each_of(_logs(place, await partitions_of(asking, place)), one)).values()):
        raise Refused(412, _IN_USE)


def _add_partitions(router: APIRouter) -> None:
    at = f"{TOPIC}/partitions"

    @router.get(at)
    async def partitions(request: Request, place: PlaceOf, asking: AskingOf) -> dict[str, Any]:
        """With checkAllowAutoCreation, as clients ask that look topics up over HTTP, it creates the topic where its
        namespace allows that."""
        if request.query_params.get("checkAllowAutoCreation") == "true":
            found = await asking.get(lookup_path(place), create="true")
            return {"partitions": found["partitions"], "deleted": False}
        return {"partitions": await partitions_of(asking, place), "deleted": False}

    @router.put(at, status_code=204)
    async def create(place: PlaceOf, asking: AskingOf, body: BodyOf) -> None:
        await asking.change("PUT", f"{place}/partitions", check_count(body))

    @router.post(at, status_code=204)
    async def grow(place: PlaceOf, asking: AskingOf, body: BodyOf) -> None:
        await asking.change("POST", f"{place}/partitions", check_count(body))

    @router.delete(at, status_code=204)
    async def delete(place: PlaceOf, asking: AskingOf, force: Switch = False) -> None:
        if not force:
            await _require_unused(asking, place)
        await asking.change("DELETE", f"{place}/partitions")

    @router.post(f"{TOPIC}/createMissedPartitions", status_code=204)
    async def create_missed(place: PlaceOf, asking: AskingOf) -> None:
        """Partitions are created on their first use, so none is missing."""
        if not await partitions_of(asking, place):
            raise Refused(404, "the topic has no partitions")


def _add_statistics(router: APIRouter) -> None:
    @router.get(f"{TOPIC}/stats")
    async def stats(request: Request, place: PlaceOf, asking: AskingOf) -> dict[str, Any]:
        return await _stats(request, asking, place)

    @router.get(f"{TOPIC}/partitioned-stats")
    async def partitioned_stats(
        request: Request, place: PlaceOf, asking: AskingOf, each: Annotated[bool, Query(alias="perPartition")] = True
    ) -> dict[str, Any]:
        async def one(log: str) -> dict[str, Any] | None:
            try:
                return await _stats(request, asking, log)
            except Refused as refused:
                if refused.status != 404:
                    raise
                return None

        logs = await _logs_of(asking, place)
        found = await each_of(logs, one)
        known = {shown_topic("/".join(log.split("/")[-3:])): own for log, own in found.items() if own is not None}
        return statistics.partitioned_stats(known, len(logs), each=each)

    @router.get(f"{TOPIC}/internalStats")
    async def internal_stats(place: PlaceOf, asking: AskingOf) -> dict[str, Any]:
        internal, own = await asyncio.gather(asking.get(f"{place}/internalStats"), asking.get(f"{place}/stats"))
        return statistics.internal_stats(internal, own)


async def _logs_of(asking: Asking, place: str) -> list[str]:
    """Raises Refused for a topic without partitions."""
    count = await partitions_of(asking, place)
    if not count:
        raise Refused(404, "the topic has no partitions")
    return _logs(place, count)


async def _stats(request: Request, asking: Asking, log: str) -> dict[str, Any]:
    """Without the names of producers for a caller that may not see them."""

    async def publishers() -> list[dict[str, Any]]:
        try:
            page = await asking.get(below(log, "producers"), connected="true", limit=_PRODUCERS_SHOWN_MAX)
        except Refused as refused:
            if refused.status != 403:
                raise
            return []
        return [each for each in page["producers"] if each["connected"]]

    own = await asking.get(f"{log}/stats")
    connected = own.get("connected_producer_count", 0)
    urls = brokers_of(request)
    return statistics.topic_stats(own, await publishers() if connected else [], urls.get("https") or urls["http"])
