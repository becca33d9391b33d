"""Routes for topics: list, create, show, look up, unload, truncate, delete. Statistics come from the topic owners."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query

from oncelog.core.access import Right
from oncelog.core.errors import Conflict, CorruptEntry, DeadlineExceeded, ServiceUnavailable
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.names import DOORS_PREFIX, TopicName, is_of_doors
from oncelog.metadata.owners.owners import advertised_address_of
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest, requires
from oncelog.metadata.rest.each_partition import each_partition
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import (
    LookupView,
    NamespacePath,
    TopicPath,
    TopicStats,
    TopicView,
    TrimBody,
    TrimmedView,
)
from oncelog.metadata.topics.topic_lookup import require_unpartitioned
from oncelog.metadata_store.session import paths

_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_LOOKUP = "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}"
UNOWNED = "unowned"
SubscriptionsQuery = Annotated[
    bool, Query(description="false: without the list of subscriptions, which `subscriptionStats` has in pages.")
]
DoorsQuery = Annotated[
    bool, Query(description=f"Also the topics that doors keep for themselves; their names begin with {DOORS_PREFIX}")
]
UnreadableQuery = Annotated[
    bool,
    Query(description="true: instead the paths of name records that cannot be read, for `records/rebuild`."),
]
_MAY_SEE = requires(Right.ADMIN, Right.PRODUCE, Right.CONSUME)
_MAY_CREATE = requires(Right.ADMIN, Right.PRODUCE)
_MAY_USE = requires(Right.PRODUCE, Right.CONSUME)


def routes(coordination: Coordination) -> APIRouter:
    """All routes of single topics, except their policies."""
    router = new_router(tags=["topics"])

    @router.get(
        "/admin/v2/persistent/{tenant}/{namespace}",
        summary="List the topics",
        operation_id="list_topics",
        dependencies=[_MAY_SEE],
    )
    async def list_topics(
        namespace: NamespacePath, unreadable: UnreadableQuery = False, doors: DoorsQuery = False
    ) -> list[str]:
        """Full names, sorted. Partitions are listed once they have been used.

        A topic whose name record is damaged is listed too; other calls about it fail with `corrupt_entry`.
        """
        listed = await coordination.topics.topics(namespace)
        if unreadable:
            folder = paths.namespace_names(namespace)
            return [f"{folder}/{name}" for name, record in listed.items() if isinstance(record, CorruptEntry)]
        return [f"{namespace}/{name}" for name in listed if doors or not is_of_doors(name)]

    @router.put(
        _TOPIC, summary="Create a topic", operation_id="create_topic", status_code=204, dependencies=[_MAY_CREATE]
    )
    async def create_topic(topic: TopicPath) -> None:
        """`conflict` if the topic exists. Independent of the policy for automatic topic creation."""
        if not await coordination.create_topic(topic):
            raise Conflict(f"topic {topic} already exists", field="topic")

    @router.get(_TOPIC, summary="Show a topic", operation_id="get_topic", dependencies=[_MAY_SEE])
    async def get_topic(topic: TopicPath) -> TopicView:
        """The topic's record in ZooKeeper; the owner is not called."""
        name, record = await coordination.lookup.record(topic)
        return TopicView(
            topic=str(topic),
            topic_id=name.topic_id,
            partitions=name.partitions,
            owner=record.owner if record else None,
            owner_epoch=record.owner_epoch if record else 0,
            ledger_count=record.ledger_count if record else 0,
        )

    _add_deletion(router, coordination)
    _add_reports(router, coordination)
    _add_lookup(router, coordination)

    @router.put(
        f"{_TOPIC}/unload",
        summary="Move a topic to another owner",
        operation_id="unload_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN)],
    )
    async def unload_topic(topic: TopicPath) -> None:
        """The owner closes the topic, which is then placed on another owner, or on the same one if there is no other.

        Answered when the new owner is chosen. It takes the topic over shortly after.
        """
        name, _ = await coordination.lookup.record(topic)
        require_unpartitioned(topic, name.partitions)
        await coordination.placements.unload(name.topic_id)

    _add_truncation(router, coordination)
    return router


def _add_lookup(router: APIRouter, coordination: Coordination) -> None:
    @router.get(_LOOKUP, summary="Look a topic up", operation_id="look_up_topic", dependencies=[_MAY_USE])
    async def look_up_topic(
        topic: TopicPath,
        caller: CallerOfRequest,
        create: Annotated[
            bool,
            Query(description="Create the topic if it does not exist and its namespace allows automatic creation."),
        ] = False,
    ) -> LookupView:
        """Where the topic is served. Places the topic if it has no live owner, and waits up to 10 s for an owner."""
        located = await coordination.lookup.locate_for(caller, topic, create=create)
        return LookupView(
            cluster_id=coordination.cluster_id,
            topic=str(topic),
            topic_id=located.topic_id,
            partitions=located.partitions,
            owner_address=located.address,
            owner_incarnation=located.owner,
            owner_epoch=located.owner_epoch,
        )


