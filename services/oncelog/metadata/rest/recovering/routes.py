"""All routes of this folder: a module is listed in `PARTS`."""

from typing import Protocol

from fastapi import APIRouter

from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.recovering import backups, records, restore


class Part(Protocol):
    """A module with routes."""

    def routes(self, coordination: Coordination, /) -> APIRouter: ...


PARTS: tuple[Part, ...] = (backups, records, restore)


def routes(coordination: Coordination) -> APIRouter:
    router = APIRouter()
    for part in PARTS:
        router.include_router(part.routes(coordination))
    return router
