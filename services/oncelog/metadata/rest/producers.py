"""Routes for the producers of a topic: who they are, and what the log knows of them."""

from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from oncelog.core.access import NO_ROLE, Right
from oncelog.core.errors import InvalidArgument, NotFound, TopicNotFound
from oncelog.core.ids import PRODUCER_ID_MAX
from oncelog.core.names import TopicName
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import CallerOfRequest, requires
from oncelog.metadata.rest.each_partition import each_partition
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import TopicPath
from oncelog.metadata.topics.producer_calls import is_producer_id
from oncelog.wire import producers_pb2 as pb

_TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_ALL = f"{_TOPIC}/producers"
#: A name may contain a slash.
_ONE = f"{_ALL}/{{producer:path}}"
_ALLOWED = [requires(Right.ADMIN)]
#: Producers of one page.
PAGE_MAX = 1_000
#: Partitions that are asked for one page.
_PARTITIONS_ASKED_MAX = 64
_MS_MAX = 1 << 53

LimitQuery = Annotated[int, Query(description="Producers of this page.", ge=1, le=PAGE_MAX)]
AfterQuery = Annotated[str | None, Query(description="`next_after` of the page before.", max_length=40)]
PrefixQuery = Annotated[str, Query(description="Names that begin with this.", max_length=1_000)]
RoleQuery = Annotated[str | None, Query(description="Names that belong to this role.", max_length=1_000)]
ConnectedQuery = Annotated[bool | None, Query(description="Whether it has a session.")]
IdleQuery = Annotated[
    int | None, Query(description="No message, opening or renewal for at least so many ms.", ge=0, le=_MS_MAX)
]
ExpiresQuery = Annotated[
    int | None, Query(description="It may expire within so many ms, if it does nothing.", ge=0, le=_MS_MAX)
]
ProducerPath = Annotated[
    str, Path(description="Name of a producer; if no producer has this name, a producer id.", max_length=1_000)
]


ProducerIdPath = Annotated[
    int,
    Path(
        ge=1, le=PRODUCER_ID_MAX,
        description="Id of the producer; not its name, which another producer may have when the request is repeated.",
    ),
]  # fmt: skip
ForceQuery = Annotated[bool, Query(description="Also if it is connected.")]


class ProducerView(BaseModel):
    """One producer, from the owner of its topic, which may add fields. null: it has none, or it is not known."""

    model_config = ConfigDict(extra="allow")

    topic: str = Field(description="The topic, or the partition")
    name: str
    producer_id: int
    generation: int
    role: str | None = Field(description="The role that owns the name")
    mode: str = Field(description="monotonic, contiguous or epoched")
    connected: bool
    connected_from: str | None = Field(description="host:port of the client that has the session")
    accepted: int = Field(description="The highest sequence id that was handed to the log; -1: none")
    persisted: int = Field(description="The highest sequence id that is durable; -1: none")
    last_activity_ms: int = Field(description="The last message, opening or renewal, milliseconds since 1970")
    idle_ms: int
    expires_ms: int | None = Field(
        description="The least time until it may expire, if it does nothing; null: it lives for ever"
    )
    duplicates: int = Field(description="Duplicates that were refused, since its owner took the topic over")
    stale: int = Field(description="Messages refused with `stale_sequence`, since then")
    unverified: int = Field(description="Messages answered with `verified=false`, since then")
    recent_batches_count: int
    recent_floor: int = Field(description="Ids at or below it are older than the recent batches")
    memory_bytes: int = Field(description="Of what its owner keeps of it")


class GenerationView(BaseModel):
    """One generation of a producer. null: there is none, or it is not known."""

    model_config = ConfigDict(extra="allow")

    generation: int
    at_ms: int = Field(description="When it was granted, by the clock of the topic's owner")
    role: str | None
    address: str | None = Field(alias="from", description="host:port of the client that asked for it")
    leased: bool
    fenced_generation: int | None = Field(description="The generation that it fenced")


class ProducerDetails(ProducerView):
    """One producer with the last of its generations, the newest first: which client fenced which, and when."""

    generations: list[GenerationView] = Field(
        description="At most 16. Those that were granted before all processes knew this are not known"
    )


class ProducerPage(BaseModel):
    """Producers by id; of a partitioned topic, by partition before that."""

    producers: list[ProducerView]
    next_after: str | None = Field(
        description="null: this is the last page. A page may have fewer producers than its limit, or none, before that"
    )


class _Place(NamedTuple):
    """Where a page begins: behind this producer of this partition. Of a topic without partitions: 0."""

    partition: int
    producer_id: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.producer_id}"


