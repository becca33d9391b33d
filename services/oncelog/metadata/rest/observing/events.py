"""Routes that list what happened lately: each process keeps its last events in memory, and is asked for them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from oncelog.core.access import Right
from oncelog.core.names import check_part, parse_topic
from oncelog.metadata.observing.event_lists import EventPlace, ListedEvent
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import NamespacePath
from oncelog.runtime.observing.events import EventKind

#: Events of one page.
PAGE_MAX = 1_000

KindQuery = Annotated[
    list[EventKind] | None, Query(description="Events of this kind; repeat it for several. Left out: of all kinds")
]
TopicQuery = Annotated[
    str | None, Query(description="Events of this topic, with those of its partitions", max_length=1_000)
]
NodeQuery = Annotated[
    str | None,
    Query(
        description="Incarnation of a topic owner or a storage node: events that are about it, and its own",
        max_length=100,
    ),
]
BeforeQuery = Annotated[str | None, Query(description="`next_before` of the page before", max_length=100)]
LimitQuery = Annotated[int, Query(description="Events of this page", ge=1, le=PAGE_MAX)]


class EventRow(BaseModel):
    """One event."""

    at_ms: int = Field(description="When it happened, in ms since 1970, by the clock of its process")
    last_ms: int = Field(description="When the last of `count` equal events happened")
    count: int = Field(
        description="Equal events of one minute, or what they were about: messages that left a backlog count one each"
    )
    kind: str = Field(description="As in the parameter `kind`")
    level: str = Field(description="info, warning or error")
    message: str
    topic: str | None = Field(description="Full name, or tenant/namespace; null: it is about none")
    node: str | None = Field(description="Incarnation of the process that it is about, if that is another one")
    service: str = Field(description="Of the process that noted it: topic_owner, log_storage or metadata")
    process: str = Field(description="Incarnation of that process; of a metadata service, its address")
    fields: dict[str, Any] = Field(description="The facts, as in the log of the process")
    place: str = Field(description="For `before`")


class SilentService(BaseModel):
    """A process that was not heard: its events are missing in the list."""

    service: str = Field(description="topic_owner, log_storage, metadata, or zookeeper, which lists the others")
    process: str
    reason: str


class EventPage(BaseModel):
    """Events, the newest first."""

    events: list[EventRow]
    next_before: str | None = Field(description="null: this is the last page")
    silent: list[SilentService]


def routes(coordination: Coordination) -> APIRouter:
    """For the whole cluster, and for one namespace."""
    router = new_router(prefix="/admin/v2/events", tags=["cluster"])

    @router.get("", summary="List events", operation_id="list_events")
    async def list_all(
        kind: KindQuery = None,
        topic: TopicQuery = None,
        node: NodeQuery = None,
        before: BeforeQuery = None,
        limit: LimitQuery = 100,
    ) -> EventPage:
        """What happened lately, the newest first: each process keeps its last 1,000 events in memory, and they end with
        it. A process that does not answer within 2 s is listed in `silent`.
        """
        within = "" if topic is None else str(parse_topic(topic))
        return await _page(coordination, within, kind, node, before, limit)

    @router.get(
        "/{tenant}/{namespace}",
        summary="List events of a namespace",
        operation_id="list_events_of_namespace",
        dependencies=[requires(Right.ADMIN)],
    )
    async def list_of_namespace(
        namespace: NamespacePath,
        kind: KindQuery = None,
        topic: TopicQuery = None,
        node: NodeQuery = None,
        before: BeforeQuery = None,
        limit: LimitQuery = 100,
    ) -> EventPage:
        """As for the whole cluster: events of the namespace and of its topics. topic: without tenant and namespace."""
        within = str(namespace) if topic is None else f"{namespace}/{check_part(topic, field='topic')}"
        return await _page(coordination, within, kind, node, before, limit)

    return router


async def _page(
    coordination: Coordination,
    within: str,
    kinds: list[EventKind] | None,
    node: str | None,
    before: str | None,
    limit: int,
) -> EventPage:
    """Raises InvalidArgument."""
    found = await coordination.event_lists.page(
        kinds=kinds or (),
        within=within,
        node=node or "",
        before=None if before is None else EventPlace.parse(before),
        limit=limit,
    )
    return EventPage(
        events=[_row(each) for each in found.events],
        next_before=None if found.next_before is None else str(found.next_before),
        silent=[SilentService(service=one.service, process=one.process, reason=one.reason) for one in found.silent],
    )


def _row(one: ListedEvent) -> EventRow:
    event = one.event
    return EventRow(
        at_ms=event.at_ms,
        last_ms=event.last_ms,
        count=event.count,
        kind=event.kind,
        level=event.level,
        message=event.message,
        topic=event.topic or None,
        node=event.node or None,
        service=one.service,
        process=one.process,
        fields=one.fields,
        place=str(one.place),
    )
