"""Look-ups of topics over HTTP. A door serves every topic, so each one is answered with the door itself."""

from typing import Any

from fastapi import APIRouter, Request, Response

from oncelog_doors.core.rest.policies import BUNDLE_RANGE
from oncelog_doors.rest.addresses import brokers_of
from oncelog_doors.rest.asking import AskingOf
from oncelog_doors.rest.paths import lookup_path
from oncelog_doors.rest.policies import PlaceOf

_TOPIC = "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}"
_FIELDS = {"pulsar": "brokerUrl", "pulsar+ssl": "brokerUrlTls", "http": "httpUrl", "https": "httpUrlTls"}


def routes() -> APIRouter:
    router = APIRouter()

    @router.get(_TOPIC)
    async def look_up(request: Request, place: PlaceOf, asking: AskingOf) -> dict[str, Any]:
        """The topic must exist, or may be created: it is, where its namespace allows that."""
        await asking.get(lookup_path(place), create="true")
        urls = brokers_of(request)
        answer = {_FIELDS[scheme]: f"{scheme}://{address}" for scheme, address in urls.items()}
        return answer | {"nativeUrl": answer.get("brokerUrl") or answer.get("brokerUrlTls")}

    @router.get(f"{_TOPIC}/bundle")
    async def bundle(place: PlaceOf, asking: AskingOf) -> Response:
        await asking.get(lookup_path(place))
        return Response(BUNDLE_RANGE, media_type="text/plain")

    return router
