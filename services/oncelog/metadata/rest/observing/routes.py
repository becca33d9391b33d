"""All routes of this folder: a module is listed in `PARTS`."""

from typing import Protocol

from fastapi import APIRouter

from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.observing import (
    dependencies,
    events,
    history,
    lags,
    me,
    messages,
    proofs,
    rates,
    subscription_looks,
    topic_ledgers,
)
from oncelog.metadata.rest.routers import add_routes, new_router


class Part(Protocol):
    """A module with routes."""

    def routes(self, coordination: Coordination, /) -> APIRouter: ...


PARTS: tuple[Part, ...] = (
    me,
    dependencies,
    rates,
    history,
    subscription_looks,
    lags,
    topic_ledgers,
    events,
    proofs,
    messages,
)


def routes(coordination: Coordination) -> APIRouter:
    router = new_router()
    for part in PARTS:
        add_routes(router, part.routes(coordination))
    return router
