"""Routes for subscriptions, on Pulsar's paths. What is done to a partitioned topic is done to all its partitions.

The rights `admin` and `consume` allow all of them, as in Pulsar: who consumes may skip, seek and delete.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Path, Query

from oncelog.core.access import Caller, Right
from oncelog.core.errors import (
    Conflict,
    InvalidArgument,
    ServiceUnavailable,
    SubscriptionGone,
    SubscriptionNotFound,
)
from oncelog.core.names import TopicName
from oncelog.metadata.dead_letters.redrive import Letters, Redrive
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest, requires
from oncelog.metadata.rest.each_partition import each_partition
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.subscription_values import (
    EffectsStore,
    NewSubscription,
    PeekedMessage,
    Properties,
    RedriveAnswer,
    RedriveRequest,
    SeekPlace,
    SubscriptionPath,
    WaitingLetters,
    peeked_message,
    wire_properties,
)
from oncelog.metadata.rest.values import TopicPath
from oncelog.rpc.codecs.reader_codec import StartTime, start_message
from oncelog.wire import subscriptions_pb2 as pb

_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_ONE = f"{_TOPIC}/subscription/{{subscription}}"
_ALLOWED = [requires(Right.ADMIN, Right.CONSUME)]
ResultT = TypeVar("ResultT")
Count = Annotated[int, Path(ge=1, lt=1 << 53, description="Number of messages.")]
Seconds = Annotated[int, Path(ge=1, lt=1 << 40, description="Age in seconds.")]
TimeMs = Annotated[int, Path(ge=0, lt=1 << 53, description="Milliseconds since 1970.")]
Number = Annotated[int, Path(ge=1, le=10_000, description="1: the oldest message of the backlog.")]
ConsumedFrom = Annotated[
    int | None,
    Query(ge=0, lt=1 << 62, description="With what the log knows about effects, and of which messages from here on."),
]
Force = Annotated[bool, Query(description="Also with connected consumers, which end with `subscription_gone`.")]


class _Partitions:
    """Carries out one request on a topic, or on each of its partitions."""

    def __init__(self, coordination: Coordination, topic: TopicName) -> None:
        self._calls = coordination.subscriptions
        self._topic = topic

    async def each(
        self, do: Callable[[TopicName], Awaitable[ResultT]], *, unused: bool = False
    ) -> dict[TopicName, ResultT]:
        """See `each_partition`. Raises TopicNotFound."""
        return await each_partition(self._topic, await self._calls.partitions(self._topic), do, unused=unused)

    async def change(self, change: pb.ChangeSubscriptionRequest) -> None:
        await self.each(lambda topic: self._calls.change(topic, change))

    async def create(self, subscription: str, new: NewSubscription, role: str) -> None:
        """Raises Conflict if it exists. A creation that was carried out in part can be repeated: a partition that has
        the subscription with the same properties is left as it is, unless all partitions have it."""
        create = pb.CreateSubscription(start=new.start.start(), properties=wire_properties(new.properties), role=role)
        change = pb.ChangeSubscriptionRequest(subscription=subscription, create=create)
        conflicts: list[Conflict] = []

        async def of(topic: TopicName) -> None:
            try:
                await self._calls.change(topic, change)
            except Conflict as error:
                if (await self._calls.describe(topic, subscription))["properties"] != new.properties:
                    raise Conflict(f"{error.message}, with other properties") from error
                conflicts.append(error)

        if len(await self.each(of, unused=True)) == len(conflicts):
            raise conflicts[0]

    async def names(self) -> set[str]:
        return {name for names in (await self.each(self._calls.names)).values() for name in names}

    async def described(
        self, subscription: str, *, consumed_from: int | None = None
    ) -> dict[TopicName, dict[str, Any]]:
        """Its statistics, by topic or partition. Raises SubscriptionNotFound."""
        found = await self.each(lambda topic: self._calls.describe(topic, subscription, consumed_from=consumed_from))
        if not found:  # no partition was used yet
            raise SubscriptionNotFound(f"topic {self._topic} has no subscription {subscription}")
        return found

    async def require_one(self, what: str) -> None:
        """Raises InvalidArgument for a partitioned topic."""
        if count := await self._calls.partitions(self._topic):
            message = f"{what} belongs to one of the {count} partitions: use {self._topic}-partition-N"
            raise InvalidArgument(message, field="topic")


def routes(coordination: Coordination, redrive: Redrive | None) -> APIRouter:
    """All routes for subscriptions."""
    router = new_router(tags=["subscriptions"], dependencies=_ALLOWED)
    _add_life(router, coordination)
    _add_position(router, coordination)
    _add_redrive(router, coordination, redrive)
    return router


def _add_life(router: APIRouter, coordination: Coordination) -> None:
    @router.get(
        f"{_TOPIC}/subscriptions", summary="List the subscriptions", operation_id="list_subscriptions",
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def list_subscriptions(topic: TopicPath) -> list[str]:
        """Names, sorted. Of a partitioned topic: those of all partitions."""
        return sorted(await _Partitions(coordination, topic).names())

    @router.get(_ONE, summary="Show a subscription", operation_id="get_subscription", dependencies=_ALLOWED)
    async def get_subscription(
        topic: TopicPath, subscription: SubscriptionPath, consumed_from: ConsumedFrom = None
    ) -> dict[str, dict[str, Any]]:
        """Statistics by topic; of a partitioned topic, by partition."""
        described = await _Partitions(coordination, topic).described(subscription, consumed_from=consumed_from)
        return {str(each): described[each] for each in sorted(described, key=lambda each: each.partition or 0)}

    @router.put(
        _ONE, summary="Create a subscription", operation_id="create_subscription", status_code=204,
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def create_subscription(
        topic: TopicPath,
        subscription: SubscriptionPath,
        caller: CallerOfRequest,
        new: Annotated[NewSubscription | None, Body(description="Default: begins at the latest message.")] = None,
    ) -> None:
        """`conflict` if it exists. Its first consumer chooses its type. The topic must exist.

        A creation that was carried out on some partitions only can be repeated: partitions that have the subscription
        with the same properties are left as they are. `conflict` if all have it, or one has other properties.
        """
        new = new or NewSubscription()
        partitions = _Partitions(coordination, topic)
        if new.start.is_of_one_partition:
            await partitions.require_one("a message id or an index")
        await partitions.create(subscription, new, caller.role)

    @router.delete(
        _ONE, summary="Delete a subscription", operation_id="delete_subscription", status_code=204,
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def delete_subscription(topic: TopicPath, subscription: SubscriptionPath, force: Force = False) -> None:
        """`conflict` while consumers are connected, unless forced. Its position is lost."""
        partitions = _Partitions(coordination, topic)
        if not force:
            described = await partitions.described(subscription)
            if any(each["consumer_count"] for each in described.values()):
                raise Conflict(f"subscription {subscription} has connected consumers: close them, or use force")
        delete = pb.DeleteSubscription(force=force)
        await partitions.change(pb.ChangeSubscriptionRequest(subscription=subscription, delete=delete))

    @router.get(
        f"{_ONE}/properties", summary="Show the properties of a subscription",
        operation_id="get_subscription_properties", dependencies=_ALLOWED,
    )  # fmt: skip
    async def get_subscription_properties(topic: TopicPath, subscription: SubscriptionPath) -> dict[str, str]:
        """Text to text. Of a partitioned topic: those of its first partition that has the subscription."""
        found = await get_subscription(topic, subscription)
        return dict(next(iter(found.values()))["properties"])

    @router.put(
        f"{_ONE}/properties", summary="Replace the properties of a subscription",
        operation_id="set_subscription_properties", status_code=204, dependencies=_ALLOWED,
    )  # fmt: skip
    async def set_subscription_properties(
        topic: TopicPath,
        subscription: SubscriptionPath,
        properties: Annotated[Properties, Body(description="Up to 64, at most 16 KiB together.")],
    ) -> None:
        """All former properties are gone."""
        change = pb.SubscriptionProperties(properties=wire_properties(properties))
        await _Partitions(coordination, topic).change(
            pb.ChangeSubscriptionRequest(subscription=subscription, properties=change)
        )


def _add_position(router: APIRouter, coordination: Coordination) -> None:
    @router.get(
        f"{_ONE}/position/{{number}}", summary="Peek at a message of the backlog", operation_id="peek_message",
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def peek_message(topic: TopicPath, subscription: SubscriptionPath, number: Number) -> PeekedMessage:
        """Nothing is delivered or acknowledged. `not_found` behind the end of the backlog."""
        await _Partitions(coordination, topic).require_one("a message of a backlog")
        return peeked_message(topic, await coordination.subscriptions.peek(topic, subscription, number))

    @router.post(
        f"{_ONE}/skip/{{count}}", summary="Skip messages", operation_id="skip_messages", status_code=204,
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def skip_messages(topic: TopicPath, subscription: SubscriptionPath, count: Count) -> None:
        """Acknowledge the oldest messages of the backlog. Fewer, if it has fewer."""
        partitions = _Partitions(coordination, topic)
        await partitions.require_one("a number of messages")
        await partitions.change(pb.ChangeSubscriptionRequest(subscription=subscription, skip=count))

    @router.post(
        f"{_ONE}/skip_all", summary="Clear the backlog", operation_id="skip_all_messages", status_code=204,
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def skip_all_messages(topic: TopicPath, subscription: SubscriptionPath) -> None:
        """Acknowledge everything that is stored now."""
        change = pb.ChangeSubscriptionRequest(subscription=subscription, skip_all=pb.SkipAll())
        await _Partitions(coordination, topic).change(change)

    @router.post(
        f"{_ONE}/resetcursor/{{time_ms}}", summary="Seek to a time", operation_id="reset_cursor_to_time",
        status_code=204, dependencies=_ALLOWED,
    )  # fmt: skip
    async def reset_cursor_to_time(topic: TopicPath, subscription: SubscriptionPath, time_ms: TimeMs) -> None:
        """Begin again with the first message that was stored at or after a time. Connected consumers go on there."""
        change = pb.ChangeSubscriptionRequest(subscription=subscription, seek=start_message(StartTime(time_ms)))
        await _Partitions(coordination, topic).change(change)

    @router.post(
        f"{_ONE}/resetcursor", summary="Seek", operation_id="reset_cursor", status_code=204, dependencies=_ALLOWED
    )
    async def reset_cursor(topic: TopicPath, subscription: SubscriptionPath, place: SeekPlace) -> None:
        """Begin again at a place. What was acknowledged behind it is delivered again; with `redo`, it also takes effect
        again in the store of a bound subscription, which otherwise filters what it has."""
        partitions = _Partitions(coordination, topic)
        if place.is_of_one_partition:
            await partitions.require_one("a message id or an index")
        change = pb.ChangeSubscriptionRequest(subscription=subscription)
        (change.redo if place.redo else change.seek).CopyFrom(place.start())
        await partitions.change(change)

    @router.put(
        f"{_ONE}/store", summary="Bind another store of effects", operation_id="bind_store", status_code=204,
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def bind_store(topic: TopicPath, subscription: SubscriptionPath, store: EffectsStore) -> None:
        """The effects of a bound subscription are in this store from now on. `conflict` while consumers are connected,
        and if it is bound to none. `oncelog effects rebind` also writes the position into the new store."""
        change = pb.ChangeSubscriptionRequest(subscription=subscription, rebind=pb.RebindStore(store_id=store.store_id))
        await _Partitions(coordination, topic).change(change)

    @router.post(
        f"{_ONE}/expireMessages/{{seconds}}", summary="Expire messages by age", operation_id="expire_messages",
        status_code=204, dependencies=_ALLOWED,
    )  # fmt: skip
    async def expire_messages(topic: TopicPath, subscription: SubscriptionPath, seconds: Seconds) -> None:
        """Acknowledge messages that were stored longer ago than this."""
        change = pb.ChangeSubscriptionRequest(subscription=subscription, expire_after_ms=seconds * 1000)
        await _Partitions(coordination, topic).change(change)

    @router.post(
        f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}",
        summary="Expire messages by age for all subscriptions", operation_id="expire_messages_of_all_subscriptions",
        status_code=204, dependencies=_ALLOWED,
    )  # fmt: skip
    async def expire_messages_of_all_subscriptions(topic: TopicPath, seconds: Seconds) -> None:
        """As for each of the topic's subscriptions."""
        calls = coordination.subscriptions

        async def expire(partition: TopicName) -> None:
            for name in await calls.names(partition):
                change = pb.ChangeSubscriptionRequest(subscription=name, expire_after_ms=seconds * 1000)
                with suppress(SubscriptionNotFound, SubscriptionGone):  # it was deleted meanwhile
                    await calls.change(partition, change)

        await _Partitions(coordination, topic).each(expire)


