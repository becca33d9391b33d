"""The route that tells a caller who it is and what it may do, so that a program need not find out by refusals."""

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from oncelog.core.access import UNCHECKED, Caller, Permissions, Right, may
from oncelog.core.errors import ServiceUnavailable
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest, anybody
from oncelog.metadata.rest.routers import new_router

#: Namespaces of one page.
PAGE_MAX = 1_000

LimitQuery = Annotated[int, Query(description="Namespaces of this page", ge=1, le=PAGE_MAX)]
AfterQuery = Annotated[str | None, Query(description="`next_after` of the page before", max_length=1_000)]


class MeView(BaseModel):
    """The caller, and its rights."""

    role: str | None = Field(description="The `sub` of its token; null without authentication")
    superuser: bool = Field(description="Every request is allowed")
    authentication: bool = Field(description="false: this cluster checks no tokens, and every caller is a superuser")
    namespaces: dict[str, list[Right]] = Field(
        description="{namespace: the rights that the caller has in it}, by name; only namespaces in which it has one"
    )
    as_of_ms: int = Field(description="When the rights were read. They are read again after 10 s, if ZooKeeper answers")
    next_after: str | None = Field(description="`after` of the next page; null: this is the last one")


def routes(coordination: Coordination) -> APIRouter:
    """Show the caller and its rights."""
    router = new_router(prefix="/admin/v2", tags=["cluster"])

    @router.get("/me", summary="Show the caller and its rights", operation_id="get_me", dependencies=[anybody])
    async def get_me(caller: CallerOfRequest, limit: LimitQuery = PAGE_MAX, after: AfterQuery = None) -> MeView:
        """What the caller may do, to show it only what it may use. Each request is checked again when it is made.

        `service_unavailable` if ZooKeeper has not answered since this service started.
        """
        seen = await coordination.grants.seen()
        if seen.value is None or seen.as_of_ms is None:
            raise ServiceUnavailable(f"the rights in namespaces are not read yet: {seen.problem}")
        rights = ((name, _rights(caller, each)) for name, each in seen.value.items() if after is None or name > after)
        page = dict(islice(((name, each) for name, each in rights if each), limit + 1))
        more = len(page) > limit
        if more:
            page.popitem()
        return MeView(
            role=caller.role or None,
            superuser=caller.superuser,
            authentication=caller != UNCHECKED,
            namespaces=page,
            as_of_ms=seen.as_of_ms,
            next_after=next(reversed(page)) if more else None,
        )

    return router


def _rights(caller: Caller, grants: Permissions) -> list[Right]:
    return [right for right in Right if may(caller, grants, right)]
