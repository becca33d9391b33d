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
#: Always there, and empty where the door does not listen: the C++ library and those upon it crash if one is missing.
_BROKERS = ("pulsar", "pulsar+ssl")


def routes() -> APIRouter:
    router = APIRouter()

    @router.get(_TOPIC)
    async def look_up(request: Request, place: PlaceOf, asking: AskingOf) -> dict[str, Any]:
        """The topic must exist, or may be created: it is, where its namespace allows that."""
        await asking.get(lookup_path(place), create="true")
        urls = brokers_of(request)
        answer = {_FIELDS[scheme]: f"{scheme}://{address}" for scheme, address in urls.items()}
        brokers = {_FIELDS[scheme]: answer.get(_FIELDS[scheme], "") for scheme in _BROKERS}
        return answer | brokers | {"nativeUrl": brokers["brokerUrl"] or brokers["brokerUrlTls"]}

    @router.get(f"{_TOPIC}/bundle")
    async def bundle(place: PlaceOf, asking: AskingOf) -> Response:
        await asking.get(lookup_path(place))
        return Response(BUNDLE_RANGE, media_type="text/plain")

    return router