def _add_deletion(router: APIRouter, coordination: Coordination) -> None:
    @router.delete(
        _TOPIC,
        summary="Delete a topic",
        operation_id="delete_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN)],
    )
    async def delete_topic(topic: TopicPath) -> None:
        """Permanently delete a topic with all its messages, producers, cursors and policies.

        Its producers and readers end with `topic_not_found`. When this is answered, the name is free, and nothing is
        acknowledged for the deleted topic any more. `service_unavailable` if the owner has not confirmed the deletion
        yet, or too few storage nodes could be fenced: the deletion continues, and a repeated request waits for its end.
        `conflict` for a partitioned topic and for a single partition.
        """
        await coordination.deletions.delete(topic)


def _add_truncation(router: APIRouter, coordination: Coordination) -> None:
    @router.delete(
        f"{_TOPIC}/truncate",
        summary="Truncate a topic",
        operation_id="truncate_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN)],
    )
    async def truncate_topic(topic: TopicPath) -> None:
        """Delete all messages of a topic, whether or not they are acknowledged; of a partitioned topic, in all
        partitions. Every subscription goes on at the end.

        Producers go on, and deduplication still refuses what they send again. Messages that are published meanwhile
        may be deleted, too. When this is answered, the messages are gone from the topic; storage nodes give the space
        back soon after. After `service_unavailable` the truncation goes on: repeat the request to learn when it is
        complete.
        """
        count = (await coordination.lookup.find(topic)).partitions
        truncate = coordination.calls.truncate
        await each_partition(topic, count, lambda each: coordination.topic_calls.of_owner(each, truncate))

    @router.post(
        f"{_TOPIC}/trim",
        summary="Delete the oldest messages of a topic",
        operation_id="trim_topic",
        dependencies=[requires(Right.ADMIN)],
    )
    async def trim_topic(topic: TopicPath, body: TrimBody) -> TrimmedView:
        """Delete the messages below an index, whether or not they are acknowledged, as far as they are whole ledgers:
        no message at or above the index is deleted. Subscriptions that are behind go on at the first message that is
        left.

        Of a topic without partitions, or of one partition. Answered when the messages are gone from the topic. After
        `service_unavailable` repeat the request.
        """
        trim = coordination.calls.trim
        first_index = await coordination.topic_calls.of_owner(
            topic, lambda owner, topic_id: trim(owner, topic_id, body.before_index)
        )
        return TrimmedView(first_index=first_index)


def _add_reports(router: APIRouter, coordination: Coordination) -> None:
    @router.get(
        f"{_TOPIC}/stats", summary="Statistics of a topic", operation_id="get_topic_stats", dependencies=[_MAY_SEE]
    )
    async def get_topic_stats(topic: TopicPath, subscriptions: SubscriptionsQuery = True) -> TopicStats:
        """Counters since the owner took the topic over. A topic without an owner is not placed: phase `unowned`.

        No other owner is asked. One that does not answer within 3 s is named in the error.
        """
        return await _stats(coordination, topic, internal=False, subscriptions=subscriptions)

    @router.get(
        f"{_TOPIC}/internalStats",
        summary="Internal state of a topic",
        operation_id="get_topic_internal_stats",
        dependencies=[requires(Right.ADMIN)],
    )
    async def get_topic_internal_stats(topic: TopicPath) -> TopicStats:
        """Producers with sequence ids and generations, ledgers, and the snapshot. Without an owner: phase `unowned`."""
        return await _stats(coordination, topic, internal=True)


async def _stats(
    coordination: Coordination, topic: TopicName, *, internal: bool, subscriptions: bool = False
) -> TopicStats:
    name, record = await coordination.lookup.record(topic)
    require_unpartitioned(topic, name.partitions)
    owner = record.owner if record else None
    from_owner = await _from_owner(coordination, name.topic_id, owner, internal=internal, subscriptions=subscriptions)
    live = coordination.owners.find(owner) if owner is not None else None
    own = {
        "topic": str(topic),
        "topic_id": name.topic_id,
        "owner": owner,
        "owner_address": advertised_address_of(live) if live else None,
        "owner_epoch": record.owner_epoch if record else 0,
    }
    return TopicStats.model_validate({"phase": UNOWNED, **from_owner, **own})


async def _from_owner(
    coordination: Coordination, topic_id: TopicId, owner: Incarnation | None, *, internal: bool, subscriptions: bool
) -> dict[str, Any]:
    """The owner's statistics, {} without an owner. Raises ServiceUnavailable if the owner does not answer."""
    if owner is None or coordination.owners.is_lost(owner):
        return {}
    live = coordination.owners.find(owner)
    assert live is not None, "an owner without a session is lost"
    try:
        state = await coordination.calls.state(live, topic_id, internal=internal, subscriptions=subscriptions)
    except (ServiceUnavailable, DeadlineExceeded) as error:
        where = advertised_address_of(live)
        message = f"the topic's owner at {where} does not answer, and only it has these figures: {error.message}"
        raise ServiceUnavailable(message) from error
    if state is None:
        return {}
    stats: dict[str, Any] = json.loads((state.internal_stats_json if internal else state.stats_json) or "{}")
    return {**stats, "phase": state.phase}