def routes(coordination: Coordination) -> APIRouter:
    """All routes for producers."""
    router = new_router(tags=["producers"], dependencies=_ALLOWED)

    @router.get(_ALL, summary="List the producers", operation_id="list_producers", dependencies=_ALLOWED)
    async def list_producers(
        topic: TopicPath,
        name_prefix: PrefixQuery = "",
        role: RoleQuery = None,
        connected: ConnectedQuery = None,
        idle_ms: IdleQuery = None,
        expires_within_ms: ExpiresQuery = None,
        limit: LimitQuery = 100,
        after: AfterQuery = None,
    ) -> ProducerPage:
        """A page of the producers for which all of the given filters hold, of the topic or of all its partitions.

        A producer that is there during the whole list is in it once. The list contains no producer whose first opening
        is not durable yet.
        """
        wanted = pb.ListProducersRequest(
            name_prefix=name_prefix, role=role, connected=connected, idle_ms=idle_ms, expires_ms=expires_within_ms
        )
        return await _page(coordination, topic, wanted, limit, _parsed(after))

    @router.get(_ONE, summary="Show a producer", operation_id="get_producer", dependencies=_ALLOWED)
    async def get_producer(topic: TopicPath, producer: ProducerPath) -> list[ProducerDetails]:
        """The producer by topic; of a partitioned topic, one for each partition that has it."""
        return await _described(coordination, topic, producer)

    @router.delete(
        _ONE, summary="Delete a producer", operation_id="delete_producer", status_code=204, dependencies=_ALLOWED
    )
    async def delete_producer(
        topic: TopicPath, producer: ProducerIdPath, caller: CallerOfRequest, force: ForceQuery = False
    ) -> None:
        """Forget a producer with its sequence ids, also one that lives for ever. What it sends again is stored again.

        `conflict` while it is connected, unless forced: then it gets `producer_fenced`. Answered when it is durable. A
        repeat changes nothing, and is answered with `not_found`.
        """
        await coordination.producers.remove(topic, producer, by=caller.role or NO_ROLE, delete=True, force=force)

    @router.post(
        f"{_ALL}/{{producer}}/expire", summary="Expire a producer", operation_id="expire_producer", status_code=204,
        dependencies=_ALLOWED,
    )  # fmt: skip
    async def expire_producer(
        topic: TopicPath, producer: ProducerIdPath, caller: CallerOfRequest, force: ForceQuery = False
    ) -> None:
        """The same as if its time were over now; its program gets `producer_expired`. `conflict` for a producer that
        lives for ever. All else as for a deletion.
        """
        await coordination.producers.remove(topic, producer, by=caller.role or NO_ROLE, delete=False, force=force)

    return router


def _parsed(after: str | None) -> _Place:
    if after is None:
        return _Place(0, 0)
    partition, _, producer_id = after.partition(":")
    if not (is_producer_id(partition) and is_producer_id(producer_id)):
        raise InvalidArgument(f"after={after!r} is no place: use next_after of the page before", field="after")
    return _Place(int(partition), int(producer_id))


async def _page(
    coordination: Coordination, topic: TopicName, wanted: pb.ListProducersRequest, limit: int, begin: _Place
) -> ProducerPage:
    """Partition after partition, until the page is full."""
    count = await coordination.subscriptions.partitions(topic)
    found: list[ProducerView] = []
    last = min(max(1, count), begin.partition + _PARTITIONS_ASKED_MAX)
    for number in range(begin.partition, last):
        each = replace(topic, partition=number) if count else topic
        after = begin.producer_id if number == begin.partition else 0
        try:
            page = await coordination.producers.page(each, wanted, after=after, limit=limit - len(found))
        except TopicNotFound:
            if not count:
                raise
            continue  # a partition that was never used
        found += [_view(each, row) for row in page.producers]
        if page.next_after:
            return ProducerPage(producers=found, next_after=str(_Place(number, page.next_after)))
        if len(found) == limit:
            last = number + 1
            break
    return ProducerPage(producers=found, next_after=str(_Place(last, 0)) if last < count else None)


async def _described(coordination: Coordination, topic: TopicName, producer: str) -> list[ProducerDetails]:
    """Raises NotFound if no partition has it."""

    async def of(each: TopicName) -> dict[str, Any] | None:
        try:
            return await coordination.producers.described(each, producer)
        except TopicNotFound:
            raise
        except NotFound:
            if each == topic:
                raise
            return None  # of a partitioned topic, a producer need not be in each partition

    found = await each_partition(topic, await coordination.subscriptions.partitions(topic), of)
    rows = [(each, row) for each, row in found.items() if row is not None]
    if not rows:
        raise NotFound(f"no partition of {topic} has a producer {producer}: it never had one, or it has expired")
    rows.sort(key=lambda one: one[0].partition or 0)
    return [ProducerDetails.model_validate({"topic": str(each), **row}) for each, row in rows]


def _view(topic: TopicName, row: dict[str, Any]) -> ProducerView:
    return ProducerView.model_validate({"topic": str(topic), **row})
