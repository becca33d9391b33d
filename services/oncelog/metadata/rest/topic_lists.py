"""Routes that list topics by their state: which are stuck, and why. The topic owners are asked, once for each page."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from oncelog.core.access import Right
from oncelog.core.names import NamespaceName
from oncelog.core.topic.listing import ListedState, ListPosition
from oncelog.metadata.coordination.owners import advertised_address_of
from oncelog.metadata.coordination.topic_listing import OwnedTopic
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.values import NamespacePath, SilentOwner, silent_owners

#: Topics of one page.
PAGE_MAX = 1_000
_SINCE = ("held_since_ms", "waiting_since_ms", "blocked_since_ms")

StateQuery = Annotated[
    ListedState | None,
    Query(
        description="held: a backlog quota holds or refuses publishing. waiting: the topic is not served. blocked: a "
        "subscription gets no new messages because of its ack state. backlog: a subscription has unacknowledged "
        "messages. Left out: all topics that have an owner"
    ),
]
LimitQuery = Annotated[int, Query(description="Topics of this page", ge=1, le=PAGE_MAX)]
AfterQuery = Annotated[str | None, Query(description="`next_after` of the page before", max_length=1_000)]


class TopicRow(BaseModel):
    """One topic. null: it does not apply, or is not known."""

    topic: str = Field(description="Full name; the topic id while its owner has not read its record")
    topic_id: str
    owner: str = Field(description="Incarnation of its owner")
    owner_address: str
    owner_epoch: int
    phase: str
    states: list[str] = Field(description="Of held, waiting, blocked and backlog, those that the topic is in")
    since_ms: int | None = Field(
        None, description="Since when it has been held, waiting or blocked, the longest of these; at this owner"
    )
    waiting_for: str | None = Field(None, description="Code of the error behind the wait")
    waiting_since_ms: int | None = None
    waiting_message: str | None = None
    publishing: str | None = Field(None, description="open, held or refused; null: not served")
    held_since_ms: int | None = Field(None, description="Since when publishing is held or refused")
    held_by: str | None = Field(None, description="The subscription whose backlog exceeds the quota")
    subscriptions: int | None = None
    blocked_subscriptions: int | None = None
    blocked_since_ms: int | None = None
    backlog_messages: int | None = Field(None, description="Unacknowledged messages of `backlog_subscription`")
    backlog_subscription: str | None = Field(None, description="The subscription that has the most")
    oldest_unacked_ms: int | None = Field(
        None,
        description="When the oldest message that a subscription has not acknowledged was stored, at the latest: exact "
        "to 10 s for new messages, to the age of a ledger for old ones",
    )


class TopicPage(BaseModel):
    """Topics in one state, the worst first: longest in the state, or with the largest backlog."""

    topics: list[TopicRow]
    total: int = Field(description="Topics in this state, at the owners that answered")
    next_after: str | None = Field(description="null: this is the last page")
    silent_owners: list[SilentOwner]


def routes(coordination: Coordination) -> APIRouter:
    """For the whole cluster, and for one namespace."""
    router = APIRouter(prefix="/admin/v2/topics", tags=["topics"])

    @router.get("", summary="List topics by state", operation_id="list_topics_by_state")
    async def list_all(state: StateQuery = None, limit: LimitQuery = 100, after: AfterQuery = None) -> TopicPage:
        """Topics of all namespaces, the worst first. A topic without an owner is not listed.

        Each topic owner is asked once for each page. One that does not answer within 3 s is listed in `silent_owners`.
        """
        return await _page(coordination, state, None, limit, after)

    @router.get(
        "/{tenant}/{namespace}",
        summary="List topics of a namespace by state",
        operation_id="list_topics_of_namespace_by_state",
        dependencies=[requires(Right.ADMIN, Right.PRODUCE, Right.CONSUME)],
    )
    async def list_of_namespace(
        namespace: NamespacePath, state: StateQuery = None, limit: LimitQuery = 100, after: AfterQuery = None
    ) -> TopicPage:
        """As for all namespaces."""
        return await _page(coordination, state, namespace, limit, after)

    return router


async def _page(
    coordination: Coordination,
    state: ListedState | None,
    namespace: NamespaceName | None,
    limit: int,
    after: str | None,
) -> TopicPage:
    """Raises InvalidArgument."""
    found = await coordination.lister.page(
        state,
        namespace=None if namespace is None else str(namespace),
        limit=limit,
        after=None if after is None else ListPosition.parse(after),
    )
    return TopicPage(
        topics=[_row(one) for one in found.topics],
        total=found.total,
        next_after=None if found.next_place is None else str(found.next_place),
        silent_owners=silent_owners(found.silent),
    )


def _row(one: OwnedTopic) -> TopicRow:
    since = [found for name in _SINCE if (found := one.summary.get(name)) is not None]
    own = {
        "topic": one.place.topic,
        "topic_id": one.topic_id,
        "owner": one.owner.incarnation,
        "owner_address": advertised_address_of(one.owner),
        "owner_epoch": one.owner_epoch,
        "since_ms": min(since, default=None),
    }
    return TopicRow.model_validate(one.summary | own)
