"""Routes that look at the subscriptions of one topic: pages of them, an ack state, and what a seek would do. A topic
without an owner stays without one."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from oncelog.core.access import Right
from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.subscription_values import SubscriptionPath, TopicPlace
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.inspection_codec import DESCRIBE_ACK_STATE, LIST_SUBSCRIPTIONS, PREVIEW_SEEK
from oncelog.rpc.methods import UnaryMethod
from oncelog.wire import inspection_pb2 as pb

_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_ONE = f"{_TOPIC}/subscription/{{subscription}}"
#: An owner answers from memory; for a seek it may prove first that it is the current one, and read an entry.
_TIMEOUT_MS, _SEEK_TIMEOUT_MS = 3_000, 10_000
_PAGE_MAX = _BUCKETS_MAX = 1_000

SortQuery = Annotated[
    str, Query(description="backlog: the largest backlog first. name: by name", pattern="^(backlog|name)$")
]
AfterQuery = Annotated[str | None, Query(description="`next_after` of the page before", max_length=1_000)]
LimitQuery = Annotated[int, Query(description="Subscriptions of this page", ge=1, le=_PAGE_MAX)]
BucketsQuery = Annotated[int, Query(description="Parts into which the messages are divided", ge=1, le=_BUCKETS_MAX)]
PositionQuery = Annotated[str | None, Query(description="earliest or latest", pattern="^(earliest|latest)$")]
IndexQuery = Annotated[int | None, Query(description="Number of a message in the topic", ge=0, lt=1 << 62)]
TimeQuery = Annotated[
    int | None, Query(description="The first message stored at or after it, ms since 1970", ge=0, lt=1 << 53)
]
MessageQuery = Annotated[
    str | None, Query(description="ledger:entry or ledger:entry:index; begins after it", max_length=100)
]


class SubscriptionRow(BaseModel):
    """One subscription, without its consumers and properties. It has further fields of `GET …/subscription/NAME`."""

    model_config = ConfigDict(extra="allow")

    name: str
    type: str
    msg_backlog: int = Field(description="Messages that are not acknowledged")
    backlog_size: int | None = Field(description="Bytes of messages from `mark_delete` on; null: not known yet")
    oldest_unacked_ms: int | None = Field(
        description="When its first unacknowledged message was stored; null: there is none, or it is not known yet"
    )
    unacked_messages: int = Field(description="Messages that consumers hold")
    mark_delete: int = Field(description="Index of its first unacknowledged message")
    consumer_count: int
    committed_ms: int | None = Field(
        None, description="When a group of clients of Kafka has committed last, ms since 1970; null: none has"
    )


class SubscriptionPage(BaseModel):
    """Some subscriptions of a topic."""

    subscriptions: list[SubscriptionRow]
    total: int = Field(description="Subscriptions of the topic")
    next_after: str | None = Field(description="null: this is the last page")


class AckBucket(BaseModel):
    """Some of the messages, all of them next to each other."""

    acknowledged: int
    in_flight: int = Field(description="With a consumer, and not acknowledged")


class AckHole(BaseModel):
    """Unacknowledged messages first to last, both inclusive; the other fields are about the first one."""

    first: int
    last: int
    holder: str | None = Field(description="The consumer that has the first message; null: none has")
    held_since_ms: int | None = Field(
        description="Since when, at the latest: exact to some seconds, and a lower bound of the age for messages that "
        "it has had for minutes while it got others"
    )
    delivery_count: int = Field(description="How often it was delivered before it came back; 0: it never came back")
    delayed_until_ms: int | None = Field(description="Not delivered again before this time")
    pending_dead_letter: bool = Field(description="It is about to be stored in the dead-letter topic")


class AckState(BaseModel):
    """The messages of a topic from the first unacknowledged one on, as a subscription sees them."""

    first: int = Field(description="Index of the first unacknowledged message")
    next: int = Field(description="Index that the topic's next message gets")
    topic_first: int = Field(description="Index of the first message that is kept")
    bucket_messages: int = Field(description="Messages of a bucket; the last one may have fewer")
    buckets: list[AckBucket] = Field(description="From `first` to `next`; empty: everything is acknowledged")
    hole_count: int = Field(description="Ranges of unacknowledged messages")
    holes: list[AckHole] = Field(description="The lowest 50 of them")
    dead_letter_topic: str | None = Field(description="As the newest consumer said; null: none has at this owner")


class SeekPreview(BaseModel):
    """What a seek to a place would do now."""

    index: int = Field(description="Where the subscription would go on")
    delivered_again: int = Field(description="Acknowledged messages that would be delivered again")
    left_out: int = Field(description="Unacknowledged messages that would count as acknowledged")
    first_index: int = Field(description="Index of the first message that is kept")
    next_index: int = Field(description="Index that the topic's next message gets")


def routes(coordination: Coordination) -> APIRouter:
    """All routes of this module."""
    router = new_router(tags=["subscriptions"], dependencies=[requires(Right.ADMIN, Right.CONSUME)])

    async def asked(
        topic: TopicName, method: UnaryMethod[Any, Any, Any, pb.InspectionAnswer], request: Any, timeout_ms: int
    ) -> Any:
        async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.InspectionAnswer:
            request.topic, request.topic_id = str(topic), topic_id
            return await coordination.calls.ask(owner, method, request, timeout_ms=timeout_ms)

        return json.loads((await coordination.topic_calls.of_owner(topic, ask, placed=False)).json)

    @router.get(
        f"{_TOPIC}/subscriptionStats",
        summary="List subscriptions with statistics",
        operation_id="list_subscription_stats",
    )
    async def subscription_stats(
        topic: TopicPath, sort: SortQuery = "backlog", after: AfterQuery = None, limit: LimitQuery = 50
    ) -> SubscriptionPage:
        """A page of a topic's subscriptions. `conflict` for a topic without an owner, which is not placed."""
        request = pb.ListSubscriptionsRequest(by_backlog=sort == "backlog", after=after or "", limit=limit)
        return SubscriptionPage.model_validate(await asked(topic, LIST_SUBSCRIPTIONS, request, _TIMEOUT_MS))

    @router.get(f"{_ONE}/ackState", summary="Show what a subscription has acknowledged", operation_id="get_ack_state")
    async def ack_state(topic: TopicPath, subscription: SubscriptionPath, buckets: BucketsQuery = 200) -> AckState:
        """From its first unacknowledged message to the end of the topic, and the lowest unacknowledged messages with
        the consumers that have them. `conflict` for a topic without an owner, which is not placed."""
        request = pb.AckStateRequest(subscription=subscription, buckets=buckets)
        return AckState.model_validate(await asked(topic, DESCRIBE_ACK_STATE, request, _TIMEOUT_MS))

    @router.get(f"{_ONE}/place", summary="Show what a seek would do", operation_id="preview_seek")
    async def preview_seek(
        topic: TopicPath,
        subscription: SubscriptionPath,
        position: PositionQuery = None,
        message_id: MessageQuery = None,
        inclusive: Annotated[bool, Query(description="With message_id: begin with that message itself")] = False,
        index: IndexQuery = None,
        time_ms: TimeQuery = None,
    ) -> SeekPreview:
        """What `resetcursor` with the same place would deliver again and leave out. Nothing changes."""
        fields = {"position": position, "message_id": message_id, "index": index, "time_ms": time_ms}
        given = {name: value for name, value in fields.items() if value is not None}
        if len(given) != 1:
            message = f"{len(given)} places: give exactly one of {', '.join(fields)}"
            raise InvalidArgument(message, field=next(iter(given), "index"))
        place = TopicPlace.model_validate({**given, "inclusive": inclusive})
        request = pb.PreviewSeekRequest(subscription=subscription, place=place.start())
        return SeekPreview.model_validate(await asked(topic, PREVIEW_SEEK, request, _SEEK_TIMEOUT_MS))

    return router
