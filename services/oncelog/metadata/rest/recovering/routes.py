"""All routes of this folder: a module is listed in `PARTS`."""

from typing import Protocol

from fastapi import APIRouter

from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.recovering import backups, records, restore
from oncelog.metadata.rest.recovering.uploads import upload_routes
from oncelog.metadata.rest.routers import add_routes, new_router


class Part(Protocol):
    """A module with routes."""

    def routes(self, coordination: Coordination, /) -> APIRouter: ...


PARTS: tuple[Part, ...] = (backups, records, restore)


def routes(coordination: Coordination) -> APIRouter:
    router = new_router()
    for part in PARTS:
        add_routes(router, part.routes(coordination))
    add_routes(router, upload_routes(lambda: coordination.restoring))
    return router
