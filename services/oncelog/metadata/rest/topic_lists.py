"""Routes that list topics by their state or by a figure: which are stuck, and why; which are the largest, the busiest.
The topic owners are asked, once for each page."""

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from oncelog.core.access import Right
from oncelog.core.topic.listing import ListedState, ListPosition, ListQuery, ListSort
from oncelog.metadata.observing.topic_listing import OwnedTopic
from oncelog.metadata.owners.owners import advertised_address_of
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import NamespacePath, SilentOwner, WithoutOwner, silent_owners, unowned_view

#: Topics of one page.
PAGE_MAX = 1_000
_SINCE = ("held_since_ms", "waiting_since_ms", "blocked_since_ms")

StateQuery = Annotated[
    ListedState | None,
    Query(
        description="held: a backlog quota holds or refuses publishing. waiting: the topic is not served. blocked: a "
        "subscription gets no new messages because of its ack state. backlog: a subscription has unacknowledged "
        "messages. growing: the backlog of a subscription has grown for ten minutes. unconsumed: a "
        "subscription without a consumer has had messages for ten minutes. dead_letters: it stores dead letters, and "
        "some wait for a redrive. Left out: all topics that have an owner"
    ),
]
NameQuery = Annotated[
    str, Query(description="Only topics with this text in their full name, in any case", max_length=1_000)
]
SortQuery = Annotated[
    ListSort | None,
    Query(
        description="name; or messages, rate_in, rate_out, backlog (of the subscription that has the most), bytes or "
        "refused, the largest first. Left out: the worst of the state first; without a state by name"
    ),
]
PartitionsQuery = Annotated[
    Literal["each", "folded"],
    Query(description="folded: the partitions of a topic are one row with their sums; only in the order of names"),
]
LimitQuery = Annotated[int, Query(description="Topics of this page", ge=1, le=PAGE_MAX)]
AfterQuery = Annotated[str | None, Query(description="`next_after` of the page before", max_length=1_000)]


async def _query(
    state: StateQuery = None, name: NameQuery = "", sort: SortQuery = None, partitions: PartitionsQuery = "each"
) -> ListQuery:
    return ListQuery(state, name=name, sort=sort, folded=partitions == "folded")


ListOf = Annotated[ListQuery, Depends(_query)]


class TopicRow(BaseModel):
    """One topic, or all partitions of one, folded. null: it does not apply, or is not known.

    Of folded partitions, figures are sums, and null if that of one partition is not known; reasons are those of the
    partition that has been in the state longest.
    """

    topic: str = Field(description="Full name; the topic id while its owner has not read its record")
    topic_id: str | None = Field(description="null: of folded partitions")
    partitions: int = Field(0, description="How many are folded into this row; 0: it is one topic or one partition")
    owner: str | None = Field(description="Incarnation of its owner; null: of partitions with several owners")
    owner_address: str | None
    owner_epoch: int | None
    phase: str = Field(description="serving; of folded partitions: that of one that is not served, if there is one")
    states: list[str] = Field(
        description="Of held, waiting, blocked, backlog, growing, unconsumed and dead_letters, those that it is in"
    )
    since_ms: int | None = Field(
        None, description="Since when it has been held, waiting or blocked, the longest of these; at this owner"
    )
    waiting_for: str | None = Field(None, description="Code of the error behind the wait")
    waiting_since_ms: int | None = None
    waiting_message: str | None = None
    publishing: str | None = Field(None, description="open, held or refused; null: not served")
    held_since_ms: int | None = Field(None, description="Since when publishing is held or refused")
    held_by: str | None = Field(None, description="The subscription whose backlog exceeds the quota")
    message_count: int | None = Field(None, description="Messages stored so far, also those that are trimmed")
    first_index: int | None = Field(None, description="Messages that are trimmed: the index of the first that is left")
    bytes: int | None = Field(
        None, description="Of the messages that are left, one copy; null also while sizes of former owners are not read"
    )
    rate_in: float | None = Field(None, description="Messages stored a second, over the last 10 s or so")
    rate_out: float | None = Field(None, description="Messages sent to consumers a second, also again")
    refused: int | None = Field(
        None,
        description="Messages that were not stored since the owner took the topic over: duplicates, stale and "
        "unverified ones; `…/producers` has them by producer",
    )
    backlog_change_10m: int | None = Field(
        None,
        description="By how many messages a backlog has grown in ten minutes, or since the owner serves the topic: of "
        "the subscription with the highest value. A backlog is the lowest of a minute",
    )
    growing_subscription: str | None = Field(
        None, description="The subscription whose backlog has grown for ten minutes, the fastest of them"
    )
    unconsumed_subscription: str | None = Field(
        None, description="The subscription without a consumer whose oldest message has waited the longest"
    )
    unconsumed_since_ms: int | None = Field(None, description="When that message was stored")
    dead_letters: int | None = Field(
        None, description="Messages that no redrive has published or passed over; null: it is no dead-letter topic"
    )
    subscriptions: int | None = None
    blocked_subscriptions: int | None = None
    blocked_since_ms: int | None = None
    backlog_messages: int | None = Field(None, description="Unacknowledged messages of `backlog_subscription`")
    backlog_subscription: str | None = Field(None, description="The subscription that has the most")
    oldest_unacked_ms: int | None = Field(
        None,
        description="When the oldest message that a subscription has not acknowledged was stored, exact to 20 s. null: "
        "there is none, or it is not known yet: after a takeover it is read within seconds of the first question",
    )


