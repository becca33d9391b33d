"""Routes for the subscriptions of a topic."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from oncelog_doors.core.rest.fields import properties_of
from oncelog_doors.core.rest.places import place_of, subscription_of
from oncelog_doors.core.rest.refusals import Refused, refused_field
from oncelog_doors.rest.asking import AskingOf, BodyOf
from oncelog_doors.rest.paths import below, lookup_path
from oncelog_doors.rest.policies import TOPIC, PlaceOf

_ONE = f"{TOPIC}/subscription/{{subscription}}"


async def _subscription(request: Request, place: PlaceOf) -> str:
    """Its path, for REST."""
    return below(place, "subscription", request.path_params["subscription"])


OneOf = Annotated[str, Depends(_subscription)]


def routes() -> APIRouter:
    router = APIRouter()
    _add_life(router)
    _add_position(router)
    return router


def _add_life(router: APIRouter) -> None:
    @router.get(f"{TOPIC}/subscriptions")
    async def subscriptions(place: PlaceOf, asking: AskingOf) -> list[str]:
        found: list[str] = await asking.get(f"{place}/subscriptions")
        return found

    @router.put(_ONE, status_code=204)
    async def create(place: PlaceOf, one: OneOf, asking: AskingOf, body: BodyOf, replicated: bool = False) -> None:
        """The topic is created, too, where its namespace allows that."""
        if replicated:
            raise refused_field("replicated", "subscriptions are not replicated to other clusters: leave it out")
        new = subscription_of(body)
        try:
            await asking.change("PUT", one, new)
        except Refused as refused:
            if refused.status != 404:
                raise
            await asking.get(lookup_path(place), create="true")
            await asking.change("PUT", one, new)

    @router.delete(_ONE, status_code=204)
    async def delete(one: OneOf, asking: AskingOf, force: bool = False) -> None:
        await asking.change("DELETE", f"{one}?force=true" if force else one)

    @router.get(f"{_ONE}/properties")
    async def properties(one: OneOf, asking: AskingOf) -> dict[str, str]:
        found: dict[str, str] = await asking.get(f"{one}/properties")
        return found

    @router.put(f"{_ONE}/properties", status_code=204)
    async def set_properties(one: OneOf, asking: AskingOf, body: BodyOf) -> None:
        await asking.change("PUT", f"{one}/properties", properties_of(body or {}))


def _add_position(router: APIRouter) -> None:
    @router.post(f"{_ONE}/skip/{{count}}", status_code=204)
    async def skip(one: OneOf, asking: AskingOf, count: str) -> None:
        await asking.change("POST", below(one, "skip", count))

    @router.post(f"{_ONE}/skip_all", status_code=204)
    async def skip_all(one: OneOf, asking: AskingOf) -> None:
        await asking.change("POST", f"{one}/skip_all")

    @router.post(f"{_ONE}/expireMessages/{{seconds}}", status_code=204)
    async def expire(one: OneOf, asking: AskingOf, seconds: str) -> None:
        await asking.change("POST", below(one, "expireMessages", seconds))

    @router.post(f"{TOPIC}/all_subscription/expireMessages/{{seconds}}", status_code=204)
    async def expire_for_all(place: PlaceOf, asking: AskingOf, seconds: str) -> None:
        await asking.change("POST", below(place, "all_subscription", "expireMessages", seconds))

    @router.post(f"{_ONE}/resetcursor/{{time_ms}}", status_code=204)
    async def seek_time(one: OneOf, asking: AskingOf, time_ms: str) -> None:
        await asking.change("POST", below(one, "resetcursor", time_ms))

    @router.post(f"{_ONE}/resetcursor", status_code=204)
    async def seek(one: OneOf, asking: AskingOf, body: BodyOf) -> None:
        await asking.change("POST", f"{one}/resetcursor", place_of(body))