def _add_redrive(router: APIRouter, coordination: Coordination, redrive: Redrive | None) -> None:
    async def letters_of(topic: TopicName, subscription: str, named: str | None, caller: Caller) -> Letters:
        letters = Letters.of(topic, subscription, named or "")
        await coordination.policies.require(caller, letters.where.namespace_name, Right.CONSUME)
        return letters

    def redriving() -> Redrive:
        if redrive is None:
            raise ServiceUnavailable("this service does not publish: send the request to another one")
        return redrive

    @router.get(
        f"{_ONE}/redrive", summary="Count the dead letters that wait", operation_id="count_dead_letters",
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def count_dead_letters(
        topic: TopicPath,
        subscription: SubscriptionPath,
        caller: CallerOfRequest,
        dead_letter_topic: Annotated[str | None, Query(description="The one that the consumers name.")] = None,
    ) -> WaitingLetters:
        """How many letters a redrive would look at. Also needs `consume` in the namespace of the dead-letter topic."""
        letters = await letters_of(topic, subscription, dead_letter_topic, caller)
        waiting = await redriving().waiting(letters)
        return WaitingLetters(dead_letter_topic=str(letters.where), waiting=waiting)

    @router.post(
        f"{_ONE}/redrive", summary="Redrive dead letters", operation_id="redrive_dead_letters",
        dependencies=[*_ALLOWED, requires(Right.PRODUCE)],
    )  # fmt: skip
    async def redrive_dead_letters(
        topic: TopicPath,
        subscription: SubscriptionPath,
        caller: CallerOfRequest,
        request: Annotated[RedriveRequest | None, Body(description="Default: up to 1,000 letters.")] = None,
    ) -> RedriveAnswer:
        """Publish the dead letters of the subscription to their origin again: every subscription of the topic gets
        them. Repeating the request publishes none twice. A letter that cannot be published stays, and is named.

        Also needs the right `produce`, and `consume` in the namespace of the dead-letter topic. It ends after 20
        seconds: `left` says how many letters are for the next request. `conflict` while another one is running.
        """
        request = request or RedriveRequest.model_validate({})
        letters = await letters_of(topic, subscription, request.dead_letter_topic, caller)
        done = await redriving().run(letters, letters_max=request.max)
        return RedriveAnswer.model_validate({"dead_letter_topic": str(letters.where)} | asdict(done))
