"""Routes for the policies of namespaces and topics."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from oncelog_doors.core.rest import policies
from oncelog_doors.core.rest.fields import check_kind, check_number
from oncelog_doors.core.rest.refusals import refused_field
from oncelog_doors.rest.asking import AskingOf, BodyOf
from oncelog_doors.rest.paths import path

NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
#: Of the seconds of a TTL, in the query.
_DIGITS_MAX = 10
QuotaTypeQuery = Annotated[str | None, Query(alias="backlogQuotaType")]


async def _place(request: Request) -> str:
    """The path of the namespace or the topic, for REST."""
    parts = request.path_params
    if "topic" in parts:
        return path("persistent", parts["tenant"], parts["namespace"], parts["topic"])
    return path("namespaces", parts["tenant"], parts["namespace"])


PlaceOf = Annotated[str, Depends(_place)]


def shown_or_unset(value: Any) -> Any:
    """204 for a policy that is not set, as in Pulsar."""
    return Response(status_code=204) if value is None else value


def routes() -> APIRouter:
    router = APIRouter()
    for at in (NAMESPACE, TOPIC):
        _add(router, at, "retention", policies.retention_of)
        _add(router, at, "dispatcherPauseOnAckStatePersistent", _pause)
        _add_quota(router, at)
    _add(router, NAMESPACE, "messageTTL", partial(check_number, "messageTTL"))
    _add(router, NAMESPACE, "deduplication", _switch)
    _add(router, TOPIC, "deduplicationEnabled", _switch)
    _add(router, NAMESPACE, "autoTopicCreation", policies.creation_of, policies.shown_creation)
    _add_ttl_of_topic(router)
    return router


def _switch(body: Any) -> bool:
    check_kind("body", body, bool)
    return bool(body)


def _pause(body: Any) -> bool:
    """Pulsar's call has no body: it switches the policy on."""
    return True if body is None else _switch(body)


def _same(value: Any) -> Any:
    return value


def _add(
    router: APIRouter, at: str, name: str, stored: Callable[[Any], Any], shown: Callable[[Any], Any] = _same
) -> None:
    """GET, POST and DELETE. stored: what REST gets of a body, raises Refused; shown: the body of what it has."""

    @router.get(f"{at}/{name}", response_model=None)
    async def get(place: PlaceOf, asking: AskingOf, applied: bool = False) -> Any:
        value = await asking.get(f"{place}/{name}", **({"applied": "true"} if applied else {}))
        if applied:
            value = value["value"]
        return shown_or_unset(None if value is None else shown(value))

    @router.post(f"{at}/{name}", status_code=204)
    async def post(place: PlaceOf, asking: AskingOf, body: BodyOf) -> None:
        await asking.change("POST", f"{place}/{name}", stored(body))

    _add_removal(router, at, name)


def _add_removal(router: APIRouter, at: str, name: str) -> None:
    @router.delete(f"{at}/{name}", status_code=204)
    async def delete(place: PlaceOf, asking: AskingOf) -> None:
        await asking.change("DELETE", f"{place}/{name}")


def _add_ttl_of_topic(router: APIRouter) -> None:
    name = "messageTTL"

    @router.get(f"{TOPIC}/{name}", response_model=None)
    async def get(place: PlaceOf, asking: AskingOf, applied: bool = False) -> Any:
        value = await asking.get(f"{place}/{name}", **({"applied": "true"} if applied else {}))
        return shown_or_unset(value["value"] if applied else value)

    @router.post(f"{TOPIC}/{name}", status_code=204)
    async def post(place: PlaceOf, asking: AskingOf, seconds: Annotated[str, Query(alias=name)] = "") -> None:
        """The value is in the query."""
        if not (seconds.isascii() and seconds.isdecimal() and len(seconds) <= _DIGITS_MAX):
            raise refused_field(name, "must be a whole number of seconds, in the query")
        await asking.change("POST", f"{place}/{name}", int(seconds))

    _add_removal(router, TOPIC, name)


def _add_quota(router: APIRouter, at: str) -> None:
    @router.get(f"{at}/backlogQuotaMap")
    async def get(place: PlaceOf, asking: AskingOf, applied: bool = False) -> dict[str, Any]:
        value = await asking.get(f"{place}/backlogQuota", **({"applied": "true"} if applied else {}))
        return policies.quota_map(value["value"] if applied else value)

    @router.post(f"{at}/backlogQuota", status_code=204)
    async def post(place: PlaceOf, asking: AskingOf, body: BodyOf, kind: QuotaTypeQuery = None) -> None:
        chosen = policies.quota_type(kind)
        await asking.replace(f"{place}/backlogQuota", lambda present: policies.quota_with(present, chosen, body))

    @router.delete(f"{at}/backlogQuota", status_code=204)
    async def delete(place: PlaceOf, asking: AskingOf, kind: QuotaTypeQuery = None) -> None:
        chosen = policies.quota_type(kind)
        await asking.replace(f"{place}/backlogQuota", lambda present: policies.quota_without(present, chosen))