class TopicPage(BaseModel):
    """Topics in the order of `sort`; otherwise the worst first: longest in the state, or with the largest backlog."""

    topics: list[TopicRow]
    total: int = Field(
        description="Topics in this state with this text, at the owners that answered; each partition counts"
    )
    next_after: str | None = Field(description="null: this is the last page")
    silent_owners: list[SilentOwner]
    without_owner: WithoutOwner


def routes(coordination: Coordination) -> APIRouter:
    """For the whole cluster, and for one namespace."""
    router = new_router(prefix="/admin/v2/topics", tags=["topics"])

    @router.get("", summary="List topics by state", operation_id="list_topics_by_state")
    async def list_all(query: ListOf, limit: LimitQuery = 100, after: AfterQuery = None) -> TopicPage:
        """Topics of all namespaces, the worst first, or by a figure. A topic without an owner is not listed: see
        `without_owner`.

        Each topic owner is asked once for each page. One that does not answer within 3 s is listed in `silent_owners`.
        """
        return await _page(coordination, query, limit, after)

    @router.get(
        "/{tenant}/{namespace}",
        summary="List topics of a namespace by state",
        operation_id="list_topics_of_namespace_by_state",
        dependencies=[requires(Right.ADMIN, Right.PRODUCE, Right.CONSUME)],
    )
    async def list_of_namespace(
        namespace: NamespacePath, query: ListOf, limit: LimitQuery = 100, after: AfterQuery = None
    ) -> TopicPage:
        """As for all namespaces."""
        return await _page(coordination, replace(query, namespace=str(namespace)), limit, after)

    return router


async def _page(coordination: Coordination, query: ListQuery, limit: int, after: str | None) -> TopicPage:
    """Raises InvalidArgument."""
    found = await coordination.lister.page(
        query, limit=limit, after=None if after is None else ListPosition.parse(after)
    )
    return TopicPage(
        topics=[_row(one) for one in found.topics],
        total=found.total,
        next_after=None if found.next_place is None else str(found.next_place),
        silent_owners=silent_owners(found.silent),
        without_owner=await unowned_view(coordination.unowned, query.matches),
    )


def _row(one: OwnedTopic) -> TopicRow:
    since = [found for name in _SINCE if (found := one.summary.get(name)) is not None]
    own = {
        "topic": one.place.topic,
        "topic_id": one.topic_id or None,
        "owner": None if one.owner is None else one.owner.incarnation,
        "owner_address": None if one.owner is None else advertised_address_of(one.owner),
        "owner_epoch": one.owner_epoch or None,
        "since_ms": min(since, default=None),
    }
    return TopicRow.model_validate({**one.summary, **own})
