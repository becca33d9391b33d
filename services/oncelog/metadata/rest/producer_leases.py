"""Routes for leases of producer ids: of one topic, and of several topics and partitions at once.

Each element is leased on its own, and has an answer or an error of its own; the response is 200 in any case. So an
element that is malformed, or that stands in the request twice, is refused alone.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from oncelog.core.access import Caller, Right
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.ids import GENERATION_MAX, PRODUCER_ID_MAX
from oncelog.core.names import PARTITIONS_MAX, TopicName, parse_topic
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MAX, LEASE_MS_MIN
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest, anybody, requires
from oncelog.metadata.rest.problems import ProblemBody, body_of
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata.topics.producer_leases import LeaseOrder, request_id_of
from oncelog.rpc.codecs.lease_codec import LEASES_MAX, LeaseResult

#: Topics of one request whose owners are asked at the same time.
_AT_ONCE = 16
_RequestId = Annotated[
    StrictStr | None,
    Field(
        min_length=1,
        max_length=255,
        description="Any text that no other request has, such as a UUID. The same request with the same text can be "
        "repeated until it is answered, and gets the same leases. If an id was leased to somebody else since, the "
        "repeated request gets its next generation.",
    ),
]


class LeaseElement(BaseModel):
    """A lease of the topic in the path."""

    model_config = ConfigDict(extra="forbid")

    partition: StrictInt | None = Field(None, ge=0, lt=PARTITIONS_MAX, description="Of a partitioned topic.")
    producer_id: StrictInt = Field(-1, ge=-1, le=PRODUCER_ID_MAX, description="-1: a new one.")
    generation: StrictInt | None = Field(
        None,
        ge=1,
        le=GENERATION_MAX,
        description="The current generation: the lease is only renewed. null: the next one, which fences the holder.",
    )
    expire_ms: StrictInt | None = Field(
        None,
        ge=0,
        lt=1 << 53,
        description="How long the id lives without a message, a renewal or a connection: "
        f"{LEASE_MS_MIN} to {LEASE_MS_MAX}; null: seven days, or as before.",
    )

    def order(self, topic: TopicName) -> LeaseOrder:
        """Raises InvalidArgument."""
        if self.producer_id == 0:
            raise InvalidArgument("producer_id is 1 or more; -1: a new one", field="producer_id")
        if self.partition is not None and topic.partition is not None:
            raise InvalidArgument(f"{topic} is a partition already: leave partition out", field="partition")
        place = topic if self.partition is None else replace(topic, partition=self.partition)
        return LeaseOrder(place, max(0, self.producer_id), self.generation or 0, self.expire_ms or 0)


class LeaseOfTopic(LeaseElement):
    """A lease of any topic."""

    topic: StrictStr = Field(description="tenant/namespace/name, or name for public/default.")


@dataclass(frozen=True, slots=True)
class Malformed:
    """An element that is refused, and the topic as it was sent; empty without one."""

    error: InvalidArgument
    topic: str = ""


def _refused_alone(element: object, handler: ValidatorFunctionWrapHandler) -> object:
    """The element, or why it is none: the others of the request go on."""
    try:
        return handler(element)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "leases"
        topic = element.get("topic") if isinstance(element, dict) else None
        return Malformed(
            InvalidArgument(f"{field}: {first['msg']}", field=field), topic if isinstance(topic, str) else ""
        )


class LeaseRequest(BaseModel):
    """Leases of one topic."""

    model_config = ConfigDict(extra="forbid")

    leases: list[Annotated[LeaseElement, WrapValidator(_refused_alone)]] = Field(min_length=1, max_length=LEASES_MAX)
    request_id: _RequestId = None


class LeasesRequest(BaseModel):
    """Leases of several topics."""

    model_config = ConfigDict(extra="forbid")

    leases: list[Annotated[LeaseOfTopic, WrapValidator(_refused_alone)]] = Field(min_length=1, max_length=LEASES_MAX)
    request_id: _RequestId = None


class LeaseAnswer(BaseModel):
    """A lease, which is durable, or why there is none; then the other fields are null."""

    topic: str = Field(description="As tenant/namespace/name, with the partition; as it was sent if it is invalid")
    error: ProblemBody | None = None
    producer_id: int | None = None
    generation: int | None = None
    sequence_number: int | None = Field(
        default=None, description="The highest that is stored; -1: none. The next one follows."
    )
    expire_ms: int | None = Field(
        default=None, description="The id lives at least so long from now on, and from each message."
    )
    producer_name: str | None = Field(default=None, description="What readers see.")


class LeaseAnswers(BaseModel):
    """In the order of the request."""

    leases: list[LeaseAnswer]


def routes(coordination: Coordination) -> APIRouter:
    router = new_router(tags=["producers"])

    @router.post(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/producers/lease",
        summary="Lease producer ids of a topic",
        operation_id="lease_producer_ids",
        dependencies=[requires(Right.PRODUCE)],
    )
    async def lease_producer_ids(topic: TopicPath, body: LeaseRequest, caller: CallerOfRequest) -> LeaseAnswers:
        """New ids, or the next generation of ids, which fences their holders, or renewals. Each element is leased on
        its own, and has its own error.

        A lease is durable when it is answered. With a `request_id` the request can be repeated. Ids belong to the role
        that leased them first; others need the right `admin`, too.
        """
        return await _lease(coordination, [(str(topic), each) for each in body.leases], body.request_id, caller)

    @router.post(
        "/admin/v2/producers/lease",
        summary="Lease producer ids of several topics",
        operation_id="lease_producer_ids_of_topics",
        dependencies=[anybody],
    )
    async def lease_producer_ids_of_topics(body: LeasesRequest, caller: CallerOfRequest) -> LeaseAnswers:
        """As for one topic; each element names its topic. Where the caller has not the right `produce`, that element is
        refused."""
        return await _lease(coordination, [(each.topic, each) for each in body.leases], body.request_id, caller)

    return router


async def _lease(
    coordination: Coordination, wanted: Sequence[tuple[str, LeaseElement | Malformed]], request_id: str | None,
    caller: Caller,
) -> LeaseAnswers:  # fmt: skip
    repeated = _repeated(wanted)
    request = request_id or secrets.token_hex(16)
    answers: dict[int, LeaseAnswer] = {}
    #: {topic: the places of its leases, and what is wanted}
    of_topic: dict[TopicName, dict[int, LeaseOrder]] = {}
    for place, (topic, element) in enumerate(wanted):
        try:
            if isinstance(element, Malformed):
                raise element.error
            if place in repeated:
                message = f"producer id {element.producer_id} of {topic} stands in several elements: lease it once"
                raise InvalidArgument(message, field="producer_id")
            order = element.order(parse_topic(topic))
        except OncelogError as error:
            answers[place] = LeaseAnswer(topic=topic, error=body_of(error))
        else:
            of_topic.setdefault(order.topic, {})[place] = order
    room = asyncio.Semaphore(_AT_ONCE)

    async def lease(topic: TopicName, orders: dict[int, LeaseOrder]) -> None:
        results: Sequence[LeaseResult]
        ids = [request_id_of(request, place, order, caller.role) for place, order in orders.items()]
        try:
            async with room:
                await coordination.policies.require(caller, topic.namespace_name, Right.PRODUCE)
                results = await coordination.leases.lease(topic, list(orders.values()), caller, ids)
        except OncelogError as error:
            results = [error] * len(orders)
        for place, result in zip(orders, results, strict=True):
            answers[place] = _answer(topic, wanted[place][0], result)

    await asyncio.gather(*(lease(topic, orders) for topic, orders in of_topic.items()))
    return LeaseAnswers(leases=[answers[place] for place in range(len(wanted))])


def _answer(topic: TopicName, sent: str, result: LeaseResult) -> LeaseAnswer:
    """sent: the topic of the element, as it was sent."""
    if isinstance(result, OncelogError):
        return LeaseAnswer(topic=sent, error=body_of(result))
    return LeaseAnswer(
        topic=str(topic),
        producer_id=result.producer_id,
        generation=result.generation,
        sequence_number=result.last_sequence_id,
        expire_ms=result.expires_in_ms,
        producer_name=result.producer_name,
    )


def _repeated(wanted: Sequence[tuple[str, LeaseElement | Malformed]]) -> set[int]:
    """The places of elements that lease one id: they would fence each other, in no order."""
    places: dict[object, list[int]] = {}
    for place, (topic, each) in enumerate(wanted):
        if isinstance(each, LeaseElement) and each.producer_id > 0:
            places.setdefault((topic, each.partition, each.producer_id), []).append(place)
    return {place for same in places.values() if len(same) > 1 for place in same}
