"""All routes of this folder: a module is listed in `PARTS`."""

from typing import Protocol

from fastapi import APIRouter

from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.recovering import backups, records, restore
from oncelog.metadata.rest.recovering.uploads import upload_routes


class Part(Protocol):
    """A module with routes."""

    def routes(self, coordination: Coordination, /) -> APIRouter: ...


PARTS: tuple[Part, ...] = (backups, records, restore)


def routes(coordination: Coordination) -> APIRouter:
    router = APIRouter()
    for part in PARTS:
        router.include_router(part.routes(coordination))
    router.include_router(upload_routes(lambda: coordination.restoring))
    return router
