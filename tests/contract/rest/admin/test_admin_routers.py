"""The routes of the application: each has the rules of all routes, and none is built when a request comes."""

from typing import cast

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Route

from oncelog.core.errors import InvariantViolated
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.routers import add_routes, new_router
from tests.contract.rest.lent_apps import lent_app


@pytest.mark.parametrize("to", [FastAPI(), APIRouter()])
def test_route_without_the_rules_of_all_routes_is_refused(to: FastAPI | APIRouter) -> None:
    """A router of the framework's own would serve everybody."""
    router = APIRouter()
    router.get("/open")(lambda: None)
    with pytest.raises(InvariantViolated, match=r"/open.*new_router"):
        add_routes(to, router)


def test_routes_of_a_router_in_a_router_have_the_rules() -> None:
    """The control, and prefixes stay."""
    inner, outer, app = (
        new_router(prefix="/inner"),
        new_router(),
        FastAPI(openapi_url=None, docs_url=None, redoc_url=None),
    )
    inner.get("/one")(lambda: None)
    add_routes(outer, inner)
    add_routes(app, outer)
    assert [route.path for route in app.routes if isinstance(route, APIRoute)] == ["/inner/one"]


def test_all_routes_are_built_with_the_application() -> None:
    """Otherwise the first request would wait for them, and all others behind it."""
    with lent_app(cast("Coordination", None)) as app:
        assert len(app.routes) > 100
        assert [route for route in app.routes if type(route) not in (APIRoute, Route)] == []
