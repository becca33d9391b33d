"""Routes that list the subscriptions of all topics by their lag: what is not acknowledged, and since when. The topic
owners are asked, once for each page."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from oncelog.core.access import Right
from oncelog.core.topic.lag_listing import LagQuery, LagSort, LagState
from oncelog.core.topic.listing import ListPosition
from oncelog.metadata.observing.lag_listing import OwnedLag
from oncelog.metadata.owners.owners import advertised_address_of
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.observing.subscription_looks import SubscriptionRow
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import (
    NamespacePath,
    SilentOwner,
    UncountedView,
    WithoutOwner,
    silent_owners,
    uncounted_view,
    unowned_view,
)

#: Subscriptions of one page.
PAGE_MAX = 1_000

StateQuery = Annotated[
    LagState | None,
    Query(
        description="backlog: it has unacknowledged messages. no_consumer: it has, and no consumer is connected; one "
        "that keeps which dead letters were redriven is left out. blocked: it gets no new messages because of its ack "
        "state. Left out: all subscriptions of topics that have an owner"
    ),
]
SortQuery = Annotated[
    LagSort,
    Query(description="backlog: the largest first. age: the oldest unacknowledged message first. name: by name"),
]
TopicQuery = Annotated[
    str, Query(description="Only of topics with this text in their full name, in any case", max_length=1_000)
]
SubscriptionQuery = Annotated[
    str, Query(description="Only subscriptions with this text in their name, in any case", max_length=1_000)
]
LimitQuery = Annotated[int, Query(description="Subscriptions of this page", ge=1, le=PAGE_MAX)]
AfterQuery = Annotated[str | None, Query(description="`next_after` of the page before", max_length=2_000)]


async def _query(
    state: StateQuery = None,
    sort: SortQuery = LagSort.BACKLOG,
    topic: TopicQuery = "",
    subscription: SubscriptionQuery = "",
) -> LagQuery:
    return LagQuery(state, topic=topic, subscription=subscription, sort=sort)


ListOf = Annotated[LagQuery, Depends(_query)]


class LagRow(SubscriptionRow):
    """One subscription of one topic, with the fields of `subscriptionStats`."""

    topic: str = Field(description="Full name; the topic id while its owner has not read its record")
    topic_id: str
    owner: str = Field(description="Incarnation of the topic owner")
    owner_address: str
    backlog_change_10m: int | None = Field(
        None,
        description="By how many messages the backlog has grown in ten minutes, or since the owner serves the topic; "
        "null: not known yet",
    )


class LagPage(BaseModel):
    """Subscriptions in the order of `sort`."""

    subscriptions: list[LagRow]
    total: int = Field(description="Subscriptions for which the query holds, at the owners that answered")
    backlog_messages: int = Field(description="Their unacknowledged messages, together")
    oldest_unacked_ms: int | None = Field(description="When the oldest of these was stored, as far as it is known")
    next_after: str | None = Field(description="null: this is the last page")
    silent_owners: list[SilentOwner]
    without_owner: WithoutOwner
    waiting: UncountedView = Field(
        description="Topics that are not counted, because their owners do not serve them yet: they take them over, or "
        "something that they need is missing. The state `waiting` of lists of topics says what"
    )


def routes(coordination: Coordination) -> APIRouter:
    """For the whole cluster, and for one namespace."""
    router = new_router(prefix="/admin/v2/subscriptions", tags=["subscriptions"])

    @router.get("", summary="List subscriptions by their lag", operation_id="list_lags")
    async def list_all(query: ListOf, limit: LimitQuery = 100, after: AfterQuery = None) -> LagPage:
        """Subscriptions of all topics, each partition for itself. Those of a topic that is not served are not listed:
        see `without_owner` and `waiting`.

        Each topic owner is asked once for each page. One that does not answer within 3 s is listed in `silent_owners`.
        """
        return await _page(coordination, query, limit, after)

    @router.get(
        "/{tenant}/{namespace}",
        summary="List subscriptions of a namespace by their lag",
        operation_id="list_lags_of_namespace",
        dependencies=[requires(Right.ADMIN, Right.CONSUME)],
    )
    async def list_of_namespace(
        namespace: NamespacePath, query: ListOf, limit: LimitQuery = 100, after: AfterQuery = None
    ) -> LagPage:
        """As for all namespaces."""
        return await _page(coordination, replace(query, namespace=str(namespace)), limit, after)

    return router


async def _page(coordination: Coordination, query: LagQuery, limit: int, after: str | None) -> LagPage:
    """Raises InvalidArgument."""
    place = None if after is None else ListPosition.parse(after)
    found = await coordination.lags.page(query, limit=limit, after=place)
    return LagPage(
        subscriptions=[_row(one) for one in found.lags],
        total=found.total,
        backlog_messages=found.backlog_messages,
        oldest_unacked_ms=found.oldest_unacked_ms,
        next_after=None if found.next_place is None else str(found.next_place),
        silent_owners=silent_owners(found.silent),
        without_owner=await unowned_view(coordination.unowned, query.matches_topic),
        waiting=uncounted_view(found.waiting),
    )


def _row(one: OwnedLag) -> LagRow:
    own = {
        "topic": one.topic,
        "topic_id": one.topic_id,
        "owner": one.owner.incarnation,
        "owner_address": advertised_address_of(one.owner),
    }
    return LagRow.model_validate({**one.summary, **own})
