"""Routers whose routes an application takes as they are.

FastAPI's `include_router` builds each route a second time when the first request comes. For all routes of a metadata
service that takes 0.7 s, in which its event loop serves no other request. So each router has the dependencies of all
routes, and `add_routes` moves its routes.
"""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from oncelog.core.errors import InvariantViolated
from oncelog.metadata.rest.access import default_rule
from oncelog.metadata.rest.conditions import refuse_unread


def new_router(*, dependencies: Sequence[Any] = (), **options: Any) -> APIRouter:
    """A router whose routes obey the rules of all routes, and these dependencies."""
    return APIRouter(dependencies=[Depends(default_rule), Depends(refuse_unread), *dependencies], **options)


def add_routes(to: FastAPI | APIRouter, router: APIRouter) -> None:
    """The application, or a router of several, gets the routes. Raises InvariantViolated for a route without rule."""
    for route in router.routes:
        if not isinstance(route, APIRoute) or not any(each.dependency is default_rule for each in route.dependencies):
            raise InvariantViolated(f"{route} does not have the rules of all routes: use new_router")
        to.routes.append(route)
